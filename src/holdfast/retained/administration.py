"""Operators' work with retained messages: list, set, and clear by filter, in parts of bounded size.

A clear listens to the change feed while it reads the store and waits for subscribers. It leaves out each topic that
others change meanwhile: their message is newer than the clear, and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from attrs import evolve, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import Interface, implementer

from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.core.terminal import counted
from holdfast.core.tickets import CommitTicket
from holdfast.retained.feed import Change
from holdfast.retained.fields import BadRecord
from holdfast.retained.limits import NotRetained, name_refusal
from holdfast.retained.searches import Count, Searches
from holdfast.retained.service import RetainedMessages
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.values import FoundPart, ListedMessage, Listing, RetainedStatistics, Search, Selection
from holdfast.retained.tree import ROWS_OF_COUNT, TopicTree
from holdfast.scheduling.waiting import as_deferred, durable

# Publishers of operators' changes of retained messages, as administration and restoring see them.


class IPublisher(Interface):
    """Publishes changes by operators: messages with RETAIN 1, and clears."""

    def publish(message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Retain the message, or clear its topic if the payload is empty. May raise RetainRefused.

        The ticket is settled when the change is durable.
        """

    def room(topic: str) -> Deferred[None] | None:
        """Return None if a message may be published to this topic now.

        Otherwise the reactor has other work, or a subscriber is behind: publish when the Deferred fires, in that turn.
        """


