"""The schema's version: fresh databases are built, current ones accepted, all others refused with what to do.

Alembic is imported where something is upgraded only: a start on a current schema does without its 10 MiB.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from holdfast.storage.database import Database, StoreUnusable

if TYPE_CHECKING:
    from alembic.config import Config

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
    """Return the schema version this program works with."""
    return _versions()[-1]


def current_version(connection: Connection) -> str | None:
    """Return the database's schema version, None when it has none."""
    if not inspect(connection).has_table(_VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {_VERSION_TABLE}")).scalars()  # noqa: S608 - a constant
    return " and ".join(sorted(found)) or None


def is_current(connection: Connection) -> bool:
    """Tell whether the database has the schema version this program works with."""
    return current_version(connection) == newest_version()


def upgrade(connection: Connection) -> None:
    """Run the migrations the database lacks, in the transaction the connection is in: all of them, or none."""
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def steps_from(version: str) -> list[tuple[str, str]]:
    """Return the migrations a database of this version lacks: the version each leads to, and what it does."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config()).iterate_revisions(newest_version(), version)
    return [(script.revision, " ".join(script.doc.split())) for script in reversed(list(scripts))]


def own_version(connection: Connection, location: str) -> str | None:
    """Return the schema version of a database this program can use or upgrade, None for an empty one.

    Raises :class:`StoreUnusable` when it is newer than this program, or somebody else's.
    """
    version = current_version(connection)
    if version is None and inspect(connection).get_table_names():
        raise StoreUnusable(f"{location}: belongs to another program; name another file")
    if version is not None and version not in _versions():
        raise StoreUnusable(
            f"{location}: has the schema {version}, which this version does not know; "
            f"start the newer version of the broker that wrote it, or restore a backup"
        )
    return version


def prepare(database: Database) -> None:
    """Build the schema of an empty database; accept a current one.

    Raises :class:`StoreUnusable` when the schema is older (an operator upgrades it, never a start), newer, or
    somebody else's.
    """
    with database.explained(), database.engine().begin() as connection:
        version = own_version(connection, database.location)
        if version is None:
            upgrade(connection)
        elif version != newest_version():
            raise StoreUnusable(
                f"{database.location}: has the older schema {version}, this is {newest_version()}; "
                f"stop the broker, take a backup and run: holdfast db upgrade"
            )
