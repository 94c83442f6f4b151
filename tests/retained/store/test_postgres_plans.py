"""Postgres reads retained messages by walking the index, whatever its statistics tell.

After an import or a restore, the statistics are missing or those of another content, until the server renews them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from holdfast.changes.recording import AppendingRecorder
from holdfast.changes.since import SinceSource, count_expired
from holdfast.retained.store.interfaces import NO_RECORDER
from holdfast.retained.store.rows import COLUMNS
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.values import Order, Search, Sorting
from holdfast.storage.driver import Cursor
from holdfast.storage.readers import IReaders
from holdfast.storage.store import DurableStore
from tests.postgres import drop, fresh_database, synchronous
from tests.retained.store.contract import selection, topics_read
from tests.storage.doubles import result_of

_ROWS = 20_000
_FILL = (
    f"INSERT INTO retained ({', '.join(COLUMNS)}) "
    "SELECT topic, number, 5, 0, 1, 0, NULL, 0, NULL, NULL, begin || int2send(CAST(length(topic) AS smallint)), '', "
    "'\\x00', NULL, 'x' FROM (SELECT number, topic, '\\x31'::bytea || set_byte('\\x00', 0, length(topic) + 3) AS begin "
    "FROM (SELECT number, concat(%s::text, '/', number %% 100, '/dev/', number, '/temp') AS topic "
    "FROM generate_series(1, %s) AS number) AS named) AS begun"
)
#: Topic Filters that match few of the topics, in ranges without an end, with two ends, and with patterns.
_SELECTIVE = ("+/7/dev/907/temp", "+/+/dev/907/#", "site/7/dev/907/temp", "site/7/dev/907/#", "site/+/dev/907/+", "t/#")


@contextmanager
def filled(statistics: str) -> Iterator[tuple[SQLRetainedStore, DurableStore]]:
    """Open a store with many messages, written past the broker, in a database with such statistics."""
    url = fresh_database()
    try:
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("ALTER TABLE retained SET (autovacuum_enabled = off)")
            connection.execute("INSERT INTO retained_levels VALUES (5)")
            if statistics == "of another content":
                connection.execute(_FILL.encode(), ("other", 300))
                connection.execute("VACUUM ANALYZE retained")
            connection.execute(_FILL.encode(), ("site", _ROWS))
            if statistics == "present":
                connection.execute("VACUUM ANALYZE retained")
        durable, _ = synchronous(url)
        store = SQLRetainedStore(durable)
        durable.open()
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("UPDATE nodes SET largest_packet = 60")
        try:
            yield store, durable
        finally:
            result_of(durable.close())
    finally:
        drop(url)


def plans_of(readers: IReaders) -> dict[str, Any]:
    """Return the plan of each statement that the reader has prepared, by its text."""
    connection: Any = result_of(readers.read(lambda connection: connection))
    plans = {}
    listed = "SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements WHERE NOT from_sql"
    for name, statement, count in connection.cursor().execute(listed).fetchall():
        values = f"({', '.join(['NULL'] * count)})" if count else ""
        found = connection.cursor().execute(f'EXPLAIN (FORMAT JSON) EXECUTE "{name}"{values}').fetchone()[0]
        plans[statement] = found if isinstance(found, list) else json.loads(found)
    return plans


def nodes_of(plan: Any) -> Iterator[dict[str, Any]]:
    """Yield all nodes of a plan."""
    if isinstance(plan, list):
        for part in plan:
            yield from nodes_of(part)
    elif isinstance(plan, dict):
        if "Node Type" in plan:
            yield plan
        for part in plan.values():
            yield from nodes_of(part)


@pytest.mark.parametrize("statistics", ["missing", "of another content", "present"])
def test_no_statement_reads_or_sorts_the_whole_table(statistics: str) -> None:
    """Each plan reads the table in the order of the index on topics, from the first topic of a range on."""
    with filled(statistics) as (store, durable):
        for topic_filter in _SELECTIVE:
            found = topics_read(store, selection(topic_filter))
            assert found == ([] if topic_filter == "t/#" else ["site/7/dev/907/temp"])
        others = 300 if statistics == "of another content" else 0
        for max_bytes in (3000, 1 << 20):  # with and without reading the lengths first
            assert len(topics_read(store, selection("#"), rows=100, max_bytes=max_bytes)) == _ROWS + others
        assert durable.parts is not None
        for statement, plan in plans_of(durable.parts.readers).items():
            if " retained " in statement:
                nodes = list(nodes_of(plan))
                scans = [node for node in nodes if node.get("Relation Name") == "retained"]
                assert scans, statement
                for node in scans:
                    assert node["Node Type"] in ("Index Scan", "Index Only Scan"), (statement, plan)
                    assert "Index Cond" in node, (statement, plan)
                # The topics that some jumps reached are sorted, and nothing else.
                sorts = [node for node in nodes if node["Node Type"] == "Sort"]
                assert all(node["Plans"][0].get("CTE Name") == "leap" for node in sorts), (statement, plan)


@pytest.mark.parametrize("statistics", ["missing", "of another content", "present"])
def test_no_scan_reads_or_sorts_the_whole_table(statistics: str) -> None:
    """Levels, counts below nodes and parts of searches begin at a topic and walk the index of topics."""
    with filled(statistics) as (store, durable):
        scans = store.scans
        search = Search("site/+/dev/#", 1, least_size=1)
        for _ in range(2):
            assert len(result_of(scans.level("site/", "site/", 256, 1))) == 100
            assert result_of(scans.parents("site/", "site/70", 1)) == []
            counted = result_of(scans.below(["site/7", "site/8"], 150, 1))
            assert [(one.tally.count, one.exact) for one in counted] == [(150, False), (150, False)]
            assert result_of(scans.tally(search, "", 500)).tally.count == 500
            ranked = result_of(scans.rank(search, Sorting(Order.SIZE, True, (1, "site/1")), "", 500, 7))
            assert len(ranked.places) == 7
            assert len(result_of(scans.search(search, "", 500, 9, 9999, False)).entries) == 9
        assert durable.parts is not None
        plans = plans_of(durable.parts.scanners) | plans_of(durable.parts.readers)
        assert len(plans) >= 7
        for statement, plan in plans.items():
            if " retained " in statement:
                nodes = list(nodes_of(plan))
                reads = [node for node in nodes if node.get("Relation Name") == "retained"]
                assert reads, statement
                for node in reads:
                    assert node["Node Type"] in ("Index Scan", "Index Only Scan"), (statement, plan)
                    assert "Index Cond" in node, (statement, plan)


@pytest.mark.parametrize("statistics", ["missing", "of another content", "present"])
def test_changes_since_a_token_are_found_without_reading_the_whole_table(statistics: str) -> None:
    """Changed topics are found by their turn, their rows by topic, and expired messages by their time."""
    with filled(statistics) as (store, durable):

        def change(cursor: Cursor) -> None:
            cursor.execute("INSERT INTO retained_changes_kept VALUES (1, 0, 0)")
            rows = "SELECT turn, concat('site/', turn, '/dev/', turn, '/temp'), 0 FROM generate_series(1, 99) AS turn"
            cursor.execute(f"INSERT INTO retained_changes {rows}")

        result_of(store.ask_writer(change))
        source = SinceSource(store, AppendingRecorder(NO_RECORDER), 90, lambda: None)
        batch = result_of(source.read(selection("#"), "", 1000, 1000, 1 << 20, False))
        assert sum(part.count for part in batch.slices) == 9
        assert result_of(store.scan(partial(count_expired, since=0, now=1, most=10))) == 0
        assert durable.parts is not None
        for statement, plan in plans_of(durable.parts.scanners).items():
            reads = [node for node in nodes_of(plan) if str(node.get("Relation Name")).startswith("retained")]
            for node in reads:
                assert "Index Cond" in node or "kept" in statement, (statement, plan)
                if "expires_at >" in statement:
                    assert node["Index Name"] == "retained_expiry", (statement, plan)


def test_a_plan_is_made_once_for_all_batches() -> None:
    """The server plans no statement anew for the values of a batch, even if it has statistics."""
    with filled("present") as (store, durable):
        for _ in range(2):
            assert len(topics_read(store, selection("#"), rows=100)) == _ROWS
        assert durable.parts is not None
        counted = "SELECT sum(custom_plans), sum(generic_plans) FROM pg_prepared_statements WHERE NOT from_sql"
        connection: Any = result_of(durable.parts.readers.read(lambda connection: connection))
        custom, generic = connection.cursor().execute(counted).fetchone()
        assert custom == 0
        assert generic >= 2 * _ROWS / 100
