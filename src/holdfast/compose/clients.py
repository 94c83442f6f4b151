"""Builds the calls about clients and their messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import deferLater

from holdfast.admin.broker.publishing import PublishCalls, PublishLimits
from holdfast.admin.clients.clients import ClientCalls
from holdfast.admin.routing.route import Route
from holdfast.compose.sessions import SessionParts
from holdfast.config import Config
from holdfast.sessions.configured import limits_of
from holdfast.sessions.directory.directory import Directory
from holdfast.sessions.routing.operator_messages import OperatorMessages
from holdfast.sessions.routing.operator_publisher import OperatorPublisher


def compose_client_routes(
    sessions: SessionParts,
    config: Callable[[], Config],
    reactor: Any,
    now: Callable[[], int],
    is_away: Callable[[], bool],
) -> tuple[Route, ...]:
    """Return the calls about clients, and those that publish.

    ``config`` returns the present configuration; ``is_away`` tells whether the database is known to be away.
    """

    def zone_of(listener: str) -> str | None:
        section = config().listeners.get(listener)
        return None if section is None else section.zone or "default"

    directory = Directory(sessions.registry, sessions.broker_parts.long_work)
    messages = OperatorMessages(OperatorPublisher(sessions.router, reactor), sessions.broker_parts.retained)
    publishing = PublishCalls(
        messages, lambda: _publish_limits(config(), is_away()), now, lambda: deferLater(reactor, 0)
    )
    return (*ClientCalls(directory, str(config().node.id), zone_of).routes, *publishing.routes)


def _publish_limits(config: Config, is_away: bool) -> PublishLimits:
    """Return the limits of operators' messages: those of clients in no zone."""
    limits = limits_of(config.zone(""))
    return PublishLimits(
        max_topic_levels=limits.max_topic_levels,
        max_bytes=limits.max_packet_size,
        max_qos=limits.max_qos_allowed,
        control_characters=limits.control_characters,
        retain_available=limits.retain_available,
        can_be_stored=not is_away,
    )
