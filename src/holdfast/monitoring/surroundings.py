"""What has to be measured outside of the reactor: the disk, the files of the database, its size and its history.

The disk is asked in a thread, since a network's file system may hang; the database through its readers. So scrapes and
alarms read numbers that are some seconds old, and wait for nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from attrs import evolve, frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, TimeoutError, inlineCallbacks
from twisted.internet.interfaces import IReactorTime

from holdfast.metrics.scrape import Run
from holdfast.retained.history.history import RetainedHistory
from holdfast.retained.history.periods import read_state
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.periodic import PeriodicJob
from holdfast.storage.driver import Connection
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.tickets import StorageFailure

#: seconds between two looks
INTERVAL = 10.0
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


class SurroundingsWatch(Service):
    """Looks every ``INTERVAL`` seconds; ``latest`` is what it found.

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
        self._run = run
        self._clock = clock
        self._disk_usage = disk_usage
        self._job = PeriodicJob(
            self.look,
            name="looking at the disk and the database",
            interval=INTERVAL,
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

    @inlineCallbacks
    def look(self) -> Generator[Deferred[Any], Any, None]:
        """Look once. What fails leaves the older numbers in place.

        While the database is away, its numbers are given up in time for the next look at the disk.
        """
        self._retained.statistics()  # begins a read; the metrics show its answer
        found: dict[str, int | None] = yield self._run(self._files)
        self.latest = evolve(self.latest, history_prunings=self._history.prunings, **found)
        if self._durable.parts is not None and self.running:
            yield self._look_into(self._durable.parts).addTimeout(INTERVAL, self._clock)

    @inlineCallbacks
    def _look_into(self, parts: OpenStore) -> Generator[Deferred[Any], Any, None]:
        if self._database is None:
            self.latest = evolve(self.latest, database_bytes=(yield parts.readers.read(_database_size)))
        if self._history.limits.enable:
            state = yield self._history.read(read_state)
            self.latest = evolve(self.latest, history_events=state.last_seq, history_bytes=state.size)

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
