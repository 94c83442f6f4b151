"""The database of mosquitto's persist-sqlite plugin (version 1 of its schema).

``base_msgs`` has the messages, and ``retains`` the ids of the retained ones. The plugin declares topics and names with
a type that SQLite does not know, so SQLite stores ``007`` as the number 7. They are cast to text, as mosquitto itself
reads them. The database has no time of storing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.retained.formats.file_entry import FileEntry, UnreadableFile
from holdfast.retained.formats.mosquitto_properties import BadProperties, properties_of

MAGIC = b"SQLite format 3\0"
_VERSION = 1
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
_MAJOR = "SELECT major FROM version_info WHERE component = 'database_schema'"
_MESSAGES = (
    "SELECT retains.store_id, base_msgs.store_id, CAST(retains.topic AS TEXT), payload, qos, "
    "CAST(source_id AS TEXT), CAST(source_username AS TEXT), expiry_time, CAST(properties AS TEXT) "
    "FROM retains LEFT JOIN base_msgs ON base_msgs.store_id = retains.store_id"
)
_MESSAGE = (
    "SELECT store_id, store_id, CAST(topic AS TEXT), payload, qos, CAST(source_id AS TEXT), "
    "CAST(source_username AS TEXT), expiry_time, CAST(properties AS TEXT) FROM base_msgs WHERE store_id = ?"
)


def messages(path: Path) -> Iterator[FileEntry]:
    """Yield the retained messages. Raises :class:`UnreadableFile` for another kind of file, or for a damaged one."""
    with opened(path) as connection:
        for columns in connection.execute(_MESSAGES):
            yield _found(*columns)


def message(connection: sqlite3.Connection, number: int) -> FileEntry | None:
    """Return one message, None if it is not there."""
    columns = connection.execute(_MESSAGE, (number,)).fetchone()
    return None if columns is None else _found(*columns)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading. Raises :class:`UnreadableFile`, also for what fails while it is open."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise UnreadableFile("this is not an SQLite database")
    try:
        with closing(_connect(path)) as connection:
            _check(connection)
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:  # UnicodeDecodeError: SQLite quotes damaged names
        raise UnreadableFile(f"this database cannot be read ({error})") from error


def _connect(path: Path) -> sqlite3.Connection:
    """Open the database without writing beside it: the folder may belong to another user.

    With a WAL, the newest messages are there, and SQLite needs it. Without one, "immutable" keeps SQLite from making
    files beside the database.
    """
    in_use = path.with_name(f"{path.name}-wal").exists()
    connection = sqlite3.connect(f"file:{quote(str(path))}?{'mode=ro' if in_use else 'immutable=1'}", uri=True)
    connection.text_factory = lambda data: data.decode(
        errors="surrogateescape"
    )  # a row that is not UTF-8 is one problem
    return connection


def _check(connection: sqlite3.Connection) -> None:
    tables = {name for (name,) in connection.execute(_TABLES)}
    for name in ("base_msgs", "retains"):
        if name not in tables:
            raise UnreadableFile(
                f"this is not a database of mosquitto's persist-sqlite plugin: there is no table {name}"
            )
    version = connection.execute(_MAJOR).fetchone() if "version_info" in tables else None
    if version is not None and version[0] != _VERSION:
        raise UnreadableFile(f"this is version {version[0]} of the plugin's schema; {_VERSION} can be read")


def _found(
    named: Any, there: Any, topic: Any, payload: Any, qos: Any, client: Any, user: Any, expires: Any, properties: Any
) -> FileEntry:
    place = f"store_id {named}"
    if there is None:
        return FileEntry(place, problem="the message that is retained here is not in the file")
    if expires is not None and not isinstance(expires, int):
        return FileEntry(place, problem="expiry_time: is not a whole number of seconds")
    try:
        kept = properties_of(json.loads(properties)) if properties else None
    except BadProperties as error:
        return FileEntry(place, problem=str(error))
    except (ValueError, RecursionError):
        return FileEntry(place, problem="properties: is not JSON")
    return FileEntry(
        place,
        {
            "topic": topic,
            "payload": payload,
            "qos": qos,
            "client_id": client or None,
            "username": user or None,
            "expires_at": expires * 1000 if expires and expires > 0 else None,
            "properties_json": kept,
        },
    )
