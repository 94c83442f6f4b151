"""Builds the listeners: the factory, the limits and the layers of each one's connections. A reload changes them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from attrs import frozen

from holdfast.broker.base import Base
from holdfast.broker.identity import IdentityParts
from holdfast.broker.reloading import Change
from holdfast.broker.sessions import SessionParts, limits_of
from holdfast.config import Config, ConfigError
from holdfast.config.sections.listeners import ListenerConfig
from holdfast.core.connection_limits import ConnectionLimits, ProcessConnections
from holdfast.identity.addresses import TrustedProxies
from holdfast.identity.bans import Bans
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.link import INetworkConnection
from holdfast.sessions.limits import Limits
from holdfast.transports.acceptance import Acceptance
from holdfast.transports.configured import ComposedTLS, layers_of
from holdfast.transports.layers import MakeLayers
from holdfast.transports.listening import BACKLOG, CannotListen, Listener, Listening, RefusedConnections
from holdfast.transports.protocol import MQTTServerFactory, OpenConnections


@frozen(kw_only=True)
class _Settings:
    """The parts that the connections of one listener need."""

    config: ListenerConfig
    limits: Limits
    connection_limits: ConnectionLimits
    proxies: TrustedProxies | None
    make_layers: MakeLayers | None


@frozen(kw_only=True)
class _Parts:
    """The parts of one listener."""

    acceptance: Acceptance
    factory: MQTTServerFactory


class ComposedListeners:
    """The listeners by name. ``connect`` makes a connection, given its transport, limits and listener."""

    def __init__(
        self,
        config: Config,
        *,
        reactor: Any,
        connect: Callable[[INetworkConnection, Limits, str], Connection],
        connections: OpenConnections,
        process: ProcessConnections,
        refused: RefusedConnections,
        bans: Bans,
        tls: ComposedTLS,
    ) -> None:
        self._reactor = reactor
        self._connect = connect
        self._connections = connections
        self._process = process
        self._refused = refused
        self._bans = bans
        self._tls = tls
        self._parts: dict[str, _Parts] = {}
        self._gone: list[Acceptance] = []
        self.limits: dict[str, Limits] = {}
        #: of a stored Session whose listener is no longer configured
        self._default_limits = limits_of(config.zone(""))
        settings = self._settings(config)
        self.listening = Listening(reactor, [self._add(name, each) for name, each in settings.items()])

    def open_connections(self) -> dict[str, int]:
        """Return the number of open connections of each listener."""
        return {name: parts.acceptance.open for name, parts in self._parts.items()}

    def closed(self) -> list[str]:
        """Return the listeners that do not listen."""
        return [name for name in self._parts if name not in self.listening.open_names]

    def limits_of(self, listener: str) -> Limits:
        """Return the limits of the clients of a listener."""
        return self.limits.get(listener, self._default_limits)

    def prepare(self, running: Config, config: Config) -> Change:
        """Prepare another configuration: new listeners, and changes of those that stay."""
        settings = self._settings(config)
        new = {name: each for name, each in settings.items() if name not in running.listeners}
        gone = [name for name in running.listeners if name not in settings]
        return Change(
            begin=partial(self._open, config, new),
            commit=partial(self._take, config, settings, gone),
            abandon=partial(self._close, list(new)),
        )

    def drop_rest(self) -> None:
        """Abort the remaining connections of removed listeners."""
        gone, self._gone = self._gone, []
        for acceptance in gone:
            self._connections.abort_of(acceptance)

    def _settings(self, config: Config) -> dict[str, _Settings]:
        settings = {}
        for name, listener in config.listeners.items():
            limits = limits_of(config.zone(listener.zone))
            new_tls = None if listener.tls is None else partial(self._tls.new_layer, name)
            settings[name] = _Settings(
                config=listener,
                limits=limits,
                connection_limits=ConnectionLimits(
                    max_connections=listener.max_connections,
                    max_connections_per_address=listener.max_connections_per_address,
                    max_conn_rate=listener.max_conn_rate,
                    max_conn_rate_per_address=listener.max_conn_rate_per_address,
                    max_half_open_per_address=listener.max_half_open_per_address,
                ),
                proxies=TrustedProxies(listener.trusted_proxies) if listener.server_endpoint.proxied else None,
                make_layers=layers_of(listener, limits.max_packet_size, self._reactor, new_tls),
            )
        return settings

    def _add(self, name: str, settings: _Settings) -> Listener:
        """Make the parts of a listener, and return the function that opens it."""
        acceptance = Acceptance(
            settings.connection_limits, self._process, self._reactor,
            lambda refusal, peer: self._refused.refused(name, acceptance.limits, refusal, peer), settings.proxies,
            self._bans.has_peer,
        )  # fmt: skip
        factory = MQTTServerFactory(
            self._builder(name, settings), self._connections, self._reactor, acceptance, settings.make_layers
        )
        self._parts[name] = _Parts(acceptance=acceptance, factory=factory)
        self.limits[name] = settings.limits
        endpoint = settings.config.server_endpoint.unproxied(BACKLOG)
        return Listener(name, settings.config.endpoint, endpoint, factory, strangers=True)

    def _builder(self, name: str, settings: _Settings) -> Callable[[INetworkConnection], Connection]:
        def build(network: INetworkConnection) -> Connection:
            return self._connect(network, settings.limits, name)

        return build

    def _open(self, config: Config, new: dict[str, _Settings]) -> None:
        try:
            self.listening.add([self._add(name, each) for name, each in new.items()])
        except CannotListen as error:
            raise ConfigError([config.source.problem(("listeners",), str(error))]) from None

    def _close(self, names: Collection[str]) -> None:
        self.listening.remove(list(names))
        for name in names:
            self._parts.pop(name, None)
            self.limits.pop(name, None)

    def _take(self, config: Config, settings: dict[str, _Settings], gone: Collection[str]) -> None:
        self._default_limits = limits_of(config.zone(""))
        for name, each in settings.items():
            self.limits[name] = each.limits
            parts = self._parts[name]
            parts.acceptance.change(each.connection_limits, each.proxies)
            parts.factory.change(self._builder(name, each), each.make_layers)
        self._gone += [self._parts[name].acceptance for name in gone]
        self._close(gone)


@frozen(kw_only=True)
class ListenerParts:
    """The listeners, their open connections, TLS contexts, and what refuses connections."""

    connections: OpenConnections
    tls: ComposedTLS
    refused: RefusedConnections
    listeners: ComposedListeners


def build(config: Config, base: Base, identity: IdentityParts, sessions: SessionParts) -> ListenerParts:
    """Build the listeners. Raises ConfigError for certificates that cannot be used."""
    connections = OpenConnections(base.reactor)
    tls = ComposedTLS(base.reactor, base.now)
    tls.prepare(config)()
    refused = RefusedConnections(sessions.counters, base.process, sessions.log, base.audit)
    listeners = ComposedListeners(
        config,
        reactor=base.reactor,
        connect=sessions.connect,
        connections=connections,
        process=base.process,
        refused=refused,
        bans=identity.bans,
        tls=tls,
    )
    return ListenerParts(connections=connections, tls=tls, refused=refused, listeners=listeners)
