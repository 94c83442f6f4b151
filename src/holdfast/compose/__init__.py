"""Builds the broker from its parts. Only this package knows all of them.

Each function builds one group of parts and takes everything by keyword. :func:`compose_broker` builds the whole broker,
for twistd. The commands' stand-in for a broker uses :func:`compose_retainer` and :func:`compose_api`, and tests use
:func:`compose_sessions` and :func:`compose_api`, so that commands and tests run what the broker runs.

Building opens nothing and changes nothing outside the parts: no file, no port, no setting of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from attrs import asdict, evolve, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from holdfast.admin.address import API_PREFIX
from holdfast.admin.apis import APIs, Witness
from holdfast.admin.bans import BANS_PREFIX, BanAPI
from holdfast.admin.control import ControlSocket
from holdfast.admin.retainer import RetainerAPI
from holdfast.admin.settings import Settings
from holdfast.admin.site import APISite, longest_body
from holdfast.audit.audit import IAudit, NoAudit
from holdfast.auth.denials import Denied, tell_nobody
from holdfast.auth.failures.ban_file import load_bans
from holdfast.auth.failures.bans import Bans, IBans
from holdfast.auth.failures.exempt import Exempt
from holdfast.auth.failures.failures import IFailures, UncountedFailures
from holdfast.auth.interfaces import IAuthenticator, IAuthorizer, IEnhancedAuthenticator, Principal
from holdfast.authorization.loading import authorizer_of
from holdfast.broker import BrokerService
from holdfast.compose.audit import compose_audit, denials_of, open_audit, witness_of
from holdfast.compose.authentication import compose_authentication
from holdfast.compose.failures import compose_ban_api, compose_failures
from holdfast.config import Config
from holdfast.config.sections.authorization import STRICT
from holdfast.config.sections.listeners import ListenerConfig
from holdfast.config.sections.retainer import RetainerConfig
from holdfast.listening import BACKLOG, Listener, Listening
from holdfast.log.client_log import ClientLog
from holdfast.peers.acceptance import Acceptance
from holdfast.peers.limits import ConnectionLimits, ProcessConnections
from holdfast.peers.trusted_proxies import TrustedProxies
from holdfast.protocol import MQTTServerFactory, OpenConnections
from holdfast.refused_connections import RefusedConnections
from holdfast.retained.administration import Administration
from holdfast.retained.configured import apply_settings, flow_of, payer_limits_of, store_of
from holdfast.retained.configured import limits_of as retainer_limits_of
from holdfast.retained.history.history import HistoryLimits, RetainedHistory
from holdfast.retained.history.restoring import Restorer
from holdfast.retained.importing.chunk_size import HOLD
from holdfast.retained.importing.merging import Merger
from holdfast.retained.publisher import IPublisher
from holdfast.retained.quota.limits import PayerLimits
from holdfast.retained.service import RetainedMessages
from holdfast.retained.sources.source_check import KeepRule, SourceCheck
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.scheduling.long_work import LongWork
from holdfast.service_manager import ServiceManager
from holdfast.sessions.accounts import Accounts
from holdfast.sessions.configured import accounts_of, limits_of
from holdfast.sessions.connection.backpressure import Pressure
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.flush_schedule import FlushSchedule
from holdfast.sessions.connection.network import INetworkConnection
from holdfast.sessions.counters import Counters
from holdfast.sessions.durable.states import DurableSessionStates
from holdfast.sessions.exchange.admission import admit
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.limits import Limits, WhenFull
from holdfast.sessions.monitoring.figures import Figures
from holdfast.sessions.monitoring.sys_topics import SysTopics
from holdfast.sessions.registry.grants import OnRevoke
from holdfast.sessions.registry.ownership import Ownership, names_ignored, owners_only
from holdfast.sessions.registry.registry import SessionRegistry
from holdfast.sessions.routing.operator_publisher import OperatorPublisher
from holdfast.sessions.routing.router import Router
from holdfast.sessions.routing.wills import Wills
from holdfast.sessions.state.interfaces import ISessionStates
from holdfast.storage.database import Durability
from holdfast.storage.lock import DirectoryLock
from holdfast.storage.sqlite.quarantine import OnCorruption
from holdfast.storage.store import DurableStore
from holdfast.storage.url import shown
from holdfast.tickets import CommitTicket
from holdfast.transports.configured import compose_tls, layers_of
from holdfast.transports.layers import MakeLayers
from holdfast.version import version
from holdfast.wire.reasons import ReasonCode

#: Seconds that a replay waits for an unavailable database where ``when_unavailable`` is ``refuse``.
READ_PATIENCE = 5.0


NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


@frozen(kw_only=True)
class RetainerParts:
    """The parts that keep retained messages."""

    store: SQLRetainedStore
    retained: RetainedMessages
    history: RetainedHistory


@frozen(kw_only=True)
class SessionParts:
    """The parts that serve clients.

    ``connect`` makes a connection, given its transport, the limits of its zone and the name of its listener.
    """

    log: ClientLog
    counters: Counters
    router: Router
    wills: Wills
    registry: SessionRegistry
    sys_topics: SysTopics
    connect: Callable[[INetworkConnection, Limits, str], Connection]


def compose_retainer(
    config: RetainerConfig,
    *,
    durable: DurableStore,
    clock: IReactorTime,
    now: Callable[[], int],
    keeps_history: bool = True,
    control_characters: bool = True,
    keep_rule: KeepRule | None = None,
    judges_guests: bool = False,
    payers: PayerLimits | None = None,
) -> RetainerParts:
    """Build the parts that keep retained messages in ``durable``.

    ``now`` returns milliseconds since the epoch. ``control_characters`` tells whether operators may set such topics.
    With a ``keep_rule``, replays withhold messages whose publishers may no longer retain them, and with
    ``judges_guests`` also messages without a User Name. ``payers`` has the quotas of users and guests.
    """

    def flushed() -> CommitTicket:
        return store.flushed()

    # The history comes first: each part is called when the database opens, in this order, and the history must have
    # read its state before the retained store prepares its first write.
    history = RetainedHistory(
        durable, flushed=flushed, clock=clock, now=now, limits=HistoryLimits(**asdict(config.history)),
        keeping=keeps_history,
    )  # fmt: skip
    store = store_of(config, durable, payers)
    limits = evolve(retainer_limits_of(config), control_characters=control_characters, payers=payers)
    sources = None if keep_rule is None else SourceCheck(store, keep_rule, guests=judges_guests, clock=clock)
    retained = RetainedMessages(store, clock=clock, now=now, limits=limits, flow=flow_of(config), sources=sources)
    return RetainerParts(store=store, retained=retained, history=history)


def compose_sessions(
    *,
    clock: IReactorTime,
    now: Callable[[], int],
    retained: RetainedMessages,
    states: ISessionStates,
    authorizer: IAuthorizer,
    authenticator: IAuthenticator,
    enhanced_authenticator: IEnhancedAuthenticator | None = None,
    ownership: Ownership = names_ignored,
    denied: Denied = tell_nobody,
    on_revoke: OnRevoke = OnRevoke.DISCONNECT,
    pressure: Pressure,
    rejects_when_full: bool,
    silent_clears: bool,
    will_restart_grace: float = 60,
    broker_version: str,
    sys_msg_interval: float,
    failures: IFailures | None = None,
    bans: IBans | None = None,
    connections: ProcessConnections | None = None,
    logs_connections: bool = True,
    audit: IAudit | None = None,
    storage: Callable[[], Mapping[str, object]] = dict,
    accounts: Accounts | None = None,
) -> SessionParts:
    """Build the parts that serve clients. With ``accounts``, what each payer has in Sessions is limited."""
    counters = Counters()
    audit = NoAudit() if audit is None else audit
    router = Router(retained, authorizer, counters, rejects_when_full)
    work = LongWork(clock)
    log = ClientLog(clock, logs_connections)
    wills = Wills(
        clock=clock, now=now, router=router, authorizer=authorizer, states=states, counters=counters,
        retained=retained, work=work, log=log, restart_grace=will_restart_grace, silent_clears=silent_clears,
        denied=denied, accounts=accounts,
    )  # fmt: skip
    registry = SessionRegistry(
        clock=clock, now=now, router=router, wills=wills, states=states, counters=counters, work=work,
        authorizer=authorizer, ownership=ownership, denied=denied, on_revoke=on_revoke, accounts=accounts,
    )  # fmt: skip
    figures = Figures(
        version=broker_version, clock=clock, registry=registry, retained=retained, counters=counters,
        connections=connections or ProcessConnections(), storage=storage,
    )  # fmt: skip
    sys_topics = SysTopics(clock=clock, work=work, router=router, measure=figures.measure, interval=sys_msg_interval)
    broker_parts = BrokerParts(
        clock=clock, long_work=work, now=now, registry=registry, router=router, retained=retained,
        authenticator=authenticator, authorizer=authorizer, pressure=pressure, counters=counters, sys_topics=sys_topics,
        enhanced_authenticator=enhanced_authenticator, failures=UncountedFailures() if failures is None else failures,
        bans=Bans(now=lambda: now() / 1000, exempt=Exempt()) if bans is None else bans, denied=denied,
    )  # fmt: skip
    flushes = FlushSchedule(clock)

    admitting = partial(admit, broker_parts)

    def connect(network: INetworkConnection, limits: Limits, listener: str) -> Connection:
        return Connection(
            network=network, limits=limits, listener=listener, clock=clock, flushes=flushes, counters=counters,
            pressure=pressure, admit=admitting, log=log, audit=audit,
        )  # fmt: skip

    return SessionParts(
        log=log, counters=counters, router=router, wills=wills, registry=registry, sys_topics=sys_topics,
        connect=connect,
    )  # fmt: skip


def compose_api(
    config: RetainerConfig,
    *,
    administration: Administration,
    retained: RetainedMessages,
    history: RetainedHistory,
    publisher: IPublisher,
    can_change: bool,
    location: str,
    health: Callable[[], Mapping[str, object]] = dict,
    merger: Merger | None = None,
) -> RetainerAPI:
    """Build the API for operators.

    The ``publisher`` gets the messages that a restore puts back. ``can_change`` says that settings may be changed.
    """
    return RetainerAPI(
        administration=administration,
        retained=retained,
        history=history,
        restorer=Restorer(history, retained, publisher, administration.now),
        settings=Settings(config, partial(apply_settings, retained) if can_change else None),
        store=location,
        health=health,
        merger=merger,
    )


def compose_broker(
    config: Config,
    *,
    reactor: Any,
    now: Callable[[], int],
    announce: Callable[[str], None],
    open_files: int | None = None,
    environment: Mapping[str, str] = NO_ENVIRONMENT,
) -> BrokerService:
    """Build the whole broker. Raises ConfigError if a file that the configuration names cannot be used.

    ``open_files`` limits the files and connections that the process may have open; None is no limit. The
    ``environment`` may name the service manager, and have secrets that the configuration names.
    """
    pressure = Pressure(reactor)
    durability = Durability(config.storage.durability)
    durable = DurableStore(
        config.storage.url,
        durability=durability,
        flush_interval=config.storage.flush_interval,
        max_pending=config.storage.max_pending,
        node=config.node.id,
        reactor=reactor,
        now=now,
        on_pressure=pressure.change,
        patience=READ_PATIENCE if config.retainer.when_unavailable == "refuse" else None,
        upgrade_command=config.upgrade_command,
        on_corruption=OnCorruption(config.storage.on_corruption),
    )
    authorizer, checked = authorizer_of(config), config.authorization.check_retain_source
    parts = compose_retainer(
        config.retainer, durable=durable, clock=reactor, now=now,
        control_characters=config.mqtt.control_characters == "accept",
        keep_rule=authorizer if checked and config.authorization.is_configured else None,
        judges_guests=checked == STRICT,
        payers=payer_limits_of(config),
    )  # fmt: skip
    exempt = Exempt([TrustedProxies(listener.trusted_proxies) for listener in config.listeners.values()])
    bans = Bans(now=lambda: now() / 1000, exempt=exempt)
    audit = compose_audit(config, clock=reactor, now=now)
    default_limits = limits_of(config.zone(""))  # of a stored Session whose listener is no longer configured
    limits = {name: limits_of(config.zone(listener.zone)) for name, listener in config.listeners.items()}
    authentication = compose_authentication(config, reactor=reactor, now=now, environment=environment)
    process = ProcessConnections() if open_files is None else ProcessConnections.within(open_files)
    sessions = compose_sessions(
        clock=reactor,
        now=now,
        retained=parts.retained,
        states=DurableSessionStates(durable, reactor),
        authorizer=authorizer,
        authenticator=authentication.authenticator,
        enhanced_authenticator=authentication.enhanced_authenticator,
        ownership=owners_only if config.authentication.is_configured else names_ignored,
        on_revoke=OnRevoke(config.authorization.on_revoke),
        pressure=pressure,
        rejects_when_full=any(one.mqueue_full is WhenFull.REJECT for one in limits.values()),
        silent_clears=config.retainer.stop_publish_clear_msg,
        will_restart_grace=config.mqtt.will_restart_grace,
        broker_version=version(),
        sys_msg_interval=config.sys_topics.sys_msg_interval,
        failures=compose_failures(config.failed_logins, bans, exempt, reactor),
        bans=bans,
        audit=audit,
        denied=denials_of(audit),
        connections=process,
        logs_connections=config.log.connections,
        storage=durable.status,
        accounts=accounts_of(limits.values(), default_limits, config.authentication.is_configured),
    )
    for method in authentication.revoking:
        method.on_revoked(partial(_dismiss, sessions.registry))
    connections = OpenConnections(reactor)
    refused = RefusedConnections(sessions.counters, process, sessions.log, audit)
    tls = compose_tls(config, reactor, now)
    listeners = []
    for name, listener in config.listeners.items():
        acceptance = _acceptance(listener, name, process, refused, bans, reactor)
        make_layers = layers_of(listener, limits[name].max_packet_size, reactor, tls.layers.get(name))
        factory = _factory(sessions, limits[name], name, connections, acceptance, reactor, make_layers)
        listeners.append(Listener(name, listener.endpoint, listener.server_endpoint.unproxied(BACKLOG), factory))
    return BrokerService(
        reactor=reactor,
        lock=DirectoryLock(config.data_dir),
        load_bans=lambda: bans.load(load_bans(config.data_dir)),
        open_audit=partial(open_audit, audit, config),
        close_audit=audit.close,
        store=durable,
        retained=parts.retained,
        history=parts.history,
        sys_topics=sessions.sys_topics,
        registry=sessions.registry,
        limits_of=lambda listener: limits.get(listener, default_limits),
        listening=Listening(reactor, listeners),
        connections=connections,
        certificates=tls.reloads,
        control=_control_of(
            config,
            reactor,
            now,
            parts,
            sessions.router,
            durable.soundness,
            compose_ban_api(config, bans, sessions.registry, reactor, now),
            witness_of(audit),
        ),
        description=(
            f"Holdfast {version()}, store {shown(config.storage.url)}, durability {durability.value}: "
            f"{durability.loss_window(config.storage.flush_interval)}"
        ),
        announce=announce,
        service_manager=ServiceManager.of(environment, reactor, durable.ask_writer),
        authentication=authentication.services,
    )


def _dismiss(registry: SessionRegistry, matching: Callable[[Principal], bool]) -> None:
    """Disconnect the clients of users that are revoked."""
    registry.dismissals.dismiss(matching, ReasonCode.NOT_AUTHORIZED, "the user was removed, or has another password")


def _acceptance(
    listener: ListenerConfig,
    name: str,
    process: ProcessConnections,
    refused: RefusedConnections,
    bans: Bans,
    clock: IReactorTime,
) -> Acceptance:
    """Return the part that accepts or refuses the connections of one listener."""
    limits = ConnectionLimits(
        max_connections=listener.max_connections,
        max_connections_per_address=listener.max_connections_per_address,
        max_conn_rate=listener.max_conn_rate,
        max_conn_rate_per_address=listener.max_conn_rate_per_address,
        max_half_open_per_address=listener.max_half_open_per_address,
    )
    proxies = TrustedProxies(listener.trusted_proxies) if listener.server_endpoint.proxied else None
    return Acceptance(limits, process, clock, partial(refused.refused, name, limits), proxies, bans.has_peer)


def _factory(
    sessions: SessionParts,
    limits: Limits,
    listener: str,
    connections: OpenConnections,
    acceptance: Acceptance,
    reactor: IReactorTime,
    make_layers: MakeLayers | None,
) -> MQTTServerFactory:
    """Return the factory of one listener's connections."""

    def build(network: INetworkConnection) -> Connection:
        return sessions.connect(network, limits, listener)

    return MQTTServerFactory(build, connections, reactor, acceptance, make_layers)


def _control_of(
    config: Config,
    reactor: Any,
    now: Callable[[], int],
    parts: RetainerParts,
    router: Router,
    health: Callable[[], Mapping[str, object]],
    bans: BanAPI,
    witness: Witness,
) -> ControlSocket:
    """Return the control socket, which serves the API."""

    def pause() -> Deferred[None]:
        return deferLater(reactor, 0)

    publisher = OperatorPublisher(router, reactor)
    api = compose_api(
        config.retainer,
        administration=Administration(parts.retained, parts.store, now, pause, publisher),
        retained=parts.retained,
        history=parts.history,
        publisher=publisher,
        can_change=True,
        location=shown(config.storage.url),
        health=health,
        merger=Merger(parts.retained, parts.store, now=now, pause=pause, hold=HOLD),
    )
    site = APISite(
        APIs({API_PREFIX: api, BANS_PREFIX: bans}, witness).answer,
        longest_body(config.retainer.max_payload_size),
        reactor,
    )
    return ControlSocket(reactor, config.data_dir, site)
