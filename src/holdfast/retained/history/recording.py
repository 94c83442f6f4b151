"""Recording: appending to the history in the transaction that changes the retained messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from zope.interface import implementer

from holdfast.messages import ChangeKind, ChangeOrigin
from holdfast.retained.history.entries import WEIGHT, Entry, entry_of
from holdfast.retained.history.periods import advance, take_turn
from holdfast.retained.store.rows import Row
from holdfast.retained.store.statements import Statements, Totals
from holdfast.retained.store.upserts import RetainedUpserts
from holdfast.retained.store.usage import UsageTable
from holdfast.storage import tables
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.bulk import MOST_ROWS, Bulk, split
from holdfast.storage.writing.writes import IWriteKind, Write

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

_MEASURE = f"SELECT CAST(coalesce(sum({WEIGHT}), 0) AS BIGINT) FROM retained WHERE topic IN ({{places}})"
_COPY = (
    f"INSERT INTO retained_history ({', '.join(Entry._fields)}) SELECT ? + row_number() OVER (ORDER BY topic), topic, "
    f"'{ChangeKind.SET.value}', ?, qos, size, ?, expires_at, revision, client_id, username, properties5, "
    "properties_json, payload FROM retained WHERE topic IN ({places})"
)


class RecordedRow(NamedTuple):
    """What a recorded write stores: the row, when it was changed (milliseconds since the epoch), and by whom."""

    row: Row
    changed_at: int
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


def append_stored(cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
    """Write an entry for what is stored of each topic, which has been changed in this transaction."""
    last_seq, last_at = take_turn(cursor)
    changed_at = max(last_at, changed_at)
    for part in split(topics, MOST_ROWS):
        places = ", ".join("?" * len(part))
        cursor.execute(_MEASURE.format(places=places), list(part))
        ((weight,),) = cursor.fetchall()
        cursor.execute(_COPY.format(places=places), [last_seq, origin.value, changed_at, *part])
        last_seq += len(part)
        advance(cursor, last_seq, changed_at, weight)


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
        """Write the newest row of each topic, and an entry for every one that is not too late.

        Too late is what was stamped before a change that is stored already: it never takes effect.
        """
        recorded: list[RecordedRow] = [write.row for write in writes]
        newest: dict[str, Row] = {}
        for row, _, _ in recorded:
            before = newest.get(row.topic)
            if before is None or before.revision < row.revision:
                newest[row.topic] = row
        change = self.write(cursor, newest.values())
        entries = [entry_of(*each) for each in recorded if each.row.topic not in change.lost]
        lowest, highest = min(each.row.revision for each in recorded), max(each.row.revision for each in recorded)
        if lowest <= self._attempted:
            entries = _missing(cursor, entries)
        self._attempted = max(self._attempted, highest)
        if entries:
            append(cursor, self._bulk, entries)
        return change


def _missing(cursor: Cursor, entries: Sequence[Entry]) -> list[Entry]:
    """Leave out what is in the history: a commit whose outcome was unknown had succeeded."""
    present: set[tuple[str, int]] = set()
    for part in split(entries, MOST_ROWS):
        pairs = ", ".join(["(?, ?)"] * len(part))
        cursor.execute(
            f"SELECT topic, revision FROM retained_history WHERE (topic, revision) IN (VALUES {pairs})",
            [value for entry in part for value in (entry.topic, entry.revision)],
        )
        present.update((topic, revision) for topic, revision in cursor.fetchall())
    return [entry for entry in entries if (entry.topic, entry.revision) not in present]
