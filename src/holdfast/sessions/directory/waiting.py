"""The messages that wait for one Client, page by page."""

from __future__ import annotations

from itertools import islice

from holdfast.client_views import Waiting, WaitingMessage
from holdfast.sessions.delivery.inflight import Inflight, InflightState
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.queue import Queued
from holdfast.sessions.session.session import Session

_STATES = {
    InflightState.AWAITS_COMMIT: "awaits_commit",
    InflightState.UNSENT: "unsent",
    InflightState.SENT: "sent",
    InflightState.RELEASED: "released",
    InflightState.OVER: "over",
}


def queued_messages(session: Session, position: int, limit: int, most_bytes: int) -> Waiting:
    """Return queued messages from a position on, at most so many, and about so many bytes of payload.

    The position counts all messages that the queue has had. So messages that leave at its head move nothing. One that
    leaves further behind, such as an expired one, may let a later page repeat a message; none is left out.
    """
    queue = session.queue
    start = max(position, queue.dequeued)
    skipped = start - queue.dequeued
    found: list[WaitingMessage] = []
    size = 0
    for queued in islice(queue, skipped, skipped + limit):
        if found and size + len(queued.outgoing.message.payload) > most_bytes:
            break
        size += len(queued.outgoing.message.payload)
        found.append(_queued_view(queued))
    after = start + len(found)
    return Waiting(found, after if after < queue.enqueued else None)


def inflight_messages(session: Session, position: int, limit: int, most_bytes: int) -> Waiting:
    """Return messages in flight by their Packet Identifiers, from this one on; limited as the queued ones."""
    entries = session.inflight.entries
    identifiers = sorted(identifier for identifier in entries if identifier >= position)
    found: list[WaitingMessage] = []
    size = 0
    following = None
    for identifier in identifiers:
        view = None if len(found) == limit else _inflight_view(identifier, entries[identifier])
        length = len(view.payload or b"") if view is not None else 0
        if view is None or (found and size + length > most_bytes):
            following = identifier
            break
        size += length
        found.append(view)
    return Waiting(found, following, session.inflight.blocks.count)


def _queued_view(queued: Queued) -> WaitingMessage:
    message = queued.outgoing.message
    return WaitingMessage(
        topic=message.topic,
        payload=message.payload,
        qos=queued.qos,
        retain=queued.retain,
        publisher=message.client_id,
        username=message.username,
        expires_at=message.expires_at,
    )


def _inflight_view(identifier: int, entry: Inflight) -> WaitingMessage:
    outgoing = entry.outgoing or (entry.delivery.outgoing if entry.delivery is not None else None)
    if outgoing is None and entry.packet:
        outgoing, _ = OutgoingMessage.of_packet(entry.packet, entry.protocol_version, entry.expires_at)
    message = None if outgoing is None else outgoing.message
    return WaitingMessage(
        topic=None if message is None else message.topic,
        payload=None if message is None else message.payload,
        qos=entry.qos,
        retain=message is not None and message.retain,
        publisher=None if message is None else message.client_id,
        username=None if message is None else message.username,
        expires_at=entry.expires_at or None,
        packet_identifier=identifier,
        state=_STATES[entry.state],
    )
