"""What operators do with a database: bring its schema up to date, and see whether it is sound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from attrs import frozen

from holdfast.storage.engine import Database, StoreUnusable
from holdfast.storage.schema import newest_version, own_version, steps_from, upgrade

Say = Callable[[str], None]


def upgrade_schema(database: Database, say: Say) -> None:
    """Run the migrations the database lacks, all or none, and say so. Raises :class:`StoreUnusable`.

    Nobody else may have the file open. When this is cut short, the database is as before and can be upgraded again.
    """
    database.check_present()
    with database.explained(), database.engine(database.connect_alone).begin() as connection:
        version = own_version(connection, database.path)
        if version is None:
            raise StoreUnusable(f"{database.path}: is empty; the broker builds the schema when it starts")
        say(f"{database.path}: has the schema {version}, this version of the broker works with {newest_version()}")
        steps = steps_from(version)
        for revision, what in steps:
            say(f"running {revision}: {what}")
        upgrade(connection)
    say(f"upgraded to {newest_version()}" if steps else "up to date, nothing to do")


@frozen
class Condition:
    """How a database was found."""

    version: str | None
    integrity: list[str]
    foreign_keys: list[str]

    @property
    def is_current(self) -> bool:
        """Whether this version of the broker starts with it."""
        return self.version == newest_version()

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong with its contents."""
        return not self.integrity and not self.foreign_keys


def examine(database: Database) -> Condition:
    """Look at a database, also while a broker runs on it. Raises :class:`StoreUnusable` where that is not possible."""
    database.check_present()
    with database.explained():
        with database.engine(database.connect_onlooker, "BEGIN").begin() as connection:
            version = own_version(connection, database.path)
        with closing(database.connect_onlooker()) as onlooker:
            integrity = [found for (found,) in onlooker.execute("PRAGMA integrity_check") if found != "ok"]
            dangling = [
                f"row {row} of {table} refers to no row of {parent}"
                for table, row, parent, _ in onlooker.execute("PRAGMA foreign_key_check")
            ]
    return Condition(version, integrity, dangling)
