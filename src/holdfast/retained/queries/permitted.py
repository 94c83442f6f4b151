"""What a Client may see of the retained messages: pages and counts, in parts of bounded cost.

How it works. The authorizer says which messages of a Topic Filter the Client may receive. Of GRANTED ones, the store
counts by itself. Of FILTERED ones, and while some publishers are judged (:mod:`holdfast.retained.sources`), each
message is read and asked about. Both are asked anew for each part, so that changed rules count at once. A read looks at
a bounded number of rows, then tells where it stopped.

A place where a read stopped may be a topic that the Client may not know of. It is *told* only if its message was.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.auth.interfaces import Grant
from holdfast.retained.sources.source_check import SourceCheck
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.scans.values import NO_TALLY, Search, Tally
from holdfast.retained.store.values import ListedMessage
from holdfast.sizes import stored_size
from holdfast.tickets import StorageFailure
from holdfast.topics import EVERY_TOPIC

#: The rows that one question looks at: those that the store counts by itself, and those that are read for the answer.
MOST_COUNTED, MOST_READ = 200_000, 20_000
#: The rows of one part of a count.
_COUNTED = 8192
#: The messages that one part reads and asks about, some microseconds each, and their bytes.
_MESSAGES, _BYTES = 100, 256 * 1024
#: The rows of the first part of a read; rare matches are looked for in larger parts.
_FIRST_ROWS = 256


class IAsker(Protocol):
    """The permissions of the Client that asks, as they are now."""

    def grant(self, topic_filter: str) -> Grant:
        """Tell which of the messages that match a Topic Filter it may receive."""

    def may_receive(self, topic: str) -> bool | Deferred[bool]:
        """Tell whether it may receive messages of a topic."""


@frozen
class Place:
    """The place where a read stopped. The next one goes on behind it. ``told``: the Client knows this topic."""

    topic: str
    told: bool = False


@frozen
class Counted:
    """A tally, the place where the count stopped (None at the end), and about how many rows it has looked at."""

    tally: Tally
    place: Place | None
    rows: int


class PermittedMessages:
    """Reads for Clients. ``now`` returns milliseconds since the epoch; ``pause`` fires in a later turn of the reactor.

    All methods fail with :class:`holdfast.tickets.StorageFailure` if the database cannot be read, and end when their
    Deferred is cancelled.
    """

    def __init__(
        self,
        store: IRetainedStore,
        sources: SourceCheck | None,
        now: Callable[[], int],
        pause: Callable[[], Deferred[None]],
    ) -> None:
        self.now = now
        self.pause = pause
        self.store = store
        self._sources = sources

    def flushed(self, topic_filter: str = EVERY_TOPIC) -> Deferred[None]:
        """Wait for the commit of all changes of a Topic Filter so far: a Client sees what it has published itself."""
        done: Deferred[None] = Deferred()
        ticket = self.store.flushed(topic_filter)

        def settled(failure: StorageFailure | None) -> None:
            if not done.called:
                done.callback(None) if failure is None else done.errback(failure)

        ticket.when_settled(settled)
        return done

    @property
    def all_stay(self) -> bool:
        """Whether no publisher of a message has to be judged."""
        return self._sources is None or self._sources.all_stay

    @inlineCallbacks
    def page(
        self,
        asker: IAsker,
        topic_filter: str,
        after: str,
        limit: int,
        payloads: bool,
        take: Callable[[ListedMessage], bool],
        most_rows: int = MOST_READ,
    ) -> Generator[Deferred[Any], Any, Place | None]:
        """Give at most ``limit`` messages, in topic order after a topic, to ``take``.

        It returns False if it does not take this one now. Returns the place where the read stopped, None at the end.
        """
        place: Place | None = Place(after)
        scanned, taken, rows = 0, 0, max(_FIRST_ROWS, 2 * min(limit, _MESSAGES))
        while place is not None and taken < limit and scanned < most_rows:
            grant = asker.grant(topic_filter)
            if grant is Grant.REFUSED:
                return None
            most = min(_MESSAGES, limit - taken)
            search = Search(topic_filter, self.now())
            part = yield self.store.scans.search(search, place.topic, rows, most, _BYTES, payloads)
            for entry in part.entries:
                allowed = yield from self.permits(asker, grant, entry)
                if allowed:
                    if not take(entry):
                        return place
                    taken += 1
                place = Place(entry.message.topic, allowed)
            if part.passed.done:
                return None
            if part.passed.after != place.topic:
                place = Place(part.passed.after)
            scanned += max(1, part.passed.scanned)
            rows = min(_COUNTED, 2 * rows) if len(part.entries) < most else rows
            yield self.pause()
        return place

    @inlineCallbacks
    def count(
        self, asker: IAsker, topic_filter: str, after: str = "", most_rows: int | None = None
    ) -> Generator[Deferred[Any], Any, Counted]:
        """Count the messages behind a topic, and look at ``most_rows`` rows."""
        tally, scanned, done = NO_TALLY, 0, False
        most = MOST_COUNTED if most_rows is None else most_rows
        while not done and scanned < most:
            if asker.grant(topic_filter) is not Grant.GRANTED or not self.all_stay:
                rest = yield self._count_each(asker, topic_filter, after, min(most, MOST_READ))
                return Counted(tally.plus(rest.tally), rest.place, scanned + rest.rows)
            search = Search(topic_filter, self.now())
            part = yield self.store.scans.tally(search, after, min(_COUNTED, most - scanned))
            tally = tally.plus(part.tally)
            scanned += max(1, part.passed.scanned)
            after, done = part.passed.after, part.passed.done
            yield self.pause()
        return Counted(tally, None if done else Place(after), scanned)

    @inlineCallbacks
    def _count_each(
        self, asker: IAsker, topic_filter: str, after: str, most_rows: int
    ) -> Generator[Deferred[Any], Any, Counted]:
        """Count by asking about each message."""
        tally = NO_TALLY

        def take(entry: ListedMessage) -> bool:
            nonlocal tally
            tally = tally.plus(tally_of(entry))
            return True

        place = yield self.page(asker, topic_filter, after, most_rows, False, take, most_rows)
        return Counted(tally, None if place is None else Place(place.topic), most_rows if place else tally.count)

    def permits(self, asker: IAsker, grant: Grant, entry: ListedMessage) -> Generator[Deferred[Any], Any, bool]:
        """Tell whether the Client may see a message of a Topic Filter with this grant."""
        message = entry.message
        sources = self._sources
        if sources is not None and not sources.may_stay(message.username, message.client_id, message.topic):
            return False
        if grant is Grant.GRANTED:
            return True
        answer = asker.may_receive(message.topic)
        if isinstance(answer, Deferred):
            answer = yield answer
        return answer is True


def tally_of(entry: ListedMessage) -> Tally:
    """Return the tally of one message."""
    message = entry.message
    return Tally(1, stored_size(message.topic, message.properties, entry.size), message.stored_at)
