"""Temporary folders that are removed at the end, or by the next command if their owner was killed.

How it works. The owner of ``/tmp/holdfast-snapshot-k3x9`` holds a lock on the file ``owner.lock`` in it. The lock
ends with the process, also after ``kill -9`` and on other hosts. So a folder whose lock can be taken has no owner, and
anybody may remove it. The lock file appears under its name only after it is locked; a folder without it is being made,
and stays. The lock file is removed last: if a removal is interrupted, a later command repeats it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "holdfast-snapshot-"
_LOCK = "owner.lock"


@contextmanager
def temporary_folder(parent: str | None) -> Iterator[Path]:
    """Give a new folder in ``parent`` (by default the system's temporary folder), and remove abandoned ones there.

    Raises OSError if the folder cannot be made.
    """
    remove_abandoned(Path(parent or tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    unnamed = folder / "new.lock"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(folder / _LOCK)
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def remove_abandoned(parent: Path) -> None:
    """Remove the folders whose owners have ended."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.geteuid() or folder.is_symlink():
                continue  # it belongs to another user
            lock = os.open(folder / _LOCK, os.O_RDWR)
        except OSError:
            continue  # another process is making or removing it
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder)
        except BlockingIOError:
            continue  # its owner is running
        finally:
            os.close(lock)


def _remove(folder: Path) -> None:
    with suppress(FileNotFoundError):
        for file in folder.iterdir():
            if file.name == _LOCK:
                continue
            if file.is_dir() and not file.is_symlink():  # a program may have made one there
                shutil.rmtree(file, ignore_errors=True)
            else:
                file.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
