"""Makes Sessions from the rows that an earlier process has stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from twisted.internet.interfaces import IReactorTime

from holdfast.identity.interfaces import IAuthorizer
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.deliveries import Delivery
from holdfast.sessions.delivery.inflight import RELEASED, Inflight
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.queue import Queued
from holdfast.sessions.delivery.replay_positions import RESTORED, ReplayPosition
from holdfast.sessions.delivery.session import Attendance, Session
from holdfast.sessions.limits import Limits
from holdfast.sessions.state import ISessionStates, StoredSession, marker_of

#: Subscriptions or messages that are restored in one step: each costs up to 20 microseconds
_PER_STEP = 10


def restored(
    stored: StoredSession,
    *,
    limits: Limits,
    states: ISessionStates,
    counters: Counters,
    authorizer: IAuthorizer,
    clock: IReactorTime,
    work: LongWork,
    now: Callable[[], int],
) -> Session:
    """Return the stored Session, without a Network Connection, and without what :func:`restoring` adds in steps."""
    session = Session(
        client_id=stored.principal.client_id,
        principal=stored.principal,
        limits=limits,
        states=states,
        record=stored.record,
        counters=counters,
        authorizer=authorizer,
        clock=clock,
        work=work,
        now=now,
    )
    session.note_restored()
    if limits.conflate_interval:
        session.conflation()
    session.attendance = Attendance(None)
    if stored.expires_at is not None and stored.expiry_interval is not None:
        session.attendance.since = stored.expires_at - round(1000 * stored.expiry_interval)
    session.expire_after(stored.expiry_interval)
    session.void_cuts = stored.void_cuts
    session.received.restore(stored.received)
    return session


def restoring(session: Session, stored: StoredSession) -> Iterator[int]:
    """Add the Subscriptions and the messages of a stored Session, in steps.

    A replay that the Client has not acknowledged to its end continues from its stored position.
    """
    for number, (topic_filter, (subscription, progress)) in enumerate(stored.subscriptions.items()):
        if not number % _PER_STEP:
            yield 1
        session.restore_subscription(topic_filter, subscription)
        if progress is not None:
            position = ReplayPosition(progress.cut, RESTORED, progress.after)
            if progress.marker is not None:
                position.marker = marker_of(progress.marker)
            position.facts = progress.facts
            position.since = progress.since
            session.replay_positions.add(topic_filter, position)
    yield from _restore(session, _deliveries(stored))


def _restore(
    session: Session, deliveries: Iterable[tuple[Delivery, OutgoingMessage | None, int, bool]]
) -> Iterator[int]:
    """Take over, in order, the deliveries that an earlier process has stored.

    Each comes with its message, its Packet Identifier (0: it was queued) and whether PUBREC had come. A message in
    flight is encoded for MQTT 5, and encoded again if its Client comes back with another version.
    """
    for number, (delivery, outgoing, packet_identifier, released) in enumerate(deliveries):
        if not number % _PER_STEP:
            yield 1
        session.deliveries.restored(delivery)
        if released:
            session.inflight.restore(packet_identifier, Inflight(b"", 2, 5, delivery=delivery, state=RELEASED))
        elif outgoing is None:
            session.record.delivered(delivery.seq)
        elif packet_identifier:
            expires_at = outgoing.message.expires_at or 0
            # It was sent in time and may have expired since, but the exchange must be completed.
            now = min(session.now(), expires_at - 1)
            packet = outgoing.packet(5, delivery.qos, delivery.retain, delivery.identifiers, packet_identifier, now)
            session.inflight.restore(packet_identifier, Inflight(packet, delivery.qos, 5, expires_at, False, delivery))
        else:
            queued = Queued(outgoing, delivery.qos, delivery.retain, delivery.identifiers, delivery)
            session.queue.append(queued)
            if session.queue.conflation is not None:
                session.queue.conflation.restored(queued)


def _deliveries(stored: StoredSession) -> Iterator[tuple[Delivery, OutgoingMessage | None, int, bool]]:
    for found in stored.deliveries:
        state = found.state
        outgoing = None
        if found.message is not None and found.kept is not None:
            outgoing = OutgoingMessage(found.message)
            outgoing.found(found.kept)
        redeliverable = None if state.shared_filter is None else outgoing
        delivery = Delivery(
            state.seq,
            state.qos,
            state.retain,
            state.identifiers,
            found.kept,
            state.shared_filter,
            redeliverable,
            noted=True,
        )
        yield delivery, outgoing, state.packet_identifier, state.released
