"""One level of the topic tree as a Client may see it: only nodes with messages that it may receive.

How it works. The level is walked as for operators (:mod:`.tree`), one search for each node. Where the Client may
receive all that is below a node, the store counts it. Otherwise its messages are read and asked about, up to a bound: a
node of which none was found within the bound is left out, because its name could tell what the Client may not know.
Such a page is not ``complete``.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.auth.interfaces import Grant
from holdfast.retained.queries.levels import LevelWalk, Node, position_behind
from holdfast.retained.queries.permitted import MOST_COUNTED, MOST_READ, IAsker, PermittedMessages, Place, tally_of
from holdfast.retained.queries.tree import TreeNode, base_of
from holdfast.retained.store.scans.values import NO_TALLY, Search, Tally

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

    @inlineCallbacks
    def level(
        self, asker: IAsker, parent: str | None, low: str | None, limit: int
    ) -> Generator[Deferred[Any], Any, PermittedLevel]:
        """Return at most ``limit`` nodes below a topic (None: the first level, without topics that begin with $).

        ``low`` is the place of an earlier page, None for the first one.
        """
        base = base_of(parent)
        now = self._messages.now()
        parents = () if low is None else (yield self._scans.parents(base, low, now))
        walk = LevelWalk(base, low, parents)
        level = PermittedLevel()
        most = limit + _MORE_NODES
        asked, walks, ended = min(_STOPS, 2 * limit + 1), 0, False
        while not ended:
            if walks == _MOST_WALKS:
                level.place = Place(walk.low)
                return level
            stops = yield self._scans.level(base, walk.low, asked, now)
            walks += 1
            ended = len(stops) < asked
            for node in walk.take(stops, ended):
                if parent is None and node.topic.startswith("$"):
                    walk.low = max(walk.low, _BEHIND_DOLLAR)
                    continue
                if len(level.nodes) == limit or level.looked == most:
                    return level
                shown = yield self._shown(asker, node, len(base), most, level)
                if shown is not None:
                    level.nodes.append(shown)
                level.looked += 1
                level.place = Place(position_behind(node.topic), told=shown is not None)
                yield self._messages.pause()
        level.place = None
        return level

    @inlineCallbacks
    def _shown(
        self, asker: IAsker, node: Node, base_length: int, most_nodes: int, level: PermittedLevel
    ) -> Generator[Deferred[Any], Any, TreeNode | None]:
        """Return a node as the Client sees it, None if it sees nothing of it.

        If its tally is not exact, there are at least as many messages.
        """
        own, below, exact = NO_TALLY, NO_TALLY, True
        if node.own is not None:
            grant = asker.grant(node.topic)
            if grant is Grant.GRANTED and self._messages.all_stay:
                own = Tally(1, node.own.bytes, node.own.stored_at)
            elif grant is not Grant.REFUSED:
                own = yield self._own(asker, grant, node.topic)
        if node.has_below:
            topic_filter = f"{node.topic}/+/#"
            grant = asker.grant(topic_filter)
            whole = grant is Grant.GRANTED and self._messages.all_stay
            if grant is not Grant.REFUSED:
                counted = yield self._messages.count(asker, topic_filter, "", level.rows(whole, most_nodes))
                level.spend(whole, counted.rows)
                below, exact = counted.tally, counted.place is None
        if not own.count + below.count:
            level.complete = level.complete and exact
            return None
        return TreeNode(node.topic[base_length:], node.topic, own.plus(below), exact, own.count > 0, below.count > 0)

    @inlineCallbacks
    def _own(self, asker: IAsker, grant: Grant, topic: str) -> Generator[Deferred[Any], Any, Tally]:
        """Return the tally of a node's own message, if the Client may receive it."""
        listed = yield self._scans.listed(Search(topic, self._messages.now()), (topic,))
        for entry in listed:
            allowed = yield from self._messages.permits(asker, grant, entry)
            if allowed:
                return tally_of(entry)
        return NO_TALLY
