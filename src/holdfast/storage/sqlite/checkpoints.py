"""Checkpoints beside the writer: a long write-ahead log is moved into the SQLite file while commits go on.

SQLite would do it within the commit that makes the log too long, and all who wait for that commit would wait for every
page that is moved. In a thread of its own it holds nobody up: only what was appended meanwhile, which is little, is
left to the writer. The log then begins anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from time import monotonic

from twisted.logger import Logger

from holdfast.log_throttle import LogThrottle
from holdfast.storage.driver import Connection
from holdfast.storage.sqlite.page_counts import is_logged

#: Pages in the log that are worth a checkpoint: fewer would be moved several times where changes are scattered.
PAGES = 8_000
#: As many as the writer may move itself, with a commit waiting.
_REST = 500
_MOST_PASSES = 8
#: Seconds between looks at how long the log is: a look takes as long as a tenth of a small commit.
_PERIOD = 0.05


class Checkpoints:
    """Moves the log of one file, on a connection of its own, when it has more than so many ``pages``.

    ``committed`` is called in the writer's thread; it looks at most every ``period`` seconds. A log that cannot be
    moved as a whole, for somebody reads what was before it, is tried again when it is longer by half as many pages, or
    has begun anew.
    """

    _log = Logger()

    def __init__(
        self, path: Path, connect: Callable[[], sqlite3.Connection], pages: int = PAGES, period: float = _PERIOD
    ) -> None:
        self._file = path.with_name(path.name + "-wal")
        self._connect = connect
        self._pages = pages
        self._period = period
        self._log_throttle = LogThrottle(self._log, monotonic, write=self._log.warn)
        self._looked = 0.0
        self._due = pages
        self._stuck = 0  # how long a log was that could not be moved as a whole
        self._left = 0
        self._thread: Thread | None = None

    def committed(self, connection: Connection) -> None:
        """Begin a checkpoint where the log has become long, or end one that is all but done. Raises nothing."""
        try:
            if self._thread is None:
                if self._is_long():
                    thread = Thread(target=self._run, name="holdfast checkpoint", daemon=True)
                    thread.start()
                    self._thread = thread
            elif not self._thread.is_alive():
                self._thread = None
                if not self._left:
                    connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")
        except (sqlite3.Error, OSError, RuntimeError) as error:
            self._tell(error)

    def _is_long(self) -> bool:
        now = monotonic()
        if now - self._looked < self._period:
            return False
        self._looked = now
        if self._stuck and not is_logged(self._file, self._stuck - 1):
            self._due, self._stuck = self._pages, 0  # it has begun anew: somebody else has moved it
        return is_logged(self._file, self._due)

    def finish(self) -> None:
        """Wait for the checkpoint that is under way, if there is one."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with closing(self._connect()) as connection:
                logged = self._moved(connection)
            self._stuck = logged if self._left else 0
            self._due = self._stuck + self._pages // 2 if self._stuck else self._pages
        except sqlite3.Error as error:
            self._left = self._pages
            self._tell(error)

    def _moved(self, connection: sqlite3.Connection) -> int:
        """Move what there is, then what came meanwhile, until that is little; return how long the log was then."""
        before = 0
        for _ in range(_MOST_PASSES):
            _, logged, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._left = logged - moved
            if self._left or moved - before <= _REST:
                break
            before = moved
        return int(logged)

    def _tell(self, error: Exception) -> None:
        self._log_throttle.log("log", f"{self._file}: cannot be moved into the database now: {error}")
