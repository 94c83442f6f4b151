"""A Session as a member of groups: their interface, and the messages that other members can take from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, TypeVar

from holdfast.sessions.delivery.inflight import Inflight
from holdfast.sessions.delivery.inflight_messages import InflightMessages
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.queue import Queued
from holdfast.sessions.session.session_queue import SessionQueue

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
