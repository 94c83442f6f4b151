"""Delayed writes: messages that wait in memory, the newest of each topic, for an interval or for the publish rate.

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
- While conditional changes are undecided, and during an import, nothing is delayed by an interval.
- A replay that runs hears of a waiting change at once, and drops its older copy. The ticket of that change is settled
  when it has been given to the writer. A replay remembers a thousand changes, so beyond some hundred all are written.

*The publish rate* (``retainer.max_publish_rate``). A message beyond it that present subscribers get all the same waits
in the same place. Its publishers take turns, a topic each, so the many topics of one do not delay the few of another:

    rate 1/s    p: a = 1          written
                p: b, c, d        wait
                q: x = 1          waits
    second 1    b is written
    second 2    x is written, then c, then d

- A change that a reader has written first takes its publisher's token later: the publisher owes it.
- A publisher of whom too much waits, or who owes too much, is not read: ``room`` tells when it may go on.
- While some wait, new messages with QoS 0 wait too. One with QoS 1 or 2 may take a token, and the next is theirs.
- With QoS 1 and 2, the ticket for the acknowledgement is settled when the change, or a newer one, is durable.

The invariant: a waiting change is newer than every change of its topic that this node has given to the writer.

Tried and left out: to lay waiting changes over each read. The database itself puts the packets of a replay together,
and each reader of the store would need a second way. A read costs one write of what it may read instead: never more
than without a delay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.core.messages import RetainedChange, held_size
from holdfast.core.tickets import COMMITTED, CommitTicket
from holdfast.core.topics import EVERY_TOPIC, matches
from holdfast.core.units import TokenBucket

# The seam between the store and changes that wait to be put into it.


class IDelayedChanges(Protocol):
    """Changes that wait. They are older than changes that are put now, and newer than those that were put before."""

    def __len__(self) -> int:
        """Return how many topics have a waiting change."""

    def drop(self, topic: str) -> bool:
        """Forget the change of a topic: a newer one is put. Tell whether there was one."""

    def write_topic(self, topic: str) -> None:
        """Put the change of a topic now."""

    def write(self, topic_filter: str = ...) -> CommitTicket | None:
        """Put the changes of a Topic Filter, or all, or more. Returns None if done, else a ticket for the end."""


class NoDelayedChanges:
    """No change waits."""

    def __len__(self) -> int:
        return 0

    def drop(self, topic: str) -> bool:
        """Do nothing."""
        return False

    def write_topic(self, topic: str) -> None:
        """Do nothing."""

    def write(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket | None:
        """Do nothing."""
        return None


NO_DELAYED_CHANGES = NoDelayedChanges()

#: The most bytes that wait for their interval. Beyond them, changes are written at once.
_MOST_BYTES = 16 << 20
#: The changes that are given to the writer in one turn: about 20 microseconds each.
_AT_ONCE = 200
#: The waiting topics that a reader's Topic Filter is compared with: about a microsecond each.
_COMPARED = 2000
#: The changes that running replays may remember: fewer than ``MOST_MARKS`` of ``replay/replay.py``.
_MOST_TOLD = 500
#: The topics, unanswered messages and owed tokens, and the bytes, of a publisher that is read.
MOST_OF_PUBLISHER = 200
_MOST_BYTES_OF_PUBLISHER = 1 << 20
#: The publishers that are read again in one turn: each may have packets that waited.
_PORTION = 25


@define(eq=False)
class _Publisher:
    """The part of one publisher in the changes that wait for the rate."""

    topics: dict[str, None] = field(factory=dict)
    bytes: int = 0
    unanswered: int = 0
    owed: int = 0  #: tokens
    held: list[Deferred[None]] = field(factory=list)

    @property
    def is_full(self) -> bool:
        counted = len(self.topics) + self.unanswered + self.owed
        return counted > MOST_OF_PUBLISHER or self.bytes > _MOST_BYTES_OF_PUBLISHER


@define(eq=False)
class _Waiting:
    """A change that waits. ``publisher`` is None if it waits for an interval.

    ``stored`` is for the acknowledgements of its message and of those that it replaced, ``unanswered`` their number.
    """

    change: RetainedChange
    bytes: int
    publisher: _Publisher | None = None
    stored: CommitTicket | None = None
    unanswered: int = 0


class DelayedWrites:
    """The changes that wait to be written. ``put`` gives a change to the writer.

    ``flushed`` is that of the store: it tells when all changes of a topic are durable.
    """

    def __init__(
        self,
        put: Callable[[RetainedChange], CommitTicket],
        clock: IReactorTime,
        flushed: Callable[[str], CommitTicket],
    ) -> None:
        self._put = put
        self._clock = clock
        self._flushed = flushed
        #: by topic, the first that came first
        self._waiting: dict[str, _Waiting] = {}
        self._bytes = 0
        #: of changes that a replay was told of, by topic
        self._tickets: dict[str, CommitTicket] = {}
        self._timers: dict[float, IDelayedCall] = {}
        self._writing: CommitTicket | None = None  #: settled when all that waited has been given to the writer
        self._all = False  #: whether those that wait for the rate are being written too
        self._stopped = False
        #: how many changes were replaced before they were written
        self.saved = 0
        self._rate: TokenBucket | None = None
        #: the publishers of changes that wait for the rate, by name; the first has the next turn
        self._publishers: OrderedDict[str, _Publisher] = OrderedDict()
        self._granting: IDelayedCall | None = None
        self._is_next = False  #: whether the next token is for those that wait
        self._wanted = False  #: whether the rate has refused a message with QoS 1 or 2 since it accepted one

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, change: RetainedChange, interval: float) -> bool:
        """Let a change of a message wait for at most ``interval`` seconds. False: there is no room, nothing is done."""
        size = _size(change)
        if self._stopped or self._writing is not None or self._bytes + size > _MOST_BYTES:
            return False
        self._replace(_Waiting(change, size))
        if interval not in self._timers:
            self._timers[interval] = self._clock.callLater(interval, self._due, interval)
        return True

    def drop(self, topic: str) -> bool:
        """Forget the waiting change of a topic: a newer one is written. Tell whether there was one."""
        found = self._forget(topic)
        if found is not None and found.stored is not None:
            # Asked for after this turn: then the newer change has been given to the writer.
            self._clock.callLater(0, self._settle_when_flushed, topic, found.stored)
        return found is not None

    def ticket_of(self, topic: str) -> CommitTicket:
        """Return a ticket for a running replay. It is settled with the waiting change of a topic."""
        if topic not in self._waiting:
            return self._flushed(topic)
        ticket = self._tickets.get(topic)
        if ticket is None:
            ticket = self._tickets[topic] = CommitTicket()
        if len(self._tickets) > _MOST_TOLD:
            self.write()
        return ticket

    def write_topic(self, topic: str, granted: bool = False) -> None:
        """Give the waiting change of a topic to the writer. Unless the rate has ``granted`` it, a token is owed."""
        found = self._waiting.get(topic)
        if found is not None:
            told = self._tickets.pop(topic, None)
            self._forget(topic)
            stored = self._put(found.change)
            if found.publisher is not None and not granted:
                found.publisher.owed += 1
            if told is not None:
                stored.when_settled(told.settle)
            if found.stored is not None:
                stored.when_settled(found.stored.settle)

    def write(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket | None:
        """Give the waiting changes of a Topic Filter, and perhaps others, to the writer, in parts.

        Returns None if that is done, else a ticket for the end.
        """
        if self._writing is None and topic_filter != EVERY_TOPIC and len(self._waiting) <= _COMPARED:
            if "+" in topic_filter or "#" in topic_filter:
                found = [topic for topic in self._waiting if matches(topic_filter, topic)]
            else:
                found = [topic_filter]
            if len(found) <= _AT_ONCE:
                for topic in found:
                    self.write_topic(topic)
                return None
        self._all = True
        return self._begin()

    def stop(self) -> None:
        """Give all waiting changes to the writer now. Let none wait any more: nobody would write it."""
        self._stopped = self._all = True
        while self._write_some():
            pass
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._granting is not None:
            self._granting.cancel()
            self._granting = None

    # --- the publish rate

    def add_for_rate(self, change: RetainedChange, publisher: str, answered: bool) -> CommitTicket:
        """Let a change of a publisher's message wait until the rate allows to write it.

        The ticket is settled when the change, or a newer one, is durable, if the message is ``answered``.
        """
        waiting = _Waiting(change, _size(change), unanswered=int(answered))
        if answered:
            waiting.stored = CommitTicket()
        found = self._publishers.get(publisher)
        if found is None:
            found = self._publishers[publisher] = _Publisher()
        waiting.publisher = found
        self._replace(waiting)
        if self._stopped or self._writing is not None:
            self.write_topic(change.topic)
        elif self._granting is None:
            self._grant_later()
        return waiting.stored or COMMITTED

    def room(self, publisher: str) -> Deferred[None] | None:
        """Return None unless too much of a publisher waits. Else it is not to be read until the Deferred fires."""
        found = self._publishers.get(publisher)
        if found is None or not found.is_full:
            return None
        room: Deferred[None] = Deferred()
        found.held.append(room)
        return room

    def may_pass(self, answered: bool) -> bool:
        """Tell whether a new message may take a token; one that is not ``answered`` (QoS 0) waits behind the others."""
        return not self._publishers or (answered and not self._is_next)

    def passed(self, answered: bool) -> None:
        """Note that a new message has taken a token."""
        if answered:
            self._wanted = False
        self._is_next = bool(self._publishers)

    def refused(self, answered: bool) -> None:
        """Note that the rate has refused a message: the next one that is answered gets a token."""
        self._wanted = self._wanted or answered

    def change_rate(self, rate: TokenBucket | None) -> None:
        """Use another rate. None: none waits any more."""
        self._rate = rate
        if self._granting is not None:
            self._granting.cancel()
            self._granting = None
        if self._publishers:
            if rate is None:
                self.write()
                for publisher in self._publishers.values():
                    publisher.owed = 0
            self._grant_later()

    def _grant_later(self, least: float = 0.0) -> None:
        wait, rate = 0.0, self._rate
        if rate is not None:
            wait = rate.wait(min(rate.rate.tenth, max(1, len(self._waiting))), self._clock.seconds())
        self._granting = self._clock.callLater(max(wait, least), self._grant)

    def _grant(self) -> None:
        """Write as many changes as the rate allows, of one publisher after the other; then read some publishers."""
        self._granting = None
        rate, now = self._rate, self._clock.seconds()
        tokens = _AT_ONCE if rate is None else min(rate.available(now) - self._wanted, _AT_ONCE)
        # A token that is left for a message with QoS 1 or 2 is left for as long as the next one takes to come.
        least = 1 / rate.rate.per_second if rate is not None and self._wanted else 0.0
        self._is_next = self._wanted = False
        idle = 0  # publishers in a row of whom nothing waits
        while tokens > 0 and idle < len(self._publishers):
            name, found = next(iter(self._publishers.items()))
            self._publishers.move_to_end(name)
            if not found.owed and not found.topics:
                idle += 1
                continue
            idle = 0
            tokens -= 1
            if rate is not None:
                rate.take(1, now)
            if found.owed:
                found.owed -= 1
            else:
                self.write_topic(next(iter(found.topics)), granted=True)
        self._release()
        if self._publishers and self._granting is None and not self._stopped:
            self._grant_later(least)

    def _release(self) -> None:
        """Let some publishers be read again, and forget those of whom nothing waits."""
        released = 0
        for name, found in list(self._publishers.items()):
            if found.held and not found.is_full and released < _PORTION:
                released += 1
                held, found.held = found.held, []
                for room in held:
                    room.callback(None)
            if not (found.topics or found.held or found.owed):
                del self._publishers[name]

    # --- all that wait

    def _replace(self, waiting: _Waiting) -> None:
        """Let a change wait in place of that of its topic. It takes over the tickets for the acknowledgements."""
        topic = waiting.change.topic
        replaced = self._forget(topic)
        if replaced is not None:
            self.saved += 1
            if replaced.stored is not None:
                if waiting.stored is None:
                    waiting.stored = CommitTicket()
                waiting.stored.when_settled(replaced.stored.settle)
                waiting.unanswered += replaced.unanswered
        self._waiting[topic] = waiting
        publisher = waiting.publisher
        if publisher is None:
            self._bytes += waiting.bytes
        else:
            publisher.topics[topic] = None
            publisher.bytes += waiting.bytes
            publisher.unanswered += waiting.unanswered

    def _forget(self, topic: str) -> _Waiting | None:
        found = self._waiting.pop(topic, None)
        if found is None:
            return None
        publisher = found.publisher
        if publisher is None:
            self._bytes -= found.bytes
        else:
            del publisher.topics[topic]
            publisher.bytes -= found.bytes
            publisher.unanswered -= found.unanswered
        ticket = self._tickets.pop(topic, None)
        if ticket is not None:
            ticket.settle(None)  # who was told of it is told of the newer one
        return found

    def _settle_when_flushed(self, topic: str, stored: CommitTicket) -> None:
        self._flushed(topic).when_settled(stored.settle)

    def _due(self, interval: float) -> None:
        # The changes of other intervals are written too: one commit costs less than two.
        del self._timers[interval]
        self._begin()

    def _begin(self) -> CommitTicket | None:
        if self._writing is None:
            if self._write_some():
                self._writing = CommitTicket()
                self._clock.callLater(0, self._write_on)
            else:
                self._all = False
        return self._writing

    def _write_on(self) -> None:
        if self._write_some():
            self._clock.callLater(0, self._write_on)
            return
        self._all = False
        ticket, self._writing = self._writing, None
        if ticket is not None:
            ticket.settle(None)

    def _write_some(self) -> bool:
        """Write some changes, those that wait for the rate only if all are written. Tell whether some are left."""
        due = (topic for topic, waiting in self._waiting.items() if self._all or waiting.publisher is None)
        topics = list(islice(due, _AT_ONCE + 1))
        for topic in topics[:_AT_ONCE]:
            self.write_topic(topic)
        return len(topics) > _AT_ONCE


def _size(change: RetainedChange) -> int:
    message = change.message
    assert message is not None  # clears are written at once
    return held_size(len(change.topic.encode()), message.properties, len(message.payload))
