"""What a Client may see of the retained messages: pages and counts, in parts of bounded cost.

How it works. The authorizer says which messages of a Topic Filter the Client may receive. Of GRANTED ones, the store
counts by itself. Of FILTERED ones, and while some publishers are judged (:mod:`holdfast.retained.source_check`), each
message is read and asked about. Both are asked anew for each part, so that changed rules count at once. A read looks at
a bounded number of rows, then tells where it stopped.

A place where a read stopped may be a topic that the Client may not know of. It is *told* only if its message was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import define, field, frozen
from twisted.internet.defer import Deferred

from holdfast.core.messages import stored_size
from holdfast.core.topics import EVERY_TOPIC
from holdfast.identity.interfaces import Grant
from holdfast.retained.source_check import SourceCheck
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.values import NO_TALLY, ListedMessage, Search, Tally
from holdfast.retained.tree import LevelWalk, Node, TreeNode, base_of, position_behind
from holdfast.scheduling.waiting import as_deferred, durable

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


class IPublished(Protocol):
    """A retained message, and who has published it."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def client_id(self) -> str | None:
        """The Client Identifier of its publisher."""

    @property
    def username(self) -> str | None:
        """The User Name of its publisher."""


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

    All methods fail with :class:`holdfast.core.tickets.StorageFailure` if the database cannot be read, and end when
    their Deferred is cancelled.
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
        return durable(self.store.flushed(topic_filter))

    @property
    def all_stay(self) -> bool:
        """Whether no publisher of a message has to be judged."""
        return self._sources is None or self._sources.all_stay

    @as_deferred
    async def page(
        self,
        asker: IAsker,
        topic_filter: str,
        after: str,
        limit: int,
        payloads: bool,
        take: Callable[[ListedMessage], bool],
        most_rows: int = MOST_READ,
    ) -> Place | None:
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
            part = await self.store.scans.search(search, place.topic, rows, most, _BYTES, payloads)
            for entry in part.entries:
                allowed = await self.permits(asker, grant, entry.message)
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
            await self.pause()
        return place

    @as_deferred
    async def count(self, asker: IAsker, topic_filter: str, after: str = "", most_rows: int | None = None) -> Counted:
        """Count the messages behind a topic, and look at ``most_rows`` rows."""
        tally, scanned, done = NO_TALLY, 0, False
        most = MOST_COUNTED if most_rows is None else most_rows
        while not done and scanned < most:
            if asker.grant(topic_filter) is not Grant.GRANTED or not self.all_stay:
                rest = await self._count_each(asker, topic_filter, after, min(most, MOST_READ))
                return Counted(tally.plus(rest.tally), rest.place, scanned + rest.rows)
            search = Search(topic_filter, self.now())
            part = await self.store.scans.tally(search, after, min(_COUNTED, most - scanned))
            tally = tally.plus(part.tally)
            scanned += max(1, part.passed.scanned)
            after, done = part.passed.after, part.passed.done
            await self.pause()
        return Counted(tally, None if done else Place(after), scanned)

    async def _count_each(self, asker: IAsker, topic_filter: str, after: str, most_rows: int) -> Counted:
        """Count by asking about each message."""
        tally = NO_TALLY

        def take(entry: ListedMessage) -> bool:
            nonlocal tally
            tally = tally.plus(tally_of(entry))
            return True

        place = await self.page(asker, topic_filter, after, most_rows, False, take, most_rows)
        return Counted(tally, None if place is None else Place(place.topic), most_rows if place else tally.count)

    async def permits(self, asker: IAsker, grant: Grant, message: IPublished) -> bool:
        """Tell whether the Client may see a message of a Topic Filter with this grant."""
        sources = self._sources
        if sources is not None and not sources.rule.may_stay(message.username, message.client_id, message.topic):
            return False
        if grant is Grant.GRANTED:
            return True
        answer = asker.may_receive(message.topic)
        if isinstance(answer, Deferred):
            answer = await answer
        return answer is True


def tally_of(entry: ListedMessage) -> Tally:
    """Return the tally of one message."""
    message = entry.message
    return Tally(1, stored_size(message.topic, message.properties, entry.size), message.stored_at)


# One level of the topic tree as a Client may see it: only nodes with messages that it may receive.
#
# How it works. The level is walked as for operators (:mod:`.tree`), one search for each node. Where the Client may
# receive all that is below a node, the store counts it. Otherwise its messages are read and asked about, up to a bound:
# a node of which none was found within the bound is left out, because its name could tell what the Client may not know.
# Such a page is not ``complete``.


