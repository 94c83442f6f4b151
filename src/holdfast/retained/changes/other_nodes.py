"""Finds the changes of other nodes that share the database, while somebody follows changes.

How it works. There is no index on revisions, and revisions do not tell new rows from old ones: another node may commit
a lower one later. Postgres knows: each row has the number of the transaction that wrote it (``xmin``), and every
transaction below ``pg_snapshot_xmin`` has ended. So a walk through all topics, part by part, looks for rows that were
written by transactions from the mark of the walk before on:

    walk 1    mark 900 (all transactions below 900 have ended)
    walk 2    mark 950, then finds rows of transactions >= 900
    walk 3    mark 990, then finds rows of transactions >= 950; one that 940 writes is found now or was found by walk 2

A row that walk 2 could not see yet was written by a transaction that had not ended at mark 950, so walk 3 finds it. A
row may be found twice. Each part looks at a bounded number of rows and pauses, so changes of other nodes come after the
time of one walk: a second for up to 100,000 topics, then a second for each 100,000.

Numbers of transactions have 32 bits and wrap around; ``age`` compares them. A mark is never older than a walk.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime

from holdfast.retained.changes.change import LONGEST_PAYLOAD, StoredChange, change_of_row
from holdfast.retained.changes.past import head_of
from holdfast.retained.changes.token import Head
from holdfast.retained.store.rows import COLUMNS, Row
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.scheduling.periodic import PeriodicJob
from holdfast.storage.driver import Cursor
from holdfast.tickets import StorageFailure

# Built from constants alone: values are always bound.
# ruff: noqa: S608

#: Seconds between the beginnings of two walks, at least, and between two parts.
INTERVAL = 1.0
_PAUSE = 0.05
#: The rows that a part looks at, and the changes that it returns.
_ROWS = 5_000
_CHANGES = 100

_MARK = "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS numeric) % 4294967296"
_PART = (
    "WITH part AS MATERIALIZED (SELECT topic, xmin AS written FROM retained WHERE topic > ? ORDER BY topic LIMIT ?) "
    "SELECT (SELECT max(topic) FROM part), (SELECT count(*) FROM part), "
    "ARRAY(SELECT topic FROM part WHERE age(written) BETWEEN 0 AND age(CAST(CAST(CAST(? AS bigint) AS text) AS xid)) "
    "ORDER BY topic LIMIT ?)"
)
_SHOWN = ", ".join(COLUMNS[:-1])
_ROWS_OF = (
    f"SELECT {_SHOWN}, CASE WHEN size <= {LONGEST_PAYLOAD} THEN payload ELSE CAST('' AS bytea) END "
    "FROM retained WHERE topic IN ({places})"
)


@frozen
class WalkPart:
    """Changes that a part of a walk has found; the next part begins ``after`` a topic, unless ``done``."""

    changes: Sequence[StoredChange]
    after: str
    done: bool


@frozen
class Mark:
    """What is known before a walk: a transaction below which all have ended, and the last entry of the history."""

    transaction: int
    head: Head


def read_mark(cursor: Cursor) -> Mark:
    """Return a mark. The head of the history is read first: what is before it is visible to the walk."""
    head = head_of(cursor)
    cursor.execute(_MARK)
    ((transaction,),) = cursor.fetchall()
    return Mark(int(transaction), head)


def read_part(cursor: Cursor, mark: Mark, after: str) -> WalkPart:
    """Return the rows of the next part that were written since a mark."""
    cursor.execute(_PART, (after, _ROWS, mark.transaction, _CHANGES))
    ((last, looked, topics),) = cursor.fetchall()
    changes = []
    if topics:
        cursor.execute(_ROWS_OF.format(places=", ".join("?" * len(topics))), list(topics))
        rows = [Row._make(columns) for columns in cursor.fetchall()]
        changes = [change_of_row(row) for row in sorted(rows, key=lambda row: row.revision)]
    if len(topics) == _CHANGES:
        return WalkPart(changes, topics[-1], False)
    return WalkPart(changes, last or after, looked < _ROWS)


class OtherNodes:
    """Walks through the topics while it is started.

    ``found`` gets the found changes, and ``walked``, after a walk, the head of the history at its beginning.
    ``floor`` changes when recorded changes were dropped; ``unsure`` is told when the order of changes is not certain.
    """

    def __init__(
        self,
        store: SQLRetainedStore,
        clock: IReactorTime,
        found: Callable[[Sequence[StoredChange]], None],
        walked: Callable[[Head], None],
        floor: Callable[[], int],
        unsure: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._found = found
        self._walked = walked
        self._floor = floor
        self._unsure = unsure
        self._mark: Mark | None = None
        self._job = PeriodicJob(
            self.walk, name="looking for changes of other nodes", interval=INTERVAL, clock=clock,
            foreseen=(StorageFailure,),
        )  # fmt: skip
        self._running = False

    @inlineCallbacks
    def start(self) -> Generator[Deferred[Any], Any, None]:
        """Set the first mark; every change that is committed later will be found. Fails with StorageFailure."""
        self._mark = yield self._store.scan(read_mark)
        self._running = True
        self._job.start(INTERVAL)

    def stop(self) -> None:
        """Stop the walks."""
        if self._running:
            self._running = False
            self._job.stop()

    @inlineCallbacks
    def walk(self) -> Generator[Deferred[Any], Any, None]:
        """Walk once. A walk that fails is repeated from its beginning, with the same mark."""
        since = self._mark
        assert since is not None
        mark: Mark = yield self._store.scan(read_mark)
        after, done = "", False
        while self._running and not done:
            before = self._floor()
            part: WalkPart = yield self._store.scan(partial(read_part, mark=since, after=after))
            self._found(part.changes)
            if part.changes and self._floor() != before:
                # A newer change of the same topic may have come and been dropped while this part was read.
                self._unsure()
            after, done = part.after, part.done
            if not done:
                pause: Deferred[None] = Deferred()
                self._clock.callLater(_PAUSE, pause.callback, None)
                yield pause
        if done:
            self._mark = mark
            self._walked(mark.head)
