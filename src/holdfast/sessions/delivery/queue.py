"""The messages that wait for one Client, because it is away or because its window is full.

How it works. The messages stand in a deque and leave at its head. Some are taken out of the middle: those of a shared
subscription that another member gets, those whose commit failed, and retained messages that an operator clears. They
are only marked, since searching for each would cost as much as the queue is long, and they are dropped when they come
to the head, or when an eighth of all places are such ones. For example:

    take_retained("a")    a/1, [a], b, [a], c: the two messages are returned, and the length is 3
    pop()                 a/1; the place behind it is dropped with it, so the first message is b

The messages of shared subscriptions are listed apart. So are those with RETAIN 1, by topic, from the first search for
one until the queue is empty: a large clear by an operator would take hours if it searched for each of its topics.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from attrs import define

from holdfast.sessions.counters import Holdings
from holdfast.sessions.delivery.deliveries import Delivery
from holdfast.sessions.delivery.outgoing import OutgoingMessage


@define(eq=False)
class Queued:
    """One message and the form in which to send it. ``delivery`` is None if nothing is noted about it.

    ``waits`` tells that it has not been taken out of the queue, ``conflated`` that a newer message of its topic may
    take its place. ``number`` counts the messages that have entered the queue.
    """

    outgoing: OutgoingMessage
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    delivery: Delivery | None
    waits: bool = True
    conflated: bool = False
    number: int = 0


#: shared by all queues that never had a message: a deque takes 0.6 KiB
_NO_MESSAGES: deque[Queued] = deque()


class MessageQueue:
    """First in, first out. ``bytes`` is its present size; ``enqueued`` and ``dequeued`` count all messages so far.

    ``at_most_once`` is how many of the messages in it have QoS 0. The messages count in the ``holdings`` of the broker,
    until :meth:`count_no_longer`.
    """

    __slots__ = ("_holdings", "_messages", "_retained", "_shared", "at_most_once", "bytes", "dequeued", "enqueued")

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._messages = _NO_MESSAGES  # the first one waits, those behind it may not wait any more
        self._shared: OrderedDict[Queued, None] | None = None  # made with the first of them
        #: the messages with RETAIN 1, by topic, in their order; None if nobody has asked for them yet
        self._retained: dict[str, dict[Queued, None]] | None = None
        self.at_most_once = 0
        self.bytes = 0
        self.enqueued = 0
        self.dequeued = 0

    def __len__(self) -> int:
        return self.enqueued - self.dequeued

    def __bool__(self) -> bool:
        return bool(self._messages)

    def __iter__(self) -> Iterator[Queued]:
        return (queued for queued in self._messages if queued.waits)

    @property
    def first(self) -> Queued:
        """The message to send next."""
        return self._messages[0]

    @property
    def last(self) -> Queued:
        """The message that was added last; it may have been taken out since."""
        return self._messages[-1]

    def have_left(self, enqueued: int) -> bool:
        """Tell whether the first ``enqueued`` messages of this queue have left it.

        ``dequeued`` does not tell that: it also counts later messages, which were taken out of the middle.
        """
        return not self._messages or self._messages[0].number > enqueued

    def append(self, queued: Queued) -> None:
        """Add a message at the end."""
        if self._messages is _NO_MESSAGES:
            self._messages = deque()
        self._messages.append(queued)
        self.enqueued += 1
        queued.number = self.enqueued
        size = queued.outgoing.size()
        self.bytes += size
        self._holdings.queued_messages += 1
        self._holdings.queued_bytes += size
        self.at_most_once += not queued.qos
        if queued.delivery is not None and queued.delivery.shared_filter is not None:
            if self._shared is None:
                self._shared = OrderedDict()
            self._shared[queued] = None
        if self._retained is not None:
            self._index(queued, self._retained)

    def renew(self, queued: Queued, newer: Queued) -> None:
        """Put a newer message of the same topic in the place of one that waits."""
        size = newer.outgoing.size() - queued.outgoing.size()
        self.bytes += size
        self._holdings.queued_bytes += size
        self.at_most_once += (not newer.qos) - (not queued.qos)
        queued.outgoing, queued.qos, queued.retain = newer.outgoing, newer.qos, newer.retain
        queued.identifiers, queued.delivery = newer.identifiers, newer.delivery

    def pop(self) -> Queued:
        """Take the first message."""
        queued = self._messages[0]
        self.remove(queued)
        return queued

    def remove(self, queued: Queued) -> bool:
        """Remove this message. Return False if it is not in the queue any more."""
        if not queued.waits:
            return False
        queued.waits = False
        self.dequeued += 1
        size = queued.outgoing.size()
        self.bytes -= size
        self._holdings.queued_messages -= 1
        self._holdings.queued_bytes -= size
        self.at_most_once -= not queued.qos
        if self._shared:
            self._shared.pop(queued, None)
        if self._retained is not None:
            self._forget(queued, self._retained)
        messages = self._messages
        while messages and not messages[0].waits:
            messages.popleft()
        if 8 * (len(messages) - len(self)) > len(messages):
            self._messages = deque(self)
        if not messages:
            self._retained = None
            self._messages = _NO_MESSAGES
        return True

    def count_no_longer(self) -> None:
        """Leave the holdings of the broker: the Session has ended, and what is left is being removed."""
        self._holdings.queued_messages -= len(self)
        self._holdings.queued_bytes -= self.bytes
        self._holdings = Holdings()

    def shared(self) -> list[Queued]:
        """Return the messages of shared subscriptions, in their order."""
        return list(self._shared or ())

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
            for queued in index.get(topic, ())
            if shared_filter is None or (queued.delivery is not None and queued.delivery.shared_filter == shared_filter)
        ]
        for queued in taken:
            self.remove(queued)
        return taken

    def exceeds(self, messages: int | None, size: int) -> bool:
        """Tell whether the queue exceeds a number of messages (None: no limit) or a size in bytes."""
        return self.bytes > size or (messages is not None and len(self) > messages)

    @staticmethod
    def _index(queued: Queued, index: dict[str, dict[Queued, None]]) -> None:
        message = queued.outgoing.message
        if message.retain:
            index.setdefault(message.topic, {})[queued] = None

    @staticmethod
    def _forget(queued: Queued, index: dict[str, dict[Queued, None]]) -> None:
        topic = queued.outgoing.message.topic
        same = index.get(topic)
        if same is not None and queued in same:
            del same[queued]
            if not same:
                del index[topic]