#: The stops of one walk.
_STOPS = 256
#: A page ends after this many walks, even if most names of the level have no messages any more.
_MOST_WALKS = 100
#: The position behind all topics that begin with $.
_BEHIND_DOLLAR = "%"
#: A page looks at so many more nodes than it may show.
_MORE_NODES = 100
#: The fewest rows that are counted below a node; with few nodes that are large, each gets some times its even part.
_LEAST, _TIMES = 20, 4


@define
class PermittedLevel:
    """Nodes in their order, and the place where the page ended, None at the end of the level.

    ``counted`` and ``read`` are the rows that may still be looked at, by the store and one by one. ``looked`` is how
    many nodes the page has looked at.
    """

    nodes: list[TreeNode] = field(factory=list)
    place: Place | None = None
    complete: bool = True
    looked: int = 0
    counted: int = MOST_COUNTED
    read: int = MOST_READ

    def rows(self, whole: bool, most_nodes: int) -> int:
        """Return how many rows may be looked at below the next node."""
        left = self.counted if whole else self.read
        return max(_LEAST, min(left, _TIMES * left // max(1, most_nodes - self.looked)))

    def spend(self, whole: bool, rows: int) -> None:
        """Note that rows were looked at."""
        if whole:
            self.counted = max(0, self.counted - rows)
        else:
            self.read = max(0, self.read - rows)


class PermittedTree:
    """Opens levels for Clients."""

    def __init__(self, messages: PermittedMessages) -> None:
        self._messages = messages
        self._scans = messages.store.scans

    @as_deferred
    async def level(self, asker: IAsker, parent: str | None, low: str | None, limit: int) -> PermittedLevel:
        """Return at most ``limit`` nodes below a topic (None: the first level, without topics that begin with $).

        ``low`` is the place of an earlier page, None for the first one.
        """
        base = base_of(parent)
        now = self._messages.now()
        parents = () if low is None else (await self._scans.parents(base, low, now))
        walk = LevelWalk(base, low, parents)
        level = PermittedLevel()
        most = limit + _MORE_NODES
        asked, walks, ended = min(_STOPS, 2 * limit + 1), 0, False
        while not ended:
            if walks == _MOST_WALKS:
                level.place = Place(walk.low)
                return level
            stops = await self._scans.level(base, walk.low, asked, now)
            walks += 1
            ended = len(stops) < asked
            for node in walk.take(stops, ended):
                if parent is None and node.topic.startswith("$"):
                    walk.low = max(walk.low, _BEHIND_DOLLAR)
                    continue
                if len(level.nodes) == limit or level.looked == most:
                    return level
                shown = await self._shown(asker, node, len(base), most, level)
                if shown is not None:
                    level.nodes.append(shown)
                level.looked += 1
                level.place = Place(position_behind(node.topic), told=shown is not None)
                await self._messages.pause()
        level.place = None
        return level

    async def _shown(
        self, asker: IAsker, node: Node, base_length: int, most_nodes: int, level: PermittedLevel
    ) -> TreeNode | None:
        """Return a node as the Client sees it, None if it sees nothing of it.

        If its tally is not exact, there are at least as many messages.
        """
        own, below, exact = NO_TALLY, NO_TALLY, True
        if node.own is not None:
            grant = asker.grant(node.topic)
            if grant is Grant.GRANTED and self._messages.all_stay:
                own = Tally(1, node.own.bytes, node.own.stored_at)
            elif grant is not Grant.REFUSED:
                own = await self._own(asker, grant, node.topic)
        if node.has_below:
            topic_filter = f"{node.topic}/+/#"
            grant = asker.grant(topic_filter)
            whole = grant is Grant.GRANTED and self._messages.all_stay
            if grant is not Grant.REFUSED:
                counted = await self._messages.count(asker, topic_filter, "", level.rows(whole, most_nodes))
                level.spend(whole, counted.rows)
                below, exact = counted.tally, counted.place is None
        if not own.count + below.count:
            level.complete = level.complete and exact
            return None
        return TreeNode(node.topic[base_length:], node.topic, own.plus(below), exact, own.count > 0, below.count > 0)

    async def _own(self, asker: IAsker, grant: Grant, topic: str) -> Tally:
        """Return the tally of a node's own message, if the Client may receive it."""
        listed = await self._scans.listed(Search(topic, self._messages.now()), (topic,))
        for entry in listed:
            allowed = await self._messages.permits(asker, grant, entry.message)
            if allowed:
                return tally_of(entry)
        return NO_TALLY
