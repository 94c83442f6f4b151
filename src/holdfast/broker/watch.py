"""Builds what watches the broker: the audit log, the limit on memory, metrics, alarms, health, recent figures."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.api.overview import HealthAPI, MetricsAPI
from holdfast.admin.api.watching import AlarmAPI, RecentAPI
from holdfast.admin.call import Answer, Call
from holdfast.admin.jobs import Job, note_of
from holdfast.admin.routing import UNANSWERED, Route, Witness
from holdfast.broker.alarm_conditions import AlarmWatch, Watched, conditions_of
from holdfast.broker.client_metrics import SessionWalk, client_metrics, traffic_metrics
from holdfast.broker.figures import Heartbeat, Recent, Recorded, SurroundingsWatch
from holdfast.broker.health import HealthChecks
from holdfast.broker.listeners import ComposedListeners
from holdfast.broker.metrics import process_metrics, retained_metrics, security_metrics, storage_metrics
from holdfast.broker.reloading import Change
from holdfast.broker.sessions import SessionParts
from holdfast.config import Config, ConfigError, ConfigProblem
from holdfast.config.sections.limits import MemoryShare
from holdfast.config.sections.watching import AuditConfig
from holdfast.core.connection_limits import ProcessConnections
from holdfast.core.tickets import StorageFailure
from holdfast.core.units import second_of
from holdfast.identity.bans import Bans
from holdfast.identity.interfaces import OnDenied, Principal
from holdfast.retained.changes.history import RetainedHistory
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.deadlines import BrokerClock, ClockNotices, ClockWatch, clock_notices
from holdfast.sessions.connection.pressure import Pressure
from holdfast.sessions.memory_guard import MemoryUnknown, available_bytes, resident_bytes
from holdfast.storage.store import DurableStore
from holdfast.transports.configured import ComposedTLS
from holdfast.version import version
from holdfast.watch.alarms import Alarm, Alarms
from holdfast.watch.audit import (
    ALARM,
    CLOCK,
    CONNECTED,
    DENIED,
    DISCONNECTED,
    KINDS,
    LONGEST,
    OPERATED,
    Audit,
    FileSink,
    IAudit,
    JournalSink,
    Sink,
)
from holdfast.watch.scrape import Metrics, Run

# Builds the audit log, and the functions that report denials and operators' actions to it.


#: characters of the longest path, where each byte of a name may take three
_LONGEST_PATH = 3 * LONGEST


def compose_audit(config: Config, *, clock: IReactorTime, now: Callable[[], int]) -> Audit:
    """Return the audit log with sinks that are not open yet. Without sinks it writes nothing."""
    section = config.audit
    return Audit(_sinks(config), clock=clock, now=now, kinds=_kinds(section))


def open_audit(audit: Audit, config: Config) -> None:
    """Open the audit log. Raises ConfigError."""
    _opened(audit, config)


def prepare_audit(audit: Audit, running: Config, config: Config) -> Change:
    """Open the sinks of another configuration. Raises ConfigError."""
    if running.audit == config.audit:
        return Change()
    sinks: list[Sink] = []

    def abandon() -> None:
        for sink in sinks:
            sink.close()

    try:
        for sink in _sinks(config):
            _opened(sink, config)
            sinks.append(sink)
    except ConfigError:
        abandon()
        raise
    commit = partial(audit.change, sinks, _kinds(config.audit))
    return Change(commit=commit, abandon=abandon)


def _sinks(config: Config) -> list[Sink]:
    sinks: list[Sink] = []
    if config.audit.file:
        sinks.append(FileSink(Path(os.path.abspath(config.folder / config.audit.file))))
    if config.audit.journal:
        sinks.append(JournalSink())
    return sinks


def _kinds(section: AuditConfig) -> Collection[str]:
    return KINDS if section.connections else set(KINDS) - {CONNECTED, DISCONNECTED}


def _opened(opens: Audit | Sink, config: Config) -> None:
    try:
        opens.open()
    except OSError as error:
        file = "holdfast.toml" if config.file is None else str(config.file)
        place = "the audit log" if error.filename is None else os.fsdecode(error.filename)
        message = f"{place} cannot be opened: {error.strerror or error}"
        raise ConfigError([ConfigProblem(file, None, "audit", message)]) from None


def denials_of(audit: IAudit) -> OnDenied:
    """Return the function that tells the audit log of denied actions."""

    def denied(principal: Principal, action: str, topic: str) -> None:
        fields = {"action": action, "address": principal.address, "listener": principal.listener}
        group = principal.client_id if principal.username is None else f"user {principal.username}"
        audit.tell(DENIED, group, fields, user=principal.username, client_id=principal.client_id, topic=topic)

    return denied


def witness_of(audit: IAudit) -> Witness:
    """Return the function that tells the audit log of operators' changes, and of refused ones.

    A refused call has changed nothing. So a key that may only read cannot fill the disk with refusals.
    """

    def witness(call: Call, answer: Answer) -> None:
        fields = {"operator": call.caller.name, "uid": call.caller.uid, "method": call.method,
                  "path": call.path[:_LONGEST_PATH], "status": answer.status,
                  "arguments": _cut(dict(call.arguments)) or None, **_cut(answer.note)}  # fmt: skip
        refused = http.BAD_REQUEST <= answer.status < UNANSWERED
        audit.tell(OPERATED, call.caller.name if refused else None, fields)

    return witness


def end_of_jobs_of(audit: IAudit) -> Callable[[Job], None]:
    """Return the function that tells the audit log of the end of each job."""

    def ended(job: Job) -> None:
        audit.tell(OPERATED, None, _cut({"operator": job.by, "about": job.about, **note_of(job)}))

    return ended


def _cut(fields: Mapping[str, object]) -> dict[str, object]:
    """Return fields whose texts have a bounded length."""
    return {name: value[:LONGEST] if isinstance(value, str) else value for name, value in fields.items()}


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


# Builds the monitoring: metrics, alarms, health checks, and the ring of recent figures.


_log = Logger()


@frozen(kw_only=True)
class MonitoringParts:
    """The parts of the monitoring. ``services`` run while the broker does; ``run`` runs a function in a thread."""

    metrics: Metrics
    alarms: Alarms
    watch: AlarmWatch
    health: HealthChecks
    recent: Recent
    services: MultiService
    run: Run


def compose_monitoring(
    config: Config,
    *,
    reactor: Any,
    now: Callable[[], int],
    durable: DurableStore,
    retained: RetainedMessages,
    history: RetainedHistory,
    sessions: SessionParts,
    pressure: Pressure,
    process: ProcessConnections,
    listeners: ComposedListeners,
    tls: ComposedTLS,
    bans: Bans,
    audit: Audit,
    is_stopping: Callable[[], bool],
    run: Run | None = None,
    wall: Callable[[], float] = time.time,
    clock: BrokerClock | None = None,
) -> MonitoringParts:
    """Build the monitoring. ``now`` returns milliseconds since the epoch. The ``clock`` follows the machine's.

    ``run`` stands in for the reactor's threads, and ``wall`` for the machine's clock in seconds, in tests.
    """
    run = run or partial(deferToThreadPool, reactor, reactor.getThreadPool())
    counters, registry, parts = sessions.counters, sessions.registry, sessions.broker_parts
    heartbeat = Heartbeat(reactor)
    walk = SessionWalk(registry, parts.long_work, reactor)
    url = config.storage.url
    surroundings = SurroundingsWatch(
        config.data_dir, Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:") else None,
        durable=durable, retained=retained, history=history, clock=reactor, run=run,
    )  # fmt: skip
    alarms = Alarms(now)
    watched = Watched(
        counters=counters, durable=durable, retained=retained, audit=audit, heartbeat=heartbeat, guard=sessions.memory,
        surroundings=lambda: surroundings.latest, certificate_ends=tls.ends, now=lambda: now() / 1000, wall=wall,
    )  # fmt: skip
    watch = AlarmWatch(alarms, conditions_of(config.alarms, watched), reactor)
    _report(alarms, audit, sessions, config.node.id)
    recorded = Recorded(
        counters=counters, registry=registry, retained=retained, durable=durable, heartbeat=heartbeat,
        walked=lambda: walk.latest, surroundings=lambda: surroundings.latest, resident_bytes=_memory, now=now,
    )  # fmt: skip
    recent = Recent(recorded, reactor)
    begun = reactor.seconds()
    metrics = Metrics([
        *process_metrics(
            version=version(), started=lambda: now() / 1000 - (reactor.seconds() - begun), lag=heartbeat.lag,
            guard=sessions.memory, resident_bytes=_memory, alarms=watch.states,
        ),
        *traffic_metrics(counters, pressure, lambda: walk.latest),
        *client_metrics(counters, registry, process, listeners.open_connections),
        *retained_metrics(counters, retained, lambda: surroundings.latest),
        *storage_metrics(durable, lambda: surroundings.latest),
        *security_metrics(
            counters, bans=bans, waiting_refusals=parts.failures.waiting, audit=audit, certificate_ends=tls.ends
        ),
    ])  # fmt: skip
    services = MultiService()
    every: list[Service] = [heartbeat, walk, surroundings, watch, recent]
    if clock is not None:
        every.append(compose_clock_watch(
            clock, reactor, durable=durable, retained=retained, sessions=sessions, bans=bans, audit=audit
        ))  # fmt: skip
    for service in every:
        service.setServiceParent(services)
    return MonitoringParts(
        metrics=metrics, alarms=alarms, watch=watch, recent=recent, services=services, run=run,
        health=HealthChecks(
            heartbeat=heartbeat, durable=durable, surroundings=lambda: surroundings.latest,
            closed_listeners=listeners.closed, least_disk=config.alarms.disk_full, is_stopping=is_stopping,
        ),
    )  # fmt: skip


def compose_clock_watch(
    clock: BrokerClock,
    reactor: Any,
    *,
    durable: DurableStore,
    retained: RetainedMessages,
    sessions: SessionParts,
    bans: Bans,
    audit: IAudit,
    notices: Callable[[Callable[[], None]], ClockNotices | None] = clock_notices,
) -> ClockWatch:
    """Build what lets the broker follow the machine's clock. ``durable`` is asked for the time of a shared database."""
    begun = clock.begun

    def moves(step: int) -> Deferred[Any]:
        if durable.parts is None:  # it is not open yet: this process has stored nothing
            return succeed(None)
        moved: Deferred[Any] = retained.clock_moves(step, begun)
        return moved.addCallback(lambda _: _time_of(durable))

    def moved(step: int) -> None:
        retained.clock_moved()
        sessions.registry.clock_moved(step)
        bans.clock_moved(step / 1000)

    def tell(step: int, database_time: int | None) -> None:
        database = None if database_time is None else second_of(database_time)
        audit.tell(CLOCK, None, {"seconds": step / 1000, "database": database})
        _log.warn(
            "the machine's clock was set {direction} by {seconds:,.3f} s; {what}: it is {now}{database}",
            direction="forward" if step > 0 else "back", seconds=abs(step) / 1000,
            what="the broker follows" if step > 0 else "the broker's stands still for so long",
            now=second_of(clock.now()), database="" if database is None else f"; the database's time is {database}",
        )  # fmt: skip

    return ClockWatch(clock, reactor, moves=moves, moved=moved, tell=tell, notices=notices)


