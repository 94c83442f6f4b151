"""``holdfast scram``: manage the users of the Authentication Method SCRAM-SHA-256."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.commands.common import Failed, json_option, show, show_json
from holdfast.commands.passwd import line_of_stdin, read_password
from holdfast.identity.scram_iterations import DEFAULT_ITERATIONS, ITERATIONS

_FILE = click.argument("file", type=click.Path(path_type=Path))


def _prepared(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    from holdfast.identity.scram import prepared
    from holdfast.identity.user_files import InvalidUser, check_visible

    try:
        check_visible(value)
        return prepared(value)
    except InvalidUser as unusable:
        raise click.BadParameter(str(unusable)) from None


_USERNAME = click.argument("username", callback=_prepared)


@click.group()
def scram() -> None:
    """Manage a file of users of SCRAM-SHA-256.

    A table [authentication.NAME] with type = "scram", or authentication.scram_file, names this file.

    A running broker notices changes of the file by itself. It disconnects users who are removed, or have another
    password.
    """


@scram.command("set")
@_FILE
@_USERNAME
@click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input, up to the end of its line."
)
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS.start, ITERATIONS.stop - 1),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="Higher: each login is more work for the client, and each guess at a password for a thief of the file.",
)
@json_option
def set_password(file: Path, username: str, password_stdin: bool, iterations: int, as_json: bool) -> None:
    """Add a user, or change a user's password. Asks for the password twice on a terminal.

    Without a terminal, or with --password-stdin, it reads one line from standard input.
    """
    from holdfast.identity.scram import new_verifier, set_user
    from holdfast.identity.user_files import InvalidUser

    try:
        verifier = new_verifier(_password(password_stdin), iterations)
        known = set_user(file, username, verifier)
    except InvalidUser as error:
        raise Failed(str(error)) from error
    if as_json:
        show_json({"file": click.format_filename(file), "username": username, "added": not known})
    else:
        show(f"{click.format_filename(file)}: {username} {'has a new password' if known else 'was added'}")


@scram.command("remove")
@_FILE
@_USERNAME
@json_option
def remove(file: Path, username: str, as_json: bool) -> None:
    """Remove a user."""
    from holdfast.identity.scram import remove_user

    if not remove_user(file, username):
        raise Failed(f"{click.format_filename(file)}: there is no user {username}")
    if as_json:
        show_json({"file": click.format_filename(file), "username": username, "removed": True})
    else:
        show(f"{click.format_filename(file)}: {username} was removed")


def _password(from_stdin: bool) -> str:
    try:
        return (line_of_stdin() if from_stdin else read_password(confirmed=True)).decode()
    except UnicodeDecodeError:
        raise Failed("the password is not UTF-8") from None
