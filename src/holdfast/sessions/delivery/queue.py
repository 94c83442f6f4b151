"""The messages that wait for one Client, because it is away or because its window is full.

How it works. The messages stand in a deque. A clear by an operator takes out the waiting retained messages of its
topic. To search the whole queue for each topic of a large clear would take hours, so the first such search makes an
index by topic, which lives until the queue is empty. A message taken out of the middle keeps its place in the deque,
as an id in ``_removed``, until it comes to the head, or until an eighth of all places are such ones. For example:

    take_retained("a")    a/1, [a], b, [a], c: the two messages are returned, and the length is 3
    pop()                 a/1; the place behind it is dropped with it, so the first message is b
"""

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

    __slots__ = ("_messages", "_removed", "_retained", "bytes", "dequeued", "enqueued")

    def __init__(self) -> None:
        self._messages: deque[Queued] = deque()
        #: the ids of messages that are still in the deque, but no longer in the queue; never the first one's
        self._removed: set[int] = set()
        #: the messages with RETAIN 1, by topic and id; None if nobody has asked for them yet
        self._retained: dict[str, dict[int, Queued]] | None = None
        self.bytes = 0
        self.enqueued = 0
        self.dequeued = 0

    def __len__(self) -> int:
        return len(self._messages) - len(self._removed)

    def __bool__(self) -> bool:
        return bool(self._messages)  # the first one is never a removed one

    def __iter__(self) -> Iterator[Queued]:
        if not self._removed:
            return iter(self._messages)
        return (queued for queued in self._messages if id(queued) not in self._removed)

    @property
    def first(self) -> Queued:
        """The message to send next."""
        return self._messages[0]

    def append(self, queued: Queued) -> None:
        """Add a message at the end."""
        self._messages.append(queued)
        self.enqueued += 1
        self.bytes += queued.outgoing.size()
        if self._retained is not None:
            self._index(queued, self._retained)

    def pop(self) -> Queued:
        """Take the first message."""
        queued = self._messages.popleft()
        if self._removed:
            self._drop_removed()
        self._gone(queued)
        return queued

    def remove(self, queued: Queued) -> bool:
        """Remove this message. Return False if it is not in the queue any more."""
        if queued not in self._messages or id(queued) in self._removed:
            return False
        self._messages.remove(queued)
        self._drop_removed()
        self._gone(queued)
        return True

    def take_retained(self, topic: str, shared_filter: str | None = None) -> list[Queued]:
        """Take out the messages of this topic that were published with RETAIN 1; those of a shared subscription only.

        After the first call, each one takes time for the messages that it returns, not for those in the queue.
        """
        index = self._retained
        if index is None:
            index = self._retained = {}
            for queued in self:
                self._index(queued, index)
        taken = [
            queued
            for queued in index.get(topic, {}).values()
            if shared_filter is None or (queued.delivery is not None and queued.delivery.shared_filter == shared_filter)
        ]
        for queued in taken:
            self._removed.add(id(queued))
            self._gone(queued)
        self._drop_removed()
        return taken

    def take_shared(self, shared_filter: str) -> list[Queued]:
        """Take out all messages of this shared subscription."""
        taken = [
            queued for queued in self if queued.delivery is not None and queued.delivery.shared_filter == shared_filter
        ]
        if taken:
            # One pass over the queue: remove() for each message would be quadratic.
            gone = set(map(id, taken))
            self._messages = deque(queued for queued in self if id(queued) not in gone)
            self._removed.clear()
            for queued in taken:
                self._gone(queued)
        return taken

    def clear(self) -> None:
        """Take everything out."""
        while self._messages:
            self.pop()

    def exceeds(self, messages: int | None, size: int) -> bool:
        """Tell whether the queue exceeds a number of messages (None: no limit) or a size in bytes."""
        return self.bytes > size or (messages is not None and len(self) > messages)

    def _gone(self, queued: Queued) -> None:
        self.dequeued += 1
        self.bytes -= queued.outgoing.size()
        index = self._retained
        if index is None:
            return
        if len(self._messages) == len(self._removed):
            self._retained = None
            return
        topic = queued.outgoing.message.topic
        same = index.get(topic)
        if same is not None and same.pop(id(queued), None) is not None and not same:
            del index[topic]

    @staticmethod
    def _index(queued: Queued, index: dict[str, dict[int, Queued]]) -> None:
        message = queued.outgoing.message
        if message.retain:
            index.setdefault(message.topic, {})[id(queued)] = queued

    def _drop_removed(self) -> None:
        """Drop the places of removed messages at the head; drop all such places if they are many."""
        messages, removed = self._messages, self._removed
        if 8 * len(removed) > len(messages):
            self._messages = deque(queued for queued in messages if id(queued) not in removed)
            removed.clear()
        while removed and id(messages[0]) in removed:
            removed.discard(id(messages.popleft()))
