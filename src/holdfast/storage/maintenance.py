"""What operators do with a database: bring its schema up to date, and see whether it is sound."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen
from sqlalchemy import Connection

from holdfast.storage.database import Database, StoreUnusable
from holdfast.storage.schema import newest_version, own_version, steps_from, upgrade

Say = Callable[[str], None]

#: takes the schema version of a database that is about to be upgraded
Keep = Callable[[str], None]


def upgrade_schema(database: Database, say: Say, keep: Keep | None = None) -> None:
    """Run the migrations the database lacks, all or none, and say so. Raises :class:`StoreUnusable`.

    No broker may use it. ``keep`` is called before anything changes, when there is something to change: to take a
    backup. When this is cut short, the database is as before and can be upgraded again.
    """
    database.check_present()
    with database.explaining_errors():
        if keep is not None:
            with database.exclusive_engine().begin() as connection:
                version = _found(connection, database)
            if version != newest_version():
                keep(version)
        with database.exclusive_engine().begin() as connection:
            version = _found(connection, database)
            say(
                f"{database.location}: has the schema {version}, "
                f"this version of the broker works with {newest_version()}"
            )
            steps = steps_from(version)
            for revision, what in steps:
                say(f"running {revision}: {what}")
            upgrade(connection)
    say(f"upgraded to {newest_version()}" if steps else "up to date, nothing to do")


def _found(connection: Connection, database: Database) -> str:
    version = own_version(connection, database.location)
    if version is None:
        raise StoreUnusable(f"{database.location}: is empty; the broker builds the schema when it starts")
    return version


@frozen
class Condition:
    """How a database was found."""

    version: str | None
    faults: dict[str, list[str]]

    @property
    def is_current(self) -> bool:
        """Whether this version of the broker starts with it."""
        return self.version == newest_version()

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong with its contents."""
        return not any(self.faults.values())


def examine(database: Database) -> Condition:
    """Look at a database, also while a broker runs on it. Raises :class:`StoreUnusable` where that is not possible."""
    database.check_present()
    with database.explaining_errors():
        with database.reading_engine().begin() as connection:
            version = own_version(connection, database.location)
        return Condition(version, database.find_damage())
