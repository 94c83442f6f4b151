"""One level of the topic tree, from the stops of a walk through the stored topics. Pure.

How it works
------------
The nodes of a level are ordered by their name with a separator behind it, so that all topics of a node except its own
come together. Stored topics have another order: ``a!`` lies between ``a`` and ``a/b``. An example, for a whole store::

    stop      topics of its node     node complete
    a         a, a/b                 at a/b
    a!        a!                     at a/b: a!/ sorts before a/
    a/b                              nodes a! and a, in this order
    c/d       c/d                    node c

So a topic of the level waits until the walk has passed all topics below it. All waiting topics are beginnings of the
walk's position, because no other topic lies between them and the topics below them. A page that begins at a position
finds them again with :meth:`holdfast.retained.store.scans.interfaces.IRetainedScans.parents`.

The invariant: the position of a node depends on its name alone. A topic that comes or goes between two pages neither
moves nor hides another node.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from holdfast.retained.store.scans.values import Stop
from holdfast.retained.wildcards.plan import AFTER_SEPARATOR, JUST_AFTER

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
