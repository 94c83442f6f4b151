"""One Session: its subscriptions, and the messages for its Client [MQTT5-4.1].

How it works. Every message for a Session comes to :meth:`Session.deliver`. With QoS 0 it is sent at once or dropped.
With QoS 1 or 2 it is sent if the :class:`Window` has room and no message waits, and is queued otherwise. Every
acknowledgement makes room, and :meth:`Session.fill` uses it: first for messages that a reconnect must repeat, then for
queued messages, then for replays. An example with a window of 2:

    deliver a, b, c      a and b are in flight, c is queued
    disconnect           all three stay
    reconnect            a and b are sent again with DUP 1, in this order; c still waits
    PUBACK a             fill() sends c

A Client may come back to ten thousand messages. They leave in parts: after :data:`_MESSAGES_OF_A_TURN` messages, or
while 64 KiB wait to be sent, the Session rests until the connection has sent them. Messages that come meanwhile are
queued behind.

Replayed messages share window and Packet Identifiers with live messages (``replays.window_sending``), but are never
queued: a replay reads no more than it has room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.core.messages import HELD_ENTRY, HELD_IDENTIFIER
from holdfast.core.tickets import CommitTicket
from holdfast.identity.interfaces import IAuthorizer, Principal
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.outbox import LOW_WATER
from holdfast.sessions.counters import Counters, Holdings
from holdfast.sessions.delivery.conflation import Conflation
from holdfast.sessions.delivery.deliveries import Deliveries, Delivery, ReceivedIdentifiers
from holdfast.sessions.delivery.inflight import Inflight, Window
from holdfast.sessions.delivery.inflight_messages import InflightMessages
from holdfast.sessions.delivery.outgoing import DeliveryOptions, Expired, OutgoingMessage
from holdfast.sessions.delivery.permissions import RESTORED, STALE, Permissions
from holdfast.sessions.delivery.queue import IConflation, Queued, QueuedRun, SessionQueue
from holdfast.sessions.delivery.replay_positions import ReplayPositions
from holdfast.sessions.limits import Limits
from holdfast.sessions.state import (
    ISessionRecord,
    ISessionStates,
    KeptMessage,
    ReplayProgress,
    Subscription,
    Subscriptions,
)
from holdfast.watch.log import client_text
from holdfast.wire import Run, Single

#: messages that are discarded in one step of long work: each costs some microseconds
_MESSAGES_PER_STEP = 20
#: messages that are sent out of the queue, or once more, in one turn: each takes 5 to 50 microseconds
_MESSAGES_OF_A_TURN = 100
#: of a run, so many count as one
_OF_RUN = 16


class Session:
    """A Client's Session, with or without a Network Connection.

    ``expiry_interval`` is in seconds after a disconnect, None for never, 0 for at once. State that must survive the
    process goes to the ``record``.

    A Session has at most 30 attributes: with more, CPython gives each one a dictionary of its own, which takes more
    memory and makes each delivery some percent slower.
    """

    _log = Logger()

    def __init__(
        self,
        *,
        client_id: str,
        principal: Principal,
        limits: Limits,
        states: ISessionStates,
        record: ISessionRecord,
        counters: Counters,
        authorizer: IAuthorizer,
        clock: IReactorTime,
        work: LongWork,
        now: Callable[[], int],
    ) -> None:
        self.client_id = client_id
        self.principal = principal
        self.limits = limits
        self.record = record
        self.expiry_interval: float | None = 0
        self.link: Connection | None = None
        self.is_over = False  #: whether the Session has ended; what is left of it is being removed
        self.subscriptions = Subscriptions()
        self.groups: dict[str, IGroup[Session]] = {}  #: of its shared subscriptions, by Topic Filter with share
        self.received = ReceivedIdentifiers(record)
        self.deliveries = Deliveries(record, states)
        self.queue = SessionQueue(limits, self.deliveries, counters, self.note_loss, work)
        #: the epoch of the authorizer in which all subscriptions were granted; or RESTORED, or STALE
        self.granted_in: object = authorizer.epoch
        self.permissions = Permissions(self, authorizer, clock, self._failed)
        self.replay_positions = ReplayPositions()
        self.window = Window(limits.max_inflight, limits.max_inflight_bytes)
        self._durable = record.durable
        self.inflight = InflightMessages(
            window=self.window,
            deliveries=self.deliveries,
            counters=counters,
            now=now,
            on_room=self.fill,
            on_sent=self._wake_waiting_replays,  # a replay waits for the messages that were queued before it
            on_lost=self.note_loss,
        )
        self.attendance = Attendance(now())
        #: replays with a cut of at most this revision may have lost queued messages
        self.void_cuts = 0
        self._rests = False  # whether a part has been sent, and the next one waits until the connection has room
        self._replays_wait = False  # whether a replay has found no room since replays were woken last
        self._replays: IReplays = NO_REPLAYS
        self._counters = counters
        self._holdings = counters.holdings
        self.now = now
        self._clock = clock

    # --- connecting and disconnecting

    def admit(self, principal: Principal, limits: Limits, expiry_interval: float | None, window: int) -> None:
        """Note under which conditions the Client connects."""
        if principal != self.principal and self.granted_in is not RESTORED:
            self.granted_in = self.permissions.allowed_in = STALE
        self.principal = principal
        self.limits = self.queue.limits = limits
        self.expiry_interval = expiry_interval
        self.window.size = window
        self.replay_positions.upgraded = limits.upgrade_qos and (
            self.replay_positions.upgraded or not self.replay_positions
        )
        self.window.max_bytes = limits.max_inflight_bytes
        self.inflight.keeps_packets = expiry_interval != 0
        self.inflight.in_blocks = expiry_interval == 0 and not self._durable
        if limits.conflate_slow or limits.conflate_interval:
            self.conflation()

    def note_restored(self) -> None:
        """Note that the Session is that of an earlier process."""
        self.granted_in = RESTORED
        self.permissions.allowed_in = RESTORED

    def expire_later(self, step: int, moved: set[OutgoingMessage], states: ISessionStates) -> None:
        """Let the messages that wait expire later by ``step`` (milliseconds): the clock has jumped.

        Sessions share messages: ``moved`` has those that expire later already.
        """
        waiting = [queued.outgoing for queued in self.queue if queued.outgoing.message.expires_at is not None]
        if self.queue.conflation is not None:
            waiting += self.queue.conflation.held()
        for entry in self.inflight.entries.values():
            if entry.expires_at:
                entry.expires_at += step
            if entry.outgoing is not None:
                waiting.append(entry.outgoing)
            if entry.delivery is not None and entry.delivery.outgoing is not None:
                waiting.append(entry.delivery.outgoing)
        for outgoing in waiting:
            if outgoing not in moved:
                moved.add(outgoing)
                outgoing.expire_later(step, states)

    def attach(self, link: Connection, replays: IReplays) -> None:
        """Send to this connection from now on: repeat the messages in flight, then send the queued ones."""
        self.attendance.connections += 1
        self.link = link
        self._rests = False
        for group in self.groups.values():
            group.came(self)
        self._replays = replays
        permissions = self.permissions
        epoch = permissions.authorizer.epoch
        if epoch is None or epoch != permissions.allowed_in:
            permissions.ask_again()
        self.inflight.resume(link)
        self.fill()

    def detach(self, link: Connection) -> None:
        """Queue messages from now on, because this connection is gone."""
        if self.link is link:
            self.link = None
            for group in self.groups.values():
                group.left(self)
            self.inflight.detach()
            self._replays = NO_REPLAYS

    def expire_after(self, interval: float | None) -> None:
        """Set the seconds between a disconnect and the expiry (None for never)."""
        self.expiry_interval = interval

    def close(self) -> None:
        """Take no message any more: the Session has ended. :meth:`discard` frees what it still has."""
        self.is_over = True
        if self.queue.conflation is not None:
            self.queue.conflation.stop()
        self.queue.count_no_longer()
        self._holdings.subscriptions -= len(self.subscriptions)
        self._holdings = Holdings()
        for group in self.groups.values():
            group.remove(self)

    @property
    def waiting(self) -> int:
        """The number of messages that wait for the Client and were not sent yet."""
        conflation = self.queue.conflation
        return len(self.queue) + (0 if conflation is None else conflation.holds)

    def kept(self) -> Iterator[KeptMessage | None]:
        """Yield the stored copies of all messages that wait for the Client or are in flight.

        None stands for a message that waits and is stored nowhere. Messages that come or leave meanwhile may be left
        out.
        """
        conflation = self.queue.conflation
        for queued in list(self.queue):
            yield None if queued.delivery is None else queued.delivery.message
        for outgoing in () if conflation is None else list(conflation.held()):
            yield outgoing.kept
        for entry in list(self.inflight.entries.values()):
            if entry.delivery is not None and entry.delivery.message is not None:
                yield entry.delivery.message

    def discard(self) -> Iterator[int]:
        """Discard all messages and their rows, in steps. Its subscriptions must be gone."""
        self.inflight.forget_blocks()
        entries = self.inflight.entries
        while entries:
            yield 1
            for packet_identifier in list(islice(entries, _MESSAGES_PER_STEP)):
                self.inflight.discard(packet_identifier)
        while self.queue:
            yield 1
            run = self.queue.run
            if run is not None:
                self.queue.drop_of_run(run, run.kept.count)
                continue
            for _ in range(min(_MESSAGES_PER_STEP, len(self.queue))):
                self.queue.discard(self.queue.first)
        conflation = self.queue.conflation
        while conflation is not None and conflation.holds:
            yield 1
            conflation.discard(_MESSAGES_PER_STEP)
        self.queue.close()
        self.inflight.close()
        self.permissions.close()

    # --- subscriptions

    def subscribe(self, topic_filter: str, subscription: Subscription, progress: ReplayProgress | None) -> CommitTicket:
        """Add or replace a subscription. ``topic_filter`` is the filter in SUBSCRIBE, with its share.

        ``progress`` is that of its replay; None: it has none.
        """
        self.restore_subscription(topic_filter, subscription)
        return self.record.subscribed(topic_filter, subscription, progress)

    def restore_subscription(self, topic_filter: str, subscription: Subscription) -> None:
        """Add or replace a subscription that is stored already."""
        self._holdings.subscriptions += topic_filter not in self.subscriptions
        self.subscriptions.add(topic_filter, subscription)
        if subscription.conflate:
            self.conflation()

    def unsubscribe(self, topic_filter: str) -> CommitTicket | None:
        """Remove a subscription. Return None if there was none."""
        if not self.subscriptions.remove(topic_filter):
            return None
        self._holdings.subscriptions -= 1
        self.replay_positions.forget(topic_filter)
        return self.record.unsubscribed(topic_filter)

    def save_replay_positions(self, cursor_of: Callable[[str], str]) -> None:
        """Store the positions of replays that have changed. ``cursor_of`` returns the last topic delivered."""
        for topic_filter, progress in self.replay_positions.changes(cursor_of):
            self.record.subscribed(topic_filter, self.subscriptions[topic_filter], progress)

    def save_replay_position(self, topic_filter: str, cursor: str) -> None:
        """Store the position of one replay if it has changed: thousands may await acknowledgements."""
        for _, progress in self.replay_positions.change(topic_filter, cursor):
            self.record.subscribed(topic_filter, self.subscriptions[topic_filter], progress)

    def stop_replay(self, topic_filter: str) -> None:
        """Stop the replay of a subscription that is about to be removed, if it runs now."""
        self._replays.stop(topic_filter)

    def note_loss(self) -> None:
        """Note that a message for this Session is lost: its unfinished replays may not rely on the queue any more."""
        positions = self.replay_positions
        if positions and positions.newest_cut > self.void_cuts:
            self.void_cuts = positions.newest_cut
            self.record.lost(self.void_cuts)

    # --- conflation

    def conflation(self) -> IConflation:
        """Return the conflation of this Session's messages. Made when it is first asked for, since most have none."""
        queue = self.queue
        if queue.conflation is None:
            queue.conflation = Conflation(
                self,
                self._clock,
                queue.work,
                self.permissions.authorizer,
                self._counters,
                self._wake_waiting_replays,
                self._failed,
            )
        return queue.conflation

    @property
    def asks_again(self) -> bool:
        """Whether the authorizer is asked about queued messages again: none of them may change then."""
        return self.permissions.asks_again

    def hurry_held(self) -> int:
        """Let the messages leave that conflation holds now. Return a number for :meth:`holds_until`."""
        conflation = self.queue.conflation
        return 0 if conflation is None else conflation.hurry()

    def holds_until(self, number: int) -> bool:
        """Tell whether conflation still holds a message that it held at this call of :meth:`hurry_held`."""
        conflation = self.queue.conflation
        return conflation is not None and conflation.holds_until(number)

    def queue_unasked(self, queued: Queued) -> bool:
        """Queue a message; ask the authorizer before it is sent. Return whether it is in the queue."""
        self.queue.begin(queued)
        if not self.queue.enter(queued, self.link):
            return False
        self.permissions.ask_about(queued)
        self.fill()
        return queued.waits

    # --- live messages

    def deliver(
        self,
        outgoing: OutgoingMessage,
        options: DeliveryOptions,
        shared_filter: str | None = None,
        conflates: bool = True,
    ) -> None:
        """Send a message that matches the subscriptions, or queue it until the Client can take it.

        ``shared_filter`` is the shared subscription that it serves, if any. ``conflates`` is False for messages of
        replays: they may be older than the held message of their topic, and come before it.
        """
        if self.is_over:  # its subscriptions are being removed
            return
        message = outgoing.message
        qos = message.qos
        link = self.link
        if outgoing.replaces and link is None:
            self.queue.drop_retained(message.topic)
            qos = qos or 1
        if qos != options.qos:
            qos = max(qos, options.qos) if self.limits.upgrade_qos else min(qos, options.qos)
        retain = message.retain and options.retain_as_published
        conflation = self.queue.conflation
        if conflation is not None and conflates and shared_filter is None:
            if conflation.takes(outgoing, qos, retain, options):
                return
            link = self.link  # sending a held message may have ended the connection
        if not qos and link is None and not self.limits.mqueue_store_qos0:
            return
        if message.retain:
            self.inflight.drop_overtaken(message.topic)
        if not qos and link is not None and not self.queue.at_most_once:
            self.send(link, outgoing, 0, retain, options.identifiers, None)
            return
        delivery = None
        if self._durable or shared_filter is not None:
            delivery = self.deliveries.begin(outgoing, qos, retain, options.identifiers, shared_filter)
        # A message does not pass the queue, even if the window has room: messages leave in their order.
        inflight = self.inflight
        if (
            link is not None
            and not (self.queue or inflight.to_resend)
            and self.window.takes_live(inflight.count, outgoing.size())
        ):
            self.send(link, outgoing, qos, retain, options.identifiers, delivery)
        else:
            self.queue.enter(Queued(outgoing, qos, retain, options.identifiers, delivery), link)

    def is_full(self) -> bool:
        """Tell whether the Client is away and no further message fits into the queue."""
        return self.link is None and self.queue.is_full()

    def is_behind(self) -> bool:
        """Tell whether so much waits for the connected Client that operators' changes wait for it."""
        link = self.link
        return link is not None and (link.unsent >= LOW_WATER or self.queue.is_long())

    def shared(self) -> Iterator[tuple[str, Callable[[], OutgoingMessage | None]]]:
        """Yield the messages of shared subscriptions that this Client has not received, each with its subscription.

        These are the QoS 1 messages in flight, and the queued messages. A call of the function takes the message out
        of the Session, for another member; it returns None if the message is gone meanwhile.
        """
        return undelivered(self.inflight, self.queue)

    # --- replays

    def replay_room(self) -> int:
        """Return how many QoS 1 and 2 messages replays may send now."""
        return self.window.replay_room(self.inflight.count, bool(self.queue))

    def replay_bytes(self) -> int:
        """Return how many bytes of QoS 1 and 2 messages replays may send now (see :meth:`Window.replay_bytes`)."""
        return self.window.replay_bytes(bool(self.queue))

    def note_waiting_replay(self) -> None:
        """Note that a replay has found no room: wake replays when there is room again."""
        self._replays_wait = True

    def share_window(self, with_replays: bool) -> None:
        """Share the window with replays from now on, or give live messages the whole window again."""
        self.window.replaying = with_replays
        if not with_replays:
            self.fill()

    # --- the window

    def fill(self) -> None:
        """Use the room in the window: repeat messages, send queued messages, then wake replays."""
        link = self.link
        queue = self.queue
        resends = self.inflight.to_resend
        if link is None or self._rests or not (queue or self._replays_wait or resends):
            return
        permissions = self.permissions
        if permissions.authorizer.epoch != permissions.allowed_in:
            permissions.ask_again()
        left = _MESSAGES_OF_A_TURN
        if resends:
            left = self.inflight.send_again(link, left)
            if left < 0:  # the answer about a message calls this method
                return
            if not left:
                self.rest(link)
                return
        window = self.window
        if queue and self.inflight.count < window.size and window.is_turn_of_replays():
            self._replays.wake()
            return
        rechecks = permissions.rechecks
        # The connection may end within the loop: from then on the messages stay in the queue.
        while queue and self.link is link:
            run = None if rechecks is not None and rechecks.last is not None else queue.run
            if run is None and queue.first.qos and not self.takes(queue.first):
                break
            if left <= 0 or link.unsent >= LOW_WATER:
                self.rest(link)
                return
            if run is not None and (sent := self._send_of_run(link, run)) is not None:
                if not sent:
                    break
                left -= 1 + sent // _OF_RUN
                continue
            left -= 1
            if rechecks is not None and rechecks.last is not None:
                allowed = rechecks.allows(self.principal, queue.first)
                if allowed is None:
                    return
                if not allowed:
                    self._counters.deliveries_not_authorized += 1
                    self.note_loss()
                    queue.discard(queue.first)
                    continue
            queued = queue.pop()
            self.send(link, queued.outgoing, queued.qos, queued.retain, queued.identifiers, queued.delivery)
        if rechecks is not None and not queue:
            rechecks.last = None
        repeated = left < _MESSAGES_OF_A_TURN and not resends  # replays have waited for the last of them, perhaps
        if repeated or self.inflight.count < window.size:
            self._wake_waiting_replays()

    def _send_of_run(self, link: Connection, run: QueuedRun) -> int | None:
        """Send messages of the run at the head of the queue; return how many, None if one has to be sent by itself."""
        kept, window, inflight = run.kept, self.window, self.inflight
        count = min(kept.count, window.live_room(inflight.count))
        size = kept.longest + HELD_IDENTIFIER  # of one, at most
        while count > 0 and not window.takes_run(inflight.count, count, count * size):
            count //= 2
        if count <= 0:
            return None if window.takes_live(inflight.count, size + HELD_ENTRY) else 0
        identifier = inflight.next_block(count)
        if not identifier:
            return None
        packets = kept.first(count, identifier)
        if not link.send_joined(packets, count):
            return None
        if self.link is not link:  # an error ended the connection, and the Session with it
            return count
        self.queue.drop_of_run(run, count)
        inflight.add_block(identifier, count, len(packets), False)
        return count

    def queue_run(self, link: Connection, run: Run | Single, client_id: str, username: str | None) -> None:
        """Queue a run with QoS 1, and send as many of its messages as the window has room for."""
        kept = run.kept(link.protocol_version == 5)
        self.queue.append_run(QueuedRun(kept, client_id, username))
        self.fill()

    def takes(self, queued: Queued) -> bool:
        """Tell whether the window has room for this message."""
        return self.window.takes_live(self.inflight.count, queued.outgoing.size())

    def go_on(self) -> None:
        """Send the next part, because the connection has sent the last one."""
        self._rests = False
        self.fill()

    def rest(self, link: Connection) -> None:
        """Send no more until the connection has room."""
        if self.link is link and not self._rests:
            self._rests = True
            link.ask_for_room()

    # --- sending

    def send(
        self,
        link: Connection,
        outgoing: OutgoingMessage,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        delivery: Delivery | None,
    ) -> None:
        """Send a message now, unless it has expired or is too large."""
        version = link.protocol_version
        packet_identifier = self.inflight.next_identifier() if qos else 0
        message = outgoing.message
        try:
            now = self.now() if message.expires_at is not None else 0
            packet = outgoing.packet(version, qos, retain, identifiers, packet_identifier, now)
        except Expired:
            self._counters.messages_dropped_expired += 1
            self.note_loss()
        else:
            if link.maximum_packet_size is None or len(packet) <= link.maximum_packet_size:
                if qos == 1 and delivery is None and self.inflight.in_blocks:
                    self.inflight.send_block(link, packet, packet_identifier)
                    return
                if qos:
                    entry = Inflight(packet, qos, version, message.expires_at or 0, False, delivery)
                    if qos == 2:
                        entry.outgoing = outgoing
                        self.inflight.may_send = self.permissions.may_send  # it may wait for a commit
                    self.inflight.send(link, packet_identifier, entry, outgoing.after)
                    return
                link.send_message(packet)
            else:
                self._counters.messages_dropped_too_large += 1  # [MQTT5-3.1.2-25]
                most = link.maximum_packet_size
                link.client_log.info(
                    "a message is left out", f"{len(packet)} bytes to {{}}, {most} at most", message.topic
                )
                self.note_loss()
        if delivery is not None:
            self.deliveries.forget(delivery)

    def _failed(self, failure: Failure) -> None:
        """End the connection after an unexpected error in a late call. What is queued stays for the next one."""
        if self.link is not None:
            self.link.close_after_error(failure)
        else:
            self._log.failure("a delivery to {client} failed", failure, client=client_text(self.client_id))

    def _wake_waiting_replays(self) -> None:
        if self._replays_wait:
            self._replays_wait = False
            self._replays.wake()


