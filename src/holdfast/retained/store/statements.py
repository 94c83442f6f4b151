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
from functools import lru_cache
from typing import Any, ClassVar

from attrs import define, frozen

from holdfast.core.messages import STORED_ENTRY
from holdfast.retained.store.rows import COLUMNS, MESSAGE_COLUMNS, Row, unexpired, with_facts
from holdfast.retained.store.values import (
    Census,
    EarlierSurvey,
    ExpiredPosition,
    RetainedStatistics,
    Selection,
    Slice,
    Survey,
    Usage,
)
from holdfast.retained.store.wildcards import JUST_AFTER, PatternSyntax, Plan
from holdfast.storage.driver import Connection, Cursor, on_conflict_replace

# The values that statements take and return, the same for both dialects.


#: A condition in SQL (with a leading AND, or empty) and its bound values.
Condition = tuple[str, dict[str, Any]]


@define
class Totals:
    """The totals of the store, or their change by one transaction.

    ``highest`` is the highest revision that a transaction met or used. ``lost`` are the topics whose stored row is
    newer than the row to write; the stored row stays. ``written`` are the rows as they were written, None if nobody
    wants to know.
    """

    count: int = 0
    bytes: int = 0
    largest_packet: int = 0
    levels: frozenset[int] = frozenset()
    highest: int = 0
    lost: frozenset[str] = frozenset()
    written: list[Row] | None = None

    def add(self, other: Totals) -> None:
        """Add a change."""
        self.count += other.count
        self.bytes += other.bytes
        self.largest_packet = max(self.largest_packet, other.largest_packet)
        self.highest = max(self.highest, other.highest)
        if not other.levels <= self.levels:
            self.levels |= other.levels


@frozen
class Leap:
    """The answer of one leap: the topics that jumps reached, and the topic that a walk from topic to topic reached.

    ``visited`` are the topics that the jumps reached. Each is the first topic from the successor of the one before, so
    every match up to the last one is among them. ``complete`` tells that no match follows them. ``break_even`` is the
    topic that the jumps must pass to be cheaper than the walk; ``end`` is the last topic of the walk. Both are None if
    the range has fewer topics. ``likely`` are the topics of the walk that match the pattern, or None if that is
    unknown or if there are many.
    """

    visited: Sequence[str]
    complete: bool
    break_even: str | None
    end: str | None
    likely: Sequence[str] | None = None


# The pieces of SQL in which the dialects differ, and expressions made of them.


@frozen(eq=False, kw_only=True)  # compared by identity: the cached texts have it in their keys
class Fragments:
    """The pieces of SQL in which the dialects differ.

    The braces of ``among`` and ``list_of`` take the name of a parameter or a column, those of ``tuple`` and ``tuples``
    several names, those of ``separator_at`` a text, and those of ``for_each`` a subquery about ``item.value``.
    """

    empty: str  #: an empty byte string
    topic_bytes: str  #: the topic as a part of a packet
    topic_length: str  #: the length of the topic in bytes
    length: str  #: the function for the length of a byte string
    differs: str  #: the comparison that takes NULL for a value
    greatest: str  #: the function for the greater one of two values
    among: str  #: being in a bound list
    list_of: str  #: all values of a column, as one value
    packets: str  #: all packets of a subquery, concatenated
    details: str  #: the QoS and the expiry of all messages of a subquery
    tuple: str  #: some values as one value
    tuples: str  #: some columns of all messages of a subquery, as one value
    for_each: str  #: the tuples that a subquery returns for each of the bound ``topics``, as one value
    contains: str  #: whether the topic has the bound text ``contains``
    separator_at: str  #: the position of the first "/" in a text, 0 for none
    lowest: str  #: the lowest character of a topic, U+0001
    numbers: str  #: all lengths of a subquery, as one value
    none_longer: str  #: the condition that no packet of the store is longer than ``longest``, where other nodes write
    matches_pattern: str  #: comparing a topic with a pattern
    lock: str  #: locks rows against other nodes, in the order of a column
    lock_free: str  #: locks rows, but passes over rows that another node has locked


def stored_size(fragments: Fragments) -> str:
    """Return the expression for the bytes of a message that totals and quotas count. No payload is read."""
    return f"(size + {fragments.topic_length} + {fragments.length}(properties5) + {STORED_ENTRY})"


