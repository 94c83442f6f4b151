"""The messages that wait for one Client, because it is away or because its window is full."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from holdfast.hot_values import hot_frozen
from holdfast.sessions.delivery.deliveries import Delivery
from holdfast.sessions.delivery.outgoing import OutgoingMessage


@hot_frozen(eq=False)
class Queued:
    """One message and the form in which to send it. ``delivery`` is None if the Session is not stored."""

    outgoing: OutgoingMessage
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    delivery: Delivery | None


class MessageQueue:
    """First in, first out. ``bytes`` is its present size; ``enqueued`` and ``dequeued`` count all messages so far."""

    __slots__ = ("_messages", "bytes", "dequeued", "enqueued")

    def __init__(self) -> None:
        self._messages: deque[Queued] = deque()
        self.bytes = 0
        self.enqueued = 0
        self.dequeued = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Queued]:
        return iter(self._messages)

    @property
    def first(self) -> Queued:
        """The message to send next."""
        return self._messages[0]

    def append(self, queued: Queued) -> None:
        """Add a message at the end."""
        self._messages.append(queued)
        self.enqueued += 1
        self.bytes += queued.outgoing.size()

    def pop(self) -> Queued:
        """Take the first message."""
        queued = self._messages.popleft()
        self._gone(queued)
        return queued

    def remove(self, queued: Queued) -> bool:
        """Remove this message. Return False if it is not in the queue any more."""
        if queued not in self._messages:
            return False
        self._messages.remove(queued)
        self._gone(queued)
        return True

    def take_shared(self, shared_filter: str) -> list[Queued]:
        """Take out all messages of this shared subscription."""
        taken = [
            queued
            for queued in self._messages
            if queued.delivery is not None and queued.delivery.shared_filter == shared_filter
        ]
        if taken:
            # One pass over the queue: remove() for each message would be quadratic.
            gone = set(map(id, taken))
            self._messages = deque(queued for queued in self._messages if id(queued) not in gone)
            for queued in taken:
                self._gone(queued)
        return taken

    def clear(self) -> None:
        """Take everything out."""
        while self._messages:
            self.pop()

    def exceeds(self, messages: int | None, size: int) -> bool:
        """Tell whether the queue exceeds a number of messages (None: no limit) or a size in bytes."""
        return self.bytes > size or (messages is not None and len(self._messages) > messages)

    def _gone(self, queued: Queued) -> None:
        self.dequeued += 1
        self.bytes -= queued.outgoing.size()