# A Session as a member of groups: their interface, and the messages that other members can take from it.


Member = TypeVar("Member", contravariant=True)


class IGroup(Protocol[Member]):
    """The group of a shared subscription, as its members see it."""

    def came(self, session: Member) -> None:
        """Note that a member is online."""

    def left(self, session: Member) -> None:
        """Note that a member is away."""

    def remove(self, session: Member) -> None:
        """Remove a member, if it is one."""


def undelivered(
    inflight: InflightMessages, queue: SessionQueue
) -> Iterator[tuple[str, Callable[[], OutgoingMessage | None]]]:
    """Yield each message with its shared subscription (see :meth:`Session.shared`)."""
    for packet_identifier, entry in inflight.shared():
        assert entry.delivery is not None
        assert entry.delivery.shared_filter is not None
        yield entry.delivery.shared_filter, partial(_take_inflight, inflight, packet_identifier, entry)
    for queued in queue.shared():
        assert queued.delivery is not None
        assert queued.delivery.shared_filter is not None
        yield queued.delivery.shared_filter, partial(_take_queued, queue, queued)


def _take_inflight(inflight: InflightMessages, packet_identifier: int, entry: Inflight) -> OutgoingMessage | None:
    if inflight.entries.get(packet_identifier) is not entry:
        return None
    assert entry.delivery is not None
    inflight.discard(packet_identifier)
    return entry.delivery.outgoing


