"""``holdfast passwd``: manage a password file."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.accounts.new_password import read_password
from holdfast.cli.failures import Failed
from holdfast.cli.reporting import json_option, say, show, show_json
from holdfast.exit_status import ExitStatus


def _checked(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    from holdfast.auth.passwords.users import checked_name
    from holdfast.auth.user_file import InvalidUser, check_visible

    try:
        check_visible(value)
        return checked_name(value)
    except InvalidUser as unusable:
        raise click.BadParameter(str(unusable)) from None


_FILE = click.argument("file", type=click.Path(path_type=Path))
_USER = click.argument("user", callback=_checked)


@click.group()
def passwd() -> None:
    """Manage a password file.

    A table [authentication.NAME] with type = "file" names this file.

    A running broker notices changes of the file by itself, and disconnects users who are removed or have another
    password.
    """


@passwd.command()
@_FILE
@_USER
@json_option
def add(file: Path, user: str, as_json: bool) -> None:
    """Add a user, or change a user's password; creates the file if there is none.

    Asks for the password twice on a terminal, and otherwise reads one line from standard input.
    """
    from holdfast.auth.passwords.hashes import HashParameters, new_hash
    from holdfast.auth.passwords.users import set_user

    known = set_user(file, user, new_hash(read_password(confirmed=True), HashParameters()))
    if as_json:
        show_json({"file": click.format_filename(file), "username": user, "added": not known})
    else:
        show(f"{click.format_filename(file)}: {user} {'has a new password' if known else 'was added'}")


@passwd.command()
@_FILE
@_USER
@json_option
def remove(file: Path, user: str, as_json: bool) -> None:
    """Remove a user."""
    from holdfast.auth.passwords.users import remove_user

    if not remove_user(file, user):
        raise Failed(f"{click.format_filename(file)}: there is no user {user}")
    if as_json:
        show_json({"file": click.format_filename(file), "username": user, "removed": True})
    else:
        show(f"{click.format_filename(file)}: {user} was removed")


@passwd.command()
@_FILE
@_USER
@json_option
def verify(file: Path, user: str, as_json: bool) -> None:
    """Tell whether a password is right: status 0 if it is, 3 if it is wrong or there is no such user.

    Asks for the password on a terminal, and otherwise reads one line from standard input.
    """
    from holdfast.auth.passwords import hashes
    from holdfast.auth.passwords.users import read

    stored = read(file)[0].get(user)
    right = stored is not None and hashes.verify(stored, read_password(confirmed=False))
    if as_json:
        show_json({"file": click.format_filename(file), "username": user, "known": stored is not None, "right": right})
    elif right:
        show(f"{click.format_filename(file)}: the password of {user} is right")
    else:
        name = click.format_filename(file)
        say(f"{name}: there is no user {user}" if stored is None else f"{name}: the password of {user} is wrong")
    raise SystemExit(ExitStatus.DONE if right else ExitStatus.FOUND)


@passwd.command("list")
@_FILE
@json_option
def list_users(file: Path, as_json: bool) -> None:
    """List the users, with the kinds of their hashes."""
    from holdfast.auth.passwords.hashes import kind
    from holdfast.auth.passwords.users import read

    users, _ = read(file)
    for user in sorted(users):
        if as_json:
            show_json({"username": user, "hash": kind(users[user])})
        else:
            show(f"{user}  ({kind(users[user])})")
