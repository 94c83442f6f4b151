"""Checkpoints: they move the write-ahead log into the SQLite file, and hold no commit up for long.

How it works
============

By default, SQLite moves the log inside the commit that makes it too long, and all clients that wait for this commit
wait until the whole log is copied. There are two ways to avoid that.

*The writer's own checkpoints* (:class:`OwnCheckpoints`) are for a library that may have the WAL-reset bug
(:mod:`.sqlite`): then no other connection may move the log while the writer commits. The writer's thread moves the log
between two commits, after it has handed over the outcome of the first one: meanwhile its clients are acknowledged.
Later changes wait, so the log is kept so short that a checkpoint takes a few milliseconds: ``OWN_PAGES`` pages, and
those of one commit. Pages that change often are moved more often than with a long log, and the file is synced more
often. Nobody else moves the log: connections that read never do, except the last one that is closed, which is alone
with the file.

*Checkpoints in a thread* (:class:`Checkpoints`) are for a mended library. A second thread, with a connection of its
own, moves a long log with passive checkpoints, which never block the writer:

    log (pages)    8000   the writer's thread sees after a commit that the log is long, and starts the thread
    pass 1                moves 8000 pages; meanwhile the writer appends 900
    pass 2                moves 900 pages; meanwhile the writer appends 60
    pass 3                moves 60 pages: fewer than 500 are new, so the thread ends
                          after its next commit the writer moves the last few pages itself; the log begins anew

Only the writer can make the log begin anew, because a page that is appended during a checkpoint is not moved by it.

A reader that uses an old snapshot keeps the log from being moved as a whole. The thread makes its next attempt when the
log is longer by half of ``pages``, or when it has begun anew. The writer's own checkpoints try every ``_LOOK`` seconds,
which costs microseconds while a reader is in the way. They move everything after its end, in one piece: about 1.5
seconds for each gigabyte of log, for which commits wait.

If neither can keep up, or if nobody asks for maintenance (a migration), SQLite itself moves the log inside a commit, at
three times the length of a thread's checkpoint.

A log that begins anew overwrites its file, which keeps its length. A file longer than ``LONGEST_FILE``, which a reader
with an old snapshot has caused, is shortened then: its disk space, and the alarm about it, do not last until a restart.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import BinaryIO

from holdfast.storage.driver import Connection
from holdfast.watch.lazy_log import LazyLog, LogThrottle

#: The length of the log, in pages, that begins a checkpoint in the thread. With a shorter log, a page that changes
#: often would be moved more often.
PAGES_OF_LOG = 8_000
#: The length that begins a checkpoint of the writer's own. Measured with writes scattered over 500,000 topics: 7 to
#: 10 ms for each checkpoint of 250 pages, 20 to 30 ms for 500, 40 ms for 1000.
OWN_PAGES = 250
#: This many pages may be left to the writer, which moves them while a commit waits.
_REST = 500
#: Bytes to which the file of a log that begins anew is shortened: with a usual load it is never so long.
LONGEST_FILE = 64 << 20
#: SQLite itself moves a log of this length inside a commit.
_OVERLONG = 3 * PAGES_OF_LOG
_MOST_PASSES = 8
#: Seconds between two checks of the length of the log: a check takes a tenth of the time of a small commit, so it is
#: not made after each commit.
_PERIOD = 0.05
#: The writer's own checkpoints: seconds between two looks at the log. At full speed, a few hundred pages are written
#: meanwhile.
_LOOK = 0.01


class OwnCheckpoints:
    """The writer's own checkpoints: ``maintain``, in the writer's thread, moves a log of more than ``pages`` pages.

    It looks at the log at most every ``period`` seconds.
    """

    _log = LazyLog("holdfast.storage.checkpoints.OwnCheckpoints")

    def __init__(self, path: Path, pages: int = OWN_PAGES, period: float = _LOOK) -> None:
        self._file = path.with_name(path.name + "-wal")
        self._pages = pages
        self._period = period
        self._log_throttle = LogThrottle(self._log, monotonic, write=self._log.warn)
        self._looked = 0.0

    def begin(self, connection: sqlite3.Connection) -> None:
        """Let the writer's connection move a log that nobody has kept short."""
        connection.execute(f"PRAGMA wal_autocheckpoint={_OVERLONG}")

    def maintain(self, connection: Connection) -> None:
        """Move the log if it is long. Raises nothing."""
        now = monotonic()
        if now - self._looked < self._period:
            return
        self._looked = now
        try:
            if is_logged(self._file, self._pages):
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")
        except (sqlite3.Error, OSError) as error:
            _report(self._log_throttle, self._file, error)

    def finish(self) -> None:
        """Do nothing: no checkpoint is in progress between two commits."""


