"""The schema's version: fresh databases are built, current ones accepted, all others refused with what to do."""

from __future__ import annotations

from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect

from holdfast.storage.database import Database, StoreUnusable


def _config() -> Config:
    config = Config()
    location = str(files("holdfast.migrations"))
    config.set_main_option("script_location", location.replace("%", "%%"))  # the option is interpolated
    return config


def newest_version() -> str:
    """Return the schema version this program works with."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def current_version(connection: Connection) -> str | None:
    """Return the database's schema version, None when it has none."""
    return MigrationContext.configure(connection).get_current_revision()


def is_current(connection: Connection) -> bool:
    """Tell whether the database has the schema version this program works with."""
    return current_version(connection) == newest_version()


def upgrade(connection: Connection) -> None:
    """Run the migrations the database lacks, in the transaction the connection is in: all of them, or none."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def steps_from(version: str) -> list[tuple[str, str]]:
    """Return the migrations a database of this version lacks: the version each leads to, and what it does."""
    scripts = ScriptDirectory.from_config(_config()).iterate_revisions(newest_version(), version)
    return [(script.revision, " ".join(script.doc.split())) for script in reversed(list(scripts))]


def own_version(connection: Connection, location: str) -> str | None:
    """Return the schema version of a database this program can use or upgrade, None for an empty one.

    Raises :class:`StoreUnusable` when it is newer than this program, or somebody else's.
    """
    version = current_version(connection)
    if version is None and inspect(connection).get_table_names():
        raise StoreUnusable(f"{location}: belongs to another program; name another file")
    if version is not None and not _knows(version):
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


def _knows(version: str) -> bool:
    try:
        return ScriptDirectory.from_config(_config()).get_revision(version) is not None
    except CommandError:
        return False
