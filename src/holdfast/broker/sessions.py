"""Builds the parts that serve clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from holdfast.broker.audit import denials_of
from holdfast.broker.base import Base
from holdfast.broker.identity import IdentityParts, compose_failures
from holdfast.broker.retainer import RetainerParts
from holdfast.changes.telemetry import Telemetry
from holdfast.config.document import Config, Zone
from holdfast.config.sections.limits import MemoryShare
from holdfast.config.toml import ConfigError
from holdfast.core.connection_limits import ProcessConnections
from holdfast.identity.bans import Bans, Exempt, IBans
from holdfast.identity.failed_logins import IFailures, UncountedFailures
from holdfast.identity.interfaces import (
    IAuthenticator,
    IAuthorizer,
    IEnhancedAuthenticator,
    OnDenied,
    Principal,
    tell_nobody,
)
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.accounts import Accounts
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.link import INetworkConnection
from holdfast.sessions.connection.outbox import FlushSchedule
from holdfast.sessions.connection.pressure import Pressure
from holdfast.sessions.counters import Counters
from holdfast.sessions.draining import Draining
from holdfast.sessions.durable import DurableSessionStates
from holdfast.sessions.exchange.admission import admit, bridge_admission, operator_admission
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.leases import Leases
from holdfast.sessions.limits import Limits, RetainMode, WhenFull
from holdfast.sessions.memory_guard import MemoryGuard, MemoryUnknown, available_bytes, resident_bytes
from holdfast.sessions.questions import Questions
from holdfast.sessions.registry import Ownership, SessionRegistry, names_ignored, owners_only
from holdfast.sessions.revocation import OnRevoke
from holdfast.sessions.router import Router
from holdfast.sessions.state import ISessionStates
from holdfast.sessions.sys_topics import Figures, SysTopics
from holdfast.sessions.tracing import Traces
from holdfast.sessions.wills import Wills
from holdfast.version import version
from holdfast.watch.audit import IAudit, NoAudit
from holdfast.watch.log import ClientLog
from holdfast.wire.reasons import ReasonCode

if TYPE_CHECKING:
    from holdfast.cluster.exchange import Exchange


@frozen(kw_only=True)
class SessionParts:
    """The parts that serve clients.

    ``connect`` makes a connection, given its transport, the limits of its zone and the name of its listener.
    ``connect_operator`` makes that of an operator; it also takes the name, and whether the operator may publish.
    ``connect_bridge`` makes that of a bridge; it also takes the name.
    """

    log: ClientLog
    counters: Counters
    router: Router
    wills: Wills
    leases: Leases
    registry: SessionRegistry
    sys_topics: SysTopics
    memory: MemoryGuard | None
    broker_parts: BrokerParts
    connect: Callable[[INetworkConnection, Limits, str], Connection]
    connect_operator: Callable[[INetworkConnection, Limits, str, str, bool], Connection]
    connect_bridge: Callable[[INetworkConnection, Limits, str, str], Connection]


def build(
    config: Config,
    base: Base,
    identity: IdentityParts,
    retainer: RetainerParts,
    exchange: Exchange | None = None,
) -> SessionParts:
    """Build the parts of the running broker. Revoked users are disconnected from now on.

    A member of a cluster has an ``exchange`` with the others.
    """
    authentication = identity.authentication.parts
    parts = compose_sessions(
        clock=base.reactor,
        now=base.now,
        retained=retainer.retained,
        replays=retainer.replays,
        states=DurableSessionStates(base.durable, base.reactor),
        authorizer=identity.accounts.authorizer,
        authenticator=authentication.authenticator,
        enhanced_authenticator=authentication.enhanced_authenticator,
        ownership=ownership_of(config),
        on_revoke=OnRevoke(config.authorization.on_revoke),
        pressure=base.pressure,
        rejects_when_full=rejects_when_full(config),
        silent_clears=config.retainer.stop_publish_clear_msg,
        will_restart_grace=config.mqtt.will_restart_grace,
        lease_grace=config.retainer.lease_grace,
        broker_version=version(),
        sys_msg_interval=config.sys_topics.sys_msg_interval,
        failures=compose_failures(config.failed_logins, identity.bans, identity.exempt, base.reactor),
        bans=identity.bans,
        audit=base.overheard,
        denied=denials_of(base.audit),
        connections=base.process,
        logs_connections=config.log.connections,
        storage=base.durable.status,
        accounts=accounts_of(config),
        most_memory=most_memory(config),
        telemetry=retainer.telemetry,
        make_router=Router if exchange is None else exchange.router,
        make_registry=SessionRegistry if exchange is None else exchange.registry,
        drain_rate=config.cluster.drain_rate,
    )
    if config.retainer.sparkplug_aware:
        from holdfast.sessions.sparkplug import SparkplugAware

        parts.router.sparkplug = SparkplugAware(base.now)
    identity.authentication.on_revoked(partial(_dismiss, parts.registry))
    return parts


def _dismiss(registry: SessionRegistry, matching: Callable[[Principal], bool]) -> None:
    """Disconnect the clients of users that are revoked."""
    registry.dismissals.dismiss(matching, ReasonCode.NOT_AUTHORIZED, "the user was removed or changed")


def compose_sessions(
    *,
    clock: IReactorTime,
    now: Callable[[], int],
    retained: RetainedMessages,
    replays: ReplayRegistry,
    states: ISessionStates,
    authorizer: IAuthorizer,
    authenticator: IAuthenticator,
    enhanced_authenticator: IEnhancedAuthenticator | None = None,
    ownership: Ownership = names_ignored,
    denied: OnDenied = tell_nobody,
    on_revoke: OnRevoke = OnRevoke.DISCONNECT,
    pressure: Pressure,
    rejects_when_full: bool,
    silent_clears: bool,
    will_restart_grace: float = 60,
    lease_grace: float = 30,
    broker_version: str,
    sys_msg_interval: float,
    failures: IFailures | None = None,
    bans: IBans | None = None,
    connections: ProcessConnections | None = None,
    logs_connections: bool = True,
    audit: IAudit | None = None,
    storage: Callable[[], Mapping[str, object]] = dict,
    accounts: Accounts | None = None,
    most_memory: int | None = None,
    measure_memory: Callable[[], int] = resident_bytes,
    telemetry: Telemetry | None = None,
    make_router: Callable[[RetainedMessages, IAuthorizer, Counters, bool, Telemetry | None], Router] = Router,
    make_registry: Callable[..., SessionRegistry] = SessionRegistry,
    drain_rate: float = 100,
) -> SessionParts:
    """Build the parts that serve clients.

    ``make_router`` makes the router, and ``make_registry`` the registry of Sessions: those of a member of a cluster,
    perhaps.

    With ``accounts``, what each payer has in Sessions is limited. ``most_memory`` (bytes) limits the process. Without
    ``telemetry``, no message without RETAIN is recorded.
    """
    counters = Counters()
    audit = NoAudit() if audit is None else audit
    denied = _counted(denied, counters)
    router = make_router(retained, authorizer, counters, rejects_when_full, telemetry)
    work = LongWork(clock)
    log = ClientLog(clock, logs_connections)
    wills = Wills(
        clock=clock, now=now, router=router, authorizer=authorizer, states=states, counters=counters,
        retained=retained, work=work, log=log, restart_grace=will_restart_grace, silent_clears=silent_clears,
        denied=denied, accounts=accounts,
    )  # fmt: skip
    leases = Leases(
        clock=clock, work=work, router=router, retained=retained, counters=counters, log=log, grace=lease_grace,
        restart_grace=will_restart_grace, silent_clears=silent_clears,
    )  # fmt: skip
    registry = make_registry(
        clock=clock, now=now, router=router, wills=wills, leases=leases, states=states, counters=counters, work=work,
        authorizer=authorizer, ownership=ownership, denied=denied, on_revoke=on_revoke, accounts=accounts,
    )  # fmt: skip
    figures = Figures(
        version=broker_version, clock=clock, registry=registry, retained=retained, replays=replays, counters=counters,
        connections=connections or ProcessConnections(), storage=storage, telemetry=telemetry,
    )  # fmt: skip
    memory = None
    if most_memory is not None:
        memory = MemoryGuard(
            most_memory, measure=measure_memory, clock=clock, work=work, registry=registry, counters=counters
        )
    sys_topics = SysTopics(clock=clock, work=work, router=router, measure=figures.measure, interval=sys_msg_interval)
    broker_parts = BrokerParts(
        clock=clock, long_work=work, now=now, registry=registry, router=router, retained=retained, replays=replays,
        authenticator=authenticator, authorizer=authorizer, pressure=pressure, counters=counters, sys_topics=sys_topics,
        enhanced_authenticator=enhanced_authenticator, failures=UncountedFailures() if failures is None else failures,
        bans=Bans(now=lambda: now() / 1000, exempt=Exempt()) if bans is None else bans, denied=denied,
        memory=memory, traces=Traces(clock, now, registry.link_of), draining=Draining(clock, registry, drain_rate),
        leases=leases, questions=Questions(retained, clock, now, accounts is not None and accounts.names_proven),
    )  # fmt: skip
    flushes = FlushSchedule(clock)

    make = partial(Connection, clock=clock, flushes=flushes, counters=counters, pressure=pressure, log=log, audit=audit)
    admitting = partial(admit, broker_parts)

    def connect(network: INetworkConnection, limits: Limits, listener: str) -> Connection:
        return make(network=network, limits=limits, listener=listener, admit=admitting)

    def connect_operator(
        network: INetworkConnection, limits: Limits, listener: str, name: str, publishes: bool
    ) -> Connection:
        admits = operator_admission(broker_parts, name, publishes)
        return make(network=network, limits=limits, listener=listener, admit=admits)

    def connect_bridge(network: INetworkConnection, limits: Limits, listener: str, name: str) -> Connection:
        return make(network=network, limits=limits, listener=listener, admit=bridge_admission(broker_parts, name))

    return SessionParts(
        log=log, counters=counters, router=router, wills=wills, leases=leases, registry=registry, sys_topics=sys_topics,
        memory=memory, broker_parts=broker_parts, connect=connect, connect_operator=connect_operator,
        connect_bridge=connect_bridge,
    )  # fmt: skip


def _counted(denied: OnDenied, counters: Counters) -> OnDenied:
    """Return a function that counts and reports each denied action."""
    denials = counters.tallies.denials

    def count(principal: Principal, action: str, topic: str) -> None:
        denials[action] += 1
        denied(principal, action, topic)

    return count


# The limits of Sessions and connections as the configuration sets them.


#: The largest Maximum Packet Size that usual clients take, in bytes: the largest Remaining Length. With a larger one,
#: paho refuses CONNACK.
MOST_TOLD = 268_435_455


def accounts_of(config: Config) -> Accounts | None:
    """Return the accounts of payers, None if no zone limits them, be it used by a listener or not."""
    zones = [config.limits, *(config.zone(name).limits for name in config.zones)]
    limited = any(
        (each.max_sessions, each.guests_max_sessions, each.max_waiting_bytes) != (None, None, None) for each in zones
    )
    return Accounts(config.authentication.is_configured) if limited else None


def ownership_of(config: Config) -> Ownership:
    """Return the rule that decides who may resume a Session."""
    return owners_only if config.authentication.is_configured else names_ignored


def rejects_when_full(config: Config) -> bool:
    """Tell whether the clients of some listener reject messages when a queue is full."""
    zones = (limits_of(config.zone(listener.zone)) for listener in config.listeners.values())
    return any(zone.mqueue_full is WhenFull.REJECT for zone in zones)


def limits_of(zone: Zone) -> Limits:
    """Return a zone's limits as the Session layer takes them."""
    mqtt, shutdown, limits = zone.mqtt, zone.force_shutdown, zone.limits
    return Limits(
        max_packet_size=min(mqtt.max_packet_size, MOST_TOLD),
        max_topic_levels=mqtt.max_topic_levels,
        max_qos_allowed=mqtt.max_qos_allowed,
        max_topic_alias=mqtt.max_topic_alias,
        control_characters=mqtt.control_characters == "accept",
        retain_available=mqtt.retain_available,
        retained_messages_mode=RetainMode(zone.retainer.retained_messages_mode),
        stop_publish_clear_msg=zone.retainer.stop_publish_clear_msg,
        tell_publishers=zone.retainer.tell_publishers,
        wildcard_subscription=mqtt.wildcard_subscription,
        shared_subscription=mqtt.shared_subscription,
        queue_subscription=mqtt.queue_subscription,
        subscription_identifiers=mqtt.subscription_identifiers,
        min_replay_levels=mqtt.min_replay_levels,
        server_keepalive=mqtt.server_keepalive,
        max_keepalive=mqtt.max_keepalive,
        keepalive_multiplier=mqtt.keepalive_multiplier,
        max_inflight=mqtt.max_inflight,
        max_inflight_bytes=mqtt.max_inflight_bytes,
        max_awaiting_rel=mqtt.max_awaiting_rel,
        max_subscriptions=mqtt.max_subscriptions,
        max_mqueue_len=mqtt.max_mqueue_len,
        max_mqueue_bytes=mqtt.max_mqueue_bytes,
        mqueue_full=WhenFull(mqtt.mqueue_full),
        mqueue_store_qos0=mqtt.mqueue_store_qos0,
        session_expiry_interval=mqtt.session_expiry_interval,
        idle_timeout=mqtt.idle_timeout,
        upgrade_qos=mqtt.upgrade_qos,
        ignore_loop_deliver=mqtt.ignore_loop_deliver,
        max_buffered_messages=shutdown.max_mailbox_size if shutdown.enable else 0,
        max_buffered_bytes=shutdown.max_bytes if shutdown.enable else 0,
        conflate_slow=shutdown.enable and shutdown.policy == "conflate",
        conflate_filter=mqtt.conflate_filter,
        conflate_interval=mqtt.conflate_interval,
        max_sessions=limits.max_sessions,
        guests_max_sessions=limits.guests_max_sessions,
        max_waiting_bytes=limits.max_waiting_bytes,
        messages_rate=limits.messages_rate,
        bytes_rate=limits.bytes_rate,
    )


# The limit on the memory of the process.


def most_memory(config: Config) -> int | None:
    """Return ``limits.memory`` in bytes, None for no limit. Raises ConfigError if this system does not tell memory."""
    limit = config.limits.memory
    if limit is None:
        return None
    try:
        resident_bytes()
        return available_bytes() * limit.percent // 100 if isinstance(limit, MemoryShare) else limit
    except MemoryUnknown as unknown:
        problem = f'the memory of this process cannot be limited here: {unknown}; allowed: "infinity"'
        raise ConfigError([config.source.problem(("limits", "memory"), problem)]) from None
