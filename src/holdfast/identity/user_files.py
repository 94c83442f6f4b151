"""Files of users: reading their lines, and changing one user at a time."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from attrs import frozen

from holdfast.config.toml import ConfigError, ConfigProblem, display_name, read_regular, without_mark
from holdfast.core.terminal import hidden_character

# Reading a file of users: a line ``NAME:SECRET`` for each. The form of the secret is the reader's.


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


# Changing a file of users: one user at a time, atomically, also when two commands run at once.


def set_line(path: Path, username: str, secret: str, form: UserFormat[T]) -> bool:
    """Write a user to a file, and create the file if there is none; False if the user is new.

    Raises ConfigError if the file cannot be used; then the file is unchanged.
    """
    return _change(path, username, f"{username}:{secret}", form)


def remove_line(path: Path, username: str, form: UserFormat[T]) -> bool:
    """Remove a user from a file; False if there is no user of this name. Raises ConfigError."""
    return _change(path, username, None, form)


def replace_lines(path: Path, secrets: Mapping[str, tuple[str, str]], form: UserFormat[str]) -> None:
    """Replace the secrets of users, each from the old one to the new one; a secret that is not the old one stays.

    Raises ConfigError if the file cannot be used; then the file is unchanged.
    """

    def replaced(lines: list[bytes], found: Mapping[str, tuple[str, int]]) -> list[bytes] | None:
        changed = False
        for username, (old, new) in secrets.items():
            secret, position = found.get(username, ("", 0))
            if secret == old:
                lines[position] = f"{username}:{new}".encode()
                changed = True
        return lines if changed else None

    _rewrite(path, form, replaced)


def _change(path: Path, username: str, entry: str | None, form: UserFormat[T]) -> bool:
    """Replace the entry of a user, or append it; None removes it. Return whether the user was in the file."""
    known = False

    def changed(lines: list[bytes], found: Mapping[str, tuple[T, int]]) -> list[bytes] | None:
        nonlocal known
        known = username in found
        if entry is None and not known:
            return None
        position = found[username][1] if known else len(lines)
        lines[position : position + 1] = [] if entry is None else [entry.encode()]
        return lines

    _rewrite(path, form, changed, creates=entry is not None)
    return known


def _rewrite(
    path: Path,
    form: UserFormat[T],
    change: Callable[[list[bytes], Mapping[str, tuple[T, int]]], list[bytes] | None],
    creates: bool = False,
) -> None:
    """Change the lines of a file. ``change`` gets them, and each user's secret and position in them.

    It returns the new lines, or None if the file stays. ``creates`` allows that there is no file.
    """
    name = display_name(path)
    path = Path(os.path.realpath(path))  # a symbolic link stays: its target is replaced
    try:
        with _locked(path.parent) as folder:
            content = b"" if creates and not path.exists() else contents(path, name, form.advice)[0]
            found = {user: (secret, number - 1) for user, secret, number in entries(content, name, form)}
            lines = change(content.removesuffix(b"\n").split(b"\n") if content else [], found)
            if lines is not None:
                _replace(path, b"".join(line + b"\n" for line in lines))
                os.fsync(folder)  # the folder holds the rename: without this sync, a power loss could undo the rename
    except OSError as error:
        raise problem(name, None, f"cannot be written: {error.strerror}") from None


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Lock a folder against other commands that change a file in it. Each command reads the file after its lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    """Write a file as a whole: readers see the old file or the new one. Only the owner may write to it."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with open(descriptor, "wb") as file:
            _keep_readers(path, file.fileno())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _keep_readers(path: Path, descriptor: int) -> None:
    """Keep the owner, the group and its right to read: the broker may run as this owner or group.

    If root creates the file, it gets the owner and the group of its folder, so that the folder's owner can read it.
    """
    try:
        old = path.stat()
    except FileNotFoundError:
        if os.geteuid() == 0:
            around = path.parent.stat()
            os.fchown(descriptor, around.st_uid, around.st_gid)
        return
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR | (old.st_mode & stat.S_IRGRP))