def _take_queued(queue: SessionQueue, queued: Queued) -> OutgoingMessage | None:
    return queued.outgoing if queue.discard(queued) else None


# When the Client of a Session was there.


class Attendance:
    """When a Session began, and since when its Client is connected or away.

    Times are in milliseconds since the epoch; None: an earlier process knew it. ``connections`` is the number of
    connections so far in this process, counting the present one.
    """

    __slots__ = ("_begun_here", "connections", "created_at", "since")

    def __init__(self, now: int | None) -> None:
        self.connections = 0
        self.created_at = now
        self.since = now
        self._begun_here = now is not None

    def came_or_went(self, now: int) -> None:
        """Note that the Client is connected, or away, from now on."""
        self.since = now
        self._begun_here = True

    def clock_moved(self, step: int, now: int) -> bool:
        """Move times of this process by ``step`` (milliseconds): the clock has jumped. Later ones stay.

        Tells whether ``since`` is a time of this process.
        """
        if self.created_at is not None and self.created_at + step <= now:
            self.created_at += step
        if self.since is not None and self._begun_here and self.since + step <= now:
            self.since += step
        return self._begun_here


# The replays of one Client, as its Session sees them.


class IReplays(Protocol):
    """The replays of a connected Client."""

    def wake(self) -> None:
        """Let the replays look for room."""

    def stop(self, topic_filter: str) -> None:
        """Stop the replay of a subscription that is removed, if there is one."""


