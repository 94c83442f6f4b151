"""Builds the parts that serve clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from holdfast.audit.audit import IAudit, NoAudit
from holdfast.auth.denials import Denied, tell_nobody
from holdfast.auth.failures.bans import Bans, IBans
from holdfast.auth.failures.exempt import Exempt
from holdfast.auth.failures.failures import IFailures, UncountedFailures
from holdfast.auth.interfaces import IAuthenticator, IAuthorizer, IEnhancedAuthenticator, Principal
from holdfast.log.client_log import ClientLog
from holdfast.peers.limits import ProcessConnections
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.accounts import Accounts
from holdfast.sessions.asking.questions import Questions
from holdfast.sessions.connection.backpressure import Pressure
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.flush_schedule import FlushSchedule
from holdfast.sessions.connection.network import INetworkConnection
from holdfast.sessions.counters import Counters
from holdfast.sessions.exchange.admission import admit
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.exchange.operators import operator_admission
from holdfast.sessions.limits import Limits
from holdfast.sessions.monitoring.figures import Figures
from holdfast.sessions.monitoring.memory_guard import MemoryGuard
from holdfast.sessions.monitoring.process_memory import resident_bytes
from holdfast.sessions.monitoring.sys_topics import SysTopics
from holdfast.sessions.registry.grants import OnRevoke
from holdfast.sessions.registry.ownership import Ownership, names_ignored
from holdfast.sessions.registry.registry import SessionRegistry
from holdfast.sessions.routing.leases import Leases
from holdfast.sessions.routing.router import Router
from holdfast.sessions.routing.wills import Wills
from holdfast.sessions.state.interfaces import ISessionStates
from holdfast.sessions.tracing.traces import Traces


@frozen(kw_only=True)
class SessionParts:
    """The parts that serve clients.

    ``connect`` makes a connection, given its transport, the limits of its zone and the name of its listener.
    ``connect_operator`` makes that of an operator; it also takes the name, and whether the operator may publish.
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
    lease_grace: float = 30,
    most_leases: int = 5000,
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
) -> SessionParts:
    """Build the parts that serve clients.

    With ``accounts``, what each payer has in Sessions is limited. ``most_memory`` (bytes) limits the process.
    """
    counters = Counters()
    audit = NoAudit() if audit is None else audit
    denied = _counted(denied, counters)
    router = Router(retained, authorizer, counters, rejects_when_full)
    work = LongWork(clock)
    log = ClientLog(clock, logs_connections)
    wills = Wills(
        clock=clock, now=now, router=router, authorizer=authorizer, states=states, counters=counters,
        retained=retained, work=work, log=log, restart_grace=will_restart_grace, silent_clears=silent_clears,
        denied=denied, accounts=accounts,
    )  # fmt: skip
    leases = Leases(
        clock=clock, work=work, router=router, retained=retained, counters=counters, log=log, grace=lease_grace,
        restart_grace=will_restart_grace, most=most_leases, silent_clears=silent_clears,
    )  # fmt: skip
    registry = SessionRegistry(
        clock=clock, now=now, router=router, wills=wills, leases=leases, states=states, counters=counters, work=work,
        authorizer=authorizer, ownership=ownership, denied=denied, on_revoke=on_revoke, accounts=accounts,
    )  # fmt: skip
    figures = Figures(
        version=broker_version, clock=clock, registry=registry, retained=retained, counters=counters,
        connections=connections or ProcessConnections(), storage=storage,
    )  # fmt: skip
    memory = None
    if most_memory is not None:
        memory = MemoryGuard(
            most_memory, measure=measure_memory, clock=clock, work=work, registry=registry, counters=counters
        )
    sys_topics = SysTopics(clock=clock, work=work, router=router, measure=figures.measure, interval=sys_msg_interval)
    broker_parts = BrokerParts(
        clock=clock, long_work=work, now=now, registry=registry, router=router, retained=retained,
        authenticator=authenticator, authorizer=authorizer, pressure=pressure, counters=counters, sys_topics=sys_topics,
        enhanced_authenticator=enhanced_authenticator, failures=UncountedFailures() if failures is None else failures,
        bans=Bans(now=lambda: now() / 1000, exempt=Exempt()) if bans is None else bans, denied=denied,
        memory=memory, traces=Traces(clock, now, registry.link_of),
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

    return SessionParts(
        log=log, counters=counters, router=router, wills=wills, leases=leases, registry=registry, sys_topics=sys_topics,
        memory=memory, broker_parts=broker_parts, connect=connect, connect_operator=connect_operator,
    )  # fmt: skip


def _counted(denied: Denied, counters: Counters) -> Denied:
    """Return a function that counts and reports each denied action."""
    denials = counters.tallies.denials

    def count(principal: Principal, action: str, topic: str) -> None:
        denials[action] += 1
        denied(principal, action, topic)

    return count
