"""Scans in a database, for operators: each part is a statement or two, run by the scanners of the durable store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.core.topics import matches
from holdfast.retained.store import scan_statements as texts
from holdfast.retained.store.bounded_read import listed_of
from holdfast.retained.store.interfaces import IRetainedScans
from holdfast.retained.store.statements import Statements
from holdfast.retained.store.values import (
    BelowTally,
    FoundPart,
    ListedMessage,
    Order,
    Passed,
    Place,
    RankedPart,
    Search,
    Sorting,
    Stop,
    Tally,
    TallyPart,
)
from holdfast.retained.store.wildcards import AFTER_SEPARATOR, KeyRange, plan, ranges_of
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.store import DurableStore, OpenStore

# The first places of an order, among places from several parts. Pure.


def first_places(places: Iterable[Place], sorting: Sorting, limit: int) -> list[Place]:
    """Return the first ``limit`` places behind ``sorting.beyond``."""
    if sorting.beyond is not None:
        beyond = sorting.rank(sorting.beyond)
        places = (place for place in places if sorting.rank(place) > beyond)
    return nsmallest(limit, places, key=sorting.rank)


# Scans in a database: each part is a statement or two, run by the scanners of the durable store.


#: The most rows of a part whose topics Python compares with the filter.
_COMPARED_ROWS = 512


@frozen
class _Scope:
    """What a search wants in one range of topics.

    If SQL cannot check the Topic Filter, ``compared`` is set, and Python compares each topic.
    """

    rest: KeyRange
    last: bool
    wanted: str
    bound: dict[str, Any]
    compared: str | None

    @property
    def bounded(self) -> bool:
        """Whether the range has an end."""
        return self.rest.high is not None

    def passed(self, rows: int, looked: int, last: str | None, after: str) -> Passed:
        """Return how far a part of ``rows`` went that found ``looked`` rows up to the topic ``last``."""
        if looked >= rows:
            assert last is not None
            return Passed(looked, last, False)
        if self.last or self.rest.high is None:
            return Passed(looked, last or after, True)
        return Passed(looked, self.rest.high, False)

    def matching(self, found: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
        """Return the rows, beginning with a topic, that match what Python has to compare."""
        if self.compared is None:
            return list(found)
        return [row for row in found if matches(self.compared, row[0])]


@implementer(IRetainedScans)
class SQLScans:
    """Scans the table ``retained``."""

    def __init__(
        self,
        store: DurableStore,
        statements: Statements,
        committed_first: Callable[[Callable[[], Deferred[Any]]], Deferred[Any]] = lambda read: read(),
    ) -> None:
        """``committed_first`` begins a read when all delayed changes are committed."""
        self._committed_first = committed_first
        self._statements = statements
        self._fragments = statements.fragments
        self._parts: OpenStore
        store.when_open(self._opened)

    def _opened(self, parts: OpenStore) -> None:
        self._parts = parts

    def tally(self, search: Search, after: str, rows: int) -> Deferred[TallyPart]:
        """Count matching messages."""

        def work(cursor: Cursor) -> TallyPart:
            scope = self._scope(cursor, search, after)
            if scope is None:
                return TallyPart(Tally(), Passed(0, after, True))
            if scope.compared is not None:
                found, passed = self._rows(cursor, scope, after, rows)
                times = [stored_at for _, _, stored_at, _ in found]
                tally = Tally(len(found), sum(size for _, size, _, _ in found), max(times, default=None))
                return TallyPart(tally, passed)
            cursor.execute(texts.tally(self._fragments, scope.bounded, scope.wanted), {**scope.bound, "rows": rows})
            looked, last, count, size, newest = cursor.fetchone()
            return TallyPart(Tally(count, size, newest), scope.passed(rows, looked, last, after))

        return self._scan(work)

    @as_deferred
    async def search(
        self, search: Search, after: str, rows: int, limit: int, max_bytes: int, payloads: bool
    ) -> FoundPart:
        """Find messages: a scanner finds their topics, then a reader reads the messages that fit, row by row."""

        def find(cursor: Cursor) -> tuple[list[str], Passed]:
            scope = self._scope(cursor, search, after)
            if scope is None:
                return [], Passed(0, after, True)
            most = rows if scope.compared is None else min(rows, _COMPARED_ROWS)
            text = texts.topics(self._fragments, scope.bounded, scope.wanted)
            cursor.execute(text, {**scope.bound, "rows": most})
            looked, last, tuples = cursor.fetchone()
            topics = [topic for (topic,) in scope.matching(self._statements.tuples_from(tuples))]
            return topics, scope.passed(most, looked, last, after)

        def read(connection: Connection) -> tuple[list[str], list[ListedMessage]]:
            self._statements.begin_search(connection)
            cursor = connection.cursor()
            chosen = self._fitting(cursor, topics[:limit], max_bytes, payloads)
            return chosen, self._entries(cursor, search, chosen, None if payloads else 0)

        topics, passed = await self._scan(find)
        if not topics:
            return FoundPart((), passed)
        chosen, entries = await self._parts.readers.read(read)
        if len(chosen) < len(topics):
            passed = Passed(passed.scanned, chosen[-1], False)
        return FoundPart(entries, passed)

    def rank(self, search: Search, sorting: Sorting, after: str, rows: int, limit: int) -> Deferred[RankedPart]:
        """Find the first places of a part."""

        def work(cursor: Cursor) -> RankedPart:
            scope = self._scope(cursor, search, after)
            if scope is None:
                return RankedPart((), Passed(0, after, True))
            if scope.compared is not None:
                found, passed = self._rows(cursor, scope, after, rows)
                places = [
                    (stored_at if sorting.by is Order.TIME else size, topic) for topic, _, stored_at, size in found
                ]
                return RankedPart(first_places(places, sorting, limit), passed)
            text = texts.rank(
                self._fragments, scope.bounded, scope.wanted, sorting.by, sorting.descending, sorting.beyond is not None
            )
            cursor.execute(text, {**scope.bound, **texts.rank_bound(sorting), "rows": rows, "limit": limit})
            looked, last, tuples = cursor.fetchone()
            ranked = [(value, topic) for value, topic in self._statements.tuples_from(tuples)]
            return RankedPart(ranked, scope.passed(rows, looked, last, after))

        return self._scan(work)

    def listed(self, search: Search, topics: Sequence[str], beginning: int = 0) -> Deferred[Sequence[ListedMessage]]:
        """Read the messages of topics."""

        def read(connection: Connection) -> list[ListedMessage]:
            self._statements.begin_search(connection)
            return self._entries(connection.cursor(), search, topics, beginning)

        return self._committed_first(lambda: self._parts.readers.read(read))

    def level(self, base: str, low: str, rows: int, now: int) -> Deferred[Sequence[Stop]]:
        """Walk through a level."""

        def work(cursor: Cursor) -> list[Stop]:
            high = base[:-1] + AFTER_SEPARATOR if base else None
            bound = {"now": now, "low": max(low, base), "rows": rows, "first": len(base) + 1}
            if high is not None:
                bound["high"] = high
            cursor.execute(texts.level(self._fragments, high is not None), bound)
            found = self._statements.tuples_from(cursor.fetchone()[0])
            return [Stop(topic, bool(alive), size, at) for topic, alive, size, at in sorted(found)]

        return self._scan(work)

    def parents(self, base: str, topic: str, now: int) -> Deferred[Sequence[Stop]]:
        """Search backwards: each row found either is a beginning of the topic, or bounds how long one can be."""

        def work(cursor: Cursor) -> list[Stop]:
            found: list[Stop] = []
            length = len(topic) - 1
            while length >= max(1, len(base)):
                cursor.execute(texts.before(self._fragments), {"now": now, "base": base, "most": topic[:length]})
                row = cursor.fetchone()
                if row is None:
                    break
                stored, alive, size, at = self._statements.tuples_from(row[0])
                length = min(_common(stored, topic), length)
                if stored == topic[:length]:
                    found.append(Stop(stored, bool(alive), size, at))
                    length -= 1
            return found[::-1]

        return self._scan(work)

    def below(self, topics: Sequence[str], rows: int, now: int) -> Deferred[Sequence[BelowTally]]:
        """Count the messages below topics."""

        def work(cursor: Cursor) -> list[BelowTally]:
            bound = {"topics": self._statements.bound_list(topics), "rows": rows, "now": now}
            cursor.execute(texts.tallies_below(self._fragments), bound)
            found = self._statements.tuples_from(cursor.fetchone()[0])
            return [
                BelowTally(Tally(count, size, newest), looked, looked < rows) for looked, count, size, newest in found
            ]

        return self._scan(work)

    def _scan(self, work: Callable[[Cursor], Any]) -> Deferred[Any]:
        def run(connection: Connection) -> Any:
            self._statements.begin_search(connection)
            return work(connection.cursor())

        return self._committed_first(lambda: self._parts.scanners.read(run))

    def _scope(self, cursor: Cursor, search: Search, after: str) -> _Scope | None:
        """Return what to look at next, None behind the last range."""
        chosen = plan(search.topic_filter)
        ranges = ranges_of(search.topic_filter)
        patterned = chosen.levels is not None and not chosen.counted
        levels = self._statements.levels(cursor) if patterned else frozenset[int]()
        wanted, bound = texts.wanted_of(self._fragments, search)
        check = self._statements.check_of(chosen, levels)
        compared = search.topic_filter if check is None else None
        if check is not None:
            wanted += check[0]
            bound.update(check[1])
        for key_range in ranges:
            rest = key_range.after(after) if after else key_range
            if rest is not None:
                bound["low"] = rest.low
                if rest.high is not None:
                    bound["high"] = rest.high
                return _Scope(rest, key_range is ranges[-1], wanted, bound, compared)
        return None

    def _rows(self, cursor: Cursor, scope: _Scope, after: str, rows: int) -> tuple[list[Sequence[Any]], Passed]:
        """Read the rows of a part whose topics Python compares with the filter."""
        most = min(rows, _COMPARED_ROWS)
        cursor.execute(texts.rows(self._fragments, scope.bounded, scope.wanted), {**scope.bound, "rows": most})
        looked, last, tuples = cursor.fetchone()
        found = self._statements.tuples_from(tuples)
        return scope.matching(found), scope.passed(most, looked, last, after)

    def _fitting(self, cursor: Cursor, topics: Sequence[str], max_bytes: int, payloads: bool) -> list[str]:
        """Return the first topics whose messages have at most ``max_bytes``, and at least one."""
        bound = {"listed": self._statements.bound_list(topics)}
        cursor.execute(texts.weights(self._fragments, payloads), bound)
        weights = dict(self._statements.tuples_from(cursor.fetchone()[0]))
        chosen: list[str] = []
        for topic in topics:
            max_bytes -= weights.get(topic, 0)
            if chosen and max_bytes < 0:
                break
            chosen.append(topic)
        return chosen

    def _entries(self, cursor: Cursor, search: Search, topics: Sequence[str], most: int | None) -> list[ListedMessage]:
        """Read messages that still match: between two statements they may change.

        Each has ``most`` bytes of its payload, None for all.
        """
        wanted, bound = texts.wanted_of(self._fragments, search)
        bound["listed"] = self._statements.bound_list(topics)
        if most:
            bound["most"] = most
        cursor.execute(texts.entries(self._fragments, wanted, most), bound)
        return [listed_of(columns) for columns in cursor.fetchall()]


def _common(first: str, second: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    for position, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return position
    return min(len(first), len(second))
