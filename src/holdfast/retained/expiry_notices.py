"""Expiry notices: present subscribers get an empty message when a retained message expires, if the operator wants that.

How it works. The sweep turns expired messages into tombstones, and a committed tombstone is told once. Between the two
a client may publish the topic anew. Its subscribers have that message already or get it soon, and an empty one after it
would be wrong: so the notice of a topic that changes is left out.

    sweep asks the store      the notices listen to the change feed
    a client sets a/b         a/b is noted as changed
    the store answers         a/b and a/c have expired; a notice of a/c waits, none of a/b
    a turn has room           a/c gets its notice

Notices wait for room like the changes of operators, so that a million of them stop nobody. The sweep waits for its
notices. So the notices of one part of a sweep wait for slow subscribers ten seconds at most: else a client that reads
a byte now and then would end all removal of expired messages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from zope.interface import Interface

from holdfast.messages import ApplicationMessage, ChangeKind
from holdfast.retained.replay.change_feed import Change, ChangeFeed

#: Like that of a clear: a subscriber with QoS 1 gets it also if it is away.
_QOS = 1
#: The seconds for which the notices that wait together wait for slow subscribers.
_PATIENCE = 10.0


@define
class Patience:
    """The seconds for which slow subscribers may still be waited for."""

    left: float


class INoticePublisher(Interface):
    """Sends a message to present subscribers only."""

    def tell(message: ApplicationMessage) -> None:
        """Send a message to all matching Sessions, in place of queued retained messages of its topic."""

    def room(topic: str, patience: Patience | None = None) -> Deferred[None] | None:
        """Return None if a message may be sent to this topic now; else wait, then ask again.

        It takes the time for which it waits for slow subscribers from the ``patience``, and waits no longer than that.
        """


class ExpiryNotices:
    """The notices that wait for their turn."""

    def __init__(self, feed: ChangeFeed, publisher: INoticePublisher) -> None:
        self._feed = feed
        self._publisher = publisher
        # In the order of their sending. A dict would search past all that were sent to find the first one.
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._listening: int | None = None  # the key of the change feed, while notices wait
        self._sending: Deferred[None] = succeed(None)

    def changed_topics(self) -> tuple[set[str], Callable[[], None]]:
        """Return a set that takes the topics that change from now on, and what ends that."""
        changed: set[str] = set()

        def note(change: Change) -> None:
            if change.kind is not ChangeKind.EXPIRE:
                changed.add(change.topic)

        key = self._feed.listen(note)
        return changed, lambda: self._feed.forget(key)

    def add(self, topics: Sequence[str]) -> None:
        """Begin to send notices of topics whose messages have expired."""
        if not topics:
            return
        self._waiting.update(dict.fromkeys(topics))
        if self._listening is None:
            self._listening = self._feed.listen(self._leave_out)
            self._sending = self._send()

    def sent(self) -> Deferred[None]:
        """Return a Deferred that fires when no notice waits."""
        done: Deferred[None] = Deferred()
        self._sending.addBoth(done.callback)
        return done

    def stop(self) -> None:
        """Leave out the notices that wait."""
        self._waiting.clear()

    def _leave_out(self, change: Change) -> None:
        if change.kind is not ChangeKind.EXPIRE:
            self._waiting.pop(change.topic, None)

    @inlineCallbacks
    def _send(self) -> Generator[Deferred[Any], Any, None]:
        patience = Patience(_PATIENCE)
        try:
            while self._waiting:
                topic = next(iter(self._waiting))
                waiting = self._publisher.room(topic, patience)
                if waiting is not None:
                    yield waiting
                    continue  # meanwhile the topic may have changed
                del self._waiting[topic]
                self._publisher.tell(ApplicationMessage(topic, b"", _QOS, retain=True))
        finally:
            self._waiting.clear()
            self._feed.forget(self._listening or 0)
            self._listening = None