@implementer(IPublisher)
class SilentPublisher:
    """Changes the retained messages and tells no subscriber: on request, or where there is no subscriber."""

    def __init__(self, retained: RetainedMessages) -> None:
        self._retained = retained

    def publish(self, message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Retain the message, or clear its topic if the payload is empty. May raise RetainRefused."""
        return self._retained.retain(message, origin, live=False)

    def room(self, topic: str) -> None:
        """Return None: there is always room."""
        return


#: The messages listed or changed in one turn, and their bytes.
ROWS_IN_TURN = 500
BYTES_IN_TURN = 1 << 20
#: A part of a clear whose size is limited ends after this many milliseconds, before its call is late.
_MOST_TIME = 5_000
#: Subscribers with QoS 1 get a clear for certain: one that they miss leaves them with an outdated value.
_CLEAR_QOS = 1
_EVER = 2**63 - 1
_DRY_RUNS = "dry runs"  #: who counts for dry runs, among the callers of scans
_PROTOCOL_VERSION = 5  # has no effect: no packets are read


@frozen
class Cleared:
    """The number of topics cleared (or to clear); the next part begins after ``after``, unless ``done``."""

    count: int
    after: str
    done: bool


class Administration:
    """The operators' access to the retained messages.

    ``pause`` fires after the reactor has run its other work. ``now`` returns milliseconds since the epoch. The
    ``publisher`` brings changes to present subscribers, unless they are quiet.
    """

    _log = Logger()

    def __init__(
        self,
        retained: RetainedMessages,
        store: IRetainedStore,
        now: Callable[[], int],
        pause: Callable[[], Deferred[None]],
        publisher: IPublisher,
    ) -> None:
        self.now = now
        self.pause = pause
        #: the number of messages set and cleared since the start
        self.counts = {"set": 0, "cleared": 0}
        self.tree = TopicTree(store.scans, now, pause)
        self.searches = Searches(store.scans, pause)
        self._retained = retained
        self._store = store
        self._publisher = publisher
        self._silent = SilentPublisher(retained)

    @property
    def node(self) -> int:
        """The node that makes the changes; 0 for tools."""
        node: int = self._store.node
        return node

    @property
    def available(self) -> bool:
        """Whether the last read and the last write of the database succeeded."""
        available: bool = self._store.available
        return available

    def statistics(self) -> Deferred[RetainedStatistics]:
        """Read the number of messages and their bytes, of all nodes, without expired messages."""
        return self._retained.totals.read()

    def listing(self, topic_filter: str, after: str, rows: int, max_bytes: int, payloads: bool) -> Deferred[Listing]:
        """List at most ``rows`` messages of ``max_bytes`` together, in topic order after a topic."""
        return self._store.listing(self._selection(topic_filter, _EVER), after, rows, max_bytes, payloads)

    @as_deferred
    async def first(
        self, topic_filter: str, lister: Callable[[str, str, int, int, bool], Deferred[Listing]]
    ) -> ListedMessage | None:
        """Return the first message that matches, with its payload; ``lister`` is used as :meth:`listing` is."""
        after, done = "", False
        while not done:
            listing = await lister(topic_filter, after, 1, BYTES_IN_TURN, True)
            if listing.entries:
                entry: ListedMessage = listing.entries[0]
                return entry
            after, done = listing.after, listing.done
            await self.pause()
        return None

    @as_deferred
    async def set(self, message: ApplicationMessage, quiet: bool = False) -> None:
        """Retain a message; the history names its ``operator``.

        Fails with :class:`NotRetained`, :class:`BadRecord` or :class:`StorageFailure`.
        """
        if not self._retained.admission.enabled:
            raise NotRetained("retainer.enable is false")
        refusal = name_refusal(self._retained.admission.limits, message.topic, message.properties)
        if refusal is not None:
            raise BadRecord(refusal, "topic")
        publisher = self._silent if quiet else self._publisher
        waiting = publisher.room(message.topic)
        if waiting is not None:
            await waiting
        await self._decided(message)
        await durable(publisher.publish(message, ChangeOrigin.API))
        self.counts["set"] += 1

    @as_deferred
    async def clear(
        self,
        topic_filter: str,
        after: str = "",
        rows: int | None = None,
        dry_run: bool = False,
        quiet: bool = False,
        search: Search | None = None,
        progress: Callable[[Cleared], None] = lambda _: None,
        operator: str | None = None,
    ) -> Cleared:
        """Clear at most ``rows`` topics that match, after the topic ``after``; with ``dry_run``, count them.

        With a ``search``, only the messages that it selects beside the Topic Filter. Expired messages are cleared
        quietly: for subscribers they have gone already. Messages published from now on stay. With ``rows`` it ends
        early if subscribers are slow or matches are rare. ``progress`` is told what is cleared after
        each part. The history names the ``operator``. Fails with :class:`StorageFailure`.
        """
        if dry_run and rows is None and not after:
            return await self._countable(search or Search(topic_filter, self.now()))
        ends_at = None if rows is None else self.now() + _MOST_TIME
        stamp = self._store.next_revision()
        silently = quiet or (search is not None and search.expired)
        publisher = self._silent if silently else self._publisher
        find = self._finder(topic_filter, stamp, search)
        count, done = 0, False
        meanwhile: set[str] = set()  # topics that change between the read and the clear
        listening = self._retained.feed.listen(lambda change: _note(meanwhile, change))
        try:
            while not (done or count == rows or self._is_late(ends_at)):
                meanwhile.clear()
                # Then the read includes every change that was made before the set was emptied.
                await durable(self._store.flushed())
                most = ROWS_IN_TURN if rows is None else min(ROWS_IN_TURN, rows - count)
                listing = await find(after, most)
                after, done = listing.after, listing.done
                topics = [entry.message.topic for entry in listing.entries]
                if dry_run:
                    count += len(topics)
                else:
                    tickets: list[CommitTicket] = []
                    passed = await self._clear(topics, publisher, meanwhile, ends_at, tickets, operator)
                    if passed < len(topics):
                        after, done = topics[passed - 1], False
                    await durable(*tickets)
                    self.counts["cleared"] += len(tickets)
                    count += len(tickets)
                progress(Cleared(count, after, done))
                await self.pause()
        finally:
            self._retained.feed.forget(listening)
        if count and not dry_run:
            self._log.info(
                "cleared {messages}: {filter}",
                messages=counted(count, "retained message"), count=count, filter=topic_filter or "all",
            )  # fmt: skip
        return Cleared(count, after, done)

    async def _decided(self, message: ApplicationMessage) -> None:
        """Wait until the totals of the message's quotas are known."""
        waiting = self._retained.admission.undecided(message)
        if waiting is not None:
            await waiting

    async def _clear(
        self,
        topics: Sequence[str],
        publisher: IPublisher,
        meanwhile: Container[str],
        ends_at: int | None,
        tickets: list[CommitTicket],
        operator: str | None,
    ) -> int:
        """Clear topics that nobody has changed ``meanwhile``, until it is late; return how many topics were passed."""
        for passed, topic in enumerate(topics, 1):
            waiting = publisher.room(topic)
            if waiting is not None:
                await waiting
            if topic not in meanwhile:
                clear = ApplicationMessage(topic, b"", _CLEAR_QOS, retain=True, username=operator, operator=operator)
                tickets.append(publisher.publish(clear, ChangeOrigin.API))
            if self._is_late(ends_at):
                return passed
        return len(topics)

    def _is_late(self, ends_at: int | None) -> bool:
        return ends_at is not None and self.now() >= ends_at

    async def _countable(self, search: Search) -> Cleared:
        """Count all messages that a clear would clear now. One such count runs at a time."""
        await durable(self._store.flushed())
        found: Count = await self.searches.count(search, True, _DRY_RUNS)
        return Cleared(found.tally.count, "", True)

    def _finder(self, topic_filter: str, stamp: int, search: Search | None) -> Callable[[str, int], Deferred[Listing]]:
        """Return the function that lists the next messages to clear: after a topic, and at most so many."""
        if search is None or search.plain:
            selection = self._selection(topic_filter, stamp)
            return lambda after, most: self._store.listing(selection, after, most, BYTES_IN_TURN, False)
        wanted = evolve(search, not_after=stamp, node=self._store.node)
        rows = ROWS_IN_TURN

        def take(part: FoundPart) -> Listing:
            nonlocal rows
            # Rare matches are looked for in larger parts; with dense ones, most of a large part would be read again.
            rows = min(ROWS_OF_COUNT, 2 * rows) if len(part.entries) < rows // 4 else ROWS_IN_TURN
            return Listing(part.entries, part.passed.after, part.passed.done)

        def find(after: str, most: int) -> Deferred[Listing]:
            found: Deferred[FoundPart] = self._store.scans.search(wanted, after, rows, most, BYTES_IN_TURN, False)
            return found.addCallback(take)

        return find

    def _selection(self, topic_filter: str, not_after: int) -> Selection:
        return Selection(topic_filter, _PROTOCOL_VERSION, not_after, self._store.node, self.now())


def _note(topics: set[str], change: Change) -> None:
    if not change.is_foreign:  # else it may be told here long after it was stored
        topics.add(change.topic)
