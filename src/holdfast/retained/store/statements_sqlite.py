"""The statements about retained messages, for SQLite. Only this process writes, so nothing is locked."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any

from holdfast.retained.store.rows import COLUMNS, Row, longest_packet, stored_row_size
from holdfast.retained.store.statements import (
    FIRST,
    INSERTED,
    ON_CONFLICT,
    Fragments,
    Leap,
    Statements,
    Totals,
    below,
    stored_size,
)
from holdfast.retained.store.values import Usage
from holdfast.retained.store.wildcards import GLOB, Plan, plan
from holdfast.storage.driver import Cursor, split_in_powers_of_two

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

_PLACES = f"({', '.join('?' * len(COLUMNS))})"
_ADD_LEVELS = "INSERT OR IGNORE INTO retained_levels (levels) SELECT value FROM json_each(?)"
_LEAP = (
    "WITH RECURSIVE leap (topic) AS (SELECT ({first}) UNION ALL "
    "SELECT (SELECT topic FROM retained WHERE topic >= topic_successor(:topic_filter, leap.topic){high} "
    "ORDER BY topic LIMIT 1) FROM leap WHERE leap.topic IS NOT NULL LIMIT :jumps) "
    "SELECT json_group_array(topic), ({first} OFFSET :break_even), ({first} OFFSET :offset) FROM leap"
)
#: The digits of ``details``: the QoS, and 3 more for a message that expires.
_QOS = bytes.maketrans(b"012345", b"\0\1\2\0\1\2")
_EXPIRES = ord("3")

#: The most rows of one statement.
MOST_ROWS = 512
#: SQLite's virtual machine instructions between two looks at the clock: some hundred rows.
_INSTRUCTIONS = 10_000


class SQLiteStatements(Statements):
    """Executes statements in SQLite."""

    pattern_syntax = GLOB
    #: one or two milliseconds, in which the reactor does nothing else
    most_scanned = 8192
    fragments = Fragments(
        empty="x''",
        topic_bytes="topic",
        # length() of a blob reads only the record's header, not the blob.
        topic_length="length(CAST(topic AS BLOB))",
        length="length",
        differs="IS NOT",
        greatest="max",
        among="IN (SELECT value FROM json_each({}))",
        list_of="json_group_array({})",
        # The aggregates keep the order of the subquery: because of its LIMIT, SQLite can neither flatten the subquery
        # nor drop its ORDER BY. Without the CAST, the driver would decode the packets as UTF-8.
        packets="CAST(group_concat(packet, '') AS BLOB)",
        # One digit for each message, and a time only for those that expire: most rows have none to print and to parse.
        details="group_concat(qos + 3 * (expires_at IS NOT NULL), ''), group_concat(expires_at)",
        tuple="json_array({})",
        tuples="json_group_array(json_array({}))",
        for_each="SELECT json_group_array(json(({}))) FROM json_each(:topics) AS item",
        contains="instr(topic, :contains) > 0",
        separator_at="instr({}, '/')",
        lowest="char(1)",
        numbers="group_concat(length)",
        none_longer="",
        # The "+" keeps SQLite from deriving a range from the bound pattern: it would prepare the statement each time.
        matches_pattern="+topic GLOB :pattern",
        lock="",
        lock_free="",
    )

    def __init__(self) -> None:
        self._prepared: Any = None  # the connection that has the function topic_successor

    def bound_list(self, values: Sequence[str]) -> str:
        """Return a JSON array: one parameter for any number of values."""
        return json.dumps(values)

    def list_from(self, value: Any) -> list[Any]:
        """Parse a JSON array."""
        values: list[Any] = json.loads(value)
        return values

    def tuples_from(self, value: Any) -> list[Any]:
        """Parse a JSON array of arrays."""
        values: list[Any] = json.loads(value)
        return values

    def numbers_from(self, value: Any) -> list[int]:
        """Split numbers at the commas."""
        return [] if value is None else list(map(int, value.split(",")))

    def details_from(self, qos: Any, expires_at: Any) -> tuple[bytes, tuple[int, ...]]:
        """Turn digits into bytes, and give the times to the messages that expire."""
        digits = qos.encode()
        if expires_at is None:
            return digits.translate(_QOS), (0,) * len(digits)
        times = map(int, expires_at.split(","))
        return digits.translate(_QOS), tuple(next(times) if digit >= _EXPIRES else 0 for digit in digits)

    @contextmanager
    def interruptible(self, connection: Any, overdue: Callable[[], bool], read_time: float) -> Iterator[None]:
        """Let SQLite ask ``overdue`` regularly."""
        connection.set_progress_handler(overdue, _INSTRUCTIONS)
        try:
            yield
        finally:
            connection.set_progress_handler(None, 0)

    def was_interrupted(self, error: Exception) -> bool:
        """Compare SQLite's error code."""
        return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT

    def begin_search(self, connection: Any) -> None:
        """Give the connection the function for leaps. A search answers ``overdue`` with no, so none is removed here."""
        if connection is not self._prepared:
            connection.create_function("topic_successor", 2, _successor, deterministic=True)
            self._prepared = connection

    def levels_now(self, cursor: Cursor, totals: Totals) -> frozenset[int]:
        """Return the level counts of this process: no other process writes."""
        return totals.levels

    def largest_known_packet(self, totals: Totals) -> int:
        """Return the length of this process: no other process writes."""
        return totals.largest_packet

    def largest_packet_now(self, cursor: Cursor, totals: Totals) -> int:
        """Return the length of this process: no other process writes."""
        return totals.largest_packet

    def leap(self, cursor: Cursor, plan: Plan, bounded: bool, bound: dict[str, Any]) -> Leap:
        """Jump and walk in one statement, which calls back for each jump."""
        cursor.execute(_leap(bounded), {"topic_filter": plan.topic_filter, **bound})
        listed, break_even, end = cursor.fetchone()
        visited = json.loads(listed)
        complete = visited[-1] is None
        return Leap(visited[:-1] if complete else visited, complete, break_even, end)

    def write(self, cursor: Cursor, rows: Sequence[Row], node: int, change: Totals) -> None:
        """Write rows. A stored row of the same or a higher revision is not replaced."""
        for part in split_in_powers_of_two(rows, MOST_ROWS):
            cursor.execute(_replaced(len(part)), [row.topic for row in part])
            count, size, highest = cursor.fetchone()
            if highest >= min(row.revision for row in part):
                newer = _winners(cursor, part)
                change.lost |= {row.topic for row in part} - {row.topic for row in newer}
                for winners in split_in_powers_of_two(newer, MOST_ROWS):
                    self.write(cursor, winners, node, change)
                continue
            cursor.execute(_upsert(len(part)), list(chain.from_iterable(part)))
            change.add(
                Totals(
                    len(part) - sum(row.tombstone for row in part) - count,
                    sum(map(stored_row_size, part)) - size,
                    max(map(longest_packet, part)),
                    frozenset(row.levels for row in part),
                )
            )
            if change.written is not None:
                change.written += part

    def add_levels(self, cursor: Cursor, levels: Collection[int]) -> None:
        """Record level counts."""
        cursor.execute(_ADD_LEVELS, (json.dumps(sorted(levels)),))

    def usages(self, cursor: Cursor, query: str, bound: Any) -> dict[str, Usage]:
        """Read all rows as one JSON array."""
        cursor.execute(f"SELECT json_group_array(json_array(topic, size, client_id, username)) FROM ({query})", bound)
        return {topic: Usage(1, *rest) for topic, *rest in json.loads(cursor.fetchone()[0])}


