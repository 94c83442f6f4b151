"""The SQL of retained messages, for SQLite: each text built once per shape and prepared once per connection.

A run of packets comes as one aggregate row: Python's driver gives up and takes back its interpreter lock for every
row it steps over, and one row is one step.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any

from holdfast.retained.store.rows import COLUMNS, MESSAGE_COLUMNS, Row, longest_packet
from holdfast.retained.store.statements import Check, Found, Leap, Totals
from holdfast.retained.store.values import Usage
from holdfast.retained.wildcards.plan import JUST_AFTER, Plan, plan
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.bulk import split_in_powers_of_two

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

_PACKET = {False: "prefix3 || topic || payload", True: "prefix5 || topic || properties5 || payload"}
# Of a blob, length() reads the record's header only; size stands for the payload.
_LENGTH = {
    False: "length(prefix3) + length(CAST(topic AS BLOB)) + size",
    True: "length(prefix5) + length(CAST(topic AS BLOB)) + length(properties5) + size",
}
_COLUMNS = ", ".join(COLUMNS)
_PLACES = f"({', '.join('?' * len(COLUMNS))})"
_REPLACED = ", ".join(f"{column} = excluded.{column}" for column in COLUMNS[1:])
_GONE = (
    "tombstone = 1, qos = 0, size = 0, expires_at = NULL, client_id = NULL, username = NULL, "
    "properties_json = NULL, prefix3 = x'', prefix5 = x'', properties5 = x'', payload = x''"
)
_WEIGHT = {False: "length(CAST(topic AS BLOB)) + length(properties5)", True: _LENGTH[True]}
_ENTRY = {
    False: ", ".join(MESSAGE_COLUMNS).replace("payload", "x''") + ", size",
    True: ", ".join(MESSAGE_COLUMNS) + ", size",
}
_STANDING = f"SELECT {_ENTRY[False]}, tombstone FROM retained WHERE topic IN (SELECT value FROM json_each(?))"
_GET = f"SELECT {', '.join(MESSAGE_COLUMNS)} FROM retained WHERE topic = ? AND tombstone = 0"
_LEVELS = "SELECT json_group_array(levels) FROM retained_levels"
_EXPIRED = (
    "SELECT json_group_array(topic), coalesce(sum(size), 0) FROM (SELECT topic, size FROM retained "
    "WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?)"
)
_BURY = (
    f"UPDATE retained SET {_GONE}, stored_at = :now, revision = max(revision, :revision) "
    "WHERE topic IN (SELECT value FROM json_each(:topics))"
)
_PURGE = (
    "DELETE FROM retained WHERE topic IN "
    "(SELECT topic FROM retained WHERE tombstone = 1 AND stored_at < ? ORDER BY stored_at LIMIT ?)"
)
_HELD = (
    "SELECT json_group_array(json_array(topic, size, client_id)) FROM retained "
    "WHERE tombstone = 0 AND topic IN (SELECT value FROM json_each(?))"
)
_RUN = (
    "SELECT json_group_array(json_array(topic, size, client_id)) FROM (SELECT topic, size, client_id FROM retained "
    "WHERE tombstone = 0 AND topic >= :low{high} ORDER BY topic LIMIT :limit)"
)
_COUNTED = (
    "SELECT scope, counted_to FROM retained_usage WHERE subject = '' AND scope IN (SELECT value FROM json_each(?))"
)
_END_OF_RUN = "SELECT topic FROM retained WHERE topic >= ? ORDER BY topic LIMIT 1 OFFSET ?"
_CAP_EXPIRY = (
    "UPDATE retained SET expires_at = stored_at + :lifetime WHERE topic >= :low AND (:end IS NULL OR topic <= :end) "
    "AND tombstone = 0 AND (expires_at > stored_at + :lifetime OR (:never AND expires_at IS NULL)) "
    "RETURNING topic"
)
_FROM = "SELECT topic FROM retained WHERE topic >= :low{high} ORDER BY topic LIMIT 1"
_LEAP = (
    "WITH RECURSIVE leap (topic) AS (SELECT ({first}) UNION ALL "
    "SELECT (SELECT topic FROM retained WHERE topic >= topic_successor(:topic_filter, leap.topic){high} "
    "ORDER BY topic LIMIT 1) FROM leap WHERE leap.topic IS NOT NULL LIMIT :jumps) "
    "SELECT json_group_array(topic), ({first} OFFSET :par), ({first} OFFSET :offset) FROM leap"
)
_TOPICS = (
    "SELECT json_group_array(topic) FROM "
    "(SELECT topic FROM retained WHERE topic >= :low{high} AND tombstone = 0 ORDER BY topic)"
)
_QOS = bytes.maketrans(b"012", b"\0\1\2")

#: The most rows of one statement.
MOST_ROWS = 512
#: Virtual machine instructions between two looks at the clock: some hundred rows.
_INSTRUCTIONS = 10_000


class SQLiteStatements:
    """Asks SQLite."""

    def __init__(self) -> None:
        self._taught: Any = None  # the connection that knows our function

    def rows_at_once(self, rows: int, slice_rows: int) -> int:
        """Ask slice by slice: a statement costs next to nothing, and each is one blob as it is."""
        return slice_rows

    @contextmanager
    def interruptible(self, connection: Any, impatient: Callable[[], bool], read_time: float) -> Iterator[None]:
        """Look at the clock every now and then."""
        connection.set_progress_handler(impatient, _INSTRUCTIONS)
        try:
            yield
        finally:
            connection.set_progress_handler(None, 0)

    def be_patient(self, connection: Any) -> None:
        """Teach a connection what a search needs. Whoever is patient says so when asked."""
        if connection is not self._taught:
            connection.create_function("topic_successor", 2, _successor, deterministic=True)
            self._taught = connection

    def was_interrupted(self, error: Exception) -> bool:
        """Tell whether a statement was broken off."""
        return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT

    def levels_now(self, cursor: Cursor, totals: Totals) -> frozenset[int]:
        """Return what this process knows: nobody else writes."""
        return totals.levels

    def levels(self, cursor: Cursor) -> frozenset[int]:
        """Read the level counts."""
        cursor.execute(_LEVELS)
        return frozenset(json.loads(cursor.fetchone()[0]))

    def get(self, cursor: Cursor, topic: str) -> tuple[Any, ...] | None:
        """Read one message."""
        cursor.execute(_GET, (topic,))
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row

    def check_of(self, plan: Plan, levels_present: frozenset[int]) -> Check | None:
        """Check by level counts and GLOB patterns."""
        if plan.levels is None:
            return "", {}
        if plan.counted:
            return (" AND levels = :levels" if plan.exact else " AND levels >= :levels"), {"levels": len(plan.levels)}
        terms = plan.terms(levels_present)
        if terms is None:
            return None
        if not terms:
            return " AND 0", {}
        # The "+" keeps SQLite from deriving a range from the bound pattern, for which it would prepare anew each time.
        alternatives = [f"levels = :levels{number} AND +topic GLOB :glob{number}" for number in range(len(terms))]
        bound: dict[str, Any] = {}
        for number, term in enumerate(terms):
            bound[f"levels{number}"] = term.levels
            bound[f"glob{number}"] = term.pattern
        return f" AND ({' OR '.join(alternatives)})", bound

    def listed(self, topics: Sequence[str]) -> Check:
        """Name the topics in a JSON array."""
        return " AND topic IN (SELECT value FROM json_each(:listed))", {"listed": json.dumps(topics)}

    def conditions(self, bounded: bool, no_local: bool, limited: bool, version5: bool, check: str) -> str:
        """Say which rows are wanted."""
        return _conditions(bounded, no_local, limited, version5, check)

    def window(self, cursor: Cursor, bounded: bool, bound: dict[str, Any]) -> str | None:
        """Walk."""
        cursor.execute(_window(bounded), bound)
        end: str | None = cursor.fetchone()[0]
        return end

    def leap(self, cursor: Cursor, plan: Plan, bounded: bool, bound: dict[str, Any]) -> Leap:
        """Jump and walk in one step; where to jump is asked back."""
        cursor.execute(_leap(bounded), {"topic_filter": plan.topic_filter, **bound})
        listed, par, end = cursor.fetchone()
        visited = json.loads(listed)
        complete = visited[-1] is None
        return Leap(visited[:-1] if complete else visited, complete, par, end)

    def topics(self, cursor: Cursor, bounded: bool, bound: dict[str, Any]) -> list[str]:
        """List topics as one JSON array."""
        cursor.execute(_TOPICS.format(high=_high(bounded)), bound)
        topics: list[str] = json.loads(cursor.fetchone()[0])
        return topics

    def lengths(self, cursor: Cursor, conditions: str, version5: bool, bound: dict[str, Any]) -> list[int]:
        """Read lengths as one text."""
        return _numbers_of(cursor, _lengths(conditions, _LENGTH[version5]), bound)

    def read(
        self, cursor: Cursor, conditions: str, version5: bool, detailed: bool, bound: dict[str, Any]
    ) -> Found | None:
        """Read a run of packets."""
        cursor.execute(_read(conditions, version5, detailed), bound)
        row = cursor.fetchone()
        if not row[1]:
            return None
        if not detailed:
            return Found(*row)
        last, length, packets, soonest, qos, expires_at = row
        return Found(
            last, length, packets, soonest, qos.encode().translate(_QOS), tuple(map(int, expires_at.split(",")))
        )

    def weights(self, cursor: Cursor, conditions: str, payloads: bool, bound: dict[str, Any]) -> list[int]:
        """Read weights as one text."""
        return _numbers_of(cursor, _lengths(conditions, _WEIGHT[payloads]), bound)

    def entries(self, cursor: Cursor, conditions: str, payloads: bool, bound: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Read messages as rows."""
        cursor.execute(_entries(conditions, payloads), bound)
        return list(cursor.fetchall())

    def standing(self, cursor: Cursor, topics: Sequence[str]) -> list[tuple[Any, ...]]:
        """Read how topics stand."""
        cursor.execute(_STANDING, (json.dumps(topics),))
        return list(cursor.fetchall())

    def write(self, cursor: Cursor, rows: Sequence[Row], node: int, change: Totals) -> None:
        """Write rows; a stored row of the same or a higher revision stays as it is."""
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
                    sum(row.size for row in part) - size,
                    max(map(longest_packet, part)),
                    frozenset(row.levels for row in part),
                )
            )

    def add_levels(self, cursor: Cursor, levels: Collection[int]) -> None:
        """Record level counts."""
        cursor.execute(_add_levels(len(levels)), list(levels))

    def held(self, cursor: Cursor, topics: Sequence[str]) -> dict[str, Usage]:
        """Read sizes and Clients."""
        cursor.execute(_HELD, (json.dumps(topics),))
        return _usages(cursor.fetchone()[0])

    def held_between(self, cursor: Cursor, low: str, high: str | None, limit: int) -> dict[str, Usage]:
        """Read a run of sizes and Clients."""
        bound = {"low": low, "limit": limit, **({} if high is None else {"high": high})}
        cursor.execute(_RUN.format(high=_high(high is not None)), bound)
        return _usages(cursor.fetchone()[0])

    def counted(self, cursor: Cursor, scopes: Sequence[str]) -> dict[str, str | None]:
        """Read how far; nobody else writes."""
        cursor.execute(_COUNTED, (json.dumps(scopes),))
        return dict(cursor.fetchall())

    def cap_expiry(
        self, cursor: Cursor, lifetime: int, never_too: bool, after: str, limit: int
    ) -> tuple[str | None, list[str]]:
        """Look at a run of topics, and change what expires too late."""
        low = after + JUST_AFTER if after else ""
        cursor.execute(_END_OF_RUN, (low, limit - 1))
        row = cursor.fetchone()
        end: str | None = None if row is None else row[0]
        cursor.execute(_CAP_EXPIRY, {"low": low, "end": end, "lifetime": lifetime, "never": int(never_too)})
        return end, [topic for (topic,) in cursor.fetchall()]

    def expired(self, cursor: Cursor, now: int, limit: int) -> tuple[list[str], int]:
        """Find what has expired, in one step."""
        cursor.execute(_EXPIRED, (now, limit))
        topics, size = cursor.fetchone()
        return json.loads(topics), size

    def bury(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Make tombstones, in one step."""
        cursor.execute(_BURY, {"now": now, "revision": revision, "topics": json.dumps(topics)})

    def purge(self, cursor: Cursor, before: int, limit: int) -> int:
        """Delete tombstones, in one step."""
        cursor.execute(_PURGE, (before, limit))
        return cursor.rowcount


def _usages(listed: str) -> dict[str, Usage]:
    return {topic: Usage(1, size, client_id) for topic, size, client_id in json.loads(listed)}


@lru_cache
def _upsert(rows: int) -> str:
    return (
        f"INSERT INTO retained ({_COLUMNS}) VALUES {', '.join([_PLACES] * rows)} "
        f"ON CONFLICT (topic) DO UPDATE SET {_REPLACED} WHERE excluded.revision > retained.revision"
    )


@lru_cache
def _replaced(rows: int) -> str:
    """Of so many topics: how many are live, their bytes, and the highest revision among them."""
    return (
        "SELECT count(*) - coalesce(sum(tombstone), 0), coalesce(sum(size), 0), coalesce(max(revision), -1) "
        f"FROM retained WHERE topic IN ({', '.join('?' * rows)})"
    )


@lru_cache
def _revisions(rows: int) -> str:
    return f"SELECT topic, revision FROM retained WHERE topic IN ({', '.join('?' * rows)})"


@lru_cache
def _add_levels(count: int) -> str:
    return f"INSERT OR IGNORE INTO retained_levels (levels) VALUES {', '.join(['(?)'] * count)}"


@lru_cache
def _window(bounded: bool) -> str:
    return f"SELECT ({_FROM} OFFSET :offset)".format(high=_high(bounded))


@lru_cache
def _leap(bounded: bool) -> str:
    return _LEAP.format(first=_FROM.format(high=_high(bounded)), high=_high(bounded))


def _high(bounded: bool) -> str:
    return " AND topic < :high" if bounded else ""


def _successor(topic_filter: str, topic: str) -> str | None:
    return plan(topic_filter).successor(topic)


@lru_cache(maxsize=256)
def _read(conditions: str, version5: bool, detailed: bool) -> str:
    """Last topic, count, packets, soonest expiry; QoS and expiries of all.

    The order within the aggregates is the subquery's: with a LIMIT, SQLite can neither flatten it nor drop its order.
    Without the CAST, Python would decode the packets as UTF-8.
    """
    details = ", group_concat(qos, ''), group_concat(coalesce(expires_at, 0))" if detailed else ""
    columns = ", qos" if detailed else ""
    return (
        "SELECT max(topic), count(*), CAST(group_concat(packet, '') AS BLOB), coalesce(min(expires_at), 0)"
        f"{details} FROM (SELECT topic, {_PACKET[version5]} AS packet, expires_at{columns} FROM retained "
        f"WHERE {conditions} ORDER BY topic LIMIT :limit)"
    )


@lru_cache(maxsize=256)
def _lengths(conditions: str, length: str) -> str:
    return (
        f"SELECT group_concat(length) FROM (SELECT {length} AS length FROM retained "
        f"WHERE {conditions} ORDER BY topic LIMIT :limit)"
    )


@lru_cache(maxsize=64)
def _entries(conditions: str, payloads: bool) -> str:
    return f"SELECT {_ENTRY[payloads]} FROM retained WHERE {conditions} ORDER BY topic LIMIT :limit"


@lru_cache(maxsize=256)
def _conditions(bounded: bool, no_local: bool, limited: bool, version5: bool, check: str) -> str:
    # The check comes first: most of what is scanned fails it.
    parts = [
        f"topic >= :low{_high(bounded)}{check}",
        "tombstone = 0",
        "(expires_at IS NULL OR expires_at > :now)",
        "(revision <= :not_after OR revision & 255 <> :node)",
    ]
    if no_local:
        parts.append("client_id IS NOT :except_client")
    if limited:
        parts.append(f"{_LENGTH[version5]} <= :max_packet_size")
    return " AND ".join(parts)


def _numbers_of(cursor: Cursor, statement: str, bound: dict[str, Any]) -> list[int]:
    cursor.execute(statement, bound)
    (numbers,) = cursor.fetchone()
    return [] if numbers is None else list(map(int, numbers.split(",")))


def _winners(cursor: Cursor, rows: Sequence[Row]) -> list[Row]:
    """Leave out the rows that lose to what is stored: the totals must not count them."""
    cursor.execute(_revisions(len(rows)), [row.topic for row in rows])
    stored = dict(cursor.fetchall())
    return [row for row in rows if row.revision > stored.get(row.topic, -1)]
