"""Two connections of one client at two nodes: the older one ends.

How it works. A stored Session has one owner, which has ended an older connection before the Session moves. A Session
that ends with its connection is stored nowhere. So each node tells the others which clients have connected, each with a
revision. Of two connections that are made at one time, the one with the higher revision stays; its node tells that.

When a link begins anew, what was told may be lost. Then a node tells all its connected clients once more, some in each
turn. Such a repetition ends older connections only, by their revisions, so both nodes decide alike: twins that were
made while nodes did not hear each other end as soon as they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from twisted.internet.interfaces import IReactorTime

from holdfast.cluster.messages import Connected
from holdfast.cluster.whereabouts import Neighbours

#: clients that one message tells
_CLIENTS = 500
#: seconds in which two connections count as made at one time: then the higher revision is the later one
_AT_ONE_TIME = 2.0


class Twins:
    """Tells other nodes who has connected here. ``end`` ends the connection of a client to this node."""

    def __init__(self, neighbours: Neighbours, clock: IReactorTime, end: Callable[[str], None]) -> None:
        self._neighbours = neighbours
        self._clock = clock
        self._end = end
        #: by Client Identifier: the revision and the time (seconds) of its connection to this node
        self._since: dict[str, tuple[int, float]] = {}
        self._to_tell: dict[str, int] = {}
        #: by node: what it is told once more; None if nothing is
        self._again: dict[int, Iterator[tuple[str, int]] | None] = {}

    def connected(self, client_id: str, revision: int) -> None:
        """Note that a client has connected to this node."""
        self._since[client_id] = revision, self._clock.seconds()
        if not self._to_tell:
            self._clock.callLater(0, self._tell)
        self._to_tell[client_id] = revision

    def left(self, client_id: str) -> None:
        """Note that the connection of a client has ended."""
        self._since.pop(client_id, None)

    def _tell(self) -> None:
        clients, self._to_tell = list(self._to_tell.items()), {}
        for node in self._neighbours.living():
            for start in range(0, len(clients), _CLIENTS):
                self._neighbours.tell_node(node, Connected(tuple(clients[start : start + _CLIENTS])))

    def up(self, node: int) -> None:
        """Note that a link begins. A process that is heard for the first time has missed nothing: it serves nobody."""
        if node not in self._again:
            self._again[node] = None
            return
        begins = self._again[node] is None
        self._again[node] = iter([(client_id, revision) for client_id, (revision, _) in self._since.items()])
        if begins:
            self._clock.callLater(0, self._repeat, node)

    def gone(self, node: int) -> None:
        """Note that the process of a node is gone."""
        self._again.pop(node, None)

    def _repeat(self, node: int) -> None:
        clients = self._again.get(node)
        if clients is None:
            return
        part = tuple(islice(clients, _CLIENTS))
        if part:
            self._neighbours.tell_node(node, Connected(part, is_repeated=True))
            self._clock.callLater(0, self._repeat, node)
        else:
            self._again[node] = None

    def told(self, node: int, message: Connected) -> None:
        """End the connections of clients that have connected to another node later."""
        earlier = []
        for client_id, revision in message.clients:
            own, at = self._since.get(client_id, (None, 0.0))
            if own is None:
                continue
            if own <= revision or not (message.is_repeated or self._clock.seconds() - at < _AT_ONE_TIME):
                self._end(client_id)
            elif not message.is_repeated:
                earlier.append((client_id, own))
        if earlier:
            self._neighbours.tell_node(node, Connected(tuple(earlier), is_repeated=True))
