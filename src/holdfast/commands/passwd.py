"""``holdfast passwd``: manage a password file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from holdfast.commands.common import Failed, json_option, say, show, show_json
from holdfast.core.terminal import ExitStatus


def _checked(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    from holdfast.identity.hashes import checked_name
    from holdfast.identity.user_files import InvalidUser, check_visible

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
    from holdfast.identity.hashes import HashParameters, new_hash, set_user

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
    from holdfast.identity.hashes import remove_user

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
    from holdfast.identity import hashes
    from holdfast.identity.hashes import read

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
    from holdfast.identity.hashes import kind, read

    users, _ = read(file)
    for user in sorted(users):
        if as_json:
            show_json({"username": user, "hash": kind(users[user])})
        else:
            show(f"{user}  ({kind(users[user])})")


# Asking for a password: on a terminal, or as one line from standard input. It is never an argument.


def read_password(*, confirmed: bool) -> bytes:
    """Return the password. Asks for it on a terminal, twice if it is to be ``confirmed``."""
    if is_terminal():
        answer = click.prompt("Password", hide_input=True, confirmation_prompt=confirmed)
        password = str(answer).encode()
    else:
        password = line_of_stdin()
    if not password:
        raise Failed("a password has at least one character")
    if len(password) > 65535:
        raise Failed("a password in MQTT has at most 65535 bytes")
    return password


def line_of_stdin() -> bytes:
    """Return the first line of standard input, without its end and without the mark of some editors before it."""
    from holdfast.config.toml import without_mark

    return without_mark(sys.stdin.buffer.readline()).removesuffix(b"\n").removesuffix(b"\r")


def is_terminal() -> bool:
    """Tell whether somebody can be asked."""
    return sys.stdin.isatty()
