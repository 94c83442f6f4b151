"""The Client's end of one replay: room for messages, and the messages in the form of the subscription.

How it works. ``holdfast.replay`` reads the store and asks this end how many messages it may deliver. The
answer is 0 while

- the connection is gone, or so many bytes wait to be sent that it is congested;
- messages that were queued or held (:mod:`.conflation`) before the replay have not been sent, or sent again, or wait
  for the authorizer or for their commit: they may be older than the retained messages, and must not come after them;
- the replay's part of the window is full (QoS 1 and 2 only, see :mod:`.inflight`).

A replay without room pauses. The Session and the outbox wake the replays of their Client when there is room again;
they are given :meth:`Replays.wake` directly.

The slice is then sent (:mod:`.replayed_packets`).

Permissions (:mod:`holdfast.retained.rules`). If the subscriber may receive some of the matching messages, the
authorizer may name Topic Filters: only these are read. Then it is asked about each message, before the slice is sent
without the others. So a message that is not allowed costs the replay's own turns, like one that is.

The subscription's options are looked up for each slice. So a repeated SUBSCRIBE that does not restart the replay
changes its form from the next slice on.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, takewhile

from attrs import evolve
from zope.interface import implementer

from holdfast.core.extensions import PUBLISHER_FACT, Facts
from holdfast.core.messages import HELD_ENTRY, HELD_IDENTIFIER
from holdfast.core.topics import matches
from holdfast.identity.interfaces import Grant, IAuthorizer
from holdfast.replay.interfaces import IDelivery, ReplayForm
from holdfast.retained.rules import NOTHING, Permission, Subscriber
from holdfast.retained.store.bounded_read import SLICE_BYTES
from holdfast.retained.store.values import Slice
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.outbox import LOW_WATER
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.inflight import AWAITS_COMMIT, UNSENT, Inflight
from holdfast.sessions.delivery.markers import send_marker
from holdfast.sessions.delivery.replay_positions import ReplayPosition
from holdfast.sessions.delivery.replayed_packets import GROWTH, IReplays, SliceSender, packets_of
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.state import NO_HISTORY, NOT_AUTHORIZED
from holdfast.wire import ReasonCode

#: the room for QoS 0: the window does not count, only the bytes that wait to be sent
_UNLIMITED = 1 << 30
#: The most packets of a slice that are rewritten in one step, each by itself (some microseconds, and as long if the
#: authorizer is asked about it) or together (less).
_REWRITTEN_AT_ONCE, _NUMBERED_AT_ONCE = 100, 1000
#: Bytes to read at once for QoS 1 and 2. With even less room in the window, some are read ahead: otherwise each
#: acknowledgement would cost a read. With more room, the rest is read later: the client may not read its socket.
_LEAST_READ, _MOST_READ = 64 * 1024, 256 * 1024
#: The bytes of the first slice, and of each slice while the client is slow. Each slice costs a turn of the reactor: for
#: messages of 10 KB, more than all reading and sending.
_FIRST_SLICE = 64 * 1024


@implementer(IDelivery)
class ReplayDelivery:
    """Takes one replay for one subscription of a connected Session.

    With QoS 2 the delivery of every message is stored, and with it the position of the replay: otherwise a replay that
    continues after a crash would send the message a second time. ``begun`` tells whether the replay shares the window
    already.
    """

    def __init__(
        self,
        *,
        topic_filter: str,
        link: Connection,
        session: Session,
        replays: IReplays,
        authorizer: IAuthorizer,
        counters: Counters,
        position: ReplayPosition,
        cursor: Callable[[], str],
    ) -> None:
        self.client_id = session.client_id
        self.begun = False
        self._topic_filter = topic_filter
        self._link = link
        self._session = session
        self._replays = replays
        self._authorizer = authorizer
        self._counters = counters
        self._position = position
        self._cursor = cursor
        self._concludes = False  # whether all messages of the replay have been delivered once
        self._permission = NOTHING
        self._judged_at: object = None  # the epoch of this permission, and the facts asked for
        self._sender = SliceSender(
            topic_filter=topic_filter,
            link=link,
            session=session,
            replays=replays,
            counters=counters,
            position=position,
        )
        self._not_before = session.queue.enqueued  # so many messages must have left the queue
        self._held_until = session.hurry_held()  # the number of the last held message that must have left
        self._awaited: list[Inflight] | None = None  # the messages that must have been sent
        self._slice_bytes = _FIRST_SLICE
        self._waits = link.waits  # how often the client's bytes had to wait, at the last slice

    @property
    def epoch(self) -> object:
        """The authorizer's epoch."""
        return self._authorizer.epoch

    def form(self) -> ReplayForm:
        """Return the form that the subscription's present options ask for."""
        subscription = self._sender.subscription
        permission = self._present_permission()
        return ReplayForm(
            self._link.protocol_version,
            self._sender.highest_qos > 0
            or subscription.identifier is not None
            or permission.grant is Grant.FILTERED
            or bool(permission.facts),  # each length is compared with the Maximum Packet Size
            self._session.client_id if subscription.no_local else None,
            self._link.maximum_packet_size,
            permission.within,
            permission.facts,
        )

    @property
    def _subscriber(self) -> Subscriber:
        return Subscriber(self._authorizer, self._session.principal)

    def _present_permission(self) -> Permission:
        """Ask the authorizer if its epoch has changed since the last time."""
        epoch = self._authorizer.epoch
        asked = epoch, self._position.facts
        if epoch is None or asked != self._judged_at:
            self._judged_at = asked
            self._permission = NOTHING
            with self._link.guard:
                self._permission = self._subscriber.permission(self._topic_filter)
                if self._position.facts:
                    self._permission = evolve(self._permission, facts=self._facts())
            if self._permission.grant is not Grant.GRANTED:
                self._note_left_out(NOT_AUTHORIZED)
        return self._permission

    def _facts(self) -> Facts:
        """Return what the Client may be told of each message, of what it has asked for."""
        link = self._link
        if not link.participant:  # also a Client of MQTT 3 that has taken over the Session
            return ()
        permitted = link.limits.tell_publishers and self._subscriber.may_know_publishers(self._topic_filter)
        return tuple(fact for fact in self._position.facts if fact != PUBLISHER_FACT or permitted)

    def room(self) -> int:
        """Return how many messages may be delivered now. After 0 the Session wakes the replay when there is room."""
        room = self._room()
        if room <= 0:
            self._session.note_waiting_replay()
        return room

    def _room(self) -> int:
        session = self._session
        if session.link is None or self._link.unsent >= LOW_WATER or not session.queue.have_left(self._not_before):
            return 0
        if session.inflight.to_resend or session.permissions.is_awaited:
            return 0
        if self._held_until:
            if session.holds_until(self._held_until):
                return 0
            self._held_until = 0
            self._not_before = session.queue.enqueued
            if not session.queue.have_left(self._not_before):
                return 0
        if not self.begun:
            if self._awaited is None:
                self._awaited = session.inflight.unsent()
            if any(entry.state in (AWAITS_COMMIT, UNSENT) for entry in self._awaited):
                return 0
            self.begun = True
            session.share_window(with_replays=True)
        return session.replay_room() if self._sender.highest_qos else _UNLIMITED

    def fitting(self, messages: Slice) -> int:
        """Return how many messages of a slice may be delivered now, by their bytes and the work that they cost."""
        session = self._session
        in_window = self._sender.highest_qos > 0
        most = session.replay_bytes() if in_window else self._unchecked_bytes()
        beside = GROWTH  # what a message takes beside its bytes in the slice
        wanted = messages.count
        if self._sender.is_numbered(messages):
            beside += HELD_IDENTIFIER
            wanted = min(wanted, _NUMBERED_AT_ONCE if self._permission.grant is Grant.GRANTED else _REWRITTEN_AT_ONCE)
        else:
            if in_window:
                beside += HELD_ENTRY
            if messages.qos:
                wanted = min(wanted, _REWRITTEN_AT_ONCE)
        if len(messages.packets) + beside * messages.count <= most:
            return wanted
        ends = enumerate((end for _, _, _, end in islice(packets_of(messages.packets), wanted)), start=1)
        count = sum(1 for _ in takewhile(lambda packet: packet[1] + beside * packet[0] <= most, ends))
        if not count and not (in_window and session.window.replayed_bytes):
            return 1
        if not count:
            session.note_waiting_replay()
        return count

    def most_bytes(self) -> int:
        """Return how many bytes of messages the next read may have."""
        if not self._sender.highest_qos:
            return _UNLIMITED
        return min(_MOST_READ, max(_LEAST_READ, self._session.replay_bytes()))

    def slice_bytes(self) -> int:
        """Return how many bytes the next slice may have.

        A full slice doubles them if the transport took all bytes so far at once. A client whose bytes have to wait in
        this process gets half of them.
        """
        return self._slice_bytes

    def _adapt_slices(self, size: int) -> None:
        waits = self._link.waits
        if waits != self._waits:
            self._waits = waits
            self._slice_bytes = max(_FIRST_SLICE, self._slice_bytes // 2)
        elif 2 * size > self._slice_bytes:
            self._slice_bytes = min(SLICE_BYTES, 2 * self._slice_bytes)

    def _unchecked_bytes(self) -> int:
        """Return how many bytes may be sent without regard to ``force_shutdown``."""
        most = self._link.limits.max_buffered_bytes
        return most - self._link.unsent if most else _UNLIMITED

    def is_leaving(self, after: str, last: str) -> bool:
        """Tell whether an earlier message of a topic in this range still awaits its commit."""
        # That message comes from another replay, or from this replay before it began again.
        leaving = any(
            after < topic <= last and matches(self._topic_filter, topic)
            for topic in self._session.inflight.unsent_replayed_topics()
        )
        if leaving:
            self._session.note_waiting_replay()
        return leaving

    def awaits_commits(self) -> bool:
        """Tell whether a message of this replay may have to await a commit: QoS 2, in a stored Session."""
        return self._session.record.durable and self._sender.highest_qos == 2

    def yield_to_queue(self) -> None:
        """Let the messages that are queued now, or await their commit, go first."""
        self._not_before = self._session.queue.enqueued
        self._held_until = self._session.hurry_held()
        self._awaited = None
        if self.begun:
            self.begun = False
            self._replays.share_window()

    def deliver(self, messages: Slice) -> None:
        """Send the allowed messages of the slice."""
        self._adapt_slices(len(messages.packets))
        if self._permission.grant is Grant.GRANTED:
            self._sender.send(messages)
        else:
            with self._link.guard:  # an authorizer that fails ends this connection, and no other replay
                self._sender.send_allowed(messages, self._subscriber)

    def left_out(self, count: int) -> None:
        """Count and log messages above the Client's Maximum Packet Size."""
        self._sender.left_out(count)

    def lost(self, why: str = NO_HISTORY) -> None:
        """Note that what the replay reads is not kept any more."""
        self._note_left_out(why)
        self._link.client_log.info("a replay ends early", f"{{}}: {why}", self._topic_filter)

    def lacks_topics(self) -> None:
        """Note that the history does not know some topics of the replay."""
        self._note_left_out(NO_HISTORY)

    def conclude(self) -> bool:
        """Send the marker that is due, if any."""
        if self._position.marker is None:
            return True
        if not self._concludes:
            self._concludes = self._sender.queued = True
        if self._sender.queued:  # Messages in the queue, held, or awaiting their commit come before the marker.
            self._sender.queued = False
            self.yield_to_queue()
            if self.room() <= 0:
                return False
        return send_marker(
            self._topic_filter, self._position, self._cursor(), self._link, self._session, self._counters
        )

    def finished(self) -> None:
        """End: everything has been delivered."""
        self._replays.finished(self._topic_filter)

    def failed(self, error: BaseException) -> None:
        """End the connection: the replay cannot continue, and the Client must not think that it is complete."""
        self._link.client_log.error("a replay to it failed", error)
        self._link.close(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "retained messages cannot be read now")

    def cancelled(self) -> None:
        """End the connection: an operator has ended the replay, and the Client must not think that it is complete."""
        self._link.close(ReasonCode.ADMINISTRATIVE_ACTION, "the replay of retained messages was cancelled")

    def _note_left_out(self, reason: str) -> None:
        if self._position.marker is not None:
            self._position.marker.left_out.add(reason)
