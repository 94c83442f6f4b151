"""The statements about retained messages that both dialects share.

A statement is built once for each shape (bounded or not, with or without No Local, ...), and the text is kept: the
drivers prepare a text once for each connection. Values are always bound, never part of the text.

A read returns its messages as one aggregate row, not as one row for each message. Python's SQLite driver releases and
takes back the interpreter lock for each row, and Postgres sends each row in a message of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from holdfast.retained.store.dialects.answers import Condition, Leap, Totals
from holdfast.retained.store.dialects.fragments import Fragments, below, stored_size
from holdfast.retained.store.dialects.texts import (
    conditions_text,
    entries_text,
    entry_columns,
    message_weight,
    numbers_text,
    packet_length,
    read_text,
    survey_text,
    topics_text,
    walk_text,
)
from holdfast.retained.store.facts import with_facts
from holdfast.retained.store.rows import COLUMNS, MESSAGE_COLUMNS, Row
from holdfast.retained.store.values import Census, ExpiredPosition, RetainedStatistics, Selection, Slice, Survey, Usage
from holdfast.retained.wildcards.plan import JUST_AFTER, PatternSyntax, Plan
from holdfast.storage.driver import Connection, Cursor

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

INSERTED = ", ".join(COLUMNS)
ON_CONFLICT = (
    f"ON CONFLICT (topic) DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in COLUMNS[1:])} "
    "WHERE excluded.revision > retained.revision"
)

_GET = f"SELECT {', '.join(MESSAGE_COLUMNS)} FROM retained WHERE topic = ? AND tombstone = 0"
#: The totals of all nodes, and some expired messages. SQLite's index ends in the topic, so it is read in this order.
_CENSUS = (
    "SELECT (SELECT CAST(coalesce(sum(retained_count), 0) AS BIGINT) FROM nodes), "
    "(SELECT CAST(coalesce(sum(retained_bytes), 0) AS BIGINT) FROM nodes), "
    "count(*), CAST(coalesce(sum(size), 0) AS BIGINT), max(expires_at), "
    "(SELECT max(topic) FROM expired WHERE expires_at = (SELECT max(expires_at) FROM expired)) FROM expired"
)
_LOCKED = (
    "SELECT topic, revision, tombstone, expires_at, client_id, qos, properties5 FROM retained WHERE topic {among}{lock}"
)
_EXPIRED = (
    "WITH expired AS MATERIALIZED (SELECT topic, {size} AS size, expires_at FROM retained WHERE expires_at IS NOT NULL "
    "AND expires_at <= :now{after} ORDER BY expires_at, topic LIMIT :limit) "
)
_END_OF_PART = "SELECT topic FROM retained WHERE topic >= ? ORDER BY topic LIMIT 1 OFFSET ?"
_CAP_EXPIRY = (
    "UPDATE retained SET expires_at = stored_at + :lifetime WHERE topic >= :low{end} "
    "AND tombstone = 0 AND (expires_at > stored_at + :lifetime{never}) RETURNING topic"
)
_MOVE_EXPIRY = (
    "UPDATE retained SET stored_at = stored_at + :step, expires_at = expires_at + :step WHERE topic >= :low{end} "
    "AND expires_at IS NOT NULL AND stored_at >= :since AND revision > :above AND revision <= :upto "
    "AND (revision & 255) = :node RETURNING topic"
)


class Statements(ABC):
    """Executes statements in one dialect.

    The names bound for a range are ``low`` and ``high``, and those of :meth:`conditions`.
    """

    fragments: ClassVar[Fragments]
    pattern_syntax: ClassVar[PatternSyntax]
    #: the most topics that one statement of a search walks over
    most_scanned: ClassVar[int]

    # --- the driver's values

    @abstractmethod
    def bound_list(self, values: Sequence[str]) -> Any:
        """Return the parameter for a list of texts."""

    @abstractmethod
    def list_from(self, value: Any) -> list[Any]:
        """Return the list that ``list_of`` brought."""

    @abstractmethod
    def numbers_from(self, value: Any) -> list[int]:
        """Return the numbers that ``numbers`` brought: None for no rows."""

    @abstractmethod
    def tuples_from(self, value: Any) -> list[Any]:
        """Return the tuples that ``tuples`` brought: None for no rows."""

    @abstractmethod
    def details_from(self, qos: Any, expires_at: Any) -> tuple[bytes, tuple[int, ...]]:
        """Return QoS and expiries that ``details`` brought."""

    # --- reading, in the reader's thread

    @abstractmethod
    def interruptible(
        self, connection: Connection, overdue: Callable[[], bool], read_time: float
    ) -> AbstractContextManager[None]:
        """Let statements be interrupted when ``overdue`` says so, or after a multiple of ``read_time`` (seconds)."""

    @abstractmethod
    def was_interrupted(self, error: Exception) -> bool:
        """Tell whether the driver raises this error for an interrupted statement."""

    @abstractmethod
    def begin_search(self, connection: Connection) -> None:
        """Prepare a connection for a search. Its statements are bounded, so they are not interrupted any more."""

    @abstractmethod
    def levels_now(self, cursor: Cursor, totals: Totals) -> frozenset[int]:
        """Return the level counts that topics have; ``totals`` are those of this process."""

    @abstractmethod
    def largest_known_packet(self, totals: Totals) -> int:
        """Return the length of the longest packet that this process knows of, without reading the database."""

    @abstractmethod
    def largest_packet_now(self, cursor: Cursor, totals: Totals) -> int:
        """Return the length of the longest packet in the store; ``totals`` are those of this process."""

    def levels(self, cursor: Cursor) -> frozenset[int]:
        """Read the level counts that topics have or had."""
        cursor.execute(f"SELECT {self.fragments.list_of.format('levels')} FROM retained_levels")
        return frozenset(self.list_from(cursor.fetchone()[0]))

    def get(self, cursor: Cursor, topic: str) -> tuple[Any, ...] | None:
        """Read the MESSAGE_COLUMNS of a topic; None if it has no retained message."""
        cursor.execute(_GET, (topic,))
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row

    def check_of(self, plan: Plan, levels_present: frozenset[int]) -> Condition | None:
        """Return the condition that a plan leaves to check inside its ranges; None if SQL cannot check it."""
        if plan.levels is None:
            return "", {}
        if plan.counted:
            return (" AND levels = :levels" if plan.exact else " AND levels >= :levels"), {"levels": len(plan.levels)}
        terms = plan.terms(levels_present, self.pattern_syntax)
        if terms is None:
            return None
        if not terms:
            return " AND false", {}
        matches_pattern = self.fragments.matches_pattern
        alternatives = [f"levels = :levels{number} AND {matches_pattern}{number}" for number in range(len(terms))]
        bound: dict[str, Any] = {}
        for number, term in enumerate(terms):
            bound[f"levels{number}"] = term.levels
            bound[f"pattern{number}"] = term.pattern
        return f" AND ({' OR '.join(alternatives)})", bound

    def listed(self, topics: Sequence[str]) -> Condition:
        """Return the condition for being one of these topics."""
        return f" AND topic {self.fragments.among.format(':listed')}", {"listed": self.bound_list(topics)}

    def conditions(self, bounded: bool, no_local: bool, limited: str, queued: bool, version5: bool, check: str) -> str:
        """Return the conditions for the wanted rows of a range; the names bound are those of a Selection.

        ``limited`` compares the length of a packet with ``max_packet_size``: "<=", ">", or "" for no condition.
        """
        return conditions_text(self.fragments, bounded, no_local, limited, queued, version5, check)

    def count(self, cursor: Cursor, conditions: str, bound: dict[str, Any]) -> int:
        """Count rows."""
        cursor.execute(f"SELECT count(*) FROM retained WHERE {conditions}", bound)
        count: int = cursor.fetchone()[0]
        return count

    def walk(self, cursor: Cursor, bounded: bool, bound: dict[str, Any]) -> str | None:
        """Walk ``offset`` topics on from the first one of a range; return the topic there, None behind the end."""
        cursor.execute(walk_text(bounded), bound)
        end: str | None = cursor.fetchone()[0]
        return end

    def walk_and_match(
        self,
        cursor: Cursor,
        plan: Plan,
        bounded: bool,
        bound: dict[str, Any],
    ) -> tuple[str | None, Sequence[str] | None]:
        """Walk; return the topic there, and the topics of the walk that match the plan's pattern.

        The second value is None if that is unknown or if there are many.
        """
        return self.walk(cursor, bounded, bound), None

    @abstractmethod
    def leap(self, cursor: Cursor, plan: Plan, bounded: bool, bound: dict[str, Any]) -> Leap:
        """Jump to at most ``jumps`` topics, and walk ``break_even`` and ``offset`` topics, all from ``low``."""

    def topics(self, cursor: Cursor, bounded: bool, bound: dict[str, Any]) -> list[str]:
        """Read the topics of a range."""
        cursor.execute(topics_text(self.fragments, bounded), bound)
        return self.list_from(cursor.fetchone()[0])

    def lengths(self, cursor: Cursor, conditions: str, version5: bool, bound: dict[str, Any]) -> list[int]:
        """Return the lengths of the packets that :meth:`read` would return. No payload is read."""
        cursor.execute(numbers_text(self.fragments, conditions, packet_length(self.fragments, version5)), bound)
        return self.numbers_from(cursor.fetchone()[0])

    def read(
        self, cursor: Cursor, conditions: str, selection: Selection, detailed: bool, bound: dict[str, Any]
    ) -> Slice | None:
        """Read the packets of at most ``limit`` messages, in the form of the selection, None if there are none.

        Also returns None if another node has stored a packet longer than ``longest``.
        """
        version5, publishers, facts = selection.protocol_version == 5, selection.publishers, selection.facts
        cursor.execute(read_text(self.fragments, conditions, version5, detailed, publishers, bool(facts)), bound)
        last, count, packets, soonest_expiry, *rest = cursor.fetchone()
        if not count:
            return None
        if facts:
            packets = with_facts(packets, facts, self.tuples_from(rest.pop()))
        published = self.tuples_from(rest.pop()) if publishers else ()
        if not rest:
            return Slice(last, count, packets, soonest_expiry=soonest_expiry, publishers=published)
        return Slice(last, count, packets, *self.details_from(*rest), soonest_expiry, publishers=published)

    def survey(self, cursor: Cursor, after: str, limit: int, guests: bool, newer_than: int) -> Survey:
        """Return who published the messages of the ``limit`` topics after a topic; see ``IRetainedStore.survey``."""
        bound = {"after": after, "limit": limit, "newer_than": newer_than}
        cursor.execute(survey_text(self.fragments, guests), bound)
        last, count, published = cursor.fetchone()
        return Survey(self.tuples_from(published), last if count == limit else None)

    def weights(self, cursor: Cursor, conditions: str, payloads: bool, bound: dict[str, Any]) -> list[int]:
        """Return the approximate sizes, in bytes, of the rows that :meth:`entries` would return."""
        cursor.execute(numbers_text(self.fragments, conditions, message_weight(self.fragments, payloads)), bound)
        return self.numbers_from(cursor.fetchone()[0])

    def entries(self, cursor: Cursor, conditions: str, payloads: bool, bound: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Read at most ``limit`` messages: MESSAGE_COLUMNS (the payload empty unless asked for) and the size."""
        cursor.execute(entries_text(self.fragments, conditions, payloads), bound)
        return list(cursor.fetchall())

    def topic_states(self, cursor: Cursor, topics: Sequence[str]) -> list[tuple[Any, ...]]:
        """Read the rows of topics: MESSAGE_COLUMNS with an empty payload, the size, and the tombstone flag."""
        columns, among = entry_columns(self.fragments, False), self.fragments.among.format("?")
        cursor.execute(f"SELECT {columns}, tombstone FROM retained WHERE topic {among}", (self.bound_list(topics),))
        return list(cursor.fetchall())

    # --- compare-and-set, in the writer's thread, inside its transaction

    def locked_rows(self, cursor: Cursor, topics: Sequence[str], absent_too: Collection[str]) -> list[tuple[Any, ...]]:
        """Lock the rows of topics, in sorted order, and read them without their payloads: see :data:`_LOCKED`.

        Those ``absent_too`` are locked also if they have no row.
        """
        among, lock = self.fragments.among.format("?"), self.fragments.lock.format("topic")
        cursor.execute(_LOCKED.format(among=among, lock=lock), (self.bound_list(topics),))
        found = list(cursor.fetchall())
        missing = sorted(set(absent_too) - {row[0] for row in found})
        if missing and lock:
            self.add_places(cursor, missing)
            cursor.execute(_LOCKED.format(among=among, lock=lock), (self.bound_list(missing),))
            found += cursor.fetchall()
        return found

    def add_places(self, cursor: Cursor, topics: Sequence[str]) -> None:
        """Insert a tombstone with revision 0 for each topic without a row. Waits for nodes that do the same.

        Nothing is to be done where no other node writes.
        """
        return

    def remove_places(self, cursor: Cursor, topics: Sequence[str]) -> None:
        """Delete those tombstones among the rows of these topics. Nothing is to be done where nobody inserts them."""
        return

    def payload_of(self, cursor: Cursor, topic: str) -> bytes:
        """Read the payload of a topic that has a row."""
        cursor.execute("SELECT payload FROM retained WHERE topic = ?", (topic,))
        return bytes(cursor.fetchone()[0])

    # --- writing, in the writer's thread, inside its transaction

    @abstractmethod
    def write(self, cursor: Cursor, rows: Sequence[Row], node: int, change: Totals) -> None:
        """Write rows, sorted by topic, unless newer ones are stored; add the difference in totals to ``change``."""

    @abstractmethod
    def add_levels(self, cursor: Cursor, levels: Collection[int]) -> None:
        """Record level counts."""

    def usage_of(self, cursor: Cursor, topics: Sequence[str]) -> dict[str, Usage]:
        """Return the usage of these topics, and lock them against other nodes until the transaction ends."""
        among, lock = self.fragments.among.format("?"), self.fragments.lock.format("topic")
        size = stored_size(self.fragments)
        query = (
            f"SELECT topic, {size} AS size, client_id, username FROM retained "
            f"WHERE tombstone = 0 AND topic {among}{lock}"
        )
        return self.usages(cursor, query, (self.bound_list(topics),))

    def usage_between(self, cursor: Cursor, low: str, high: str | None, limit: int) -> dict[str, Usage]:
        """Return the usage of the first ``limit`` topics from ``low`` up to but not including ``high``."""
        query = (
            f"SELECT topic, {stored_size(self.fragments)} AS size, client_id, username FROM retained "
            f"WHERE tombstone = 0 AND topic >= :low{below(high is not None)} ORDER BY topic LIMIT :limit"
        )
        return self.usages(cursor, query, {"low": low, "limit": limit, **({} if high is None else {"high": high})})

    @abstractmethod
    def usages(self, cursor: Cursor, query: str, bound: Any) -> dict[str, Usage]:
        """Return the usage of topics from a query for topic, size, Client and user."""

    def counted(self, cursor: Cursor, scopes: Sequence[str]) -> dict[str, str | None]:
        """Return the topic up to which each scope of usage is counted, and lock it against other nodes."""
        among, lock = self.fragments.among.format("?"), self.fragments.lock.format("scope")
        query = f"SELECT scope, counted_to FROM retained_usage WHERE subject = '' AND scope {among}{lock}"
        cursor.execute(query, (self.bound_list(scopes),))
        return dict(cursor.fetchall())

    def cap_expiry(
        self, cursor: Cursor, lifetime: int, never_too: bool, after: str, limit: int
    ) -> tuple[str | None, list[str]]:
        """Let messages expire earlier: see :meth:`holdfast.retained.store.interfaces.IRetainedStore.cap_expiry`.

        Returns the topic to continue after, and the topics of the changed messages.
        """
        low, end = self._part(cursor, after, limit)
        bound: dict[str, Any] = {"low": low, "lifetime": lifetime, **({} if end is None else {"end": end})}
        cursor.execute(
            _CAP_EXPIRY.format(
                end="" if end is None else " AND topic <= :end", never=" OR expires_at IS NULL" if never_too else ""
            ),
            bound,
        )
        return end, [topic for (topic,) in cursor.fetchall()]

    def move_expiry(
        self, cursor: Cursor, node: int, step: int, since: int, above: int, upto: int, after: str, limit: int
    ) -> tuple[str | None, list[str]]:
        """Let messages expire later: see :meth:`holdfast.retained.store.interfaces.IRetainedStore.move_expiry`.

        Returns the topic to continue after, and the topics of the changed messages.
        """
        low, end = self._part(cursor, after, limit)
        bound: dict[str, Any] = {"low": low, "step": step, "since": since, "above": above, "upto": upto, "node": node}
        if end is not None:
            bound["end"] = end
        cursor.execute(_MOVE_EXPIRY.format(end="" if end is None else " AND topic <= :end"), bound)
        return end, [topic for (topic,) in cursor.fetchall()]

    def _part(self, cursor: Cursor, after: str, limit: int) -> tuple[str, str | None]:
        """Return the first topic of a part of ``limit`` rows behind a topic, and its last one, None for no more."""
        low = after + JUST_AFTER if after else ""
        cursor.execute(_END_OF_PART, (low, limit - 1))
        row = cursor.fetchone()
        return low, None if row is None else row[0]

    def any_expired(self, cursor: Cursor, now: int) -> bool:
        """Tell whether a message has expired. For readers: it locks nothing."""
        cursor.execute("SELECT 1 FROM retained WHERE expires_at IS NOT NULL AND expires_at <= ? LIMIT 1", (now,))
        return cursor.fetchone() is not None

    def expired(self, cursor: Cursor, now: int, limit: int) -> tuple[list[str], int]:
        """Find expired messages, the earliest ones first: their topics, and the sum of their bytes.

        The writer's transaction locks them against other nodes.
        """
        cursor.execute(
            f"SELECT {self.fragments.list_of.format('topic')}, CAST(coalesce(sum(size), 0) AS BIGINT) FROM "
            f"(SELECT topic, {stored_size(self.fragments)} AS size FROM retained "
            "WHERE expires_at IS NOT NULL AND expires_at <= ? "
            f"ORDER BY expires_at LIMIT ?{self.fragments.lock_free}) AS found",
            (now, limit),
        )
        topics, size = cursor.fetchone()
        return self.list_from(topics), size

    def census(self, cursor: Cursor, now: int, after: ExpiredPosition | None, limit: int) -> Census:
        """Read the totals of all nodes, and count at most ``limit`` expired messages after a position."""
        bound: dict[str, Any] = {"now": now, "limit": limit}
        condition = ""
        if after is not None:
            condition = " AND (expires_at, topic) > (:time, :topic)"
            bound.update(time=after[0], topic=after[1])
        cursor.execute(_EXPIRED.format(after=condition, size=stored_size(self.fragments)) + _CENSUS, bound)
        count, size, expired, expired_size, *last = cursor.fetchone()
        return Census(
            RetainedStatistics(count, size),
            RetainedStatistics(expired, expired_size),
            (last[0], last[1]) if expired == limit else None,
        )

    def make_tombstones(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        """Turn the rows of these topics into tombstones."""
        empty, among = self.fragments.empty, self.fragments.among.format(":topics")
        cursor.execute(
            "UPDATE retained SET tombstone = 1, qos = 0, size = 0, expires_at = NULL, client_id = NULL, "
            f"username = NULL, properties_json = NULL, prefix3 = {empty}, prefix5 = {empty}, properties5 = {empty}, "
            f"payload = {empty}, stored_at = :now, revision = {self.fragments.greatest}(revision, :revision) "
            f"WHERE topic {among}",
            {"now": now, "revision": revision, "topics": self.bound_list(topics)},
        )

    def sweeps(self, _cursor: Cursor, _take: bool) -> bool:
        """Take the sweep of this database, if no other node has it, or give it back. Return whether that succeeded."""
        return True

    def purge(self, cursor: Cursor, before: int, limit: int) -> int:
        """Delete tombstones that are older than ``before``; return their number."""
        cursor.execute(
            "DELETE FROM retained WHERE topic IN (SELECT topic FROM retained WHERE tombstone = 1 AND stored_at < ? "
            f"ORDER BY stored_at LIMIT ?{self.fragments.lock_free})",
            (before, limit),
        )
        return cursor.rowcount
