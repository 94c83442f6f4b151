"""Builds the calls about clients and the broker."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.admin.clients.clients import ClientCalls
from holdfast.admin.routing.route import Route
from holdfast.compose.sessions import SessionParts
from holdfast.config import Config
from holdfast.sessions.directory.directory import Directory


def compose_client_routes(sessions: SessionParts, config: Callable[[], Config]) -> tuple[Route, ...]:
    """Return the calls about clients. ``config`` returns the present configuration."""

    def zone_of(listener: str) -> str | None:
        section = config().listeners.get(listener)
        return None if section is None else section.zone or "default"

    directory = Directory(sessions.registry, sessions.broker_parts.long_work)
    return ClientCalls(directory, str(config().node.id), zone_of).routes
