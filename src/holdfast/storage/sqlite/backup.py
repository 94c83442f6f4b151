"""Backups of an SQLite database. A broker may write to it meanwhile."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from holdfast.storage.errors import StoreUnusable
from holdfast.storage.sqlite.database import SQLiteDatabase

#: The number of pages of one step: some megabytes.
_PAGES = 1000

#: called with the number of copied pages and the number of all pages
Report = Callable[[int, int], None]


def back_up(database: SQLiteDatabase, target: Path, report: Report) -> None:
    """Copy the present state of the database to a new file.

    A broker may write meanwhile without delay, but its log grows until the copy is complete. The file gets its name
    when it is complete and synced to disk. Raises :class:`StoreUnusable`.
    """
    database.check_present()
    if target.exists():
        raise StoreUnusable(f"{target}: exists already; name another file, or move this file away")
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
        # An open transaction keeps the snapshot. Without it, each commit of the broker would restart the copy.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        source.backup(copy, pages=_PAGES, progress=lambda _status, left, total: report(total - left, total), sleep=0)
        copy.execute("PRAGMA journal_mode=DELETE")  # a single file, without a log beside it


def _keep(unfinished: Path, target: Path) -> None:
    """Sync a file to disk, then give it its name. An existing file is never replaced."""
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    os.link(unfinished, target)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
