"""Searches, sorted lists and counts of retained messages, in parts of bounded size.

How it works. A search in topic order ends after a number of rows, matching or not, and its caller goes on with a
cursor: no call is unbounded. A sorted list has no index to read, so it looks at every row of the Topic Filter's ranges
and keeps the best ones, at most a thousand. A million rows take about half a second of the scanner's thread, in parts
of ``ROWS_OF_COUNT`` rows. Such whole scans take a place first.

Left out: an index on the time or the size. Each write would then change two more places of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from attrs import frozen
from twisted.internet.defer import Deferred

from holdfast.retained.store.interfaces import IRetainedScans
from holdfast.retained.store.scans import first_places
from holdfast.retained.store.values import ListedMessage, Place, Search, Sorting, Tally
from holdfast.retained.tree import ROWS_OF_COUNT
from holdfast.scheduling.fair_line import FairLine, Places
from holdfast.scheduling.waiting import as_deferred

#: The rows that a search in topic order, or a count that need not be exact, looks at in one call.
MOST_SCANNED = 200_000
#: The messages read at a time, and their bytes.
_MESSAGES = 500
_BYTES = 1 << 20
#: The scattered topics read at a time.
_LISTED = 100
#: The rows of the first part of a search.
_FIRST_ROWS = 256
#: The scans of a whole range that run at a time, and those that wait for a place: of all callers, and of one.
RUNNING = 4
WAITING = 64
WAITING_OF_ONE = 8


def scan_places() -> Places:
    """Return places for scans that read a whole range: one for each caller, and a bounded line."""
    return Places(RUNNING, 1, FairLine(WAITING, WAITING_OF_ONE))


@frozen
class SearchPage:
    """Messages in topic order; the next page begins after the topic ``after``, unless ``done``."""

    entries: Sequence[ListedMessage]
    scanned: int
    after: str
    done: bool


@frozen
class SortedPage:
    """Messages in the order of a Sorting; the next page has only messages beyond ``last``, None at the end."""

    entries: Sequence[ListedMessage]
    scanned: int
    last: Place | None


@frozen
class Count:
    """A tally; if it is not ``exact``, there are at least as many messages."""

    tally: Tally
    exact: bool
    scanned: int


class Searches:
    """Answers questions. ``pause`` fires in a later turn of the reactor.

    All methods fail with :class:`holdfast.core.tickets.StorageFailure` if the database cannot be read, and end when
    their Deferred is cancelled. A ``caller`` is a key: each has one whole scan at a time.
    """

    def __init__(self, scans: IRetainedScans, pause: Callable[[], Deferred[None]]) -> None:
        self._scans = scans
        self._pause = pause
        self._places = scan_places()

    @as_deferred
    async def page(self, search: Search, after: str, limit: int, max_bytes: int, payloads: bool = False) -> SearchPage:
        """Find at most ``limit`` messages of about ``max_bytes`` together, looking at ``MOST_SCANNED`` rows."""
        entries: list[ListedMessage] = []
        scanned, done, rows = 0, False, min(ROWS_OF_COUNT, max(_FIRST_ROWS, 2 * limit))
        while not done and len(entries) < limit and scanned < MOST_SCANNED and max_bytes > 0:
            most = min(_MESSAGES, limit - len(entries))
            part = await self._scans.search(search, after, rows, most, min(_BYTES, max_bytes), payloads)
            entries += part.entries
            max_bytes -= sum(_weight(one, payloads) for one in part.entries)
            scanned += part.passed.scanned
            after, done = part.passed.after, part.passed.done
            rows = min(ROWS_OF_COUNT, 2 * rows) if len(part.entries) < most else rows
            await self._pause()
        return SearchPage(entries, scanned, after, done)

    @as_deferred
    async def sorted(self, search: Search, sorting: Sorting, limit: int, caller: Hashable) -> SortedPage:
        """Find the first ``limit`` messages. Raises :class:`holdfast.scheduling.fair_line.LineFull`.

        Messages that change during the scan may be missing or have an older place.
        """
        leave = await self._places.take(caller)
        try:
            places: list[Place] = []
            scanned, after, done = 0, "", False
            while not done:
                part = await self._scans.rank(search, sorting, after, ROWS_OF_COUNT, limit + 1)
                places = first_places([*places, *part.places], sorting, limit + 1)
                scanned += part.passed.scanned
                after, done = part.passed.after, part.passed.done
                await self._pause()
        finally:
            leave()
        found: dict[str, ListedMessage] = {}
        chosen = [topic for _, topic in places[:limit]]
        for first in range(0, len(chosen), _LISTED):
            listed = await self._scans.listed(search, chosen[first : first + _LISTED])
            found.update((one.message.topic, one) for one in listed)
            await self._pause()
        last = places[limit - 1] if len(places) > limit else None
        return SortedPage([found[topic] for topic in chosen if topic in found], scanned, last)

    @as_deferred
    async def beginnings(self, search: Search, topics: Sequence[str], most: int) -> dict[str, bytes]:
        """Read the first ``most`` bytes of the payloads of topics. Topics without a message now are missing."""
        found: dict[str, bytes] = {}
        for first in range(0, len(topics), _LISTED):
            listed = await self._scans.listed(search, topics[first : first + _LISTED], most)
            found.update((one.message.topic, one.message.payload) for one in listed)
            await self._pause()
        return found

    @as_deferred
    async def count(self, search: Search, exact: bool, caller: Hashable) -> Count:
        """Count the messages; unless they must be ``exact``, look at ``MOST_SCANNED`` rows at most.

        An exact count raises :class:`holdfast.scheduling.fair_line.LineFull`.
        """
        leave = (await self._places.take(caller)) if exact else _nothing
        tally, scanned, after, done = Tally(), 0, "", False
        try:
            while not done and (exact or scanned < MOST_SCANNED):
                part = await self._scans.tally(search, after, ROWS_OF_COUNT)
                tally = tally.plus(part.tally)
                scanned += part.passed.scanned
                after, done = part.passed.after, part.passed.done
                await self._pause()
        finally:
            leave()
        return Count(tally, done, scanned)


def _weight(listed: ListedMessage, payloads: bool) -> int:
    return 300 + 4 * len(listed.message.topic) + (listed.size if payloads else 0)


def _nothing() -> None:
    """Give back no place."""
