"""The write kind of conditional changes: decides and stores in the writer's transaction.

How it works. A commit group has plain changes and conditional ones. The plain ones are written first. Then this kind
locks the rows of its topics, decides about its changes in the order of their submission, and stores those whose
conditions hold. Each has a key of its own, so none replaces another while both wait. An example with one group:

    put  a=1 (revision 70)                         written
    set  a=2 if the revision is 70 (revision 71)   holds: a is 71 now
    set  a=3 if the revision is 70 (revision 72)   refused: the present revision is 71

*Several nodes.* A row that exists is locked until the end of the transaction. A row that does not exist cannot be
locked, so the kind inserts a tombstone with revision 0 first: another node that inserts the same topic waits for this
transaction. A tombstone that no change has replaced is deleted again, so nobody ever sees it.

*Revisions.* For each topic the highest revision wins. Another node, or a plain change in the same group, may have
stored a higher revision than this change has. Then it is not stored, and its caller stamps it anew (``OUTRUN``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from hashlib import sha256
from typing import Any

from attrs import frozen
from zope.interface import implementer

from holdfast.retained.store.conditional.change import ConditionalChange, Outcome, Verdict
from holdfast.retained.store.conditional.decision import Present, decide
from holdfast.retained.store.dialects.answers import Totals
from holdfast.retained.store.dialects.statements import Statements
from holdfast.retained.store.recorder import ChangedRow
from holdfast.retained.store.upserts import RetainedUpserts
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.writes import IWriteKind, Write
from holdfast.tickets import StorageFailure


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
