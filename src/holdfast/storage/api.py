"""What the pipeline uses of the databases: where one is, its schema, and connections. Imports no Twisted."""

from __future__ import annotations

from holdfast.storage.database import Database, Durability
from holdfast.storage.location import DirectoryUnusable, StoreUnusable, file_of, parsed, shown
from holdfast.storage.maintenance import database_at, open_database
from holdfast.storage.revisions import TIME_SHIFT, time_of
from holdfast.storage.schema import newest_version, own_version, prepare

__all__ = [
    "TIME_SHIFT",
    "Database",
    "DirectoryUnusable",
    "Durability",
    "StoreUnusable",
    "database_at",
    "file_of",
    "newest_version",
    "open_database",
    "own_version",
    "parsed",
    "prepare",
    "shown",
    "time_of",
]
