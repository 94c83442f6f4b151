"""The topic tree, opened level by level from the store.

How it works. A page walks through its level with one search of the primary key for each node, so a node with a million
topics below it costs as much as one with three. Then the rows below the nodes are counted, for all nodes of the page
together at most ``PAGE_ROWS``: each node of a page of 100 gets 2000. A node with more rows has the figures of these
rows, not exact, until ``KnownTallies`` has counted it. A page of a million topics takes less than a tenth of a
second of the scanner's thread.

A node without a message at or below it is left out: its messages have expired or were cleared.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.core.tickets import StorageFailure
from holdfast.core.units import date_of
from holdfast.retained.store.interfaces import IRetainedScans
from holdfast.retained.store.values import NO_TALLY, BelowTally, Search, Stop, Tally
from holdfast.retained.store.wildcards import AFTER_SEPARATOR, JUST_AFTER
from holdfast.scheduling.waiting import as_deferred

#: The rows that one page counts below its nodes.
PAGE_ROWS = 200_000
#: The rows that one statement counts, and the stops of one walk: a few milliseconds each.
_STATEMENT_ROWS = 20_000
_STOPS = 256
#: A page ends after this many walks, even if most names of the level have no messages any more.
_MOST_WALKS = 100


@frozen
class TreeNode:
    """A node with its figures: those of its own message and of all messages below it.

    If they are not ``exact``, they are an estimate: what was counted so far, or an older count. ``has_message`` tells
    whether the topic itself has a message, ``has_children`` whether there are topics below it.
    """

    name: str
    topic: str
    tally: Tally
    exact: bool
    has_message: bool
    has_children: bool

    @property
    def record(self) -> dict[str, Any]:
        """The node as a JSON object, as operators and Clients see it."""
        tally = self.tally
        return {
            "name": self.name,
            "topic": self.topic,
            "count": tally.count,
            "bytes": tally.bytes,
            "newest": None if tally.newest is None else date_of(tally.newest),
            "exact": self.exact,
            "has_message": self.has_message,
            "children": self.has_children,
        }


@frozen
class TreePage:
    """Nodes in their order; the next page begins at the position ``next_low``, None at the end."""

    nodes: Sequence[TreeNode]
    next_low: str | None
    scanned: int


class TopicTree:
    """Opens levels. ``now`` returns milliseconds since the epoch; ``pause`` fires in a later turn of the reactor."""

    def __init__(self, scans: IRetainedScans, now: Callable[[], int], pause: Callable[[], Deferred[None]]) -> None:
        self._scans = scans
        self._now = now
        self._pause = pause
        self._known = KnownTallies(scans, now, pause)

    @as_deferred
    async def page(self, parent: str | None, low: str | None, limit: int) -> TreePage:
        """Return the next nodes below a topic (None: the first level), from a position on (None: from the first node).

        Fails with :class:`holdfast.core.tickets.StorageFailure`.
        """
        base = base_of(parent)
        now = self._now()
        parents = () if low is None else (await self._scans.parents(base, low, now))
        walk = LevelWalk(base, low, parents)
        nodes: list[TreeNode] = []
        wishes: list[str] = []
        rows, stops_asked = max(1, PAGE_ROWS // limit), min(_STOPS, 2 * limit + 1)
        scanned, walks, ended = len(parents), 0, False
        while not ended and len(nodes) <= limit and walks < _MOST_WALKS:
            stops = await self._scans.level(base, walk.low, stops_asked, now)
            walks += 1
            scanned += len(stops)
            ended = len(stops) < stops_asked
            for group in _groups(walk.take(stops, ended), max(1, _STATEMENT_ROWS // rows)):
                if len(nodes) > limit:
                    break
                counted, looked = await self._counted(group, rows, now)
                scanned += looked
                made = [_tree_node(node, below, len(base)) for node, below in zip(group, counted, strict=True)]
                nodes += [node for node in made if node.tally.count or not node.exact]
                wishes += [node.topic for node in made if not node.exact]
                await self._pause()
        if wishes:
            self._known.wish(wishes)
        if len(nodes) > limit:
            return TreePage(nodes[:limit], position_behind(nodes[limit - 1].topic), scanned)
        return TreePage(nodes, None if ended else walk.low, scanned)

    @as_deferred
    async def _counted(self, nodes: Sequence[Node], rows: int, now: int) -> tuple[list[BelowTally], int]:
        """Count the messages below nodes, except where the tally is known; return the rows looked at, too."""
        known: dict[str, BelowTally] = {}
        for node in nodes:
            kept = self._known.get(node.topic) if node.has_below else None
            if not node.has_below:
                known[node.topic] = BelowTally(NO_TALLY, 0, True)
            elif kept is not None and kept.fresh:
                known[node.topic] = BelowTally(kept.tally, 0, True)
        unknown = [node.topic for node in nodes if node.topic not in known]
        looked = 0
        if unknown:
            counted = await self._scans.below(unknown, rows, now)
            for topic, below in zip(unknown, counted, strict=True):
                looked += below.scanned
                older = self._known.get(topic)
                if not below.exact and older is not None and older.tally.count > below.tally.count:
                    below = BelowTally(older.tally, below.scanned, False)
                known[topic] = below
        return [known[node.topic] for node in nodes], looked


def base_of(parent: str | None) -> str:
    """Return the beginning of all topics below a topic; None stands for the root of the tree."""
    return "" if parent is None else f"{parent}/"


def _tree_node(node: Node, below: BelowTally, base_length: int) -> TreeNode:
    own = NO_TALLY if node.own is None else Tally(1, node.own.bytes, node.own.stored_at)
    return TreeNode(
        node.topic[base_length:],
        node.topic,
        own.plus(below.tally),
        below.exact,
        node.own is not None,
        below.tally.count > 0 or not below.exact,
    )


def _groups(nodes: Sequence[Node], size: int) -> list[Sequence[Node]]:
    return [nodes[first : first + size] for first in range(0, len(nodes), size)]


# One level of the topic tree, from the stops of a walk through the stored topics. Pure.
#
# How it works
# ------------
# The nodes of a level are ordered by their name with a separator behind it, so that all topics of a node except its own
# come together. Stored topics have another order: ``a!`` lies between ``a`` and ``a/b``. An example, for a whole
# store::
#
#     stop      topics of its node     node complete
#     a         a, a/b                 at a/b
#     a!        a!                     at a/b: a!/ sorts before a/
#     a/b                              nodes a! and a, in this order
#     c/d       c/d                    node c
#
# So a topic of the level waits until the walk has passed all topics below it. All waiting topics are beginnings of the
# walk's position, because no other topic lies between them and the topics below them. A page that begins at a position
# finds them again with :meth:`holdfast.retained.store.interfaces.IRetainedScans.parents`.
#
# The invariant: the position of a node depends on its name alone. A topic that comes or goes between two pages neither
# moves nor hides another node.


_SEPARATOR = "/"


@frozen
class Node:
    """A name of a level: the whole topic, the row of this topic if it has a message, and whether rows are below it."""

    topic: str
    own: Stop | None
    has_below: bool


class LevelWalk:
    """Takes stops and makes nodes.

    ``base`` is "" or a topic with a separator at its end. The walk begins at the position ``low``, None for the first
    node; ``parents`` are the stops that this position begins with.
    """

    def __init__(self, base: str, low: str | None = None, parents: Sequence[Stop] = ()) -> None:
        #: the position where the walk goes on
        self.low = base if low is None else low
        self._base = base
        # A parent before whose topics below it the position lies is not complete yet.
        self._waiting = [one for one in parents if one.live and self.low <= one.topic + _SEPARATOR]
        self._nodes: list[Node] = []

    def take(self, stops: Sequence[Stop], ended: bool) -> list[Node]:
        """Take the next stops; ``ended`` means that the level has no more. Return the complete nodes."""
        for stop in stops:
            self._pass(stop.topic)
            name, separator, _ = stop.topic[len(self._base) :].partition(_SEPARATOR)
            topic = self._base + name
            if separator:
                own = self._waiting.pop() if self._waiting and self._waiting[-1].topic == topic else None
                self._nodes.append(Node(topic, own, True))
                self.low = topic + AFTER_SEPARATOR
            else:
                if stop.live:
                    self._waiting.append(stop)
                self.low = topic + JUST_AFTER
        if ended:
            while self._waiting:
                self._leave()
        nodes, self._nodes = self._nodes, []
        return nodes

    def _pass(self, topic: str) -> None:
        """Complete the waiting topics that have no topics below them before this one."""
        while self._waiting:
            below = self._waiting[-1].topic + _SEPARATOR
            if topic < below or topic.startswith(below):
                return
            self._leave()

    def _leave(self) -> None:
        own = self._waiting.pop()
        self._nodes.append(Node(own.topic, own, False))


def position_behind(node: str) -> str:
    """Return the position behind the node of a topic."""
    return node + AFTER_SEPARATOR


# The tallies of large nodes of the topic tree: counted in the background, and kept for some time.
#
# How it works. A page of the tree looks at a bounded number of rows, so a node with more rows has no exact figures yet.
# The page *wishes* for them, and the next page has them: node after node is counted, part by part, by the scanner's
# thread. The nodes of the newest page come first. A tally is *fresh* for a minute, or twenty times as long as its count
# took: repeated questions about ten million topics cost at most a twentieth of the scanner's time. Later the tally is
# an estimate until it is counted again.
#
# Left out: tallies kept up to date by every change. Each write would have to touch a second place in the database, or
# each start would have to read all topics.


#: The rows that one part of a count looks at: some milliseconds of the scanner's thread.
ROWS_OF_COUNT = 8192
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

    @as_deferred
    async def _run(self) -> None:
        try:
            while self._wishes:
                topic = self._wishes.pop(0)
                await self._count(topic)
        except StorageFailure as failure:
            # The store has said so already. The next page wishes again.
            self._log.debug("topics cannot be counted: {failure}", failure=failure)
            self._wishes.clear()
        finally:
            self._running = False

    async def _count(self, topic: str) -> None:
        began = self._now()
        search = Search(f"{topic}/+/#", began)
        tally, after, done = Tally(), "", False
        while not done:
            await self._pause()
            part = await self._scans.tally(search, after, ROWS_OF_COUNT)
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
