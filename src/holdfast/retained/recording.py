"""Recording: appending to the history in the transaction that changes the retained messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from zope.interface import implementer

from holdfast.messages import ChangeOrigin
from holdfast.retained.entries import Entry, entry_of
from holdfast.retained.periods import advance, take_turn
from holdfast.retained.rows import Row
from holdfast.retained.statements import Statements, Totals
from holdfast.retained.upserts import RetainedUpserts
from holdfast.retained.usage import UsageTable
from holdfast.storage import tables
from holdfast.storage.bulk import MOST_ROWS, Bulk
from holdfast.storage.driver import Cursor
from holdfast.storage.writes import IWriteKind, Write


class RecordedRow(NamedTuple):
    """What a recorded write stores: the row, and who made the change."""

    row: Row
    origin: ChangeOrigin


def append(cursor: Cursor, bulk: Bulk, entries: Sequence[Entry]) -> None:
    """Give entries their places in the history, in this order and behind all that is there, and write them.

    Whatever their clocks said, no entry is earlier than the one before it.
    """
    last_seq, last_at = take_turn(cursor)
    placed = []
    for entry in entries:
        last_seq += 1
        last_at = max(last_at, entry.changed_at)
        placed.append(entry._replace(seq=last_seq, changed_at=last_at))
    bulk.upsert(cursor, tables.retained_history, placed)
    advance(cursor, last_seq, last_at, sum(entry.weight for entry in entries))


@implementer(IWriteKind)
class RecordedUpserts(RetainedUpserts):
    """The write kind of retained messages that are recorded: one write is the live row and the entry, whole or not.

    Its keys are (topic, revision), so that no change replaces another while they wait for a commit; its rows are
    :class:`RecordedRow`, put in the order of their revisions.
    """

    def __init__(
        self, statements: Statements, node: int, observe: Callable[[int], None], usage: UsageTable, bulk: Bulk
    ) -> None:
        super().__init__(statements, node, observe, usage)
        self._bulk = bulk
        #: the highest revision ever given to ``apply``: what is not above it may have been written before
        self._attempted = 0

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> Totals:
        """Write the newest row of each topic, and an entry for every one."""
        recorded: list[RecordedRow] = [write.row for write in writes]
        newest: dict[str, Row] = {}
        for row, _ in recorded:
            before = newest.get(row.topic)
            if before is None or before.revision < row.revision:
                newest[row.topic] = row
        change = self.write(cursor, newest.values())
        entries = [entry_of(row, origin) for row, origin in recorded]
        lowest, highest = min(entry.revision for entry in entries), max(entry.revision for entry in entries)
        if lowest <= self._attempted:
            entries = _missing(cursor, entries)
        self._attempted = max(self._attempted, highest)
        if entries:
            append(cursor, self._bulk, entries)
        return change


def _missing(cursor: Cursor, entries: Sequence[Entry]) -> list[Entry]:
    """Leave out what is in the history: a commit whose outcome was unknown had succeeded."""
    present: set[tuple[str, int]] = set()
    for start in range(0, len(entries), MOST_ROWS):
        part = entries[start : start + MOST_ROWS]
        pairs = ", ".join(["(?, ?)"] * len(part))
        cursor.execute(
            f"SELECT topic, revision FROM retained_history WHERE (topic, revision) IN (VALUES {pairs})",  # noqa: S608
            [value for entry in part for value in (entry.topic, entry.revision)],
        )
        present.update((topic, revision) for topic, revision in cursor.fetchall())
    return [entry for entry in entries if (entry.topic, entry.revision) not in present]
