"""The database: whether it can be read, its schema, and the version of SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.config import Config
from holdfast.doctor.finding import Finding, advice, problem
from holdfast.storage.database import Durability
from holdfast.storage.engine import database_at
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.schema import newest_version, own_version
from holdfast.storage.sqlite.library import is_mended, verdict
from holdfast.storage.url import shown

#: seconds to wait for a locked file or a server
_PATIENCE = 5.0


def sqlite_version(config: Config) -> Iterator[Finding]:
    """Yield a finding if this process's SQLite may have the WAL-reset bug."""
    if config.storage.url.startswith("sqlite:") and not is_mended():
        yield advice("SQLite", verdict(), "nothing is at risk; with a newer SQLite some commits are faster")


def schema(config: Config) -> Iterator[Finding]:
    """Yield a finding if the database cannot be read, or has another schema. One that does not exist yet is fine."""
    url = config.storage.url
    if url.startswith("sqlite:") and not Path(url.removeprefix("sqlite:///")).exists():
        return
    database = database_at(url, Durability.FULL, 0, _PATIENCE)
    try:
        with database.explaining_errors(), database.reading_engine().begin() as connection:
            version = own_version(connection.connection, database)
    except StoreUnusable as error:
        yield problem(shown(url), str(error).removeprefix(f"{shown(url)}: "), "see docs/operator/faults.md")
        return
    if version not in (None, newest_version()):
        yield problem(
            shown(url),
            f"it has the older schema {version}, so this version of the broker does not start",
            f"stop the broker, take a backup and run: {config.upgrade_command}",
        )
