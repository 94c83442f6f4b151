"""Two connections of one client at two nodes: the older one ends.

How it works. A stored Session has one owner, which has ended an older connection before the Session moves. A Session
that ends with its connection is stored nowhere. So each node tells the others which clients have connected, each with a
revision. Of two connections that are made at one time, the one with the higher revision stays.
"""

from __future__ import annotations

from collections.abc import Callable

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

    def told(self, message: Connected) -> None:
        """End the connections of clients that have connected to another node later."""
        for client_id, revision in message.clients:
            own, at = self._since.get(client_id, (None, 0.0))
            if own is not None and (own <= revision or self._clock.seconds() - at >= _AT_ONE_TIME):
                self._end(client_id)
