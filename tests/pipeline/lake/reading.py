"""The rows that a synced folder must have, from the database, and those that it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from holdfast_pipeline import Source
from holdfast_pipeline.output.iceberg import sql_catalog
from tests.pipeline.stores import Filled

Rows = list[dict[str, Any]]

_HISTORY = (
    "SELECT seq, op, topic, payload, qos, client_id, username, origin, changed_at, expires_at, size, revision, "
    "properties_json FROM retained_history_events ORDER BY seq"
)
_RETAINED = (
    "SELECT topic, payload, qos, client_id, username, stored_at, expires_at, size, revision, properties_json "
    "FROM retained_messages ORDER BY topic"
)
_TELEMETRY = (
    "SELECT seq, topic, payload, qos, client_id, username, received_at, expires_at, size, properties_json "
    "FROM telemetry_messages ORDER BY seq"
)
_TIMES = ("changed_at", "expires_at", "stored_at", "received_at")


def expected(filled: Filled) -> tuple[Rows, Rows]:
    """Return the history and the retained messages, as the broker's own views tell them."""
    with Source(filled.url).transaction() as transaction:
        return _rows(transaction, _HISTORY), _rows(transaction, _RETAINED)


def in_tables(out: Path | str, **storage: Any) -> tuple[Rows, Rows]:
    """Return the rows of ``changes`` by ``seq``, and of ``current`` by topic, read by Delta's own package."""
    changes, current = (DeltaTable(f"{out}/{name}").to_pyarrow_table() for name in ("changes", "current"))
    assert changes["date"].to_pylist() == [at.date() for at in changes["changed_at"].to_pylist()]
    return plain(changes.drop(["date"]), "seq"), plain(current.drop(["seq"]), "topic")


def in_iceberg(out: Path | str, catalog: str | None = None, namespace: str = "holdfast") -> tuple[Rows, Rows]:
    """Return the same of Iceberg tables, read by PyIceberg through the catalogue."""
    known = sql_catalog(catalog or f"sqlite:///{out}/catalog.db")
    changes, current = (known.load_table(f"{namespace}.{name}").scan().to_arrow() for name in ("changes", "current"))
    assert changes["date"].to_pylist() == [at.date() for at in changes["changed_at"].to_pylist()]
    return plain(changes.drop(["date"]), "seq"), plain(current.drop(["seq"]), "topic")


def recorded_in(filled: Filled) -> Rows:
    """Return the telemetry, as the broker's own view tells it."""
    with Source(filled.url).transaction() as transaction:
        return _rows(transaction, _TELEMETRY)


def telemetry_in(out: Path | str) -> Rows:
    """Return the rows of ``telemetry`` by ``seq``, read by Delta's own package."""
    table = DeltaTable(f"{out}/telemetry").to_pyarrow_table()
    assert table["date"].to_pylist() == [at.date() for at in table["received_at"].to_pylist()]
    return plain(table.drop(["date"]), "seq")


def plain(table: pa.Table, order: str) -> Rows:
    """Return rows in an order, with their times in milliseconds since the epoch."""
    for name in set(_TIMES) & set(table.column_names):
        place = table.column_names.index(name)
        table = table.set_column(place, name, table[name].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()))
    rows: Rows = table.to_pylist()
    return sorted(rows, key=lambda row: row[order])


def _rows(transaction: Any, statement: str) -> Rows:
    names = statement.removeprefix("SELECT ").partition(" FROM ")[0].split(", ")
    return [
        {name: bytes(value) if name == "payload" else value for name, value in zip(names, row, strict=True)}
        for row in transaction.rows(statement)
    ]
