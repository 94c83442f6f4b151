"""The packet types that a Client may send now, and the functions that act on the packets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: acts on a packet
Action = Callable[[Any], None]


def _find_none(_type: type[Any]) -> Action | None:
    """Find no action: all are known, or the connection is over."""
    return None


class Actions(dict[type[Any], Action]):
    """The packet types that a Client may send now, each with the function that acts on the packet.

    ``find`` makes the action for the first packet of a type, None for a type that is out of place. Most Clients send
    few types of packets, and an action with the objects behind it takes memory in each connection.
    """

    __slots__ = ("_find",)

    def __init__(
        self, actions: dict[type[Any], Action] | None = None, find: Callable[[type[Any]], Action | None] = _find_none
    ) -> None:
        if actions:
            self.update(actions)
        self._find = find

    def __missing__(self, packet_type: type[Any]) -> Action | None:
        action = self._find(packet_type)
        if action is not None:
            self[packet_type] = action
        return action

    def close(self) -> None:
        """Let go of the objects that act: each refers to the other otherwise."""
        self.clear()
        self._find = _find_none


#: the actions of a connection that takes no packet now
NO_ACTIONS = Actions()
