"""Bringing the schema of a database up to date, after a backup."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from holdfast.cli.progress import progress
from holdfast.config import Config
from holdfast.storage.database import Durability
from holdfast.storage.engine import database_at
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.lock import DirectoryLock
from holdfast.storage.maintenance import upgrade_schema
from holdfast.storage.sqlite.backup import back_up
from holdfast.storage.sqlite.database import SQLiteDatabase

#: seconds to wait while another process has the database locked
LOCK_TIMEOUT = 1.0

Say = Callable[[str], None]


def upgrade_database(config: Config, say: Say, *, with_backup: bool) -> list[Path]:
    """Upgrade the database of a stopped broker; report each step, and return the copies made before.

    Raises StoreUnusable or DirectoryUnusable; then the database is unchanged.
    """
    database = database_at(config.storage.url, Durability.FULL, 0, LOCK_TIMEOUT)
    database.check_present()
    lock = DirectoryLock(config.data_dir)
    if config.data_dir.is_dir():  # a broker always makes its data directory
        lock.acquire()
    try:
        if with_backup and isinstance(database, SQLiteDatabase):
            return _upgrade_with_backup(database, say)
        upgrade_schema(database, say)
        return []
    finally:
        lock.release()


def _upgrade_with_backup(database: SQLiteDatabase, say: Say) -> list[Path]:
    """Make a copy of the database and upgrade it. If the upgrade fails, delete the copy."""
    copies: list[Path] = []

    def keep(version: str) -> None:
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        copy = database.path.with_name(f"{database.path.name}.schema-{version}.{moment}")
        try:
            with progress("copying", None) as report:
                back_up(database, copy, report)
        except StoreUnusable as error:
            raise StoreUnusable(
                f"no backup could be made, so nothing was changed: {error}. To make one elsewhere, run "
                "holdfast db backup, then holdfast db upgrade --no-backup"
            ) from error
        copies.append(copy)

    try:
        upgrade_schema(database, say, keep)
    except StoreUnusable:
        for copy in copies:
            copy.unlink()
        raise
    return copies
