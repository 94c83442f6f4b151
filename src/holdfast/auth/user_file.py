"""Reading a file of users: a line ``NAME:SECRET`` for each. The form of the secret is the reader's."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from attrs import frozen

from holdfast.config.problems import ConfigError, ConfigProblem
from holdfast.config.toml.file import display_name, read_regular, without_mark
from holdfast.terminal_text import hidden_character

T = TypeVar("T")


class InvalidUser(ValueError):
    """A user name, a password or a secret is invalid. The text gives the reason and the allowed form, and no secret."""


@frozen
class UserFormat(Generic[T]):
    """The form of the lines of one kind of file.

    ``parse`` takes name and secret of a line, and returns the user's name and the parsed secret. It raises InvalidUser.
    ``advice`` says how to create such a file.
    """

    parse: Callable[[str, str], tuple[str, T]]
    advice: str


def check_visible(name: str) -> None:
    """Refuse a name with a character that nobody sees: no client sends it as it was meant. Raises InvalidUser."""
    found = hidden_character(name)
    if found is not None:
        raise InvalidUser(f"a user name has no invisible characters, and this one has {found}; type it anew")


def read_users(path: Path, form: UserFormat[T]) -> dict[str, T]:
    """Return the users of a file that nobody else of this machine may read. Raises ConfigError with all problems."""
    name = display_name(path)
    content, mode = contents(path, name, form.advice)
    if mode & stat.S_IRWXO:
        raise problem(name, None, f"every user of this machine may read or write it; run: chmod o= {name}")
    return {user: secret for user, secret, _ in entries(content, name, form)}


def contents(path: Path, name: str, advice: str) -> tuple[bytes, int]:
    """Return the bytes of a file and its mode. Raises ConfigError: with ``advice``, if there is no file."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        raise problem(name, None, f"there is no such file; {advice}") from None
    except OSError as error:
        raise problem(name, None, f"cannot be read: {error.strerror}") from None


def entries(content: bytes, name: str, form: UserFormat[T]) -> Iterator[tuple[str, T, int]]:
    """Yield each user with its line number. At the end, raises ConfigError with all invalid lines."""
    problems = []
    lines: dict[str, int] = {}
    for number, line in enumerate(without_mark(content).split(b"\n"), 1):
        try:
            entry = _entry(line, form)
            if entry is None:
                continue
            earlier = lines.setdefault(entry[0], number)
            if earlier != number:
                raise InvalidUser(f"the user of line {earlier} again; allowed: one line for each user")
            yield *entry, number
        except InvalidUser as unusable:
            problems.append(ConfigProblem(name, number, "", str(unusable)))
    if problems:
        raise ConfigError(problems)


def file_state(path: Path) -> object:
    """Return a value that changes when the file changes."""
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def gone_or_changed(before: Mapping[str, object], after: Mapping[str, object]) -> frozenset[str]:
    """Return the users of whom there is no such secret any more."""
    return frozenset(user for user, secret in before.items() if after.get(user) != secret)


def problem(name: str, line: int | None, message: str) -> ConfigError:
    """Return the error of a single problem."""
    return ConfigError([ConfigProblem(name, line, "", message)])


def _entry(line: bytes, form: UserFormat[T]) -> tuple[str, T] | None:
    """Parse a line; None for an empty one or a comment. A message never shows the line: it may have a secret."""
    try:
        text = line.decode().strip(" \t\r")
    except UnicodeDecodeError:
        raise InvalidUser("this is not UTF-8; save the file in that encoding") from None
    if not text or text.startswith("#"):
        return None
    username, _, secret = text.partition(":")
    check_visible(username)
    return form.parse(username, secret)
