"""The SQL of retained messages, for Postgres. Several nodes may write: what is there is locked before it is counted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import errors

from holdfast.retained.store.rows import COLUMNS, MESSAGE_COLUMNS, Row, longest_packet
from holdfast.retained.store.statements import Check, Found, Leap, Totals
from holdfast.retained.store.values import Usage
from holdfast.retained.wildcards.plan import JUST_AFTER, LIKE, Plan
from holdfast.retained.wildcards.successor_sql import successor
from holdfast.storage import tables
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.postgres.arrays import Integers, Texts, columns_of, parameter_of
from holdfast.storage.revisions import HIGHEST_NODE, after
from holdfast.storage.writing.bulk import split

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

_TOPIC = "convert_to(topic, 'UTF8')"
_PACKET = {
    False: f"prefix3 || {_TOPIC} || payload",
    True: f"prefix5 || {_TOPIC} || properties5 || payload",
}
_LENGTH = {
    False: "octet_length(prefix3) + octet_length(topic) + size",
    True: "octet_length(prefix5) + octet_length(topic) + octet_length(properties5) + size",
}
_COLUMNS = ", ".join(COLUMNS)
_REPLACED = ", ".join(f"{column} = excluded.{column}" for column in COLUMNS[1:])
_WEIGHT = {False: "octet_length(topic) + octet_length(properties5)", True: _LENGTH[True]}
_ENTRY = {
    False: ", ".join(MESSAGE_COLUMNS).replace("payload", "CAST('' AS bytea)") + ", size",
    True: ", ".join(MESSAGE_COLUMNS) + ", size",
}
_STANDING = f"SELECT {_ENTRY[False]}, tombstone FROM retained WHERE topic = ANY(CAST(? AS text[]))"
_GET = f"SELECT {', '.join(MESSAGE_COLUMNS)} FROM retained WHERE topic = ? AND tombstone = 0"
_LEVELS = "SELECT coalesce(array_agg(levels), '{}') FROM retained_levels"
_EXPIRED = (
    "SELECT coalesce(array_agg(topic), '{}'), CAST(coalesce(sum(size), 0) AS BIGINT) FROM (SELECT topic, size "
    "FROM retained WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ? "
    "FOR UPDATE SKIP LOCKED) AS found"
)
_BURY = (
    "UPDATE retained SET tombstone = 1, qos = 0, size = 0, expires_at = NULL, client_id = NULL, username = NULL, "
    "properties_json = NULL, prefix3 = '', prefix5 = '', properties5 = '', payload = '', stored_at = :now, "
    "revision = greatest(revision, :revision) WHERE topic = ANY(:topics)"
)
_PURGE = (
    "DELETE FROM retained WHERE topic IN (SELECT topic FROM retained WHERE tombstone = 1 AND stored_at < ? "
    "ORDER BY stored_at LIMIT ? FOR UPDATE SKIP LOCKED)"
)
_STORED = (
    "SELECT topic, revision, tombstone, size FROM retained WHERE topic = ANY(CAST(? AS text[])) ORDER BY topic "
    "FOR UPDATE"
)
_UPSERT = (
    f"INSERT INTO retained ({_COLUMNS}) SELECT * FROM unnest({', '.join(map(parameter_of, tables.retained.columns))}) "
    f"ON CONFLICT (topic) DO UPDATE SET {_REPLACED} WHERE excluded.revision > retained.revision "
    "RETURNING xmax = 0"
)
_WRITE = f"WITH written (new) AS ({_UPSERT}) SELECT count(*), count(*) FILTER (WHERE new) FROM written"
_ADD_LEVELS = "INSERT INTO retained_levels SELECT * FROM unnest(CAST(? AS integer[])) ON CONFLICT (levels) DO NOTHING"
_HELD = (
    "SELECT topic, size, client_id FROM retained WHERE tombstone = 0 AND topic = ANY(CAST(? AS text[])) ORDER BY topic "
    "FOR UPDATE"
)
_RUN = (
    "SELECT topic, size, client_id FROM retained WHERE tombstone = 0 AND topic >= :low{high} "
    "ORDER BY topic LIMIT :limit"
)
_COUNTED = (
    "SELECT scope, counted_to FROM retained_usage WHERE subject = '' AND scope = ANY(CAST(? AS text[])) ORDER BY scope "
    "FOR UPDATE"
)
_END_OF_RUN = "SELECT topic FROM retained WHERE topic >= ? ORDER BY topic LIMIT 1 OFFSET ?"
_CAP_EXPIRY = (
    "UPDATE retained SET expires_at = stored_at + :lifetime WHERE topic >= :low {end} "
    "AND tombstone = 0 AND (expires_at > stored_at + :lifetime{never}) RETURNING topic"
)
_FROM = "SELECT topic FROM retained WHERE topic >= :low{high} ORDER BY topic LIMIT 1"
# The walk stays within the index, and tells at once what little there is that may match.
_LEAP = (
    "WITH RECURSIVE leap (jump, topic) AS (SELECT 1, ({first}) UNION ALL "
    "SELECT jump + 1, (SELECT topic FROM retained WHERE topic >= {following}{high} ORDER BY topic LIMIT 1) "
    "FROM (SELECT jump, topic, string_to_array(topic, '/') AS levels FROM leap OFFSET 0) AS visited "
    "WHERE jump < :jumps AND topic IS NOT NULL) "
    "SELECT (SELECT array_agg(topic ORDER BY jump) FROM leap), ({first} OFFSET :par), "
    "CASE WHEN walked > :offset THEN last END, CASE WHEN cardinality(likely) <= {few} THEN likely END "
    "FROM (SELECT count(*) AS walked, max(topic) AS last, "
    "coalesce(array_agg(topic) FILTER (WHERE {likely}), '{{}}') AS likely "
    "FROM (SELECT topic FROM retained WHERE topic >= :low{high} ORDER BY topic LIMIT :offset + 1) AS walk) AS found"
)
_FEW = 64
_TOPICS = (
    "SELECT coalesce(array_agg(topic ORDER BY topic), '{{}}') FROM retained WHERE topic >= :low{high} AND tombstone = 0"
)

#: The most rows of one statement: it is built in memory.
MOST_ROWS = 2000


class PostgresStatements:
    """Asks Postgres."""

    def __init__(self) -> None:
        #: rows of ours that were given a higher revision when written, by topic: the one they had
        self._raised: dict[str, int] = {}
        self._timeouts: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # as set, by connection

    def rows_at_once(self, rows: int, slice_rows: int) -> int:
        """Ask for everything: each statement is a round trip."""
        return rows

    @contextmanager
    def interruptible(self, connection: Any, impatient: Callable[[], bool], read_time: float) -> Iterator[None]:
        """Let the server break off what takes fifty times as long: it stalls nobody but other readers."""
        self._set_timeout(connection, max(1, round(50_000 * read_time)))
        yield

    def be_patient(self, connection: Connection) -> None:
        """Let statements take their time."""
        self._set_timeout(connection, 0)

    def _set_timeout(self, connection: Any, milliseconds: int) -> None:
        if self._timeouts.get(connection) != milliseconds:
            connection.execute(f"SET statement_timeout = {milliseconds}")
            self._timeouts[connection] = milliseconds

    def was_interrupted(self, error: Exception) -> bool:
        """Tell whether a statement was broken off."""
        return isinstance(error, errors.QueryCanceled)

    def levels_now(self, cursor: Cursor, totals: Totals) -> frozenset[int]:
        """Ask: other nodes write too."""
        return self.levels(cursor)

    def levels(self, cursor: Cursor) -> frozenset[int]:
        """Read the level counts."""
        cursor.execute(_LEVELS)
        return frozenset(cursor.fetchone()[0])

    def get(self, cursor: Cursor, topic: str) -> tuple[Any, ...] | None:
        """Read one message."""
        cursor.execute(_GET, (topic,))
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row

    def check_of(self, plan: Plan, levels_present: frozenset[int]) -> Check | None:
        """Check by level counts and LIKE patterns."""
        if plan.levels is None:
            return "", {}
        if plan.counted:
            return (" AND levels = :levels" if plan.exact else " AND levels >= :levels"), {"levels": len(plan.levels)}
        terms = plan.terms(levels_present, LIKE)
        if terms is None:
            return None
        if not terms:
            return " AND false", {}
        alternatives = [f"levels = :levels{number} AND topic LIKE :like{number}" for number in range(len(terms))]
        bound: dict[str, Any] = {}
        for number, term in enumerate(terms):
            bound[f"levels{number}"] = term.levels
            bound[f"like{number}"] = term.pattern
        return f" AND ({' OR '.join(alternatives)})", bound

    def listed(self, topics: Sequence[str]) -> Check:
        """Name the topics in an array."""
        return " AND topic = ANY(CAST(:listed AS text[]))", {"listed": Texts(topics)}

    def conditions(self, bounded: bool, no_local: bool, limited: bool, version5: bool, check: str) -> str:
        """Say which rows are wanted."""
        return _conditions(bounded, no_local, limited, version5, check)

    def window(self, cursor: Cursor, bounded: bool, bound: dict[str, Any]) -> str | None:
        """Walk."""
        cursor.execute(_window(bounded), bound)
        end: str | None = cursor.fetchone()[0]
        return end

    def leap(self, cursor: Cursor, plan: Plan, bounded: bool, bound: dict[str, Any]) -> Leap:
        """Jump and walk in one round trip; where to jump is part of the statement."""
        assert plan.levels is not None
        following, sought = successor(plan.levels, plan.exact)
        pattern = plan.pattern(LIKE)
        cursor.execute(
            _leap(following, plan.exact, bounded),
            {**bound, **sought, "pattern": pattern, "deeper": f"{pattern}/{LIKE.wild}"},
        )
        visited, par, end, likely = cursor.fetchone()
        complete = visited[-1] is None
        return Leap(visited[:-1] if complete else visited, complete, par, end, likely)

    def topics(self, cursor: Cursor, bounded: bool, bound: dict[str, Any]) -> list[str]:
        """List topics."""
        cursor.execute(_TOPICS.format(high=_high(bounded)), bound)
        topics: list[str] = cursor.fetchone()[0]
        return topics

    def lengths(self, cursor: Cursor, conditions: str, version5: bool, bound: dict[str, Any]) -> list[int]:
        """Read lengths."""
        return _numbers_of(cursor, _lengths(conditions, _LENGTH[version5]), bound)

    def weights(self, cursor: Cursor, conditions: str, payloads: bool, bound: dict[str, Any]) -> list[int]:
        """Read weights."""
        return _numbers_of(cursor, _lengths(conditions, _WEIGHT[payloads]), bound)

    def entries(self, cursor: Cursor, conditions: str, payloads: bool, bound: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Read messages as rows."""
        cursor.execute(_entries(conditions, payloads), bound)
        return list(cursor.fetchall())

    def standing(self, cursor: Cursor, topics: Sequence[str]) -> list[tuple[Any, ...]]:
        """Read how topics stand."""
        cursor.execute(_STANDING, (Texts(topics),))
        return list(cursor.fetchall())

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
        return Found(last, length, packets, soonest, bytes(qos), tuple(expires_at))

    def write(self, cursor: Cursor, rows: Sequence[Row], node: int, change: Totals) -> None:
        """Write rows. One that lost to a higher revision, of a node whose clock is ahead, gets a yet higher one.

        Raises SerializationFailure when another node has come between the look and the write: the transaction is to be
        done again.
        """
        for part in split(rows, MOST_ROWS):
            self._write(cursor, part, node, change)

    def add_levels(self, cursor: Cursor, levels: Collection[int]) -> None:
        """Record level counts."""
        cursor.execute(_ADD_LEVELS, (Integers(sorted(levels)),))

    def held(self, cursor: Cursor, topics: Sequence[str]) -> dict[str, Usage]:
        """Read sizes and Clients, and lock them."""
        cursor.execute(_HELD, (Texts(topics),))
        return {topic: Usage(1, size, client_id) for topic, size, client_id in cursor.fetchall()}

    def held_between(self, cursor: Cursor, low: str, high: str | None, limit: int) -> dict[str, Usage]:
        """Read a run of sizes and Clients."""
        bound: dict[str, Any] = {"low": low, "limit": limit, **({} if high is None else {"high": high})}
        cursor.execute(_RUN.format(high=_high(high is not None)), bound)
        return {topic: Usage(1, size, client_id) for topic, size, client_id in cursor.fetchall()}

    def counted(self, cursor: Cursor, scopes: Sequence[str]) -> dict[str, str | None]:
        """Read how far, and lock it."""
        cursor.execute(_COUNTED, (Texts(sorted(scopes)),))
        return dict(cursor.fetchall())

    def cap_expiry(
        self, cursor: Cursor, lifetime: int, never_too: bool, after: str, limit: int
    ) -> tuple[str | None, list[str]]:
        """Look at a run of topics, and change what expires too late."""
        low = after + JUST_AFTER if after else ""
        cursor.execute(_END_OF_RUN, (low, limit - 1))
        row = cursor.fetchone()
        end: str | None = None if row is None else row[0]
        bound: dict[str, Any] = {"low": low, "lifetime": lifetime, **({} if end is None else {"end": end})}
        cursor.execute(
            _CAP_EXPIRY.format(
                end="" if end is None else "AND topic <= :end", never=" OR expires_at IS NULL" if never_too else ""
            ),
            bound,
        )
        return end, [topic for (topic,) in cursor.fetchall()]

    def expired(self, cursor: Cursor, now: int, limit: int) -> tuple[list[str], int]:
        """Find what has expired and no other node is at."""
        cursor.execute(_EXPIRED, (now, limit))
        topics, size = cursor.fetchone()
        return topics, size

    def bury(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Make tombstones."""
        cursor.execute(_BURY, {"now": now, "revision": revision, "topics": Texts(topics)})

    def purge(self, cursor: Cursor, before: int, limit: int) -> int:
        """Delete tombstones."""
        cursor.execute(_PURGE, (before, limit))
        return cursor.rowcount

    def _write(self, cursor: Cursor, rows: Sequence[Row], node: int, change: Totals) -> None:
        cursor.execute(_STORED, (Texts([row.topic for row in rows]),))
        stored = {topic: rest for topic, *rest in cursor.fetchall()}
        winners = []
        for row in rows:
            before = stored.get(row.topic)
            if before is None or row.revision > before[0]:
                self._raised.pop(row.topic, None)
                winners.append(row)
                continue
            change.highest = max(change.highest, before[0])
            # Ours is newer if another node wrote what is there, or if what is there is ours and was raised before.
            if before[0] & HIGHEST_NODE != node or row.revision > self._raised.get(row.topic, row.revision):
                self._raised[row.topic] = row.revision
                winners.append(row._replace(revision=after(before[0], node)))
                change.highest = max(change.highest, winners[-1].revision)
            else:
                change.lost |= {row.topic}
        if not winners:
            return
        cursor.execute(_WRITE, columns_of(tables.retained, winners))
        replaced = [stored[row.topic] for row in winners if row.topic in stored] if stored else []
        # What is stored is locked: only a topic that was not can have been inserted, if no other node has done it.
        if cursor.fetchone() != (len(winners), len(winners) - len(replaced)):
            raise errors.SerializationFailure("another node has written these topics at the same moment")
        present = len(replaced) - sum(tombstone for _, tombstone, _ in replaced)
        change.count += len(winners) - sum(row.tombstone for row in winners) - present
        change.payload_bytes += sum(row.size for row in winners) - sum(size for _, _, size in replaced)
        levels = frozenset(row.levels for row in winners)
        change.add(Totals(largest_packet=max(map(longest_packet, winners)), levels=levels))


@lru_cache
def _window(bounded: bool) -> str:
    return f"SELECT ({_FROM} OFFSET :offset)".format(high=_high(bounded))


@lru_cache(maxsize=256)
def _leap(following: str, exact: bool, bounded: bool) -> str:
    high = _high(bounded)
    likely = "topic LIKE :pattern" + ("" if exact else " OR topic LIKE :deeper")
    return _LEAP.format(first=_FROM.format(high=high), following=following, high=high, likely=likely, few=_FEW)


def _high(bounded: bool) -> str:
    return " AND topic < :high" if bounded else ""


@lru_cache(maxsize=256)
def _read(conditions: str, version5: bool, detailed: bool) -> str:
    """Last topic, count, packets, soonest expiry; QoS and expiries of all."""
    details = ", array_agg(qos ORDER BY topic), array_agg(coalesce(expires_at, 0) ORDER BY topic)" if detailed else ""
    columns = ", qos" if detailed else ""
    return (
        "SELECT max(topic), count(*), string_agg(packet, '' ORDER BY topic), coalesce(min(expires_at), 0)"
        f"{details} FROM (SELECT topic, {_PACKET[version5]} AS packet, "
        f"expires_at{columns} FROM retained WHERE {conditions} ORDER BY topic LIMIT :limit) AS found"
    )


@lru_cache(maxsize=256)
def _lengths(conditions: str, length: str) -> str:
    return (
        f"SELECT array_agg(length ORDER BY topic) FROM (SELECT topic, {length} AS length FROM retained "
        f"WHERE {conditions} ORDER BY topic LIMIT :limit) AS found"
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
        parts.append("client_id IS DISTINCT FROM :except_client")
    if limited:
        parts.append(f"{_LENGTH[version5]} <= :max_packet_size")
    return " AND ".join(parts)


def _numbers_of(cursor: Cursor, statement: str, bound: dict[str, Any]) -> list[int]:
    cursor.execute(statement, bound)
    numbers: list[int] | None = cursor.fetchone()[0]
    return numbers or []
