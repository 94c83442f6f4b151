"""The topic tree, opened level by level from the store.

How it works. A page walks through its level with one search of the primary key for each node, so a node with a million
topics below it costs as much as one with three. Then the rows below the nodes are counted, for all nodes of the page
together at most ``PAGE_ROWS``: each node of a page of 100 gets 2000. A node with more rows has the figures of these
rows, not exact, until :mod:`.known_tallies` has counted it. A page of a million topics takes less than a tenth of a
second of the scanner's thread.

A node without a message at or below it is left out: its messages have expired or were cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.retained.dates import date_of
from holdfast.retained.queries.known_tallies import KnownTallies
from holdfast.retained.queries.levels import LevelWalk, Node, position_behind
from holdfast.retained.store.scans.interfaces import IRetainedScans
from holdfast.retained.store.scans.values import NO_TALLY, BelowTally, Tally

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

    @inlineCallbacks
    def page(self, parent: str | None, low: str | None, limit: int) -> Generator[Deferred[Any], Any, TreePage]:
        """Return the next nodes below a topic (None: the first level), from a position on (None: from the first node).

        Fails with :class:`holdfast.tickets.StorageFailure`.
        """
        base = base_of(parent)
        now = self._now()
        parents = () if low is None else (yield self._scans.parents(base, low, now))
        walk = LevelWalk(base, low, parents)
        nodes: list[TreeNode] = []
        wishes: list[str] = []
        rows, stops_asked = max(1, PAGE_ROWS // limit), min(_STOPS, 2 * limit + 1)
        scanned, walks, ended = len(parents), 0, False
        while not ended and len(nodes) <= limit and walks < _MOST_WALKS:
            stops = yield self._scans.level(base, walk.low, stops_asked, now)
            walks += 1
            scanned += len(stops)
            ended = len(stops) < stops_asked
            for group in _groups(walk.take(stops, ended), max(1, _STATEMENT_ROWS // rows)):
                if len(nodes) > limit:
                    break
                counted, looked = yield self._counted(group, rows, now)
                scanned += looked
                made = [_tree_node(node, below, len(base)) for node, below in zip(group, counted, strict=True)]
                nodes += [node for node in made if node.tally.count or not node.exact]
                wishes += [node.topic for node in made if not node.exact]
                yield self._pause()
        if wishes:
            self._known.wish(wishes)
        if len(nodes) > limit:
            return TreePage(nodes[:limit], position_behind(nodes[limit - 1].topic), scanned)
        return TreePage(nodes, None if ended else walk.low, scanned)

    @inlineCallbacks
    def _counted(
        self, nodes: Sequence[Node], rows: int, now: int
    ) -> Generator[Deferred[Any], Any, tuple[list[BelowTally], int]]:
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
            counted = yield self._scans.below(unknown, rows, now)
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
