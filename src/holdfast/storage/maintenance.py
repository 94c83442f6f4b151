"""The operators' commands for a database: upgrade its schema, and check it."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from holdfast.storage.database import Database
from holdfast.storage.driver import Connection
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.schema import newest_version, own_version, steps_from, upgrade

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
