"""The durable store as a whole: it opens and closes the database, the writer, the readers and the revision clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.committer import StoreTotals, add_node, read_totals
from holdfast.storage.database import Database, Durability
from holdfast.storage.driver import Bulk, Connection
from holdfast.storage.executor import IExecutor, ThreadExecutor
from holdfast.storage.location import StoreDamaged, StoreUnusable
from holdfast.storage.maintenance import database_at, open_database
from holdfast.storage.postgres_values import PostgresBulk
from holdfast.storage.readers import InlineReaders, IReaders, ThreadedReaders
from holdfast.storage.revisions import RevisionClock
from holdfast.storage.salvage import salvage
from holdfast.storage.schema import UPGRADE_COMMAND, prepare
from holdfast.storage.sqlite import OnCorruption, SQLiteBulk, SQLiteDatabase, quarantined, set_aside
from holdfast.storage.writer import MAX_PENDING, Writer

if TYPE_CHECKING:
    pass

#: The number of threads that read a remote database.
READER_THREADS = 2


def _nothing() -> None:
    """Do no work."""


@define
class OpenStore:
    """The parts of an open store.

    ``scanners`` run the long reads of operators, in a thread and a connection of their own: neither the reactor nor the
    reads of replays wait for them. The thread begins with the first such read.
    """

    database: Database
    writer: Writer
    clock: RevisionClock
    readers: IReaders
    scanners: IReaders
    totals: StoreTotals

    @property
    def available(self) -> bool:
        """Whether the last attempts to read and to write have reached the database."""
        return bool(self.writer.available and self.readers.available and self.scanners.available)


class DurableStore:
    """Opens and closes the durable store, and tells its users when it is open.

    ``node`` is 1..255, ``now`` returns milliseconds since the epoch. Only durability "async" uses ``flush_interval``
    (seconds); ``max_pending`` is in bytes (0: the default). ``on_pressure`` is called with True to pause publishers and
    with False to resume them. While the database is away, reads wait for ``patience`` seconds (None: without end).
    Messages about an older schema tell the operator to run ``upgrade_command``. Only SQLite uses ``on_corruption``.

    ``join`` is called with a database that has a current schema, before this node writes. It returns the database for
    the broker that this is: one alone, or a member of a cluster; it raises :class:`StoreUnusable`. ``on_superseded`` is
    called in the reactor thread if another incarnation of this node has begun: nothing is stored any more.
    """

    _log = Logger()

    def __init__(
        self,
        url: str,
        *,
        node: int,
        reactor: Any,
        now: Callable[[], int],
        durability: Durability = Durability.FULL,
        flush_interval: float = 1.0,
        max_pending: int = 0,
        on_pressure: Callable[[bool], None] | None = None,
        executor: IExecutor | None = None,
        reading_executor: Callable[[], IExecutor] | None = None,
        patience: float | None = None,
        upgrade_command: str = UPGRADE_COMMAND,
        on_corruption: OnCorruption = OnCorruption.REFUSE,
        join: Callable[[Database], Database] | None = None,
        on_superseded: Callable[[], None] | None = None,
    ) -> None:
        self.node = node
        self.parts: OpenStore | None = None
        self._url = url
        self.durability = durability
        self._flush_interval = flush_interval if durability is Durability.ASYNC else None
        self._max_pending = max_pending or MAX_PENDING
        self._reactor = reactor
        self._now = now
        self._on_pressure = on_pressure
        self._executor = executor or ThreadExecutor(reactor)
        self._reading_executor = reading_executor or (lambda: ThreadExecutor(reactor, "holdfast-reader"))
        self._patience = patience
        self._upgrade_command = upgrade_command
        self._on_corruption = on_corruption
        self._join = join
        self._on_superseded = on_superseded
        self._users: list[Callable[[OpenStore], None]] = []
        self._preparations: list[Callable[[Database, Connection], None]] = []

    @property
    def quarantined(self) -> list[str]:
        """The names of damaged databases in quarantine beside this one."""
        if self.shared:
            return []
        return [file.name for file in quarantined(Path(self._url.removeprefix("sqlite:///")))]

    @property
    def dialect(self) -> str:
        """The dialect of its database: "sqlite" or "postgresql"."""
        return "sqlite" if self._url.startswith("sqlite:") else "postgresql"

    @property
    def shared(self) -> bool:
        """Whether other nodes may use the same database."""
        return self.dialect != "sqlite"

    @property
    def reads_in_threads(self) -> bool:
        """Whether reads run in threads and take a network round trip, instead of in the reactor thread."""
        return self.dialect != "sqlite"

    @property
    def bulk(self) -> Bulk:
        """The statements for many rows, in the dialect of its database."""
        return PostgresBulk() if self.shared else SQLiteBulk()

    def status(self) -> dict[str, object]:
        """Return the durability and, while the store is open, the counters of its writer, by name."""
        found: dict[str, object] = {
            "durability": self.durability.value,
            "loss_window": self.durability.loss_window(self._flush_interval or 0.0),
            "quarantined": len(self.quarantined),
        }
        if self.parts is not None:
            writer = self.parts.writer
            found["pending_bytes"] = writer.pending_bytes
            found["commits"] = writer.counters.commits
            found["rows"] = writer.counters.rows
            found["coalesced"] = writer.counters.coalesced
            found["seconds"] = f"{writer.counters.seconds:.3f}"
            found["available"] = int(self.parts.available)
            found["failed"] = writer.counters.failed
            found["damaged"] = int(self.parts.database.damage is not None)
        return found

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self.parts is not None

    @property
    def is_away(self) -> bool:
        """Whether the database is known to be away: changes would wait for it."""
        return self.parts is not None and not self.parts.available

    def soundness(self) -> dict[str, object]:
        """Return ``damage``, the damage found (None for none), and ``quarantined``, the files in quarantine."""
        damage = None if self.parts is None else self.parts.database.damage
        return {"damage": None if damage is None else str(damage), "quarantined": self.quarantined}

    def ask_writer(self) -> Deferred[None]:
        """Fire once the writer's thread has finished its present work: a sign that it does not hang.

        While the database is away, the thread has no work, and answers at once.
        """
        answer: Deferred[None] = Deferred()
        self._executor.call(_nothing, lambda _: answer.callback(None))
        return answer

    def database_time(self) -> Deferred[int]:
        """Read the time of a shared database, in milliseconds since the epoch. Fails with :class:`StorageFailure`."""
        assert self.parts is not None

        def read(connection: Connection) -> int:
            cursor = connection.cursor()
            cursor.execute("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)")
            ((now,),) = cursor.fetchall()
            return int(now)

        return self.parts.writer.run(read)

    def before_open(self, prepare: Callable[[Database, Connection], None]) -> None:
        """Call ``prepare`` with the writer's connection each time the store is opened, before any change."""
        self._preparations.append(prepare)

    def when_open(self, user: Callable[[OpenStore], None]) -> None:
        """Call ``user`` with the open store: now if it is open, and each time it is opened."""
        self._users.append(user)
        if self.parts is not None:
            user(self.parts)

    def reach(self) -> Deferred[None]:
        """Try in a thread whether the database can be reached, so that :meth:`open` does not wait for its server.

        Fails with :class:`StoreUnusable`, and with StoreLate if that may change by itself.
        """
        answer: Deferred[None] = Deferred()
        reached = database_at(self._url, self.durability).check_present

        def done(found: BaseException | None) -> None:
            answer.callback(None) if found is None else answer.errback(found)

        self._executor.call(reached, done)
        return answer

    def open(self) -> None:
        """Open the database; build the schema of an empty one. Raises :class:`StoreUnusable`.

        It is a StoreLate if the database's server is not up yet, or not known yet.
        """
        try:
            self._open()
        except StoreDamaged as damage:
            if self._on_corruption is OnCorruption.REFUSE or self.shared:
                raise
            self._replace(damage)
            self._open()

    def _replace(self, damage: StoreDamaged) -> None:
        """Put a new database with all data that can be read in place of the damaged one, which goes into quarantine."""
        database = database_at(self._url, self.durability, self.node)
        assert isinstance(database, SQLiteDatabase)
        self._log.critical("{damage}", damage=damage)
        try:
            salvaged = salvage(database, self.node)
            where = set_aside(database.path, self._now())
        except OSError as error:
            raise StoreUnusable(f"{damage}; the file cannot be replaced ({error.strerror})") from error
        self._log.critical(
            "the damaged database is now {where}; the broker does not touch it any more. Started with {salvaged}."
            " Remove or rename the file when you do not need it any more",
            where=where,
            salvaged=salvaged,
        )

    def _open(self) -> None:
        database = open_database(self._url, self.durability, self.node)
        if database.library is not None:
            self._log.debug("{library}", library=database.library)
        prepare(database, self._upgrade_command)
        database.check_readable()
        if self._join is not None:
            database = self._join(database)
        with database.explaining_errors():
            # The writer keeps this connection. It shows other programs that the database is in use, even if nothing
            # changes for a long time.
            connection = database.connect()
            try:
                add_node(connection, self.node)
                for preparation in self._preparations:
                    preparation(database, connection)
                totals = read_totals(connection.cursor())
                readers = self._readers(database)
            except BaseException:
                connection.close()
                raise
        clock = RevisionClock(self.node, totals.revision_mark, self._now)
        writer = Writer(
            database,
            self._executor,
            clock,
            self._reactor,
            max_pending=self._max_pending,
            flush_interval=self._flush_interval,
            at_turn_end=partial(self._reactor.callLater, 0) if self._executor.waits_for_turn else None,
            connection=connection,
            on_superseded=self._on_superseded,
        )
        if self._on_pressure is not None:
            writer.on_pressure(self._on_pressure)
        scanners = ThreadedReaders(database, [self._reading_executor()], self._reactor, self._patience)
        self.parts = OpenStore(database, writer, clock, readers, scanners, totals)
        for user in self._users:
            user(self.parts)

    def _readers(self, database: Database) -> IReaders:
        if not database.remote:
            return InlineReaders(database)
        executors = [self._reading_executor() for _ in range(READER_THREADS)]
        return ThreadedReaders(database, executors, self._reactor, self._patience)

    def change_patience(self, patience: float | None) -> None:
        """Let reads wait for so many seconds from now on while the database is away. None: without end."""
        self._patience = patience
        for readers in () if self.parts is None else (self.parts.readers, self.parts.scanners):
            if isinstance(readers, ThreadedReaders):
                readers.patience = patience

    @as_deferred
    async def close(self) -> None:
        """Commit all pending changes and close; fires when this is done, or at once if the store is not open."""
        parts, self.parts = self.parts, None
        if parts is None:
            return
        try:
            await parts.writer.close()
        finally:
            parts.readers.close()
            parts.scanners.close()
            self._executor.stop()
