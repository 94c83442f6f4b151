"""Readers run the reads of the database. For a remote database they also wait while it is away.

How it works
============

SQLite is read in the reactor thread (:class:`InlineReaders`). Its answers come from a local file, usually from the page
cache, within a fraction of a millisecond. Reads in a thread were tried and were ten times slower: the driver gives up
the interpreter lock for every row, and the two threads compete for it.

Postgres is read in threads (:class:`ThreadedReaders`), because each read is a network round trip. There are two
threads, each with its own connection:

    read(a), read(b), read(c)    a and b run in the two threads, c waits in the queue
    b is done                    its Deferred fires; c runs in the thread of b
    c fails, the server is away  c goes back to the head of the queue; nothing else starts
    0.5 s later                  c is tried again with a new connection, then the rest of the queue

The long reads of operators, such as counts over many rows, run in one more thread, on either database. In SQLite each
is a statement with one row as its answer: the driver gives up the interpreter lock once, so the reactor goes on.

Reads start in the order of the calls. While the database is away, no Deferred fails unless ``patience`` is over; then
all waiting reads fail at once, and each later one fails after its own attempt, until an attempt succeeds. If nobody
waits, the readers themselves look every half second: ``available`` tells of now, not of the last read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from zope.interface import Attribute, Interface, implementer

from holdfast.core.tickets import StorageFailure
from holdfast.storage.database import Database
from holdfast.storage.driver import Connection
from holdfast.storage.executor import IExecutor

T = TypeVar("T")

#: Seconds between two attempts while the database is away.
_AGAIN = 0.5


class IReaders(Interface):
    """Runs reads."""

    available = Attribute("Whether the last attempt reached the database.")

    def read(work: Callable[[Connection], T]) -> Deferred[T]:
        """Run the work with a connection that only reads. The Deferred fires in the reactor thread.

        It fails with :class:`StorageFailure` if the database cannot be read. It can be cancelled.
        """

    def close() -> None:
        """Close the connections. Reads that are not done never fire."""


@implementer(IReaders)
class InlineReaders:
    """Reads in the reactor thread, for a database in a local file."""

    available = True

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection = database.connect_reader()

    def read(self, work: Callable[[Connection], T]) -> Deferred[T]:
        """Run the work now."""
        try:
            return succeed(work(self._connection))
        except self._database.errors as error:
            return fail(self._database.failure(error))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class _Job:
    """A read and its answer."""

    def __init__(self, work: Callable[[Connection], Any], cancel: Callable[[_Job], None]) -> None:
        self.work = work
        self.answer: Deferred[Any] = Deferred(lambda _: cancel(self))


def _look(connection: Connection) -> None:
    """Look whether the database is back."""
    connection.cursor().execute("SELECT 1").fetchone()


class _Reader:
    """One thread and its connection, for one job at a time."""

    def __init__(self, database: Database, executor: IExecutor) -> None:
        self._database = database
        self._connection: Connection | None = None
        self.executor = executor
        self.begun = False  #: whether its thread may have begun

    def run(self, work: Callable[[Connection], Any]) -> Any:
        """Run the work in the thread. A connection is closed after an error."""
        if self._connection is None:
            self._connection = self._database.connect_reader()
        try:
            return work(self._connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


@implementer(IReaders)
class ThreadedReaders:
    """Reads in threads, in the order of the calls. While the database is away, reads wait for it.

    After ``patience`` seconds (None: never) they fail.
    """

    def __init__(
        self, database: Database, executors: list[IExecutor], clock: IReactorTime, patience: float | None = None
    ) -> None:
        self._database = database
        self._clock = clock
        self.patience = patience
        # A stack: the reader used last is used next, because it is connected and has prepared the usual statements.
        self._idle = [_Reader(database, executor) for executor in executors]
        self._all = tuple(self._idle)
        self._waiting: deque[_Job] = deque()
        self._since: float | None = None  #: when the database went away
        self._retrying = False
        self._closed = False

    @property
    def available(self) -> bool:
        """Whether the last attempt reached the database."""
        return self._since is None

    def read(self, work: Callable[[Connection], T]) -> Deferred[T]:
        """Queue the work."""
        job = _Job(work, self._cancel)
        self._waiting.append(job)
        self._start()
        return cast("Deferred[T]", job.answer)

    def close(self) -> None:
        """End the threads."""
        self._closed = True
        self._waiting.clear()
        for reader in self._all:
            if reader.begun:
                reader.executor.call(reader.close, lambda _: None)
            reader.executor.stop()

    def _cancel(self, job: _Job) -> None:
        if job in self._waiting:
            self._waiting.remove(job)

    def _start(self) -> None:
        # A caller that goes on after the close, with the answer of an earlier read, must not begin a thread again.
        while self._waiting and self._idle and not self._retrying and not self._closed:
            reader, job = self._idle.pop(), self._waiting.popleft()
            reader.begun = True
            reader.executor.call(partial(reader.run, job.work), partial(self._done, reader, job))

    def _done(self, reader: _Reader, job: _Job, outcome: Any) -> None:
        self._idle.append(reader)
        failure = self._database.failure(outcome) if isinstance(outcome, self._database.errors) else None
        if failure is not None and self._database.is_away(outcome):
            self._unavailable(job, failure)
            return
        self._since = None
        if not job.answer.called:  # a cancelled Deferred has been called
            if isinstance(outcome, BaseException):
                job.answer.errback(failure or outcome)
            else:
                job.answer.callback(outcome)
        self._start()

    def _unavailable(self, job: _Job, failure: StorageFailure) -> None:
        now = self._clock.seconds()
        if self._since is None:
            self._since = now
        if not self._retrying:
            self._retrying = True
            self._clock.callLater(_AGAIN, self._again)
        if self.patience is not None and now - self._since >= self.patience:
            waiting, self._waiting = self._waiting, deque()
            for each in (job, *waiting):
                if not each.answer.called:
                    each.answer.errback(failure)
        elif not job.answer.called:
            self._waiting.appendleft(job)

    def _again(self) -> None:
        self._retrying = False
        if self._since is not None and not self._waiting:
            look = _Job(_look, self._cancel)
            look.answer.addErrback(lambda _: None)  # nobody asked
            self._waiting.append(look)
        self._start()
