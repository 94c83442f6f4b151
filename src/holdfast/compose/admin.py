"""Builds the listener of the API: who may connect, who calls, and what answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.admin.http.guards import Guards
from holdfast.admin.http.head import Identify
from holdfast.admin.http.listener import ListenerFactory, ListenerSite
from holdfast.admin.http.site import Answering
from holdfast.auth.failures.bans import Bans
from holdfast.config import Config
from holdfast.config.sections.admin import AdminConfig
from holdfast.listening import BACKLOG, CannotListen, Listener, Listening
from holdfast.peers.acceptance import Acceptance
from holdfast.peers.limits import ConnectionLimits, ProcessConnections
from holdfast.refused_connections import RefusedConnections
from holdfast.transports.configured import ComposedTLS

#: the name of the listener in lines of the log, of the audit log, and of the start
NAME = "admin"


class AdminListener:
    """The listener of the API. Without an endpoint it is never open."""

    _log = Logger()

    def __init__(self, config: AdminConfig, reactor: Any, factory: ListenerFactory, site: ListenerSite) -> None:
        self._config = config
        self._listening = Listening(reactor, [])
        self._factory = factory
        self._site = site

    def open(self) -> list[str]:
        """Begin to listen; return ``URL`` of the API, or nothing. Raises CannotListen.

        If the endpoint is the default one, and another program has its port, the broker runs without the API.
        """
        endpoint = self._config.server_endpoint
        if endpoint is None:
            return []
        listener = Listener(NAME, self._config.endpoint, endpoint.unproxied(BACKLOG), self._factory)
        try:
            lines = self._listening.add([listener])
        except CannotListen as error:
            if not self._config.is_default_endpoint:
                raise CannotListen(f'{error}; name another endpoint in admin.endpoint, or none: ""') from None
            self._log.warn(
                "there is no API over HTTP and no dashboard: {error}; name another endpoint in admin.endpoint, or none:"
                ' ""', error=error,
            )  # fmt: skip
            return []
        return [self._url(line.partition(" ")[2]) for line in lines]

    def close(self) -> list[Deferred[None]]:
        """Stop listening, and abort all calls."""
        self._site.abort()
        return self._listening.close()

    def _url(self, address: str) -> str:
        """Return the address of the API for a browser."""
        kind, _, place = address.partition(":")
        if kind != "tcp":
            return address
        host, _, port = place.rpartition(":")
        shown = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - compared only
        return f"{'https' if self._config.tls is not None else 'http'}://{shown}:{port}/"


def compose_admin_listener(
    config: Config,
    *,
    answering: Answering,
    identify: Identify,
    most_bytes: int,
    reactor: Any,
    process: ProcessConnections,
    refused: RefusedConnections,
    bans: Bans,
    tls: ComposedTLS,
) -> AdminListener:
    """Build the listener of the API. ``most_bytes`` limits bodies."""
    section = config.admin
    limits = ConnectionLimits(
        max_connections=section.max_connections, max_connections_per_address=section.max_connections_per_address
    )
    acceptance = Acceptance(
        limits, process, reactor, lambda refusal, peer: refused.refused(NAME, limits, refusal, peer), None,
        bans.has_peer,
    )  # fmt: skip
    site = ListenerSite(answering, most_bytes, reactor, identify, section.max_connections)
    factory = ListenerFactory(site, acceptance, tls.admin_connection)
    return AdminListener(section, reactor, factory, site)


def guards_of(config: Callable[[], Config]) -> Guards:
    """Return the guards with the hosts of the present configuration."""
    return Guards(lambda: config().admin.hosts)
