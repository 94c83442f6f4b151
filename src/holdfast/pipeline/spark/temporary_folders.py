"""Temporary folders that belong to a run, and go with it: at its end, or where it was killed, with the next run."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "holdfast-snapshot-"
#: Held by the owner as long as it lives, whatever becomes of it and on whichever host it is.
_LOCK = "owner.lock"
#: How often a folder may be swept by others before its lock is held.
_ATTEMPTS = 10


@contextmanager
def owned_folder(parent: str | None) -> Iterator[Path]:
    """Give a new folder in ``parent`` (the system's temporary folder by default); sweep there what the dead have left.

    Raises OSError where there can be none.
    """
    sweep(Path(parent or tempfile.gettempdir()))
    place, lock = _made(parent)
    try:
        yield place
    finally:
        _remove(place)
        os.close(lock)


def sweep(parent: Path) -> None:
    """Remove the folders whose owners are dead."""
    for place in parent.glob(f"{_PREFIX}*"):
        try:
            if place.lstat().st_uid != os.geteuid() or place.is_symlink():
                continue  # another user's
            lock = os.open(place / _LOCK, os.O_RDWR)
        except OSError:
            continue  # it is just being made or removed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(place)
        except BlockingIOError:
            continue  # its owner lives
        finally:
            os.close(lock)


def _made(parent: str | None) -> tuple[Path, int]:
    for _ in range(_ATTEMPTS):
        place = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (place / _LOCK).exists():
                return place, lock
        os.close(lock)  # one that sweeps was here between the two steps
    raise BlockingIOError(f"{parent}: a new folder is not left alone")


def _remove(place: Path) -> None:
    """Remove a folder, the lock last: a sweep that is cut short is taken up by the next one."""
    with suppress(FileNotFoundError):
        for each in place.iterdir():
            if each.name != _LOCK:
                each.unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)
