"""Scans of messages in memory: the plain form, for tests and for brokers without a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from holdfast.retained.store.rows import Row, stored_row_size
from holdfast.retained.store.scans.interfaces import IRetainedScans
from holdfast.retained.store.scans.ranking import first_places
from holdfast.retained.store.scans.values import (
    BelowTally,
    FoundPart,
    Order,
    Passed,
    RankedPart,
    Search,
    Sorting,
    Stop,
    Tally,
    TallyPart,
)
from holdfast.retained.store.values import ListedMessage
from holdfast.topics import EVERY_TOPIC, matches


@implementer(IRetainedScans)
class MemoryScans:
    """Scans a list of rows in topic order. ``listed`` returns a topic's message, with or without its payload."""

    def __init__(self, rows: Callable[[], Sequence[Row]], listed: Callable[[str, bool], ListedMessage]) -> None:
        self._rows = rows
        self._listed = listed

    def tally(self, search: Search, after: str, rows: int) -> Deferred[TallyPart]:
        """Count matching messages at once."""
        found, passed = self._found(search, after, rows)
        return succeed(TallyPart(_tally(found), passed))

    def search(
        self, search: Search, after: str, rows: int, limit: int, max_bytes: int, payloads: bool
    ) -> Deferred[FoundPart]:
        """Find messages at once."""
        found, passed = self._found(search, after, rows)
        entries: list[ListedMessage] = []
        for row in found:
            weight = len(row.topic.encode()) + len(row.properties5) + (row.size if payloads else 0)
            if len(entries) == limit or (entries and weight > max_bytes):
                passed = Passed(passed.scanned, entries[-1].message.topic, False)
                break
            max_bytes -= weight
            entries.append(self._listed(row.topic, payloads))
        return succeed(FoundPart(entries, passed))

    def rank(self, search: Search, sorting: Sorting, after: str, rows: int, limit: int) -> Deferred[RankedPart]:
        """Sort matching messages at once."""
        found, passed = self._found(search, after, rows)
        places = [(row.stored_at if sorting.by is Order.TIME else row.size, row.topic) for row in found]
        return succeed(RankedPart(first_places(places, sorting, limit), passed))

    def listed(self, search: Search, topics: Sequence[str], beginning: int = 0) -> Deferred[Sequence[ListedMessage]]:
        """Read messages at once."""
        wanted = set(topics)
        rows = [row.topic for row in self._rows() if row.topic in wanted and _is_wanted(row, search)]
        whole = [self._listed(topic, True) for topic in rows]
        return succeed(
            [evolve(one, message=evolve(one.message, payload=one.message.payload[:beginning])) for one in whole]
        )

    def level(self, base: str, low: str, rows: int, now: int) -> Deferred[Sequence[Stop]]:
        """Walk through a level at once."""
        stops: list[Stop] = []
        low = max(low, base)
        for row in self._rows():
            if len(stops) == rows:
                break
            if row.topic < low or not row.topic.startswith(base):
                continue
            stops.append(_stop(row, now))
            name, separator, _ = row.topic[len(base) :].partition("/")
            low = f"{base}{name}0" if separator else row.topic + "\1"
        return succeed(stops)

    def parents(self, base: str, topic: str, now: int) -> Deferred[Sequence[Stop]]:
        """Look at all rows."""
        return succeed(
            [
                _stop(row, now)
                for row in self._rows()
                if row.topic.startswith(base) and topic.startswith(row.topic) and row.topic != topic
            ]
        )

    def below(self, topics: Sequence[str], rows: int, now: int) -> Deferred[Sequence[BelowTally]]:
        """Count at once."""
        found = []
        for topic in topics:
            looked = [row for row in self._rows() if row.topic.startswith(f"{topic}/")][:rows]
            tally = _tally([row for row in looked if _stop(row, now).live])
            found.append(BelowTally(tally, len(looked), len(looked) < rows))
        return succeed(found)

    def _found(self, search: Search, after: str, rows: int) -> tuple[list[Row], Passed]:
        rest = [row for row in self._rows() if row.topic > after]
        looked = rest[:rows]
        end = looked[-1].topic if looked else after
        return [row for row in looked if _is_wanted(row, search)], Passed(len(looked), end, len(looked) == len(rest))


def _tally(rows: Sequence[Row]) -> Tally:
    return Tally(len(rows), sum(map(stored_row_size, rows)), max((row.stored_at for row in rows), default=None))


def _stop(row: Row, now: int) -> Stop:
    alive = row.expires_at is None or row.expires_at > now
    return Stop(row.topic, alive, stored_row_size(row), row.stored_at)


def _is_wanted(row: Row, search: Search) -> bool:
    expired = row.expires_at is not None and row.expires_at <= search.now
    return (
        (search.topic_filter == EVERY_TOPIC or matches(search.topic_filter, row.topic))
        and expired is search.expired
        and (row.revision <= search.not_after or row.revision & 255 != search.node)
        and search.selects(row.topic, row.client_id, row.username, row.stored_at, row.size)
    )
