"""The retainer: what is retained, what is refused, and what has expired."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Attribute, Interface, implementer

from holdfast.interfaces import IDelivery, IRetainedStore, RetainedStatistics
from holdfast.messages import ApplicationMessage, ChangeKind, ChangeOrigin, RetainedChange, RetainedMessage
from holdfast.retained.feed import Change, ChangeFeed
from holdfast.retained.flow import Flow, FlowControl
from holdfast.retained.replay import Replay, ReplayState, ReplayStatus
from holdfast.tickets import COMMITTED, CommitTicket, StorageFailure

if TYPE_CHECKING:
    from attrs import frozen
else:
    from attrs import define as frozen


class RetainRefused(Exception):
    """The message may not be retained: a limit stands in the way. The text names it."""


@frozen
class RetainerLimits:
    """What may be retained; 0 stands for unlimited (expiry: for never). Intervals are in seconds, sizes in bytes."""

    enable: bool = True
    msg_expiry_interval: float = 0
    msg_clear_interval: float = 60
    msg_clear_limit: int = 50_000
    max_payload_size: int = 1 << 20
    max_retained_messages: int = 0
    max_topic_length: int = 2600
    tombstone_ttl: float = 86_400
    refuse_unavailable: bool = False  #: refuse a replay while the store cannot be read, rather than let it wait


class IRetainedMessages(Interface):
    """The retainer as Sessions see it."""

    def retain(message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Store the message, or clear its topic if the payload is empty. Raises :class:`RetainRefused`."""

    def replay(topic_filter: str, delivery: IDelivery, cursor: str = "") -> Replay:
        """Start to deliver what matches a (non-shared) Topic Filter."""

    def statistics() -> RetainedStatistics:
        """Return how much is retained."""

    refuses_replays = Attribute("Whether a subscription that needs a replay is to be refused now.")


#: rows changed by one statement of the sweep, so that it never holds up the writer for long
_SWEEP_SLICE = 1000

#: origins of changes that no present subscriber is handed
_UNROUTED = frozenset((ChangeOrigin.API, ChangeOrigin.IMPORT))


