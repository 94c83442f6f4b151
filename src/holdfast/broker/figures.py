"""Figures taken now and then: the lateness of the reactor, the surroundings, and those of the dashboard's charts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from attrs import evolve, frozen
from twisted.application.service import Service
from twisted.internet.defer import TimeoutError
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.broker.client_metrics import Walked
from holdfast.changes.history import RetainedHistory
from holdfast.changes.periods import read_state
from holdfast.changes.telemetry import Telemetry
from holdfast.core.tickets import StorageFailure
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred
from holdfast.sessions.counters import Counters
from holdfast.sessions.registry import SessionRegistry
from holdfast.storage.driver import Connection
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.storage.writer import Writer
from holdfast.watch.metrics import LAG_SECONDS, Histogram
from holdfast.watch.ring import Field, Present, Quantile, Rate, Ring
from holdfast.watch.scrape import Run

# The heartbeat of the reactor: a timed call that notes how late it is.


#: Seconds between two heartbeats. Each costs some microseconds.
HEARTBEAT_INTERVAL = 0.1


class Heartbeat(Service):
    """Beats while it runs. ``lag`` has the lateness of all beats; ``beaten_at`` is the time of the last one.

    A beat is late by the time that the reactor was busy with other work when it was due.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.lag = Histogram(LAG_SECONDS)
        #: the longest lateness since :meth:`take_worst` was called last
        self._worst = 0.0
        self._clock = clock
        self._due = 0.0
        self._next: IDelayedCall | None = None

    @property
    def late_by(self) -> float:
        """By how many seconds the next beat is late already."""
        return max(0.0, self._clock.seconds() - self._due) if self._next is not None else 0.0

    def startService(self) -> None:
        """Begin."""
        Service.startService(self)
        self._schedule()

    def stopService(self) -> None:
        """End."""
        Service.stopService(self)
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def take_worst(self) -> float:
        """Return the longest lateness since the last call, in seconds."""
        worst, self._worst = self._worst, 0.0
        return worst

    def _schedule(self) -> None:
        self._due = self._clock.seconds() + HEARTBEAT_INTERVAL
        self._next = self._clock.callLater(HEARTBEAT_INTERVAL, self._beat)

    def _beat(self) -> None:
        late = max(0.0, self._clock.seconds() - self._due)
        self.lag.observe(late)
        self._worst = max(self._worst, late)
        self._schedule()


# What has to be measured outside of the reactor: the disk, the files of the database, its size and its history.
#
# The disk is asked in a thread, since a network's file system may hang; the database through its readers. So scrapes
# and alarms read numbers that are some seconds old, and wait for nothing.


#: seconds between two looks
LOOK_INTERVAL = 10.0
_SIZE = "SELECT pg_database_size(current_database())"


@frozen
class Surroundings:
    """What was found last; None where it is not known. The history's are 0 while it is off."""

    disk_bytes: int | None = None
    disk_free_bytes: int | None = None
    database_bytes: int | None = None
    wal_bytes: int | None = None
    history_events: int | None = None
    history_bytes: int | None = None
    history_prunings: int = 0
    telemetry_bytes: int | None = None


class SurroundingsWatch(Service):
    """Looks every ``HEARTBEAT_INTERVAL`` seconds; ``latest`` is what it found.

    ``database`` is the file of an SQLite database, None for Postgres. ``run`` runs a function in a thread.
    """

    def __init__(
        self,
        folder: Path,
        database: Path | None,
        *,
        durable: DurableStore,
        retained: RetainedMessages,
        history: RetainedHistory,
        telemetry: Telemetry,
        clock: IReactorTime,
        run: Run,
        disk_usage: Callable[[Path], Any] = shutil.disk_usage,
    ) -> None:
        self.latest = Surroundings()
        self._folder = folder
        self._database = database
        self._durable = durable
        self._retained = retained
        self._history = history
        self._telemetry = telemetry
        self._run = run
        self._clock = clock
        self._disk_usage = disk_usage
        self._job = PeriodicJob(
            self.look,
            name="looking at the disk and the database",
            interval=LOOK_INTERVAL,
            clock=clock,
            foreseen=(OSError, StorageFailure, TimeoutError),
        )

    def startService(self) -> None:
        """Look now, and from time to time."""
        Service.startService(self)
        self._job.start()

    def stopService(self) -> None:
        """Look no more."""
        Service.stopService(self)
        self._job.stop()

    @as_deferred
    async def look(self) -> None:
        """Look once. What fails leaves the older numbers in place.

        While the database is away, its numbers are given up in time for the next look at the disk.
        """
        self._retained.totals.refreshed()  # begins a read; the metrics show its answer
        found: dict[str, int | None] = await self._run(self._files)
        self.latest = evolve(self.latest, history_prunings=self._history.prunings, **found)
        if self._durable.parts is not None and self.running:
            await self._look_into(self._durable.parts).addTimeout(LOOK_INTERVAL, self._clock)

    @as_deferred
    async def _look_into(self, parts: OpenStore) -> None:
        if self._database is None:
            self.latest = evolve(self.latest, database_bytes=(await parts.readers.read(_database_size)))
        if self._history.limits.enable:
            state = await self._history.read(read_state)
            self.latest = evolve(self.latest, history_events=state.last_seq, history_bytes=state.size)
        self.latest = evolve(self.latest, telemetry_bytes=(await self._telemetry.read_state()).size)

    def _files(self) -> dict[str, int | None]:
        """Measure the disk and the files; in a thread."""
        usage = self._disk_usage(self._folder)
        found: dict[str, int | None] = {"disk_bytes": usage.total, "disk_free_bytes": usage.free}
        if self._database is not None:
            found["database_bytes"] = _size(self._database)
            found["wal_bytes"] = _size(self._database.with_name(self._database.name + "-wal"))
        return found


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _database_size(connection: Connection) -> int:
    cursor = connection.cursor()
    cursor.execute(_SIZE)
    ((size,),) = cursor.fetchall()
    return int(size)


# The figures of the dashboard's charts, taken each second. Their names are EMQX's where EMQX has them.


_DROPPED = [name for name in attrs.fields_dict(Counters) if name.startswith("messages_dropped_")]


@frozen(kw_only=True)
class Recorded:
    """The parts that the figures are read from. ``now`` returns milliseconds since the epoch."""

    counters: Counters
    registry: SessionRegistry
    retained: RetainedMessages
    replays: ReplayRegistry
    durable: DurableStore
    heartbeat: Heartbeat
    walked: Callable[[], Walked]
    surroundings: Callable[[], Surroundings]
    resident_bytes: Callable[[], float | None]
    now: Callable[[], int]


def fields_of(parts: Recorded) -> list[Field]:
    """Return the figures of a record."""
    counters, registry, retained = parts.counters, parts.registry, parts.retained
    replays, holdings = parts.replays, counters.holdings

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
        Present("retained_msg_count", lambda: retained.totals.latest.count),
        Present("retained_bytes", lambda: retained.totals.latest.bytes),
        Rate("retained_set_rate", lambda: sum(retained.changes.values())),
        Present("replays", lambda: len(replays)),
        Rate("replayed_msg_rate", lambda: replays.delivered),
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
