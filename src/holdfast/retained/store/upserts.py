"""Writing retained changes: many rows in one statement, with exact totals in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from hashlib import sha256
from typing import Any

from attrs import frozen
from zope.interface import implementer

from holdfast.core.messages import ChangeOrigin
from holdfast.core.tickets import StorageFailure
from holdfast.retained.store.conditional import ConditionalChange, Outcome, Present, Verdict, decide
from holdfast.retained.store.interfaces import ChangedRow, ICommitWatcher, Recorder
from holdfast.retained.store.rows import Row
from holdfast.retained.store.statements import Statements, Totals
from holdfast.retained.store.usage import UsageTable
from holdfast.storage.committer import IWriteKind, Write, add_to_totals, raise_revision_mark, raise_unsent_revision
from holdfast.storage.driver import Cursor

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


# The write kind of conditional changes: decides and stores in the writer's transaction.
#
# How it works. A commit group has plain changes and conditional ones. The plain ones are written first. Then this kind
# locks the rows of its topics, decides about its changes in the order of their submission, and stores those whose
# conditions hold. Each has a key of its own, so none replaces another while both wait. An example with one group:
#
#     put  a=1 (revision 70)                         written
#     set  a=2 if the revision is 70 (revision 71)   holds: a is 71 now
#     set  a=3 if the revision is 70 (revision 72)   refused: the present revision is 71
#
# *Several nodes.* A row that exists is locked until the end of the transaction. A row that does not exist cannot be
# locked, so the kind inserts a tombstone with revision 0 first: another node that inserts the same topic waits for this
# transaction. A tombstone that no change has replaced is deleted again, so nobody ever sees it.
#
# *Revisions.* For each topic the highest revision wins. Another node, or a plain change in the same group, may have
# stored a higher revision than this change has. Then it is not stored, and its caller stamps it anew (``OUTRUN``).


@frozen
class _Result:
    totals: Totals
    outcomes: Sequence[tuple[ConditionalChange, Outcome]]


@implementer(IWriteKind)
class ConditionalUpserts:
    """The write kind of conditional changes. A write carries a :class:`ConditionalChange`, which is its key too.

    ``observe`` is told revisions that the next stamp has to exceed.
    """

    name = "compare-and-set"
    order = RetainedUpserts.order + 1

    def __init__(self, statements: Statements, upserts: RetainedUpserts, observe: Callable[[int], None]) -> None:
        self._statements = statements
        self._upserts = upserts
        self._observe = observe

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> _Result:
        """Decide about the changes, and store those whose conditions hold."""
        changes: list[ConditionalChange] = [write.row for write in writes]
        wanted = {change.row.topic for change in changes if change.needs_digest}
        present = self._present(cursor, changes, wanted)
        outcomes: list[tuple[ConditionalChange, Outcome]] = []
        rows: list[ChangedRow] = []
        for change in changes:
            row = change.row
            before = present.get(row.topic)
            outcome = decide(change, before)
            outcomes.append((change, outcome))
            if outcome.verdict is Verdict.STORED and (before is None or before.revision != outcome.revision):
                made = change.change
                rows.append(ChangedRow(row, made.changed_at, made.origin, made.operator))
                digest = change.digest if row.topic in wanted else None
                present[row.topic] = Present(
                    row.revision, row.tombstone, row.expires_at, row.client_id, row.qos, row.properties5, digest
                )
        unused = sorted({change.row.topic for change in changes} - {row.row.topic for row in rows})
        if unused:
            self._statements.remove_places(cursor, unused)
        return _Result(self._upserts.store(cursor, rows) if rows else Totals(), outcomes)

    def committed(self, result: Any) -> None:
        """Tell each change its outcome."""
        self._upserts.committed(result.totals)
        for change, outcome in result.outcomes:
            change.outcome = outcome
            self._observe(outcome.revision)

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Do nothing: the tickets tell the publishers."""

    def _present(
        self, cursor: Cursor, changes: Sequence[ConditionalChange], wanted: Container[str]
    ) -> dict[str, Present]:
        """Lock and read the rows of the topics, with the digests of the payloads that are ``wanted``."""
        topics = sorted({change.row.topic for change in changes})
        absent_too = {change.row.topic for change in changes if change.conditions.may_hold_without_message}
        found = self._statements.locked_rows(cursor, topics, absent_too)
        present: dict[str, Present] = {}
        for topic, revision, tombstone, expires_at, client_id, qos, properties5 in found:
            digest = None
            if topic in wanted:  # one payload at a time: each may have a megabyte
                digest = sha256(self._statements.payload_of(cursor, topic)).hexdigest()
            present[topic] = Present(revision, tombstone, expires_at, client_id, qos, bytes(properties5), digest)
        return present