def _time_of(durable: DurableStore) -> Deferred[int | None]:
    """Read the time of a shared database; None if the database is none, or is away."""
    if not durable.shared or durable.parts is None:
        return succeed(None)

    def unknown(failure: Failure) -> None:
        failure.trap(StorageFailure)  # lines of its own tell of it

    told: Deferred[int | None] = durable.database_time().addErrback(unknown)
    return told


def monitoring_routes(parts: MonitoringParts, now: Callable[[], int], node: int) -> list[Route]:
    """Return the calls about the broker itself."""
    return [
        *HealthAPI(parts.health, str(node)).routes,
        *MetricsAPI(parts.metrics, parts.run).routes,
        *AlarmAPI(parts.alarms, now, str(node)).routes,
        *RecentAPI(parts.recent.ring).routes,
    ]


def _memory() -> float | None:
    try:
        return resident_bytes()
    except MemoryUnknown:
        return None


def _report(alarms: Alarms, audit: Audit, sessions: SessionParts, node: int) -> None:
    """Tell the audit log and the broker's own topics of alarms."""

    def told(alarm: Alarm) -> None:
        fields = {"name": alarm.name, "state": "active" if alarm.is_active else "ended",
                  "severity": alarm.severity.value, "message": alarm.message}  # fmt: skip
        audit.tell(ALARM, alarm.name, fields)

        # EMQX's topics and fields
        event = {"name": alarm.name, "details": dict(alarm.details), "message": alarm.message,
                 "activate_at": 1000 * alarm.activated_at}  # fmt: skip
        if alarm.deactivated_at is not None:
            event["deactivate_at"] = 1000 * alarm.deactivated_at
        topic = f"$SYS/brokers/{node}/alarms/{'activate' if alarm.is_active else 'deactivate'}"
        sessions.sys_topics.announce(topic, json.dumps(event).encode())

    alarms.subscribe(told)
