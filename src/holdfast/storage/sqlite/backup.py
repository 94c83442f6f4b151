"""Copies of an SQLite database, taken while a broker writes to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from holdfast.storage.database import StoreUnusable
from holdfast.storage.sqlite.database import SQLiteDatabase

#: Pages copied at once: some megabytes.
_PAGES = 1000

#: takes how much is done, and of how much
Report = Callable[[int, int], None]


def back_up(database: SQLiteDatabase, target: Path, report: Report) -> None:
    """Copy the database, as it is now, to a file that is not there yet; ``report`` is told of pages.

    The broker may run and write: it is not held up, but its log grows until the copy is complete. The file is there
    under its name when it is complete and on disk. Raises :class:`StoreUnusable`.
    """
    database.check_present()
    if target.exists():
        raise StoreUnusable(f"{target}: is there already; name another file, or move it away")
    unfinished = target.with_name(target.name + ".partial")
    try:
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        with database.explaining_errors():
            _copy(database, unfinished, report)
        _keep(unfinished, target)
    except OSError as error:
        raise StoreUnusable(f"{target}: cannot be written ({error.strerror})") from error
    finally:
        for rest in ("", "-wal", "-shm", "-journal"):
            unfinished.with_name(unfinished.name + rest).unlink(missing_ok=True)


def _copy(database: SQLiteDatabase, path: Path, report: Report) -> None:
    with closing(database.connect_read_only()) as source, closing(sqlite3.connect(path)) as copy:
        # A transaction held open pins what is copied: else each commit of the broker would make it begin again.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        source.backup(copy, pages=_PAGES, progress=lambda _status, left, total: report(total - left, total), sleep=0)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it


def _keep(unfinished: Path, target: Path) -> None:
    """Give a file its name once it is on disk; never the name of another file."""
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    os.link(unfinished, target)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
