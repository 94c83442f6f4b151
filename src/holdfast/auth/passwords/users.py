"""The file of users with their hashed passwords: a line ``NAME:HASH`` for each, as mosquitto_passwd writes it."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from holdfast.auth.editing import remove_line, replace_lines, set_line
from holdfast.auth.names import is_no_username
from holdfast.auth.passwords.hashes import checked
from holdfast.auth.user_file import InvalidUser, UserFormat, contents, entries, problem
from holdfast.config.toml.file import display_name

#: bytes of the longest name
_LONGEST = 1024


def checked_name(name: str) -> str:
    """Return a name that a user can have. Raises InvalidUser."""
    if is_no_username(name):
        raise InvalidUser("a user name has at least one character, and no control characters")
    if name != name.strip() or name.startswith("#") or ":" in name:
        raise InvalidUser("a user name has no space at its ends, no colon, and no # at its start")
    if len(name.encode()) > _LONGEST:
        raise InvalidUser(f"a user name has at most {_LONGEST} bytes of UTF-8")
    return name


def _parsed(username: str, secret: str) -> tuple[str, str]:
    return checked_name(username), checked(secret)


_FORMAT = UserFormat(_parsed, "create it with: holdfast passwd add FILE USER")


def read(path: Path) -> tuple[dict[str, str], bool]:
    """Return the users with their hashes, and whether everybody on this machine may read them.

    Raises ConfigError with all problems: a line that is not understood would be a user without a password.
    """
    name = display_name(path)
    content, mode = contents(path, name, _FORMAT.advice)
    if mode & stat.S_IWOTH:
        raise problem(name, None, f"every user of this machine may write it; run: chmod o= {name}")
    users = {user: stored for user, stored, _ in entries(content, name, _FORMAT)}
    return users, bool(mode & stat.S_IROTH)


def set_user(path: Path, username: str, stored: str) -> bool:
    """Write a user to a file, and create the file if there is none; False if the user is new. Raises ConfigError."""
    return set_line(path, username, stored, _FORMAT)


def remove_user(path: Path, username: str) -> bool:
    """Remove a user from a file; False if there is no user of this name. Raises ConfigError."""
    return remove_line(path, username, _FORMAT)


def replace_hashes(path: Path, hashes: Mapping[str, tuple[str, str]]) -> None:
    """Replace the hashes of users, each from the old one to the new one. A hash that has changed since stays.

    Raises ConfigError.
    """
    replace_lines(path, hashes, _FORMAT)
