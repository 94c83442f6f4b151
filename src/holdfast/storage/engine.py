"""Finds the database of a URL."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.storage.database import Database, Durability
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.sqlite.database import SQLiteDatabase
from holdfast.storage.url import FORMS, file_of, parsed, shown


def database_at(url: str, durability: Durability, node: int = 0, busy_timeout: float = 5.0) -> Database:
    """Return the database at a URL without connecting to it. Raises :class:`StoreUnusable` for any other URL.

    ``node`` is the broker's node id, 0 for tools.
    """
    path = file_of(url)
    if path is not None:
        return SQLiteDatabase(Path(path), durability, busy_timeout)
    found = parsed(url)
    backend = found.get_backend_name()
    if backend == "postgresql":
        try:
            from holdfast.storage.postgres.database import PostgresDatabase  # its driver is an extra
        except ImportError as error:
            raise StoreUnusable(f"Postgres needs a driver ({error}): pip install 'holdfast[postgres]'") from error
        return PostgresDatabase(found, durability, node)
    if backend != "sqlite" or not found.database or not os.path.isabs(found.database):
        raise StoreUnusable(f"{shown(url)!r} is not a store this broker can use; {FORMS}")
    return SQLiteDatabase(Path(found.database), durability, busy_timeout)


def open_database(url: str, durability: Durability, node: int = 0, busy_timeout: float = 5.0) -> Database:
    """Return the database at a URL after checking that it is usable. A missing SQLite file is created.

    Raises :class:`StoreUnusable`. The schema is the task of :mod:`holdfast.storage.schema`.
    """
    database = database_at(url, durability, node, busy_timeout)
    database.check()
    return database