class Checkpoints:
    """Moves the log of one file, on a connection of its own, when it has more than ``pages`` pages.

    ``maintain`` runs in the writer's thread after each commit; it checks the log at most every ``period`` seconds.
    """

    _log = LazyLog("holdfast.storage.checkpoints.Checkpoints")

    def __init__(
        self, path: Path, connect: Callable[[], sqlite3.Connection], pages: int = PAGES_OF_LOG, period: float = _PERIOD
    ) -> None:
        self._file = path.with_name(path.name + "-wal")
        self._connect = connect
        self._pages = pages
        self._period = period
        self._log_throttle = LogThrottle(self._log, monotonic, write=self._log.warn)
        self._looked = 0.0
        self._due = pages
        self._stuck = 0  # the length of the log if it could not be moved as a whole, else 0
        self._left = 0  # pages that the last checkpoint could not move
        self._thread: Thread | None = None

    def begin(self, connection: sqlite3.Connection) -> None:
        """Let the writer's connection move a log that the thread could not keep short: a start reads all of it."""
        connection.execute(f"PRAGMA wal_autocheckpoint={_OVERLONG}")

    def maintain(self, connection: Connection) -> None:
        """Begin a checkpoint if the log is long, or complete one whose thread has ended. Raises nothing."""
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
            _report(self._log_throttle, self._file, error)

    def _is_long(self) -> bool:
        now = monotonic()
        if now - self._looked < self._period:
            return False
        self._looked = now
        if self._stuck and not is_logged(self._file, self._stuck - 1):
            self._due, self._stuck = self._pages, 0  # SQLite writes the log from its beginning again
        return is_logged(self._file, self._due)

    def finish(self) -> None:
        """Wait for the checkpoint in progress, if there is one."""
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
            _report(self._log_throttle, self._file, error)

    def _moved(self, connection: sqlite3.Connection) -> int:
        """Move the log, then the pages appended meanwhile, until few are left; return the length of the log."""
        before = 0
        for _ in range(_MOST_PASSES):
            _, logged, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._left = logged - moved
            if self._left or moved - before <= _REST:
                break
            before = moved
        return int(logged)


def _report(log_throttle: LogThrottle, file: Path, error: Exception) -> None:
    log_throttle.log("log", f"{file}: cannot be moved into the database now: {error}")


# Counts the pages of an SQLite file and of its log, without reading the pages.
#
# SQLite itself does not check on opening that all pages are present. On closing it moves the log into the file, after
# which the missing pages are holes that look like pages. So the broker counts before SQLite opens the file.


FILE_HEADER = b"SQLite format 3\0"
_HEADER_LENGTH = 100
_LOG_HEADER_LENGTH = 32
_FRAME_HEADER_LENGTH = 24
_SHORTEST = 512
#: SQLite never uses the page at this offset, because it puts its locks there.
_LOCKS = 1 << 30


def missing_pages(path: Path) -> int:
    """Return the number of pages of the database that are neither in its file nor in its write-ahead log.

    The header in the file comes from a commit that was moved from the log at least in part. So all of its pages are in
    the file or still in the log. Only for a file that is too short, the headers of all frames of the log are read.
    Raises OSError.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_LENGTH)
        size = file.seek(0, 2)
    if len(header) < _HEADER_LENGTH:
        return 1 if header else 0
    length = page_size(header)
    # Otherwise an old version of SQLite has changed the file, but not the count.
    counted = header[24:28] == header[92:96]
    if not length or not counted:
        return 0  # SQLite itself will find a bad page size
    pages = int.from_bytes(header[28:32], "big")
    present = size // length
    if present >= pages or path.with_name(path.name + "-journal").exists():
        return 0
    logged = _logged(path.with_name(path.name + "-wal"), length)
    locks = _LOCKS // length + 1
    missing = pages - present - (present < locks <= pages)
    return missing - sum(present < page <= pages for page in logged)


def is_logged(path: Path, number: int) -> bool:
    """Tell whether the write-ahead log at ``path`` has more than ``number`` pages. Raises OSError.

    The file does not become shorter when the log begins anew, but the frames of the earlier log have another salt.
    """
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        return False
    with file:
        header = file.read(_LOG_HEADER_LENGTH)
        length = int.from_bytes(header[8:12], "big")
        file.seek(_LOG_HEADER_LENGTH + number * (_FRAME_HEADER_LENGTH + length))
        salt = file.read(_FRAME_HEADER_LENGTH)[8:16]
    return bool(salt) and salt == header[16:24]


def page_size(header: bytes) -> int:
    """Return the length of a page in bytes, from a header of 18 bytes or more; 0 if the header is not valid."""
    size = int.from_bytes(header[16:18], "big")
    return 65_536 if size == 1 else size if size >= _SHORTEST else 0


def _logged(path: Path, length: int) -> set[int]:
    """Return the numbers of the pages in a write-ahead log."""
    found: set[int] = set()
    if path.exists():
        with path.open("rb") as log:
            salt = log.read(_LOG_HEADER_LENGTH)[16:24]
            while (frame := _frame(log, length)) is not None and frame[8:16] == salt:
                found.add(int.from_bytes(frame[:4], "big"))
    return found


def _frame(log: BinaryIO, length: int) -> bytes | None:
    header = log.read(_FRAME_HEADER_LENGTH)
    if len(header) < _FRAME_HEADER_LENGTH:
        return None
    log.seek(length, 1)
    return header