class _NoReplays:
    """No replays: the Client is away."""

    def wake(self) -> None:
        """Wake no replay."""

    def stop(self, topic_filter: str) -> None:
        """Stop no replay."""


NO_REPLAYS = _NoReplays()


# Sends a run to the Client of one Session, if the run can be sent as a whole.


def deliver_run(
    session: Session, run: Run | Single, options: DeliveryOptions, identifier: int, client_id: str, username: str | None
) -> bool:
    """Send a run of a publisher that matches the subscriptions as a whole, or queue it.

    With QoS 1 the Packet Identifiers begin with this one, if they are free. Returns False, without any effect, if each
    of its messages has to be delivered by itself.
    """
    if session.is_over:
        return True
    qos = run.qos
    if qos != options.qos:
        if session.limits.upgrade_qos:
            return False
        qos = min(qos, options.qos)
    queue = session.queue
    if options.identifiers or (queue.conflation is not None and queue.conflation.holds):
        return False
    link = session.link
    if qos:
        if link is None or not session.inflight.in_blocks:
            return False
        if _send_as_block(session, link, run, identifier):
            return True
        size = run.end - run.start + HELD_ENTRY * run.count
        if queue.conflation is not None or session.inflight.to_resend or not link.takes_queued(run, size):
            return False
        session.queue_run(link, run, client_id, username)
        return True
    if link is None:
        return not session.limits.mqueue_store_qos0
    return not queue.at_most_once and link.send_run(run, 0, 0)


def _send_as_block(session: Session, link: Connection, run: Run | Single, identifier: int) -> bool:
    """Send a run with QoS 1 as a block. Returns False, without any effect, if it cannot be sent as a whole."""
    inflight = session.inflight
    count, size = run.count, run.end - run.start
    if session.queue or inflight.to_resend:
        return False
    if not session.window.takes_run(inflight.count, count, size + count * HELD_IDENTIFIER):
        return False
    if not inflight.is_free(identifier, count):
        identifier = inflight.next_block(count)
    if not identifier or not link.send_run(run, 1, identifier):
        return False
    inflight.add_block(identifier, count, size, False)
    return True
