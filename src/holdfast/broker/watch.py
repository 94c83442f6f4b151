"""Builds what watches the broker: the limit on memory, metrics, alarms, health checks, recent figures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.admin.api.overview import HealthAPI, MetricsAPI
from holdfast.admin.api.watching import AlarmAPI, RecentAPI
from holdfast.admin.routing import Route
from holdfast.broker.alarm_conditions import AlarmWatch, WatchedParts, conditions_of
from holdfast.broker.base import Base
from holdfast.broker.bridges import no_bridges
from holdfast.broker.client_metrics import SessionWalk, client_metrics, traffic_metrics
from holdfast.broker.cluster import ClusterParts
from holdfast.broker.figures import Heartbeat, Recent, Recorded, SurroundingsWatch
from holdfast.broker.health import HealthChecks
from holdfast.broker.identity import IdentityParts
from holdfast.broker.listeners import ComposedListeners, ListenerParts
from holdfast.broker.metrics import (
    cluster_metrics,
    process_metrics,
    retained_metrics,
    security_metrics,
    storage_metrics,
)
from holdfast.broker.retainer import RetainerParts
from holdfast.broker.sessions import SessionParts
from holdfast.changes.history import RetainedHistory
from holdfast.changes.telemetry import Telemetry
from holdfast.config import Config
from holdfast.core.connection_limits import ProcessConnections
from holdfast.core.tickets import StorageFailure
from holdfast.core.units import second_of
from holdfast.identity.bans import Bans
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.deadlines import BrokerClock, ClockNotices, ClockWatch, clock_notices
from holdfast.sessions.connection.pressure import Pressure
from holdfast.sessions.memory_guard import MemoryUnknown, resident_bytes
from holdfast.storage.store import DurableStore
from holdfast.transports.configured import ComposedTLS
from holdfast.version import version
from holdfast.watch.alarms import Alarm, Alarms
from holdfast.watch.audit import (
    ALARM,
    CLOCK,
    Audit,
    IAudit,
)
from holdfast.watch.metrics import Metric
from holdfast.watch.scrape import Metrics, Run

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


def build(
    config: Config,
    base: Base,
    identity: IdentityParts,
    retainer: RetainerParts,
    sessions: SessionParts,
    listening: ListenerParts,
    is_stopping: Callable[[], bool],
    cluster: ClusterParts | None = None,
    bridges: Sequence[Metric] | None = None,
) -> MonitoringParts:
    """Build the monitoring of the running broker. ``cluster`` is None for a broker that is no member of one."""
    monitoring = compose_monitoring(
        config, reactor=base.reactor, now=base.now, durable=base.durable, retained=retainer.retained,
        replays=retainer.replays, history=retainer.history, telemetry=retainer.telemetry, sessions=sessions,
        pressure=base.pressure, process=base.process, listeners=listening.listeners, tls=listening.tls,
        bans=identity.bans, audit=base.audit, is_stopping=is_stopping, clock=base.clock,
        cluster=cluster, bridges=bridges,
    )  # fmt: skip
    if retainer.changes is not None:
        monitoring.services.addService(retainer.changes)
    return monitoring


def compose_monitoring(
    config: Config,
    *,
    reactor: Any,
    now: Callable[[], int],
    durable: DurableStore,
    retained: RetainedMessages,
    replays: ReplayRegistry,
    history: RetainedHistory,
    telemetry: Telemetry,
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
    cluster: ClusterParts | None = None,
    bridges: Sequence[Metric] | None = None,
) -> MonitoringParts:
    """Build the monitoring. ``now`` returns milliseconds since the epoch. The ``clock`` follows the machine's.

    ``bridges`` are the metrics of the bridges. ``run`` stands in for the reactor's threads, and ``wall`` for the
    machine's clock in seconds, in tests.
    """
    run = run or partial(deferToThreadPool, reactor, reactor.getThreadPool())
    counters, registry, parts = sessions.counters, sessions.registry, sessions.broker_parts
    heartbeat = Heartbeat(reactor)
    walk = SessionWalk(registry, parts.long_work, reactor)
    url = config.storage.url
    surroundings = SurroundingsWatch(
        config.data_dir, Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:") else None,
        durable=durable, retained=retained, history=history, telemetry=telemetry, clock=reactor, run=run,
    )  # fmt: skip
    alarms = Alarms(now)
    watched = WatchedParts(
        counters=counters, durable=durable, retained=retained, replays=replays, audit=audit, heartbeat=heartbeat,
        guard=sessions.memory, surroundings=lambda: surroundings.latest, certificate_ends=tls.ends,
        telemetry=telemetry, cluster=cluster, now=lambda: now() / 1000, wall=wall,
    )  # fmt: skip
    watch = AlarmWatch(alarms, conditions_of(config.alarms, watched), reactor)
    _report(alarms, audit, sessions, config.node.id)
    recorded = Recorded(
        counters=counters, registry=registry, retained=retained, replays=replays, durable=durable,
        heartbeat=heartbeat, walked=lambda: walk.latest, surroundings=lambda: surroundings.latest,
        resident_bytes=_memory, now=now,
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
        *retained_metrics(counters, retained, replays, telemetry, lambda: surroundings.latest),
        *storage_metrics(durable, lambda: surroundings.latest),
        *(() if cluster is None else cluster_metrics(cluster)),
        *(no_bridges() if bridges is None else bridges),
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
            closed_listeners=listeners.closed, is_stopping=is_stopping, is_draining=lambda: parts.draining.is_on,
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
