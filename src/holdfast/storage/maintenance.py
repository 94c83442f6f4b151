"""The operators' commands for a database: upgrade its schema, and check it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from attrs import frozen

from holdfast.storage.database import Database, Durability
from holdfast.storage.driver import Connection
from holdfast.storage.location import FORMS, StoreUnusable, file_of, parsed, shown
from holdfast.storage.schema import newest_version, own_version, steps_from, upgrade
from holdfast.storage.sqlite import SQLiteDatabase

Say = Callable[[str], None]

#: called with the present schema version before an upgrade
Keep = Callable[[str], None]


def upgrade_schema(database: Database, say: Say, keep: Keep | None = None) -> None:
    """Run the missing migrations in one transaction, and report each with ``say``. Raises :class:`StoreUnusable`.

    It fails while a broker uses the database. If there is something to upgrade, ``keep`` is called first, to make a
    backup. After an interruption the database is unchanged and can be upgraded again.
    """
    database.check_present()
    with database.explaining_errors():
        if keep is not None:
            with database.exclusive_engine().begin() as connection:
                version = _found(connection.connection, database)
            if version != newest_version():
                keep(version)
        with database.exclusive_engine().begin() as connection:
            version = _found(connection.connection, database)
            say(
                f"{database.location}: has the schema {version}, "
                f"this version of the broker works with {newest_version()}"
            )
            steps = steps_from(version)
            for revision, title in steps:
                say(f"running {revision}: {title}")
            upgrade(connection)
    say(f"upgraded to {newest_version()}" if steps else "up to date, nothing to do")


def _found(connection: Connection, database: Database) -> str:
    version = own_version(connection, database)
    if version is None:
        raise StoreUnusable(f"{database.location}: is empty; the broker builds the schema when it starts")
    return version


@frozen
class DatabaseCondition:
    """The result of a check."""

    version: str | None
    faults: dict[str, list[str]]

    @property
    def is_current(self) -> bool:
        """Whether this version of the broker starts with it."""
        return self.version == newest_version()

    @property
    def is_sound(self) -> bool:
        """Whether no damage was found."""
        return not any(self.faults.values())


def examine(database: Database) -> DatabaseCondition:
    """Check a database. A broker may use it meanwhile. Raises :class:`StoreUnusable` if it cannot be read."""
    database.check_present()
    with database.explaining_errors():
        with database.reading_engine().begin() as connection:
            version = own_version(connection.connection, database)
        return DatabaseCondition(version, database.find_damage())


# Finds the database of a URL.


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
            from holdfast.storage.postgres import PostgresDatabase  # its driver is an extra
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
