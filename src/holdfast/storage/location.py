"""Where a database is: its URL, the failures that an operator is told, and the lock on a data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from sqlalchemy.engine import URL


# URLs of databases: parsing them, and showing them without their secrets.
#
# The URL of an SQLite file without parameters needs no SQLAlchemy, so neither does a start with such a file.


FORMS = "write sqlite:////absolute/path or postgresql+psycopg://user@host/database"
_FILE = "sqlite:///"
#: Parameters of Postgres that are secrets.
_SECRETS = ("password", "sslpassword")


def file_of(url: str) -> str | None:
    """Return the path of an SQLite file, None if this is not the URL of a file with an absolute path alone."""
    path = unquote(url.removeprefix(_FILE))
    return path if url.startswith(_FILE) and "?" not in url and os.path.isabs(path) else None


def parsed(url: str) -> URL:
    """Parse a URL. Raises :class:`StoreUnusable`; the message does not show the URL, which may contain a password."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    from holdfast.core.units import database_url

    try:
        return make_url(database_url(url))
    except (ArgumentError, ValueError):  # their texts may show the password
        raise StoreUnusable(f"this is not a database URL; {FORMS}; in a password, write %40 for @") from None


def shown(url: str | URL) -> str:
    """Return a URL without its password, also without one in a parameter. Raises :class:`StoreUnusable`."""
    if isinstance(url, str):
        path = file_of(url)
        if path is not None:
            return _FILE + quote(path, safe=" +/")
        url = parsed(url)
    return url.difference_update_query(_SECRETS).render_as_string(hide_password=True)


# The failures of a database that its operator is told. Imports nothing, so that commands can name them cheaply.


class StoreUnusable(Exception):
    """The database cannot be used. The message tells the operator the reason and the remedy."""


class StoreLate(StoreUnusable):
    """The server of the database is not up yet, or not known yet: nothing answers, or it starts. Waiting helps."""


class StoreDamaged(StoreUnusable):
    """The contents of the database are damaged. ``reason`` says how; the message also tells the broker's remedies."""

    def __init__(self, location: object, reason: str, remedy: str) -> None:
        super().__init__(f"{location}: {reason}; {remedy}")
        self.reason = reason


# One process per store: the lock on the data directory.


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
