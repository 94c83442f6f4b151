"""The version of the schema: an empty database gets the schema, a current one is accepted, all others are refused.

A new database gets the newest schema at once: Postgres from :mod:`holdfast.storage.tables`, an SQLite file from
``migrations/newest.sql``, which is made from the same tables. The migrations are only for databases that exist. A start
reads the version with plain SQL. SQLAlchemy and Alembic are imported only for an upgrade and for Postgres: they cost a
third of a second and 30 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.storage import layouts
from holdfast.storage.database import Database
from holdfast.storage.driver import Connection
from holdfast.storage.location import StoreUnusable

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection as SQLAlchemyConnection

#: The command that upgrades a schema. Callers that know the options for this database add them.
UPGRADE_COMMAND = "holdfast db upgrade"
_VERSION_TABLE = "alembic_version"
#: the folder of the migrations
MIGRATIONS = Path(getattr(find_spec("holdfast.migrations"), "origin", None) or "").parent
#: The schema of this version for a new SQLite file. No statement has a semicolon in it.
NEWEST_SCHEMA = MIGRATIONS / "newest.sql"


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    location = str(MIGRATIONS).replace("%", "%%")  # the option is interpolated
    config.set_main_option("script_location", location)
    return config


@cache
def versions() -> tuple[str, ...]:
    """Return all schema versions in their order: the first word of each migration's file name."""
    names = (entry.name for entry in (MIGRATIONS / "versions").iterdir())
    return tuple(sorted(name.partition("_")[0] for name in names if name[0].isdigit()))


def newest_version() -> str:
    """Return the schema version of this program."""
    return versions()[-1]


def upgrade(connection: SQLAlchemyConnection) -> None:
    """Run the missing migrations in the connection's transaction: all of them, or none."""
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def steps_from(version: str) -> list[tuple[str, str]]:
    """Return the migrations that a database of this version lacks, with their versions and titles."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config()).iterate_revisions(newest_version(), version)
    return [(script.revision, " ".join(script.doc.split())) for script in reversed(list(scripts))]


def own_version(connection: Connection, database: Database) -> str | None:
    """Return the schema version of a database that this program can use or upgrade, None for an empty one.

    Raises :class:`StoreUnusable` if the schema is newer than this program, incomplete, or of another program.
    """
    location = database.location
    found = database.relations(connection)
    if not found:
        return None
    version = _version(connection) if _VERSION_TABLE in found else None
    if layouts.retained.name not in found:
        raise StoreUnusable(f"{location}: belongs to another program; name another database")
    if version is None:
        raise StoreUnusable(
            f"{location}: has tables of the broker but no schema version, so it is not complete; restore a backup"
        )
    if len(version) == len(versions()[0]) and version < versions()[0]:
        raise StoreUnusable(
            f"{location}: has the schema {version}, which this version cannot upgrade; export its retained messages "
            f"with the version of the broker that wrote it, and import them with this one into a new database"
        )
    if version not in versions():
        raise StoreUnusable(
            f"{location}: has the schema {version}, which this version does not know (its own is {newest_version()}); "
            f"start the newer version of the broker that wrote it, or restore a backup"
        )
    if version == newest_version():
        lacking = sorted(_DESCRIBED - found)
        if lacking:
            raise StoreUnusable(f"{location}: is not complete, it lacks {', '.join(lacking)}; restore a backup")
    return version


def prepare(database: Database, upgrade_command: str = UPGRADE_COMMAND) -> None:
    """Build the schema of an empty database; accept a current one.

    Raises :class:`StoreUnusable` if the schema is older (only an operator upgrades it, with ``upgrade_command``),
    newer, incomplete, or of another program.
    """
    with database.explaining_errors():
        if database.remote:
            with database.engine().begin() as connection:
                _prepare(database, connection.connection, upgrade_command)
        else:
            with database.transaction() as file:
                _prepare(database, file, upgrade_command)


def build(connection: Connection, database: Database) -> None:
    """Build the newest schema in an empty database, in the connection's transaction."""
    cursor = connection.cursor()
    for statement in (*_newest(database), *_at(newest_version())):
        cursor.execute(statement)


def _at(version: str) -> Iterable[str]:
    """Return the statements that make Alembic's own table, and its row."""
    key = f"CONSTRAINT {_VERSION_TABLE}_pkc PRIMARY KEY (version_num)"
    yield f"CREATE TABLE {_VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, {key})"
    yield f"INSERT INTO {_VERSION_TABLE} VALUES ('{version}')"  # noqa: S608 - constants


def _newest(database: Database) -> Iterable[str]:
    if database.remote:
        from holdfast.storage.tables import statements

        return statements("postgresql")
    return NEWEST_SCHEMA.read_text().split(";")


def _prepare(database: Database, connection: Connection, upgrade_command: str) -> None:
    version = own_version(connection, database)
    if version is None:
        build(connection, database)
    elif version != newest_version():
        raise StoreUnusable(
            f"{database.location}: has the older schema {version}, this is {newest_version()}; "
            f"stop the broker, take a backup and run: {upgrade_command}"
        )


def _version(connection: Connection) -> str | None:
    cursor = connection.cursor()
    cursor.execute(f"SELECT version_num FROM {_VERSION_TABLE}")  # noqa: S608 - a constant
    return " and ".join(sorted(version for (version,) in cursor.fetchall())) or None


_DESCRIBED = {table.name for table in layouts.TABLES}.union(layouts.VIEWS)
