"""One process per store: the lock on the data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class DirectoryUnusable(Exception):
    """The data directory cannot be used. The message tells the reason and the remedy."""


class DirectoryInUse(DirectoryUnusable):
    """Another process uses the data directory."""


class DirectoryLock:
    """Locks ``holdfast.lock`` in the data directory, and writes this process's id into it.

    The kernel holds the lock (``flock``), so it ends with the process, also after a crash.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "holdfast.lock"
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Create the directory (mode 0700) if necessary, and lock it.

        Raises :class:`DirectoryInUse` if another process has locked it, :class:`DirectoryUnusable` for other errors.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DirectoryUnusable(
                f"the data directory {self.directory} cannot be used: {error.strerror}; "
                "choose another with --data-dir or node.data_dir"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DirectoryInUse(
                f"the data directory {self.directory} is in use by process {holder}; "
                "stop that broker, or choose another with --data-dir"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