def below(bounded: bool) -> str:
    """Return the condition for the end of a range."""
    return " AND topic < :high" if bounded else ""


# The texts of the statements that read retained messages, one for each shape. They are built once and kept.
#
# They are built from constants and fragments alone: values are always bound, never part of a text.


# ruff: noqa: S608


#: The first topic of a range.
FIRST = "SELECT topic FROM retained WHERE topic >= :low{high} ORDER BY topic LIMIT 1"


@lru_cache
def walk_text(bounded: bool) -> str:
    """Return the statement that finds the end of the next topics to scan."""
    return f"SELECT ({FIRST} OFFSET :offset)".format(high=below(bounded))


@lru_cache
def topics_text(fragments: Fragments, bounded: bool) -> str:
    """Return the statement that lists the topics of a range."""
    return (
        f"SELECT {fragments.list_of.format('topic')} FROM "
        f"(SELECT topic FROM retained WHERE topic >= :low{below(bounded)} AND tombstone = 0 ORDER BY topic) AS found"
    )


@lru_cache(maxsize=256)
def conditions_text(
    fragments: Fragments, bounded: bool, no_local: bool, limited: str, queued: bool, version5: bool, check: str
) -> str:
    """Return the condition of the messages that a read returns."""
    # The check comes first: most of the scanned topics fail it.
    parts = [
        f"topic >= :low{below(bounded)}{check}",
        "tombstone = 0",
        unexpired(":now"),
        "(revision <= :not_after OR revision & 255 <> :node)",
    ]
    if queued:
        parts.append(
            "(revision <= :queued_above OR revision > :queued_until OR qos < :queued_qos OR revision & 255 <> :node)"
        )
    if no_local:
        parts.append(f"client_id {fragments.differs} :except_client")
    if limited:
        parts.append(f"{packet_length(fragments, version5)} {limited} :max_packet_size")
    return " AND ".join(parts)


@lru_cache(maxsize=256)
def read_text(
    fragments: Fragments, conditions: str, version5: bool, detailed: bool, publishers: bool, facts: bool
) -> str:
    """Select last topic, count, packets, soonest expiry; if asked for, QoS and expiry of all, publishers, and facts."""
    packet = (
        f"prefix5 || {fragments.topic_bytes} || properties5 || payload"
        if version5
        else f"prefix3 || {fragments.topic_bytes} || payload"
    )
    return (
        f"SELECT max(topic), count(*), {fragments.packets}, coalesce(min(expires_at), 0)"
        f"{', ' + fragments.details if detailed else ''}"
        f"{', ' + fragments.tuples.format('username, client_id') if publishers else ''}"
        f"{', ' + fragments.tuples.format('stored_at, revision, client_id') if facts else ''} "
        f"FROM (SELECT topic, {packet} AS packet, "
        f"expires_at{', qos' if detailed else ''}{', username' if publishers else ''}"
        f"{', client_id' if publishers or facts else ''}{', stored_at, revision' if facts else ''} "
        f"FROM retained WHERE {conditions}{fragments.none_longer} "
        "ORDER BY topic LIMIT :limit) AS found"
    )


@lru_cache
def survey_text(fragments: Fragments, guests: bool) -> str:
    """Return the statement that lists the publishers of the next topics."""
    return (
        f"SELECT max(topic), count(*), {fragments.tuples.format('topic, username, client_id')} "
        f"FILTER (WHERE tombstone = 0 AND revision > :newer_than{'' if guests else ' AND username IS NOT NULL'}) "
        "FROM (SELECT topic, username, client_id, tombstone, revision FROM retained WHERE topic > :after "
        "ORDER BY topic LIMIT :limit) AS found"
    )


@lru_cache(maxsize=256)
def numbers_text(fragments: Fragments, conditions: str, length: str) -> str:
    """Return the statement that lists a length of each matching message."""
    return (
        f"SELECT {fragments.numbers} FROM (SELECT topic, {length} AS length FROM retained "
        f"WHERE {conditions} ORDER BY topic LIMIT :limit) AS found"
    )


