"""Writing retained changes: many rows in one statement, with exact totals in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from zope.interface import implementer

from holdfast.messages import ChangeOrigin
from holdfast.retained.store.dialects.answers import Totals
from holdfast.retained.store.dialects.statements import Statements
from holdfast.retained.store.interfaces import ICommitWatcher
from holdfast.retained.store.recorder import ChangedRow, Recorder
from holdfast.retained.store.rows import Row
from holdfast.retained.store.usage import UsageTable
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.node_totals import add_to_totals, raise_revision_mark, raise_unsent_revision
from holdfast.storage.writing.writes import IWriteKind, Write
from holdfast.tickets import StorageFailure

#: the origins of changes that may not be sent to subscribers
_BY_OPERATORS = (ChangeOrigin.API, ChangeOrigin.IMPORT, ChangeOrigin.RESTORE)


@implementer(IWriteKind)
class RetainedUpserts:
    """The write kind of retained messages. A write carries a :class:`ChangedRow` under the recorder's key.

    ``totals`` are as of the last commit that the reactor thread knows. ``observe`` is told the highest revision met.
    """

    name = "retained"
    order = 10

    def __init__(
        self,
        statements: Statements,
        node: int,
        *,
        observe: Callable[[int], None],
        usage: UsageTable,
        recorder: Recorder,
    ) -> None:
        self.totals = Totals()
        self._statements = statements
        self._node = node
        self._observe = observe
        self._usage = usage
        self._recorder = recorder
        #: is told of the rows that were committed; None while nobody watches
        self.watcher: ICommitWatcher | None = None

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> Totals:
        """Write the newest row of each topic, and record the changes; return the change of the totals."""
        return self.store(cursor, [write.row for write in writes])

    def store(self, cursor: Cursor, changes: Sequence[ChangedRow]) -> Totals:
        """Write the newest row of each topic, and record the changes; return the change of the totals.

        A change older than the stored row is skipped and not recorded: it never takes effect.
        """
        # With a history, several changes of a topic can wait for one commit: each is recorded, one is stored.
        newest: dict[str, Row] = {}
        unsent = 0
        for row, _, origin, _ in changes:
            if origin in _BY_OPERATORS and row.revision > unsent:
                unsent = row.revision
            before = newest.get(row.topic)
            if before is None or before.revision < row.revision:
                newest[row.topic] = row
        change = self._write(cursor, newest.values())
        if unsent:  # with its rows: after a crash, replays know which rows no queue has
            raise_unsent_revision(cursor, self._node, max(unsent, change.highest))
        kept = [each for each in changes if each.row.topic not in change.lost] if change.lost else changes
        self._recorder.record(cursor, kept)
        return change

    def committed(self, account: Any) -> None:
        """Add a committed change to the totals."""
        self.totals.add(account)
        if account.highest:
            self._observe(account.highest)
        if account.written and self.watcher is not None:
            self.watcher.written(account.written)

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Do nothing: the tickets tell the publishers, and the messages retained before stay."""

    def _write(self, cursor: Cursor, found: Iterable[Row]) -> Totals:
        """Write rows of distinct topics; return the change of the totals."""
        change = Totals(written=None if self.watcher is None else [])
        # In topic order, neighbours share a page of the database. And two nodes lock the same topics in the same order,
        # so they wait for each other, but never deadlock.
        rows = sorted(found, key=_topic)
        if self._usage.scopes:
            topics = [row.topic for row in rows]
            watched = self._usage.watch(cursor, topics)
            self._statements.write(cursor, rows, self._node, change)
            self._usage.change(cursor, watched)
        else:
            self._statements.write(cursor, rows, self._node, change)
        # Level counts are never removed. A level count that no topic has any more only costs a term in a pattern.
        new = change.levels - self.totals.levels
        if new:
            self._statements.add_levels(cursor, new)
        if change.highest:
            raise_revision_mark(cursor, self._node, change.highest)
        # Most changes replace a value by one of the same length: then the totals stay.
        if change.count or change.bytes or change.largest_packet > self.totals.largest_packet:
            add_to_totals(cursor, self._node, change.count, change.bytes, change.largest_packet)
        return change


def _topic(row: Row) -> str:
    return row.topic
