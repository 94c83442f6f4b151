"""The bus in Postgres: datagrams are rows of ``cluster_runs`` until their target takes them.

How it works. Two threads, each with a connection of its own. One inserts all datagrams of a turn in one transaction,
and wakes their targets with an empty NOTIFY in a transaction of its own: a NOTIFY takes a lock of the whole server
until its commit, which must not include a write. The other one waits for NOTIFY, at most a second, and takes the rows
of this node: it deletes them and hands them to the reactor. The rows of one origin come in their order, since one
connection inserts them in turn.

If the outcome of a transaction is unknown, its rows are lost or come twice; :mod:`.links` notices both. While the
database is away, at most :data:`_MOST_WAITING` bytes wait. A node whose rows have more than :data:`_MOST_STORED` bytes
is *full*: nothing is sent to it until it has taken some. Each sender looks behind :data:`_UNSEEN` bytes, and may exceed
the bound by these and one transaction. A node whose reactor is busy takes no rows while :data:`_MOST_ARRIVED` bytes
wait for it: the rest stays in the database, where the bound is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

import psycopg
from twisted.internet.defer import Deferred, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from holdfast.core.tickets import StorageFailure
from holdfast.storage.postgres import PostgresDatabase
from holdfast.storage.postgres_values import Blobs, SmallIntegers

#: bytes that wait to be inserted
_MOST_WAITING = 64 << 20
#: bytes of rows for one node; seconds and inserted bytes between two looks at them
_MOST_STORED, _LOOKS, _UNSEEN = 64 << 20, 2.0, 8 << 20
#: bytes of datagrams of one transaction
_AT_ONCE = 4 << 20
#: rows that are taken at once, and bytes that wait for the reactor while more are taken
_TAKEN, _MOST_ARRIVED = 500, 16 << 20
#: datagrams that are handed over in one turn: each takes a millisecond at most
_OF_A_TURN = 2
#: seconds to wait for a wake-up, and until the next try if the database is away
_WAIT, _RETRY = 1.0, 0.5

_INSERT = "INSERT INTO cluster_runs (target, data) SELECT * FROM unnest(CAST(? AS smallint[]), CAST(? AS bytea[]))"
_TAKE = (
    "DELETE FROM cluster_runs WHERE id IN (SELECT id FROM cluster_runs WHERE target = ? ORDER BY id LIMIT ?) "
    "RETURNING id, data"
)
_STORED = "SELECT target, sum(length(data)) FROM cluster_runs GROUP BY target"


class PostgresBus:
    """Carries datagrams through the database of this broker. ``node`` is this one's number."""

    _log = Logger()

    def __init__(self, database: PostgresDatabase, node: int, reactor: Any) -> None:
        self._database = database
        self._node = node
        self._reactor = reactor
        self._queue: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self._lock = Lock()
        self._waiting = 0  # bytes in the queue
        self._full: frozenset[int] = frozenset()  # nodes that have not taken their rows
        self._over = Event()
        self._threads: list[Thread] = []
        self._received: Callable[[bytes], None] | None = None
        self._arrived: deque[bytes] = deque()
        self._is_handing_over = False
        self._unhandled = 0  # bytes that are taken and not handed over yet
        self._may_take = Event()
        self._may_take.set()

    def start(self, received: Callable[[bytes], None]) -> None:
        """Begin to call ``received`` with each datagram for this node, in the reactor's thread."""
        self._received = received
        for name, work in (("sending", self._send_all), ("receiving", self._receive_all)):
            thread = Thread(target=partial(self._persist, work), name=f"holdfast-bus-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def send(self, node: int, datagram: bytes) -> bool:
        """Send a datagram to a node. Return False if there is no room for it."""
        with self._lock:
            if node in self._full or self._waiting + len(datagram) > _MOST_WAITING:
                return False
            self._waiting += len(datagram)
        self._queue.put((node, datagram))
        return True

    def stop(self) -> Deferred[None]:
        """Send and receive nothing more. Fires when both threads have ended."""
        self._received = None
        if not self._threads:
            return succeed(None)
        with self._lock:  # no thread is between its look at the one and its change of the other
            self._over.set()
            self._may_take.set()
        self._queue.put(None)
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self._join)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(3 * _WAIT)

    def _persist(self, work: Callable[[psycopg.Connection[Any]], None]) -> None:
        """Work with a connection, and with another one after a failure, until this bus is over."""
        told = False
        while not self._over.is_set():
            try:
                with self._database.open_connection() as connection:
                    told = False
                    work(connection)
            except (psycopg.Error, OSError, StorageFailure) as error:
                if not told:
                    told = True
                    self._log.warn("the bus in the database is interrupted: {error}", error=error)
                self._over.wait(_RETRY)

    # --- sending, in a thread -----------------------------------------------------------------------------------------

    def _send_all(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("SET synchronous_commit = off")
        looked, unseen = 0.0, 0
        while not self._over.is_set():
            batch = self._next_batch()
            size = sum(len(datagram) for _, datagram in batch)
            try:
                # Those that have waited here since before their target was full are lost, as others are refused.
                unseen += self._insert(connection, [each for each in batch if each[0] not in self._full])
            finally:
                with self._lock:
                    self._waiting -= size
            if monotonic() - looked > _LOOKS or unseen > _UNSEEN:
                looked, unseen = monotonic(), 0
                stored = connection.execute(_STORED).fetchall()
                self._full = frozenset(target for target, size in stored if size > _MOST_STORED)

    def _insert(self, connection: psycopg.Connection[Any], batch: list[tuple[int, bytes]]) -> int:
        """Insert datagrams, wake their targets, and return how many bytes they have."""
        if not batch:
            return 0
        targets, datagrams = zip(*batch, strict=True)
        connection.execute(_INSERT, (SmallIntegers(targets), Blobs(datagrams)))
        for target in sorted(set(targets)):
            connection.execute(f"NOTIFY {_channel(target)}")
        return sum(map(len, datagrams))

    def _next_batch(self) -> list[tuple[int, bytes]]:
        """Return the datagrams that wait, after the first one has come. Empty: there is none for a while."""
        batch: list[tuple[int, bytes]] = []
        size = 0
        try:
            found = self._queue.get(timeout=_WAIT)
            while found is not None:
                batch.append(found)
                size += len(found[1])
                if size > _AT_ONCE:
                    break
                found = self._queue.get_nowait()
        except Empty:
            pass
        return batch

    # --- receiving, in a thread ---------------------------------------------------------------------------------------

    def _receive_all(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"LISTEN {_channel(self._node)}")
        while not self._over.is_set():
            found = connection.execute(_TAKE, (self._node, _TAKEN)).fetchall()
            if found:
                found.sort()
                self._count(sum(len(data) for _, data in found))
                self._reactor.callFromThread(self._hand_over, [data for _, data in found])
            self._may_take.wait()
            if len(found) < _TAKEN:
                for _ in connection.notifies(timeout=_WAIT, stop_after=1):
                    break

    def _count(self, size: int) -> None:
        """Add to the bytes that are not handed over yet, and let the thread wait while these are too many."""
        with self._lock:
            self._unhandled += size
            if self._unhandled <= _MOST_ARRIVED or self._over.is_set():
                self._may_take.set()
            else:
                self._may_take.clear()

    def _hand_over(self, datagrams: list[bytes]) -> None:
        self._arrived.extend(datagrams)
        if not self._is_handing_over:
            self._go_on()

    def _go_on(self) -> None:
        """Hand over as many datagrams as a turn may take."""
        self._is_handing_over = False
        for _ in range(min(_OF_A_TURN, len(self._arrived))):
            if self._received is None:
                return
            datagram = self._arrived.popleft()
            self._count(-len(datagram))
            try:
                self._received(datagram)
            except Exception:  # noqa: BLE001 - one datagram must not hold up all others
                self._log.failure("a datagram of another node is not handled")
        if self._arrived:
            self._is_handing_over = True
            self._reactor.callLater(0, self._go_on)


def _channel(node: int) -> str:
    return f"holdfast_cluster_{node}"
