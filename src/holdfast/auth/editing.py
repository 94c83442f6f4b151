"""Changing a file of users: one user at a time, atomically, also when two commands run at once."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from holdfast.auth.user_file import UserFormat, contents, entries, problem
from holdfast.config.toml.file import display_name

T = TypeVar("T")


def set_line(path: Path, username: str, secret: str, form: UserFormat[T]) -> bool:
    """Write a user to a file, and create the file if there is none; False if the user is new.

    Raises ConfigError if the file cannot be used; then the file is unchanged.
    """
    return _rewrite(path, username, f"{username}:{secret}", form)


def remove_line(path: Path, username: str, form: UserFormat[T]) -> bool:
    """Remove a user from a file; False if there is no user of this name. Raises ConfigError."""
    return _rewrite(path, username, None, form)


def _rewrite(path: Path, username: str, entry: str | None, form: UserFormat[T]) -> bool:
    """Replace the entry of a user, or append it; None removes it. Return whether the user was in the file."""
    name = display_name(path)
    path = Path(os.path.realpath(path))  # a symbolic link stays: its target is replaced
    try:
        with _locked(path.parent) as folder:
            content = b"" if entry is not None and not path.exists() else contents(path, name, form.advice)[0]
            lines_of = {user: number - 1 for user, _, number in entries(content, name, form)}
            position = lines_of.get(username)
            if position is None and entry is None:
                return False
            lines = content.removesuffix(b"\n").split(b"\n") if content else []
            if position is not None:
                del lines[position]
            if entry is not None:
                lines.insert(len(lines) if position is None else position, entry.encode())
            _replace(path, b"".join(line + b"\n" for line in lines))
            os.fsync(folder)  # the folder holds the rename: without this sync, a power loss could undo the rename
            return position is not None
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
    """Keep the owner, the group and its right to read: the broker may run as this owner or group."""
    try:
        old = path.stat()
    except FileNotFoundError:
        return
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR | (old.st_mode & stat.S_IRGRP))
