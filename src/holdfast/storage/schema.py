"""The version of the schema: an empty database gets the schema, a current one is accepted, all others are refused.

Alembic is imported only for an upgrade: a start with a current schema saves its 10 MiB.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from holdfast.storage import tables
from holdfast.storage.database import Database
from holdfast.storage.errors import StoreUnusable

if TYPE_CHECKING:
    from alembic.config import Config

#: The command that upgrades a schema. Callers that know the options for this database add them.
UPGRADE_COMMAND = "holdfast db upgrade"
_VERSION_TABLE = "alembic_version"


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    location = str(files("holdfast.migrations"))
    config.set_main_option("script_location", location.replace("%", "%%"))  # the option is interpolated
    return config


@cache
def _versions() -> tuple[str, ...]:
    """Return all schema versions in their order: the first word of each migration's file name."""
    names = (entry.name for entry in (files("holdfast.migrations") / "versions").iterdir())
    return tuple(sorted(name.partition("_")[0] for name in names if name[0].isdigit()))


def newest_version() -> str:
    """Return the schema version of this program."""
    return _versions()[-1]


def current_version(connection: Connection) -> str | None:
    """Return the database's schema version, None if it has none."""
    if not inspect(connection).has_table(_VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {_VERSION_TABLE}")).scalars()  # noqa: S608 - a constant
    return " and ".join(sorted(found)) or None


def is_current(connection: Connection) -> bool:
    """Tell whether the database has the schema version of this program."""
    return current_version(connection) == newest_version()


def upgrade(connection: Connection) -> None:
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


def own_version(connection: Connection, location: str) -> str | None:
    """Return the schema version of a database that this program can use or upgrade, None for an empty one.

    Raises :class:`StoreUnusable` if the schema is newer than this program, incomplete, or of another program.
    """
    found = set(inspect(connection).get_table_names())
    version = current_version(connection)
    if version is None and not found:
        return None
    if tables.retained.name not in found:
        raise StoreUnusable(f"{location}: belongs to another program; name another database")
    if version is None:
        raise StoreUnusable(
            f"{location}: has tables of the broker but no schema version, so it is not complete; restore a backup"
        )
    if version not in _versions():
        raise StoreUnusable(
            f"{location}: has the schema {version}, which this version does not know (its own is {newest_version()}); "
            f"start the newer version of the broker that wrote it, or restore a backup"
        )
    if version == newest_version():
        found.update(inspect(connection).get_view_names())
        lacking = sorted(_described() - found)
        if lacking:
            raise StoreUnusable(f"{location}: is not complete, it lacks {', '.join(lacking)}; restore a backup")
    return version


def prepare(database: Database, upgrade_command: str = UPGRADE_COMMAND) -> None:
    """Build the schema of an empty database; accept a current one.

    Raises :class:`StoreUnusable` if the schema is older (only an operator upgrades it, with ``upgrade_command``),
    newer, incomplete, or of another program.
    """
    with database.explaining_errors(), database.engine().begin() as connection:
        version = own_version(connection, database.location)
        if version is None:
            upgrade(connection)
        elif version != newest_version():
            raise StoreUnusable(
                f"{database.location}: has the older schema {version}, this is {newest_version()}; "
                f"stop the broker, take a backup and run: {upgrade_command}"
            )


def _described() -> set[str]:
    return {described.name for described in (*tables.metadata.tables.values(), *tables.views.tables.values())}
