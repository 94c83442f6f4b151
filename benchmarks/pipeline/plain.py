"""The same work in plain Python: rows from sqlite3 or psycopg as Arrow batches, in one process."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pyarrow as pa
from sqlalchemy.engine import make_url

_ROWS = 10_000
RETAINED = (
    "SELECT topic, payload, qos, client_id, username, stored_at, expires_at, size, revision, properties_json "
    "FROM retained WHERE tombstone = 0"
)
HISTORY = "SELECT * FROM retained_history ORDER BY seq"
#: The last entry of each topic.
LATEST = "SELECT * FROM retained_history WHERE seq IN (SELECT max(seq) FROM retained_history GROUP BY topic)"
_TABLE = "CREATE TABLE copied (topic {text} PRIMARY KEY, payload {blob}, qos INT, stored_at BIGINT)"


def batches(url: str, statement: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a statement as Arrow batches."""
    for names, rows in _found(url, statement):
        arrays = [pa.array(column) for column in zip(*rows, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names)


def read(url: str, statement: str) -> int:
    """Read all rows of a statement; return their number."""
    return sum(batch.num_rows for batch in batches(url, statement))


def copy(source: str, target: str) -> None:
    """Copy all messages of a database to a table in another one, in one transaction."""
    statement = "SELECT topic, payload, qos, stored_at FROM retained"
    if target.startswith("sqlite"):
        with closing(sqlite3.connect(target.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("DROP TABLE IF EXISTS copied")
            connection.execute(_TABLE.format(text="TEXT", blob="BLOB"))
            for _, rows in _found(source, statement):
                connection.executemany("INSERT INTO copied VALUES (?, ?, ?, ?)", rows)
        return
    with psycopg.connect(_libpq(target)) as postgres, postgres.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS copied")
        cursor.execute(_TABLE.format(text='TEXT COLLATE "C"', blob="BYTEA").encode())
        with cursor.copy("COPY copied FROM STDIN (FORMAT BINARY)") as into:
            into.set_types(("text", "bytea", "int4", "int8"))
            for _, rows in _found(source, statement):
                for row in rows:
                    into.write_row(row)


def _found(url: str, statement: str) -> Iterator[tuple[list[str], list[tuple[object, ...]]]]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(f"file:{url.removeprefix('sqlite:///')}?mode=ro", uri=True)) as connection:
            found = connection.execute(statement)
            while rows := found.fetchmany(_ROWS):
                yield [column[0] for column in found.description], rows
        return
    with psycopg.connect(_libpq(url)) as postgres, postgres.cursor("bench", binary=True) as cursor:
        cursor.itersize = _ROWS
        cursor.execute(statement.encode())
        while rows := cursor.fetchmany(_ROWS):
            yield [column.name for column in cursor.description or ()], rows


def _libpq(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