@implementer(IRetainedMessages)
class RetainedMessages(Service):
    """Retained messages in a store, with limits, replays and expiry.

    ``now`` gives milliseconds since the epoch. The store is opened before this service starts and closed after it
    has stopped, by whoever composed them.
    """

    _log = Logger()

    def __init__(
        self, store: IRetainedStore, clock: IReactorTime, now: Callable[[], int], limits: RetainerLimits, flow: Flow
    ) -> None:
        self.feed = ChangeFeed()
        self.control = FlowControl(clock, flow)
        self._store = store
        self._clock = clock
        self._now = now
        self._limits = limits
        self._uncommitted = 0
        self._sweeping: LoopingCall | None = None

    def startService(self) -> None:
        """Start to sweep what has expired."""
        Service.startService(self)
        if self._limits.msg_clear_interval:
            self._sweeping = LoopingCall(self._sweep)
            self._sweeping.clock = self._clock
            self._sweeping.start(self._limits.msg_clear_interval, now=False).addErrback(self._sweep_failed)

    def stopService(self) -> None:
        """Stop sweeping."""
        Service.stopService(self)
        if self._sweeping is not None and self._sweeping.running:
            self._sweeping.stop()

    def retain(self, message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Store the message, or clear its topic if its payload is empty [MQTT5-3.3.1-5], [MQTT5-3.3.1-6].

        A zero-byte message is never stored [MQTT5-3.3.1-7]; clears are always allowed. Raises
        :class:`RetainRefused` when a limit is reached; what was retained before stays then.
        """
        if not self._limits.enable:
            return COMMITTED
        now = self._now()
        topic = message.topic
        if not message.payload:
            revision = self._store.next_revision()
            change = RetainedChange(topic, revision, now, None, message.client_id, message.username)
            return self._put(change, ChangeKind.CLEAR, origin)
        self._check(message)
        expires_at = message.expires_at
        if expires_at is None and self._limits.msg_expiry_interval:
            expires_at = now + round(self._limits.msg_expiry_interval * 1000)
        revision = self._store.next_revision()
        retained = RetainedMessage(
            topic,
            message.payload,
            message.qos,
            message.properties,
            message.client_id,
            message.username,
            now,
            expires_at,
            revision,
        )
        change = RetainedChange(topic, revision, now, retained, message.client_id, message.username)
        return self._put(change, ChangeKind.SET, origin)

    @property
    def enabled(self) -> bool:
        """Whether anything is stored at all."""
        return self._limits.enable

    def store(self, change: RetainedChange, origin: ChangeOrigin) -> CommitTicket:
        """Store a change stamped before (see IRetainedStore.next_revision): one with a higher revision prevails.

        Raises :class:`RetainRefused` when a limit is reached; clears are always allowed.
        """
        message = change.message
        if message is None:
            return self._put(change, ChangeKind.CLEAR, origin)
        if not self._limits.enable:
            raise RetainRefused("retainer.enable is false")
        self._check(
            ApplicationMessage(message.topic, message.payload, message.qos, True, message.client_id, message.username)
        )
        return self._put(change, ChangeKind.SET, origin)

    def replay(self, topic_filter: str, delivery: IDelivery, cursor: str = "") -> Replay:
        """Start to deliver what matches a (non-shared) Topic Filter, after the topic ``cursor``."""
        return Replay(topic_filter, delivery, self._store, self.feed, self.control, self._now, cursor)

    def statistics(self) -> RetainedStatistics:
        """Return how much is retained, as of the last commit."""
        return self._store.statistics()

    @property
    def refuses_replays(self) -> bool:
        """Whether a subscription that needs a replay is to be refused now, because the store cannot be read."""
        return self._limits.refuse_unavailable and not self._store.available

    @property
    def flow(self) -> Flow:
        """The settings of flow control."""
        return self.control.flow

    def change_flow(self, flow: Flow) -> None:
        """Go on with other settings of flow control: the rates at once, the rest from the next read or replay on.

        A lower number of concurrent replays ends none of those that run.
        """
        self.control.change(flow)

    def replays(self) -> list[ReplayStatus]:
        """Return how every replay stands that is not over, the oldest first."""
        return [replay.status() for replay in self.control.replays.values()]

    def cancel_replay(self, number: int) -> bool:
        """End a replay and, with a reason, its Network Connection; tell whether there was one of this number.

        A Session that outlives its connection goes on with the replay where it was when its Client is back.
        """
        replay = self.control.replays.get(number)
        if replay is None:
            return False
        self._log.warn(
            "the replay of {filter!r} to {client!r} is cancelled", filter=replay.topic_filter, client=replay.client_id
        )
        replay.cancel()
        return True

    @property
    def replay_count(self) -> int:
        """How many replays there are that are not over."""
        return len(self.control.replays)

    def replay_counts(self) -> dict[str, int]:
        """Return how many replays run (``running``), how many of those wait for a rate, and how many wait in line."""
        waiting = len(self.control.line)
        return {
            "running": len(self.control.replays) - waiting,
            "throttled": sum(replay.state is ReplayState.THROTTLED for replay in self.control.replays.values()),
            "waiting": waiting,
        }

    def _put(self, change: RetainedChange, kind: ChangeKind, origin: ChangeOrigin) -> CommitTicket:
        ticket = self._store.put(change)
        if not ticket.settled:
            self._uncommitted += 1
            ticket.when_settled(self._committed)
        if len(self.feed):
            stored = ticket
            if ticket.settled and ticket.failure is None:  # acknowledged before it is readable (durability "async")
                stored = self._store.flushed()
            self.feed.announce(Change(change.topic, change.revision, kind, origin, origin not in _UNROUTED, stored))
        return ticket

    def _committed(self, _failure: StorageFailure | None) -> None:
        self._uncommitted -= 1

    def _check(self, message: ApplicationMessage) -> None:
        limits = self._limits
        if limits.max_payload_size and len(message.payload) > limits.max_payload_size:
            raise RetainRefused(
                f"the payload has {len(message.payload)} bytes, retainer.max_payload_size is {limits.max_payload_size}"
            )
        if 4 * len(message.topic) > limits.max_topic_length:
            length = len(message.topic.encode())
            if length > limits.max_topic_length:
                raise RetainRefused(
                    f"the topic has {length} bytes, retainer.max_topic_length is {limits.max_topic_length}"
                )
        most = limits.max_retained_messages
        if most and self._store.statistics().count + self._uncommitted >= most and not self._is_retained(message.topic):
            raise RetainRefused(f"retainer.max_retained_messages = {most} is reached")

    def _is_retained(self, topic: str) -> bool:
        """Tell whether the topic has a committed retained message: those may be replaced when the store is full."""
        found: list[RetainedMessage | None] = []
        self._store.get(topic).addCallback(found.append)
        return bool(found) and found[0] is not None

    @inlineCallbacks
    def _sweep(self) -> Generator[Deferred[Any], Any, None]:
        """Remove expired messages and old tombstones, slice by slice, at most ``msg_clear_limit`` of each."""
        left = self._limits.msg_clear_limit
        while left > 0:
            limit = min(left, _SWEEP_SLICE)
            topics = yield self._store.expire(self._now(), limit)
            for topic in topics:
                revision = self._store.next_revision()
                self.feed.announce(Change(topic, revision, ChangeKind.EXPIRE, ChangeOrigin.EXPIRY, True, COMMITTED))
            if len(topics) < limit:
                break
            left -= limit
        left = self._limits.msg_clear_limit
        before = self._now() - round(self._limits.tombstone_ttl * 1000)
        while left > 0:
            limit = min(left, _SWEEP_SLICE)
            purged = yield self._store.purge(before, limit)
            if purged < limit:
                break
            left -= limit

    def _sweep_failed(self, failure: Failure) -> None:
        """Log, and go on sweeping at the next interval: expired messages are filtered on reading all the same."""
        self._log.error("sweeping expired messages failed: {error}", error=failure.getErrorMessage())
        if self.running and self._sweeping is not None:
            self._sweeping.start(self._limits.msg_clear_interval, now=False).addErrback(self._sweep_failed)
