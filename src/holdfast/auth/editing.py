"""Changing the file of SCRAM users: one user at a time, all or nothing, whoever else does so at the same moment."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.auth.users_file import contents, entries, problem
from holdfast.auth.verifier import Verifier
from holdfast.config.toml.file import display_name


def set_user(path: Path, username: str, verifier: Verifier) -> bool:
    """Write a user to a file, which is made where there is none; False if the user is new.

    Raises ConfigError where the file cannot be used, and leaves it as it is.
    """
    return _rewrite(path, username, f"{username}:{verifier}")


def remove_user(path: Path, username: str) -> bool:
    """Remove a user from a file; False if there is none of this name. Raises ConfigError."""
    return _rewrite(path, username, None)


def _rewrite(path: Path, username: str, entry: str | None) -> bool:
    """Put an entry in place of a user's, or at the end; None removes it. True if the user was there."""
    name = display_name(path)
    path = Path(os.path.realpath(path))
    try:
        with _alone(path.parent) as folder:
            content = b"" if entry is not None and not path.exists() else contents(path, name)[0]
            places = {user: number - 1 for user, _, number in entries(content, name)}
            place = places.get(username)
            if place is None and entry is None:
                return False
            lines = content.removesuffix(b"\n").split(b"\n") if content else []
            if place is not None:
                del lines[place]
            if entry is not None:
                lines.insert(len(lines) if place is None else place, entry.encode())
            _replace(path, b"".join(line + b"\n" for line in lines))
            os.fsync(folder)
            return place is not None
    except OSError as error:
        raise problem(name, None, f"cannot be written: {error.strerror}") from None


@contextmanager
def _alone(folder: Path) -> Iterator[int]:
    """Wait for other commands that change a file of this folder: each builds on what the one before has written."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    """Write a file as a whole: readers see the old one or the new one, and only its owner may write to it."""
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
    """Leave the owner and, where its group may read it, that group: the broker may run as one of them."""
    try:
        old = path.stat()
    except FileNotFoundError:
        return
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR | (old.st_mode & stat.S_IRGRP))
