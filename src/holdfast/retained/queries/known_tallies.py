"""The tallies of large nodes of the topic tree: counted in the background, and kept for some time.

How it works. A page of the tree looks at a bounded number of rows, so a node with more rows has no exact figures yet.
The page *wishes* for them, and the next page has them: node after node is counted, part by part, by the scanner's
thread. The nodes of the newest page come first. A tally is *fresh* for a minute, or twenty times as long as its count
took: repeated questions about ten million topics cost at most a twentieth of the scanner's time. Later the tally is
an estimate until it is counted again.

Left out: tallies kept up to date by every change. Each write would have to touch a second place in the database, or
each start would have to read all topics.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from holdfast.retained.store.scans.interfaces import IRetainedScans
from holdfast.retained.store.scans.values import Search, Tally
from holdfast.tickets import StorageFailure

#: The rows that one part of a count looks at: some milliseconds of the scanner's thread.
ROWS = 8192
#: The milliseconds for which a tally is fresh, at least, and how many times as long as its count took.
_FRESH = 60_000
_FRESH_FACTOR = 20
#: The most tallies kept, and the most characters of their topics; the most nodes that wait for their count.
_MOST_KNOWN = 10_000
_MOST_CHARACTERS = 1 << 20
_MOST_WISHES = 1000


@frozen
class KnownTally:
    """The tally of the messages below a topic. It is an estimate if it is not ``fresh``."""

    tally: Tally
    fresh: bool


@frozen
class _Counted:
    tally: Tally
    fresh_until: int


class KnownTallies:
    """Counts and keeps tallies. ``now`` returns milliseconds since the epoch; ``pause`` fires in a later turn."""

    _log = Logger()

    def __init__(self, scans: IRetainedScans, now: Callable[[], int], pause: Callable[[], Deferred[None]]) -> None:
        self._scans = scans
        self._now = now
        self._pause = pause
        self._counted: OrderedDict[str, _Counted] = OrderedDict()  # the one used last at the end
        self._characters = 0
        self._wishes: list[str] = []
        self._running = False

    def get(self, topic: str) -> KnownTally | None:
        """Return the tally of the messages below a topic, None if it is unknown."""
        counted = self._counted.get(topic)
        if counted is None:
            return None
        self._counted.move_to_end(topic)
        return KnownTally(counted.tally, self._now() < counted.fresh_until)

    def wish(self, topics: Iterable[str]) -> None:
        """Count the messages below topics soon, before those wished for earlier."""
        first = dict.fromkeys(topics)
        self._wishes = [*first, *(topic for topic in self._wishes if topic not in first)][:_MOST_WISHES]
        if not self._running:
            self._running = True
            self._run().addErrback(self._failed)

    @inlineCallbacks
    def _run(self) -> Generator[Deferred[Any], Any, None]:
        try:
            while self._wishes:
                topic = self._wishes.pop(0)
                yield self._count(topic)
        except StorageFailure as failure:
            # The store has said so already. The next page wishes again.
            self._log.debug("topics cannot be counted: {failure}", failure=failure)
            self._wishes.clear()
        finally:
            self._running = False

    @inlineCallbacks
    def _count(self, topic: str) -> Generator[Deferred[Any], Any, None]:
        began = self._now()
        search = Search(f"{topic}/+/#", began)
        tally, after, done = Tally(), "", False
        while not done:
            yield self._pause()
            part = yield self._scans.tally(search, after, ROWS)
            tally, after, done = tally.plus(part.tally), part.passed.after, part.passed.done
        now = self._now()
        self._keep(topic, _Counted(tally, began + max(_FRESH, _FRESH_FACTOR * (now - began))))

    def _keep(self, topic: str, counted: _Counted) -> None:
        if topic not in self._counted:
            self._characters += len(topic)
        self._counted[topic] = counted
        self._counted.move_to_end(topic)
        while len(self._counted) > _MOST_KNOWN or self._characters > _MOST_CHARACTERS:
            forgotten, _ = self._counted.popitem(last=False)
            self._characters -= len(forgotten)

    def _failed(self, failure: Any) -> None:
        """Log an error of this program."""
        self._log.failure("counting topics failed", failure)
        self._wishes.clear()