@lru_cache(maxsize=64)
def entries_text(fragments: Fragments, conditions: str, payloads: bool) -> str:
    """Return the statement that reads matching messages as rows."""
    columns = entry_columns(fragments, payloads)
    return f"SELECT {columns} FROM retained WHERE {conditions} ORDER BY topic LIMIT :limit"


def entry_columns(fragments: Fragments, payloads: bool) -> str:
    """Return the columns of such a row."""
    columns = ", ".join(MESSAGE_COLUMNS)
    return (columns if payloads else columns.replace("payload", fragments.empty)) + ", size"


def packet_length(fragments: Fragments, version5: bool) -> str:
    """Return an expression that needs no payload: the column ``size`` has the payload's length."""
    length, topic = fragments.length, fragments.topic_length
    if version5:
        return f"{length}(prefix5) + {topic} + {length}(properties5) + size"
    return f"{length}(prefix3) + {topic} + size"


def message_weight(fragments: Fragments, payloads: bool) -> str:
    """Return the expression for the bytes of a message in an answer."""
    if payloads:
        return packet_length(fragments, True)
    return f"{fragments.topic_length} + {fragments.length}(properties5)"


# The record of the last survey of publishers in the database: a start by the same rules need not survey again.
#
# How it works
# ------------
# A record has a *fingerprint* of all that the verdicts depend on, and a revision: all messages up to it were judged,
# and
# none of them is withheld. That stays true whatever happens later, since a changed message has a higher revision.
#
#     at a start                                                     the broker surveys
#     the fingerprint is another one                                 all messages
#     it is the same, and no commit has used a higher revision       nothing
#     it is the same, and some commit has used a higher revision     the messages with a higher revision
#
# So nothing has to be deleted when rules change, after a crash, or when a command imports messages without a broker.
#
# This needs revisions that increase from process to process. In an SQLite file they do: one process at a time writes,
# and each begins above all revisions that were ever used. In Postgres, another node may commit a lower revision later.
# So there the record counts only while no other node, and no command, has ever written.


_READ = "SELECT fingerprint, revision FROM source_surveys WHERE node = ?"
_NEWEST = "SELECT coalesce(max(revision_mark), 0) FROM nodes"
_OTHERS = "SELECT count(*) FROM nodes WHERE node <> ? AND revision_mark > 0"
_KEEP = (
    "INSERT INTO source_surveys (node, fingerprint, revision) VALUES (?, ?, ?)"
    " ON CONFLICT (node) DO UPDATE SET fingerprint = excluded.fingerprint, revision = excluded.revision"
)


def read_record(connection: Connection, node: int, shared: bool) -> EarlierSurvey | None:
    """Return what is known from earlier; None if that is nothing. Call it before this process writes anything."""
    cursor = connection.cursor()
    cursor.execute(_READ, (node,))
    found = cursor.fetchall()
    if not found:
        return None
    if shared:
        cursor.execute(_OTHERS, (node,))
        if cursor.fetchall()[0][0]:
            return None
    ((fingerprint, judged),) = found
    cursor.execute(_NEWEST)
    ((newest,),) = cursor.fetchall()
    return EarlierSurvey(fingerprint, None if newest <= judged else judged)


def keep_record(connection: Connection, node: int, fingerprint: str, judged: int | None) -> None:
    """Write the record, inside a transaction. ``judged`` is the revision; None: all that is committed was judged."""
    cursor = connection.cursor()
    if judged is None:
        cursor.execute(_NEWEST)
        ((judged,),) = cursor.fetchall()
    cursor.execute(_KEEP, (node, fingerprint, judged))


# Built from constants and counts alone: values are always bound.

INSERTED = ", ".join(COLUMNS)
ON_CONFLICT = f"{on_conflict_replace(COLUMNS, ('topic',))} WHERE excluded.revision > retained.revision"

_GET = f"SELECT {', '.join(MESSAGE_COLUMNS)} FROM retained WHERE topic = ? AND tombstone = 0"
_LAST_CHANGE = f"SELECT tombstone, revision, {', '.join(MESSAGE_COLUMNS)} FROM retained WHERE topic = ?"
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

    def last_change(self, cursor: Cursor, topic: str) -> tuple[Any, ...] | None:
        """Read of a topic whether it was cleared, the revision, and the MESSAGE_COLUMNS; None without a row."""
        cursor.execute(_LAST_CHANGE, (topic,))
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
