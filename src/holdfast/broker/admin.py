"""Builds the listener of the API: its limits, the identification of callers, and its calls."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater
from twisted.logger import Logger

from holdfast.admin.api import happening_sources
from holdfast.admin.api.backups import BackupCalls, Copy
from holdfast.admin.api.bridges import BridgeAPI, BridgeCalls
from holdfast.admin.api.clients import ClientCalls, TraceAPI
from holdfast.admin.api.configs import ConfigCalls, ReloadAPI
from holdfast.admin.api.events import EventCalls
from holdfast.admin.api.happenings import Happenings
from holdfast.admin.api.jobs import JobCalls
from holdfast.admin.api.logins import LoginAPI, VerifyUser
from holdfast.admin.api.nodes import NodeCalls
from holdfast.admin.api.overview import OverviewCalls
from holdfast.admin.api.publishing import PublishCalls, PublishLimits
from holdfast.admin.api.retainer import RetainerAPI
from holdfast.admin.call import Caller, Scope
from holdfast.admin.callers import DashboardSessions, Links
from holdfast.admin.deadlines import Deadlines
from holdfast.admin.http.handshakes import TLSOfAPI
from holdfast.admin.http.identities import Identities
from holdfast.admin.http.listener import ListenerFactory, ListenerSite
from holdfast.admin.http.request import Forwarding, Guards
from holdfast.admin.http.site import longest_body
from holdfast.admin.http.static import StaticFiles
from holdfast.admin.http.upgrade import MakeProtocol, Upgrade
from holdfast.admin.openapi import OpenAPI
from holdfast.admin.routing import Route, RoutingTable
from holdfast.broker.audit import witness_of
from holdfast.broker.base import Base
from holdfast.broker.identity import IdentityParts, ban_api_of, compose_account_routes, hash_parameters_of
from holdfast.broker.listeners import ComposedListeners, ListenerParts
from holdfast.broker.nodes import FiguresOfMembers, at_all_members, nodes_of
from holdfast.broker.reloading import ConfigFile, Outcome, Reloads, Run
from holdfast.broker.retainer import RetainerParts
from holdfast.broker.sessions import SessionParts, limits_of
from holdfast.broker.watch import MonitoringParts, monitoring_routes
from holdfast.client_api.logins import ClientLogins
from holdfast.client_api.reads import ClientReads
from holdfast.config import Config, ConfigError, ConfigProblem
from holdfast.config.differences import differences, present_values
from holdfast.config.options import TakesEffect
from holdfast.config.sections.admin import AdminConfig
from holdfast.core.connection_limits import ConnectionLimits, Refusal
from holdfast.core.strict_json import read_long_json
from holdfast.core.tickets import CommitTicket
from holdfast.identity.addresses import Peer, TrustedProxies
from holdfast.identity.hashes import HashingThreads, HashParameters, new_hash, nobodys_hash
from holdfast.identity.hashes import verify as verify_hash
from holdfast.identity.users import Users
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.link import INetworkConnection
from holdfast.sessions.directory import Directory
from holdfast.sessions.limits import Limits
from holdfast.sessions.memory_guard import MemoryUnknown, resident_bytes
from holdfast.sessions.operator_publisher import OperatorMessages, OperatorPublisher
from holdfast.sessions.tracing import CannotTrace
from holdfast.storage.database import Durability
from holdfast.storage.maintenance import database_at
from holdfast.storage.sqlite import SQLiteDatabase, back_up
from holdfast.transports.acceptance import Acceptance, AcceptedConnection
from holdfast.transports.layers import Layer
from holdfast.transports.listening import BACKLOG, CannotListen, Listener, Listening
from holdfast.transports.protocol import LayeredServerProtocol, OpenConnections
from holdfast.transports.tls import explain, not_tls
from holdfast.version import version
from holdfast.watch.audit import REFUSED
from holdfast.wire import ReasonCode

if TYPE_CHECKING:
    from holdfast.cluster.exchange import Exchange

# Builds the calls about clients and their messages.


def _client_routes(
    base: Base, sessions: SessionParts, config: Callable[[], Config], exchange: Exchange | None
) -> tuple[Route, ...]:
    """Return the calls about clients, and those that publish. ``config`` returns the present configuration."""

    def zone_of(listener: str) -> str | None:
        section = config().listeners.get(listener)
        return None if section is None else section.zone or "default"

    directory = Directory(sessions.registry, sessions.broker_parts.long_work)
    messages = OperatorMessages(OperatorPublisher(sessions.router, base.reactor), sessions.broker_parts.retained)
    publishing = PublishCalls(
        messages, lambda: _publish_limits(config(), base.durable.is_away), base.now, lambda: deferLater(base.reactor, 0)
    )
    node = config().node.id
    clients = at_all_members(ClientCalls(directory, str(node), zone_of).routes, node, exchange)
    return (*clients, *publishing.routes)


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


# Builds the calls about the configuration.


@frozen
class Configs:
    """The configuration of the broker, as the calls see it."""

    _reloads: Reloads
    _file: ConfigFile
    _read: Callable[..., Config]
    _run: Run

    @property
    def file(self) -> str | None:
        """The configuration file."""
        file = self._reloads.config.file
        return None if file is None else str(file)

    @property
    def writable(self) -> bool:
        """Whether the operator permits to write it."""
        return self._reloads.config.admin.config_writable

    def values(self) -> Iterable[tuple[str, object, TakesEffect, bool]]:
        """Return each option: its key, its value, when a change takes effect, and whether it is secret."""
        return present_values(self._reloads.config)

    def differing(self) -> Deferred[tuple[frozenset[str], Sequence[ConfigProblem]]]:
        """Fire with the keys that have another value in the file now, and the problems of the file."""
        running = self._reloads.config

        def compare() -> tuple[frozenset[str], Sequence[ConfigProblem]]:
            try:
                return frozenset(each.key for each in differences(running, self._read())), ()
            except ConfigError as error:
                return frozenset(), error.problems

        return self._run(compare)

    def text(self) -> Deferred[bytes]:
        """Fire with the content of the file."""
        return self._file.text()

    def put(self, text: bytes, by: str, dry_run: bool) -> Deferred[Outcome]:
        """Replace the file and reload; with ``dry_run``, only find the differences."""
        return self._file.put(text, by, dry_run)


# Builds the connections of the dashboard's console: MQTT over WebSocket, at the listener of the API.


#: the path of the console, and the name of its listener in logs, which no listener of the configuration has
PATH, LISTENER = "/mqtt", "admin/mqtt"
#: seconds until a console notices that the session of its operator is over
_LOOKS = 1.0
_OVER = "the session at the dashboard is over"

ConnectOperator = Callable[[INetworkConnection, Limits, str, str, bool], Connection]


class Consoles:
    """The connections of consoles. They look whether the sessions of their operators go on, while there are any."""

    def __init__(
        self,
        connect: ConnectOperator,
        *,
        connections: OpenConnections,
        limits: Callable[[], Limits],
        clock: IReactorTime,
    ) -> None:
        self._connect = connect
        self._connections = connections
        self._limits = limits
        self._clock = clock
        self._open: dict[Connection, Callable[[], bool]] = {}
        self._job = PeriodicJob(self._look, name="ending consoles", interval=_LOOKS, clock=clock)

    def protocol(
        self, accepted: AcceptedConnection, name: str, publishes: bool, goes_on: Callable[[], bool]
    ) -> LayeredServerProtocol:
        """Return the protocol of an accepted connection, for a transport whose next byte is that of the request.

        ``name`` is the operator's. ``goes_on`` tells whether the operator's session at the dashboard does.
        """

        def build(network: INetworkConnection) -> Connection:
            connection = self._connect(network, self._limits(), LISTENER, name, publishes)
            if not self._open:
                self._job.start(_LOOKS)
            self._open[connection] = goes_on
            return connection

        return LayeredServerProtocol(build, self._connections, self._clock, accepted, self._layers)

    def of_session(
        self, sessions: DashboardSessions, accepted: AcceptedConnection, caller: Caller, cookie: str
    ) -> Protocol:
        """Return the protocol of a connection that a session of the dashboard has opened."""
        return self.protocol(accepted, str(caller), caller.may(Scope.PUBLISH), partial(sessions.lasts, cookie))

    def _layers(self) -> list[Layer]:
        # Its library is large, and not every broker has a console in use.
        from holdfast.transports.websocket import WebSocketLayer
        from holdfast.transports.websocket_opening import AllowedOrigins, Opening

        return [WebSocketLayer(Opening(PATH, AllowedOrigins()), self._limits().max_packet_size, self._clock)]

    def _look(self) -> None:
        for connection, goes_on in tuple(self._open.items()):
            if connection.is_closed:
                del self._open[connection]
            elif not goes_on():
                with connection.guard:
                    connection.close(ReasonCode.NOT_AUTHORIZED, _OVER)
        if not self._open:
            self._job.stop()


# Builds the streams of events.


def _happenings(config: Config, base: Base, retainer: RetainerParts, monitoring: MonitoringParts) -> Happenings:
    """Return the happenings of the broker, for streams and hooks."""
    return Happenings(
        base.reactor,
        {
            "client": happening_sources.clients(base.overheard, base.now),
            "replay": happening_sources.replays(retainer.replays, base.reactor),
            "alarm": happening_sources.alarms(monitoring.alarms, base.now, config.node.id),
            "monitor": happening_sources.monitor(monitoring.recent.ring, base.reactor),
        },
    )


def _hook_routes(
    config: Config, base: Base, retainer: RetainerParts, monitoring: MonitoringParts, happenings: Happenings
) -> Sequence[Route]:
    """Build the hooks, which run with the monitoring; return their calls."""
    if not config.hooks:
        return ()
    from holdfast.broker import hooks

    parts = hooks.build(config, base, retainer, happenings, monitoring.alarms)
    parts.service.setServiceParent(monitoring.services)
    monitoring.metrics.add(parts.metrics)
    return parts.routes


def _read_routes(
    base: Base,
    retainer: RetainerParts,
    sessions: SessionParts,
    listeners: ComposedListeners,
    identities: Identities,
    config: Callable[[], Config],
) -> tuple[Route, ...]:
    """Return the calls of MQTT clients. ``config`` returns the present configuration."""

    def listener() -> str:
        name = config().admin.clients_of
        return name if name in config().listeners else ""

    parts = sessions.broker_parts
    logins = ClientLogins(parts, identities, listener, listeners.limits_of)
    return ClientReads(logins, retainer.retained, parts.questions, retainer.changes, base.reactor).routes


# Builds the calls that show the broker itself, and those about its backups.


_TYPES = {(False, False): "tcp", (False, True): "ssl", (True, False): "ws", (True, True): "wss"}
#: seconds that a backup waits for a lock of the database
_LOCK_TIMEOUT = 5.0


def _overview_routes(
    base: Base,
    retainer: RetainerParts,
    sessions: SessionParts,
    listeners: ComposedListeners,
    config: Callable[[], Config],
    exchange: Exchange | None,
) -> tuple[Route, ...]:
    """Return the calls. ``config`` returns the present configuration."""
    overview = Overview(config, sessions, retainer.retained, listeners, base.reactor.seconds, base.reactor.seconds())

    def flushed() -> CommitTicket:
        retainer.telemetry.hand_over()
        return retainer.store.flushed()

    backups = BackupCalls(
        Path(config().data_dir) / "backups", _copy_of(config().storage.url), base.jobs, base.in_thread, base.now,
        flushed,
    )  # fmt: skip
    nodes = nodes_of(base.durable, exchange, overview.node)
    if exchange is not None:
        sessions.sys_topics.ask_members = FiguresOfMembers(nodes).ask
    return (*OverviewCalls(overview).routes, *NodeCalls(nodes).routes, *backups.routes)


@frozen
class Overview:
    """Shows the broker as fields. ``seconds`` tells the time, and ``started`` the time of the start."""

    _config: Callable[[], Config]
    _sessions: SessionParts
    _retained: RetainedMessages
    _listeners: ComposedListeners
    _seconds: Callable[[], float]
    _started: float

    def listeners(self) -> Sequence[Mapping[str, Any]]:
        """Return the listeners."""
        closed, connections = self._listeners.closed(), self._listeners.open_connections()
        shown = []
        for name, section in self._config().listeners.items():
            kind = _TYPES[section.transport != "mqtt", section.tls is not None]
            running = name not in closed and name in connections
            shown.append({
                "id": f"{kind}:{name}",
                "name": name,
                "type": kind,
                "bind": section.endpoint,
                "tls": section.tls is not None,
                "zone": section.zone or "default",
                "running": running,
                "status": {
                    "running": running,
                    "current_connections": connections.get(name, 0),
                    "max_connections": "infinity" if section.max_connections is None else section.max_connections,
                },
            })  # fmt: skip
        return shown

    def node(self) -> Mapping[str, Any]:
        """Return this node."""
        registry = self._sessions.registry
        loads = dict(zip(("load1", "load5", "load15"), (round(load, 2) for load in os.getloadavg()), strict=True))
        node: dict[str, Any] = {
            "node": str(self._config().node.id),
            "node_status": "running",
            "version": version(),
            "uptime": round(1000 * (self._seconds() - self._started)),
            "connections": registry.session_count,
            "live_connections": registry.connection_count,
            "cluster_sessions": registry.session_count,
            "max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "memory_total": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            **loads,
        }
        with suppress(MemoryUnknown):  # then the field is left out
            node["memory_used"] = resident_bytes()
        return node

    def stats(self) -> Mapping[str, int]:
        """Return the present numbers."""
        registry, holdings = self._sessions.registry, self._sessions.counters.holdings
        retained = self._retained.totals.refreshed()
        return {
            "connections.count": registry.session_count,
            "live_connections.count": registry.connection_count,
            "sessions.count": registry.session_count,
            "subscriptions.count": holdings.subscriptions - holdings.shared_subscriptions,
            "subscriptions.shared.count": holdings.shared_subscriptions,
            "suboptions.count": holdings.subscriptions,
            "retained.count": retained.count,
            "retained.bytes": retained.bytes,
            "queued_messages.count": holdings.queued_messages,
            "queued_messages.bytes": holdings.queued_bytes,
        }


def _copy_of(url: str) -> Copy | None:
    """Return the function that copies the database, None for Postgres."""
    if not url.startswith("sqlite:"):
        return None

    def copy(target: Path, report: Callable[[int, int], None]) -> None:
        database = database_at(url, Durability.FULL, 0, _LOCK_TIMEOUT)
        assert isinstance(database, SQLiteDatabase)
        back_up(database, target, report)

    return copy


#: one set for each value of the option that is or was in use
_proxies = lru_cache(maxsize=4)(TrustedProxies)

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
        self._present_url: str | None = None

    @property
    def url(self) -> str | None:
        """The address of the dashboard, None if it is off."""
        return self._present_url

    @property
    def late(self) -> list[str]:
        """Why it does not listen yet, if it waits for its address."""
        return self._listening.late

    def open(self, wait: bool = False) -> list[str]:
        """Begin to listen; return ``URL`` of the API, or nothing. Raises CannotListen.

        If the endpoint is the default one, and another program has its port, the broker runs without the API. With
        ``wait``, :meth:`open_late` opens it when this machine has its address.
        """
        endpoint = self._config.server_endpoint
        if endpoint is None:
            return []
        listener = Listener(NAME, self._config.endpoint, endpoint.unproxied(BACKLOG), self._factory)
        try:
            return self._opened(self._listening.add([listener], wait))
        except CannotListen as error:
            if not self._config.is_default_endpoint:
                raise CannotListen(f'{error}; name another endpoint in admin.endpoint, or none: ""') from None
            self._log.warn(
                "there is no API over HTTP and no dashboard: {error}; name another endpoint in admin.endpoint, or none:"
                ' ""', error=error,
            )  # fmt: skip
            return []

    def open_late(self) -> list[str]:
        """Try again if it is late; return ``URL`` of the API, or nothing."""
        return self._opened(self._listening.open_late())

    def _opened(self, lines: list[str]) -> list[str]:
        """Note where it listens: no line, or one."""
        urls = [self._url(line.partition(" ")[2]) for line in lines]
        self._present_url = urls[0] if urls else self._present_url
        return urls

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


#: open connections of the API: a further one takes the place of one that makes no call with a valid key or login
MOST_CONNECTIONS = 256
#: open connections of one address, all IPv6 addresses of a /64 together; loopback addresses have no limit
MOST_OF_ADDRESS = 32


def _admin_listener(
    config: Config,
    base: Base,
    identity: IdentityParts,
    listening: ListenerParts,
    callers: Callers,
    table: RoutingTable,
    console: MakeProtocol,
) -> AdminListener:
    """Build the listener of the API and of the dashboard. ``console`` makes the protocol of a console."""
    limits = ConnectionLimits(max_connections=MOST_CONNECTIONS, max_connections_per_address=MOST_OF_ADDRESS)
    refused, tls = listening.refused, listening.tls

    def tell(refusal: Refusal, peer: Peer) -> None:
        refused.refused(NAME, limits, refusal, peer)

    acceptance = Acceptance(limits, base.process, base.reactor, tell, None, identity.bans.has_peer)
    site = ListenerSite(
        StaticFiles(_STATIC, table.answer).answer, table.longest_body, base.reactor, callers.identities.identify,
        MOST_CONNECTIONS, goes_on=callers.identities.goes_on, unwrap=callers.forwarding.unwrap,
        gave_way=partial(tell, Refusal.GAVE_WAY),
    )  # fmt: skip
    site.upgrades[PATH.encode()] = Upgrade(console, site.released, base.reactor)
    secured = TLSOfAPI(
        maker=tls.admin_maker, line_up=tls.line_up, not_tls=not_tls, explain=explain,
        failed=lambda peer, cause: refused.handshake_failed(NAME, peer, cause),
    )  # fmt: skip
    return AdminListener(config.admin, base.reactor, ListenerFactory(site, acceptance, secured), site)


@frozen(kw_only=True)
class Callers:
    """The parts that identify callers and log people in."""

    identities: Identities
    logins: LoginAPI
    forwarding: Forwarding
    sessions: DashboardSessions


def _callers(
    base: Base,
    identity: IdentityParts,
    sessions: SessionParts,
    config: Callable[[], Config],
    url: Callable[[], str | None],
) -> Callers:
    """Build the identification of callers. ``config`` returns the present configuration."""
    seconds, accounts, banned = base.reactor.seconds, identity.accounts, identity.bans.has_peer
    counters, users = sessions.counters, accounts.users
    cookies = DashboardSessions(seconds)

    def failed(peer: Peer, name: str) -> None:
        counters.logins_failed += 1
        counters.addresses_banned += banned(peer)
        fields = {
            "address": str(peer.ip or "unix"), "port": peer.port or None, "listener": NAME, "failed_login": True,
            "reason": "API_LOGIN",
        }  # fmt: skip
        base.audit.tell(REFUSED, peer.group, fields, user=name)

    def verify() -> VerifyUser | None:
        group = config().admin.users_group
        return partial(_verify, users, identity.threads, hash_parameters_of(config()), group) if group else None

    users.on_change(lambda changes: cookies.end_of(changes.revoked | changes.regrouped))
    identities = Identities(
        Guards(lambda: config().admin.hosts), accounts.keys, cookies, lambda: sessions.broker_parts.failures, failed,
        banned,
    )  # fmt: skip
    logins = LoginAPI(cookies, Links(seconds), identities, verify=verify, url=url, now=base.now)
    forwarding = Forwarding(lambda: _proxies(config().admin.trusted_proxies))
    return Callers(identities=identities, logins=logins, forwarding=forwarding, sessions=cookies)


def _verify(
    users: Users, threads: HashingThreads, parameters: HashParameters, group: str, username: str, password: bytes
) -> Deferred[bool]:
    """Verify the password of a user, who must be in a group. Raises Busy.

    An unknown user takes as long as a user with a new hash: its hash has these parameters.
    """
    user = users.stored(username)
    stored = nobodys_hash(parameters) if user is None else user.password_hash
    allowed = user is not None and group in user.groups

    def right(verified: bool) -> bool:
        # The user may have been removed, or have another password, meanwhile.
        return verified and allowed and users.stored(username) == user

    return threads.run(partial(verify_hash, stored, password)).addCallback(right)


# Builds the table of routes, and what answers by it.


_STATIC = Path(__file__).parents[1] / "dashboard" / "static"


@frozen(kw_only=True)
class AdminParts:
    """The listener of the API, the routes of its calls, and the logins at the dashboard."""

    listener: AdminListener
    table: RoutingTable
    logins: LoginAPI


def build(
    base: Base,
    identity: IdentityParts,
    retainer: RetainerParts,
    sessions: SessionParts,
    listening: ListenerParts,
    monitoring: MonitoringParts,
    api: RetainerAPI,
    reloads: Reloads,
    read: Callable[..., Config],
    bridges: BridgeCalls,
    exchange: Exchange | None = None,
) -> AdminParts:
    """Build the API for operators. ``read`` returns the configuration as it is at a reload, or with another file.

    A member of a cluster has an ``exchange`` with the others.
    """
    config, accounts = reloads.config, identity.accounts
    callers = _callers(base, identity, sessions, lambda: reloads.config, lambda: listener.url)
    happenings = _happenings(config, base, retainer, monitoring)
    routes = [
        *callers.logins.routes, *JobCalls(base.jobs).routes, *api.routes,
        *compose_account_routes(
            accounts.users, accounts.rules, accounts.keys,
            lambda password: identity.threads.run(partial(new_hash, password, hash_parameters_of(reloads.config))),
            base.now,
        ),
        *ban_api_of(config, base, identity, sessions.registry, retainer.retained.sources).routes,
        *BridgeAPI(bridges).routes,
        *ReloadAPI(reloads.reload).routes,
        *TraceAPI(sessions.broker_parts.traces, CannotTrace).routes,
        *monitoring_routes(monitoring, base.now, config.node.id),
        *_client_routes(base, sessions, lambda: reloads.config, exchange),
        *EventCalls(retainer.changes, happenings, base.reactor).routes,
        *_hook_routes(config, base, retainer, monitoring, happenings),
        *_read_routes(
            base, retainer, sessions, listening.listeners, callers.identities, lambda: reloads.config
        ),
        *ConfigCalls(Configs(reloads, ConfigFile(reloads, read, base.in_thread), read, base.in_thread)).routes,
        *_overview_routes(base, retainer, sessions, listening.listeners, lambda: reloads.config, exchange),
    ]  # fmt: skip
    longest = longest_body(retainer.retained.admission.limits.max_payload_size)
    table = RoutingTable(
        [*routes, OpenAPI(routes, version(), longest).route],
        witness_of(base.audit),
        partial(base.in_thread, read_long_json),
        longest,
        Deadlines(base.reactor, base.jobs, lambda: base.durable.is_away).run,
        lambda: reloads.config.most_topic_levels,
    )
    consoles = Consoles(
        sessions.connect_operator, connections=listening.connections,
        limits=lambda: listening.listeners.limits_of(LISTENER), clock=base.reactor,
    )  # fmt: skip
    console = partial(consoles.of_session, callers.sessions)
    listener = _admin_listener(config, base, identity, listening, callers, table, console)
    return AdminParts(listener=listener, table=table, logins=callers.logins)
