"""The change feed: it announces every accepted change of the retained messages once."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.hot_values import hot_frozen
from holdfast.messages import ChangeKind, ChangeOrigin
from holdfast.tickets import CommitTicket


@hot_frozen
class Change:
    """One accepted change. The store can read it once ``ticket`` is settled.

    ``live`` tells that matching subscribers were sent the message live, or were not allowed to get it.
    """

    topic: str
    revision: int
    kind: ChangeKind
    origin: ChangeOrigin
    live: bool
    ticket: CommitTicket


class ChangeFeed:
    """Tells every listener of every change at once. Only imports may be out of the order of revisions."""

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[Change], None]] = {}
        self._next = 0

    def listen(self, listener: Callable[[Change], None]) -> int:
        """Add a listener. Returns the key for :meth:`forget`."""
        self._next += 1
        self._listeners[self._next] = listener
        return self._next

    def forget(self, key: int) -> None:
        """Remove a listener."""
        self._listeners.pop(key, None)

    def announce(self, change: Change) -> None:
        """Tell all listeners."""
        for listener in tuple(self._listeners.values()):
            listener(change)

    def __len__(self) -> int:
        return len(self._listeners)
