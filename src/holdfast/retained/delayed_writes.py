"""Delayed writes: QoS 0 messages of topics with a ``write_interval`` wait in memory, the newest of each.

How it works. A sensor publishes each second, and its policy has ``write_interval = "60s"``. The first message starts
the timer of this interval. Each later message, of any topic with this interval, replaces the one that waits, or joins:

    second 0    a = 1    waits, timer of 60 s
    second 1    a = 2    replaces a = 1, which is never written
    second 5    b = 7    waits too
    second 60            a = 61 and b = 7 are written, in one commit

A change keeps the revision and the time of its arrival. All other ways to the store come first:

- A change that is written at once (QoS 1 and 2, a clear, an operator's) drops the waiting one of its topic, the older.
- Readers who wait for all earlier changes (``flushed`` of the store) have those that they may read written first. So a
  replay or a list never lacks a waiting change, and a reader of ``a`` does not cause a write of ``b``.
- The history has the order of the writes, and its times never decrease. So a waiting change gets the time of its
  arrival only if no other change was recorded since, else the time of the newest one. The past of now ("-0s") never
  lacks a waiting change; that of an earlier time lacks a change that was not yet written then.
- While conditional changes are undecided, and during an import, nothing is delayed.
- A replay that runs hears of a waiting change at once, and drops its older copy. The ticket of that change is settled
  when it has been given to the writer. A replay remembers a thousand changes, so beyond some hundred all are written.

The invariant: a waiting change is newer than every change of its topic that this node has given to the writer.

Tried and left out: to lay waiting changes over each read. The database itself puts the packets of a replay together,
and each reader of the store would need a second way. A read costs one write of what it may read instead: never more
than without a ``write_interval``.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.messages import RetainedChange
from holdfast.sizes import held_size
from holdfast.tickets import CommitTicket
from holdfast.topics import EVERY_TOPIC, matches

#: The most bytes that wait. Beyond them, changes are written at once.
_MOST_BYTES = 16 << 20
#: The changes that are given to the writer in one turn: about 20 microseconds each.
_AT_ONCE = 200
#: The waiting topics that a reader's Topic Filter is compared with: about a microsecond each.
_COMPARED = 2000
#: The changes that running replays may remember: fewer than ``MOST_MARKS`` of ``replay/held_messages.py``.
_MOST_TOLD = 500


class DelayedWrites:
    """The changes that wait to be written. ``put`` gives a change to the writer."""

    def __init__(self, put: Callable[[RetainedChange], CommitTicket], clock: IReactorTime) -> None:
        self._put = put
        self._clock = clock
        #: by topic, the first that came first: the change and its bytes in memory
        self._waiting: dict[str, tuple[RetainedChange, int]] = {}
        self._bytes = 0
        #: of changes that a replay was told of, by topic
        self._tickets: dict[str, CommitTicket] = {}
        self._timers: dict[float, IDelayedCall] = {}
        self._writing: CommitTicket | None = None  #: settled when all that waited has been given to the writer
        self._stopped = False
        #: how many changes were replaced before they were written
        self.saved = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, change: RetainedChange, interval: float) -> bool:
        """Let a change of a message wait for at most ``interval`` seconds. False: there is no room, nothing is done."""
        size = _size(change)
        if self._stopped or self._writing is not None or self._bytes + size > _MOST_BYTES:
            return False
        if self.drop(change.topic):
            self.saved += 1
        self._waiting[change.topic] = change, size
        self._bytes += size
        if interval not in self._timers:
            self._timers[interval] = self._clock.callLater(interval, self._due, interval)
        return True

    def drop(self, topic: str) -> bool:
        """Forget the waiting change of a topic: a newer one is written. Tell whether there was one."""
        found = self._waiting.pop(topic, None)
        if found is None:
            return False
        self._bytes -= found[1]
        ticket = self._tickets.pop(topic, None)
        if ticket is not None:
            ticket.settle(None)  # who was told of it is told of the newer one
        return True

    def ticket_of(self, topic: str) -> CommitTicket:
        """Return a ticket for a running replay. It is settled with the waiting change of a topic."""
        ticket = self._tickets.get(topic)
        if ticket is None:
            ticket = self._tickets[topic] = CommitTicket()
        if len(self._tickets) > _MOST_TOLD:
            self.write()
        return ticket

    def write_topic(self, topic: str) -> None:
        """Give the waiting change of a topic to the writer."""
        found = self._waiting.get(topic)
        if found is not None:
            told = self._tickets.pop(topic, None)
            self.drop(topic)
            stored = self._put(found[0])
            if told is not None:
                stored.when_settled(told.settle)

    def write(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket | None:
        """Give the waiting changes of a Topic Filter, and perhaps others, to the writer, in parts.

        Returns None if that is done, else a ticket for the end.
        """
        if self._writing is None:
            if topic_filter != EVERY_TOPIC and len(self._waiting) <= _COMPARED:
                found = [topic for topic in self._waiting if matches(topic_filter, topic)]
                if len(found) <= _AT_ONCE:
                    for topic in found:
                        self.write_topic(topic)
                    return None
            self._write_some(_AT_ONCE)
            if self._waiting:
                self._writing = CommitTicket()
                self._clock.callLater(0, self._write_on)
        return self._writing

    def stop(self) -> None:
        """Give all waiting changes to the writer now. Let none wait any more: nobody would write it."""
        self._stopped = True
        self._write_some(len(self._waiting))
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, interval: float) -> None:
        # The changes of other intervals are written too: one commit costs less than two.
        del self._timers[interval]
        self.write()

    def _write_on(self) -> None:
        self._write_some(_AT_ONCE)
        if self._waiting:
            self._clock.callLater(0, self._write_on)
            return
        ticket, self._writing = self._writing, None
        if ticket is not None:
            ticket.settle(None)

    def _write_some(self, most: int) -> None:
        for topic in [topic for topic, _ in zip(self._waiting, range(most), strict=False)]:
            self.write_topic(topic)


def _size(change: RetainedChange) -> int:
    message = change.message
    assert message is not None  # clears are written at once
    return held_size(len(change.topic.encode()), message.properties, len(message.payload))