def _successor(topic_filter: str, topic: str) -> str | None:
    return plan(topic_filter).successor(topic)


@lru_cache
def _leap(bounded: bool) -> str:
    return _LEAP.format(first=FIRST.format(high=below(bounded)), high=below(bounded))


@lru_cache
def _upsert(rows: int) -> str:
    return f"INSERT INTO retained ({INSERTED}) VALUES {', '.join([_PLACES] * rows)} {ON_CONFLICT}"


@lru_cache
def _replaced(rows: int) -> str:
    """Select, for this number of topics, the number of messages, their bytes, and the highest revision."""
    size = stored_size(SQLiteStatements.fragments)
    return (
        f"SELECT count(*) - coalesce(sum(tombstone), 0), coalesce(sum(CASE tombstone WHEN 0 THEN {size} END), 0), "
        "coalesce(max(revision), -1) "
        f"FROM retained WHERE topic IN ({', '.join('?' * rows)})"
    )


@lru_cache
def _revisions(rows: int) -> str:
    return f"SELECT topic, revision FROM retained WHERE topic IN ({', '.join('?' * rows)})"


def _winners(cursor: Cursor, rows: Sequence[Row]) -> list[Row]:
    """Leave out rows that lose to a stored row: the totals must not count them."""
    cursor.execute(_revisions(len(rows)), [row.topic for row in rows])
    stored = dict(cursor.fetchall())
    return [row for row in rows if row.revision > stored.get(row.topic, -1)]
