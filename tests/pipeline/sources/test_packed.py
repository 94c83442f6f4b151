"""Rows that SQLite joins to a few values become the same Arrow columns as rows that are read one by one."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from holdfast.retained.api import KeyRange
from holdfast_pipeline.database import ReadTransaction
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.columns import RETAINED, batches_of, named, packed_batches

_NAMES = ("topic", "payload", "qos", "client_id", "username", "stored_at", "expires_at", "revision", "properties_json")
_COLUMNS = named(RETAINED, _NAMES)
_SELECTED = ", ".join(column.sql for column in _COLUMNS)
_TEXTS = (None, "", "plain", "a\0b", "\0", "grün,日本\n𝄞", "0", "'\"")
_PAYLOADS = (b"", b"\0", b"\xff\xfe\0", b"1,2\n", b"x" * 300)


@pytest.fixture(name="connection")
def _connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        types = {"payload": "BLOB", "qos": "INTEGER", "stored_at": "", "expires_at": "INTEGER", "revision": "INTEGER"}
        columns = ", ".join(f"{name} {types.get(name, 'TEXT')}" for name in _NAMES)
        connection.execute(f"CREATE TABLE retained ({columns}, PRIMARY KEY (topic)) WITHOUT ROWID")
        yield connection


def put(connection: sqlite3.Connection, *rows: tuple[Any, ...]) -> None:
    connection.executemany(f"INSERT INTO retained VALUES ({', '.join('?' * len(_NAMES))})", rows)


def row(topic: str, **values: Any) -> tuple[Any, ...]:
    known = {"topic": topic, "payload": b"", "qos": 0, "stored_at": 1, "revision": 1, **values}
    return tuple(known.get(name) for name in _NAMES)


def packed(
    connection: sqlite3.Connection, span: KeyRange, where: str, values: tuple[Any, ...] = (), **limits: int
) -> list[pa.RecordBatch]:
    transaction = ReadTransaction(connection, "sqlite")
    return list(packed_batches(transaction, "retained", _COLUMNS, "topic", span, where, values, **limits))


def rows_of(connection: sqlite3.Connection, where: str, values: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    cursor = connection.execute(f"SELECT {_SELECTED} FROM retained WHERE {where} ORDER BY topic", values)
    return [each for batch in batches_of(cursor, _COLUMNS) for each in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(20))
def test_columns_are_those_of_rows_read_one_by_one(connection: sqlite3.Connection, seed: int) -> None:
    """NULL, empty values, U+0000, commas and the largest numbers, in chunks of all sizes, with a condition."""
    chosen = random.Random(seed)
    put(
        connection,
        *(
            row(
                f"{chosen.choice(('a', 'b/ü', 'c'))}/{number}",
                payload=chosen.choice(_PAYLOADS),
                qos=chosen.randrange(3),
                client_id=chosen.choice(_TEXTS),
                username=chosen.choice(_TEXTS) if seed % 2 else None,
                stored_at=chosen.choice((0, 1_700_000_000_000)),
                expires_at=chosen.choice((None, 2**41, 0)) if seed % 3 else (None, 5)[seed % 2],
                revision=chosen.choice((1, 2**63 - 1, -1)),
                properties_json=chosen.choice(_TEXTS),
            )
            for number in range(chosen.randrange(60))
        ),
    )
    limits = {"rows": chosen.choice((1, 2, 7, 1000)), "max_bytes": chosen.choice((1, 100, 1 << 20))}
    span = chosen.choice((KeyRange("", None), KeyRange("b", "c"), KeyRange("a/3", None), KeyRange("x", "y")))
    found = packed(connection, span, "qos >= ?", (1,), **limits)
    inside, bound = "topic >= ? AND (? IS NULL OR topic < ?) AND qos >= ?", (span.low, span.high, span.high, 1)
    assert [each for batch in found for each in batch.to_pylist()] == rows_of(connection, inside, bound)
    for batch in found:
        batch.validate(full=True)
        assert 0 < batch.num_rows <= limits["rows"]


def test_a_batch_ends_before_its_large_columns_are_too_large(connection: sqlite3.Connection) -> None:
    """A row that alone is larger has a batch of its own."""
    sizes = [10, 10, 10, 5_000, 10, 10, 10, 10]
    put(connection, *(row(f"t/{number}", payload=b"p" * size) for number, size in enumerate(sizes)))
    found = packed(connection, KeyRange("", None), "1 = 1", rows=4, max_bytes=40)
    assert [each for batch in found for each in batch.column("topic").to_pylist()] == [f"t/{n}" for n in range(8)]
    assert all(batch.num_rows == 1 or sum(map(len, batch.column("payload").to_pylist())) <= 40 for batch in found)
    assert any(batch.num_rows > 1 for batch in found)


@pytest.mark.parametrize(
    ("column", "sql"),
    [("client_id", "CAST(x'ff' AS TEXT)"), ("stored_at", "1.5"), ("revision", "'now'"), ("revision", "1e300")],
)
def test_a_value_that_no_broker_writes_ends_the_read_in_a_sentence(
    connection: sqlite3.Connection, column: str, sql: str
) -> None:
    """The sentence names the column and the table."""
    put(connection, row("a"), row("b"))
    connection.execute(f"UPDATE retained SET {column} = {sql} WHERE topic = 'a'")
    with pytest.raises(PipelineError, match=f"the column {column} of the table retained has a value that no broker"):
        packed(connection, KeyRange("", None), "1 = 1")
