"""The figures of the dashboard's charts, taken each second. Their names are EMQX's where EMQX has them."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from attrs import frozen
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime

from holdfast.metrics.histogram import Histogram
from holdfast.metrics.ring import Field, Present, Quantile, Rate, Ring
from holdfast.monitoring.heartbeat import Heartbeat
from holdfast.monitoring.session_walk import Walked
from holdfast.monitoring.surroundings import Surroundings
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.periodic import PeriodicJob
from holdfast.sessions.counters import Counters
from holdfast.sessions.registry.registry import SessionRegistry
from holdfast.storage.store import DurableStore
from holdfast.storage.writing.writer import Writer

_DROPPED = [name for name in attrs.fields_dict(Counters) if name.startswith("messages_dropped_")]


@frozen(kw_only=True)
class Recorded:
    """The parts that the figures are read from. ``now`` returns milliseconds since the epoch."""

    counters: Counters
    registry: SessionRegistry
    retained: RetainedMessages
    durable: DurableStore
    heartbeat: Heartbeat
    walked: Callable[[], Walked]
    surroundings: Callable[[], Surroundings]
    resident_bytes: Callable[[], float | None]
    now: Callable[[], int]


def fields_of(parts: Recorded) -> list[Field]:
    """Return the figures of a record."""
    counters, registry, retained = parts.counters, parts.registry, parts.retained
    holdings = counters.holdings

    def writer(read: Callable[[Writer], Histogram | None]) -> Callable[[], Histogram | None]:
        return lambda: None if parts.durable.parts is None else read(parts.durable.parts.writer)

    def of_writer(read: Callable[[Writer], float]) -> Callable[[], float | None]:
        return lambda: None if parts.durable.parts is None else read(parts.durable.parts.writer)

    waits, durations = writer(lambda one: one.counters.waits), writer(lambda one: one.counters.durations)
    return [
        Rate("received_msg_rate", lambda: counters.messages_received),
        Rate("sent_msg_rate", lambda: counters.messages_sent),
        Rate("dropped_msg_rate", lambda: sum(getattr(counters, name) for name in _DROPPED)),
        Rate("received_bytes_rate", lambda: counters.bytes_received),
        Rate("sent_bytes_rate", lambda: counters.bytes_sent),
        Rate("connect_rate", lambda: counters.connects),
        Rate("failed_login_rate", lambda: counters.logins_failed),
        Present("connections", lambda: registry.session_count),
        Present("live_connections", lambda: registry.connection_count),
        Present("sessions", lambda: registry.session_count),
        Present("subscriptions", lambda: holdings.subscriptions),
        Present("shared_subscriptions", lambda: holdings.shared_subscriptions),
        Present("queued_msg_count", lambda: holdings.queued_messages),
        Present("queued_bytes", lambda: holdings.queued_bytes),
        Present("inflight_bytes", lambda: parts.walked().inflight_bytes),
        Present("slow_clients", lambda: parts.walked().slow_clients),
        Present("retained_msg_count", lambda: retained.latest_statistics.count),
        Present("retained_bytes", lambda: retained.latest_statistics.bytes),
        Rate("retained_set_rate", lambda: sum(retained.changes.values())),
        Present("replays", lambda: len(retained.replays)),
        Rate("replayed_msg_rate", lambda: retained.replays.delivered),
        Rate("commit_rate", of_writer(lambda one: one.counters.commits)),
        Rate("committed_rows_rate", of_writer(lambda one: one.counters.rows)),
        Quantile("puback_p50_ms", waits, 0.5),
        Quantile("puback_p99_ms", waits, 0.99),
        Quantile("commit_p99_ms", durations, 0.99),
        Quantile("reactor_lag_p99_ms", lambda: parts.heartbeat.lag, 0.99),
        Present("writer_queue_bytes", of_writer(lambda one: one.pending_bytes)),
        Present("disk_free_bytes", lambda: parts.surroundings().disk_free_bytes),
        Present("database_bytes", lambda: parts.surroundings().database_bytes),
        Present("wal_bytes", lambda: parts.surroundings().wal_bytes),
        Present("memory_bytes", parts.resident_bytes),
    ]


class Recent(Service):
    """Takes a record each second while it runs. ``now`` returns milliseconds since the epoch."""

    def __init__(self, parts: Recorded, clock: IReactorTime) -> None:
        self.ring = Ring(fields_of(parts))
        self._now = parts.now
        self._job = PeriodicJob(self._tick, name="recording recent figures", interval=1, clock=clock)

    def startService(self) -> None:
        """Begin to record."""
        Service.startService(self)
        self._job.start()

    def stopService(self) -> None:
        """Record no more."""
        Service.stopService(self)
        self._job.stop()

    def _tick(self) -> None:
        self.ring.tick(self._now())
