"""Keep tables, of Delta or Iceberg, equal to the broker: ``changes`` with each change once, ``current``, ``telemetry``.

How it works. A step reads a batch of entries of the history, for example 1001 to 1500, and writes it in two commits:

1. ``changes`` gets the 500 rows, and the mark ``seq`` 1500 in the same commit.
2. ``current`` gets the last entry of each topic by MERGE, and a mark of its own. A row gives way only to a higher
   ``seq``.

A job that is killed in between leaves the marks 1500 and 1000. The next one reads from 1001 again, and gives each table
only what comes after its own mark. So nothing is lost or doubled, wherever a job ends.

Then ``coverage.json`` says for which times the tables answer. If nothing is new, only the time of the last read
changes: that is written once a minute, and at the end. Once the files are on the disk, ``confirm(1500)`` tells
the database, which may forget these entries. Both come after the rows, so a killed job never promises too much; the
next one repeats them.

``current`` can always be made anew from the history, since pruning keeps the newest entry of each topic. This happens
in one commit where entries alone do not lead to the present: at the first run, after pruned entries, and when the
broker began a new period, whose baseline does not mention topics that were cleared while it did not record. During the
baseline ``current`` stays as it was.

Where a broker records messages without RETAIN, they go to the table ``telemetry``, each once: a step appends a batch of
them and moves its mark in the same commit. They have no part in ``coverage.json``, and no database waits for them.

Left out: a Spark stream with ``foreachBatch``. It needs a checkpoint beside the tables, and 15 seconds for each start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from holdfast.changes.api import Period, read_periods
from holdfast.storage.api import shown
from holdfast_pipeline.database import (
    HistoryRange,
    MissingEntries,
    ReadTransaction,
    Source,
    check,
    history_range,
    missing_entries,
    telemetry_range,
)
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.lake.growing_table import GrowingTable, Layout
from holdfast_pipeline.lake.iceberg_table import IcebergTable
from holdfast_pipeline.lake.upkeep import (
    CHANGES_LAYOUT,
    CURRENT_LAYOUT,
    KEPT,
    TELEMETRY_LAYOUT,
    TELEMETRY_TABLE,
    Entries,
    KeptTable,
    Upkeep,
    follow,
    newest_entries,
    read_entries,
    time_of_entry,
)
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.progress import phase, progressed
from holdfast_pipeline.sources.lake import CHANGES, CURRENT, SEQ, TELEMETRY, Coverage, read_coverage, write_coverage

#: More marks: the time of the last entry, the entries whose loss is known, and the period of ``current``.
CHANGED_AT, LOST_UPTO, PERIOD = "holdfast.changed_at", "holdfast.lost_upto", "holdfast.period"
#: Most rows and bytes of a batch.
ROWS, BYTES = 50_000, 64 << 20
#: Milliseconds between two writes of the coverage while nothing is new.
_UNCHANGED = 60_000


@frozen
class Synced:
    """``changes`` has every change up to ``last_seq``; before this run it had those up to ``before``.

    ``added`` changes are new, and ``lost`` ones were pruned before they were read. ``current`` has ``messages``, of the
    position ``current_seq``; None while it waits for the baseline of the history. ``telemetry`` has every recorded
    message up to ``telemetry_seq``; ``recorded`` ones are new, and ``lost_recorded`` were pruned before they were read.
    """

    before: int
    last_seq: int
    added: int
    lost: int
    current_seq: int | None
    messages: int
    telemetry_seq: int = 0
    recorded: int = 0
    lost_recorded: int = 0


@frozen
class _Position:
    """Where the tables are: the marks of ``changes`` (``seq``, ``lost_upto``) and of ``current``."""

    changes: int | None
    lost_upto: int
    current: int | None
    period: int | None


class Sync:
    """The tables below ``out`` and the database that they follow.

    ``table`` opens or makes a table: of Delta, or ``IcebergCatalog.table``.
    ``confirm`` gets the last entry that is safe on the disk; first 0, or what a killed run did not confirm.

    Raises :class:`PipelineError` if either cannot be used, or if the tables belong to another database.
    """

    def __init__(
        self, source: Source, out: Folder, rows: int = ROWS, size: int = BYTES, upkeep: Upkeep | None = None,
        allow_gap: bool = False, confirm: Callable[[int], None] | None = None,
        table: Callable[[Folder, Layout, str, float], KeptTable] = GrowingTable,
    ) -> None:  # fmt: skip
        check(source.url)
        self._source = source
        self._out = out
        self._rows, self._size = rows, size
        self._upkeep = upkeep or Upkeep()
        self._allow_gap = allow_gap
        store = shown(source.url)
        self._store, self._table = store, table
        self.changes = table(Folder(out.below(CHANGES)), CHANGES_LAYOUT, store, self._upkeep.keep)
        self.current = table(Folder(out.below(CURRENT)), CURRENT_LAYOUT, store, self._upkeep.keep)
        self._tables = {CHANGES: self.changes, CURRENT: self.current}
        before = self._position().changes or 0
        self._done = Synced(before, before, 0, 0, None, 0)
        #: None: the tables were made by an earlier version, or the file is lost.
        self._coverage = self._written = read_coverage(out) if before else Coverage()
        self._confirm = confirm
        self._confirmed: int | None = None
        if not before:
            self._tell(0)  # from now on the database forgets only what the tables have

    def run(self, stopped: Callable[[], bool] = lambda: False, every: float | None = None) -> Synced:
        """Bring the tables to the present end of the history; with ``every``, again after so many seconds.

        It ends early, between two commits, when ``stopped`` returns True. Raises :class:`PipelineError`.
        """
        follow(self.step_all, self._tables.values(), self._upkeep, stopped, every)
        if self._coverage is not None:
            last = evolve(self._coverage, versions=self._versions())
            if last != self._written:
                self._write(last)
        return self.result()

    def step_all(self) -> bool:
        """Take the next batches of the history and of the telemetry; return whether there may be more."""
        history = self.step()
        return self.step_telemetry() or history

    def step(self) -> bool:
        """Take the next batch of the history; return whether there may be another one."""
        self.changes.refresh()
        self.current.refresh()
        place = self._position()
        with self._source.transaction() as transaction:
            there = history_range(transaction)
            self._require_same(transaction, place, there.last)
            periods = read_periods(transaction.connection.cursor())
            period = next(iter(periods[-1:]), None)
            read_at = time.time_ns() // 1_000_000
            first = place.changes is None
            after = there.before if place.changes is None else place.changes
            lost_upto = there.pruned if first else place.lost_upto
            follows = place.current is not None and period is not None and place.period == period.first_seq
            merged = place.current if follows else None
            start = after if merged is None else min(after, merged)
            entries = read_entries(transaction, start, self._rows, self._size, there.last)
            lost = _missing(transaction, max(after, lost_upto), entries.upto)
            if lost is not None:
                lost_upto = self._accepted(lost, max(there.pruned, entries.upto))
            covered = self._covered(place, there, periods, has_lost=lost is not None)
            if (
                period is not None
                and period.complete_since is not None
                and (merged is None or _missing(transaction, merged, entries.upto))
            ):
                marks = {SEQ: there.last, PERIOD: period.first_seq}
                with phase("writing the retained messages"):
                    self.current.replace(newest_entries(transaction, period.first_seq), marks)
                merged = there.last
            reached = max(entries.upto, after)
            at = time_of_entry(transaction, reached) or 0
            read_at = read_at if entries.upto >= there.last else at
            coverage = covered.extended(periods, reached, at, read_at)
        if covered is not self._coverage:
            self._write(covered)  # before the rows: they do not fill the gap
        if first or entries.upto > after:
            self._append(entries.after(after), {SEQ: entries.upto, CHANGED_AT: at, LOST_UPTO: lost_upto})
        if merged is not None and entries.upto > merged:
            self.current.merge(entries.after(merged).newest, ["topic"], "seq", KEPT, {SEQ: entries.upto})
        coverage = evolve(coverage, versions=self._versions())
        if self._written is None or not coverage.only_read_since(self._written, _UNCHANGED):
            self._write(coverage)
        self._coverage = coverage
        self._tell(coverage.last_seq)
        progressed(entries.upto - self._done.before, there.last - self._done.before)
        return entries.upto < there.last

    def step_telemetry(self) -> bool:
        """Take the next batch of the telemetry; return whether there may be another one."""
        with self._source.transaction() as transaction:
            there = telemetry_range(transaction)
            table = self._telemetry_table(there.last)
            if table is None:
                return False
            table.refresh()
            mark, at = table.mark(SEQ), table.mark(CHANGED_AT) or 0
            if mark is not None:
                if mark > there.last:
                    raise self._replaced(f"has messages up to {mark}, but the telemetry ends at {there.last}")
                if (time_of_entry(transaction, mark, TELEMETRY_TABLE) or 0) > at:
                    raise self._replaced(f"ends at message {mark}, but this message in the database is younger")
            after = there.before if mark is None else mark
            if after < there.before:
                self._accept_lost(after, there.before)
                after = there.before
            found = read_entries(transaction, after, self._rows, self._size, there.last, TELEMETRY_TABLE)
            at = max(at, time_of_entry(transaction, found.upto, TELEMETRY_TABLE) or 0)
        if mark is None or found.upto > mark:
            table.append(found.dated, {SEQ: found.upto, CHANGED_AT: at})
        self._done = evolve(self._done, recorded=self._done.recorded + len(found.rows), telemetry_seq=found.upto)
        return found.upto < there.last

    def _telemetry_table(self, last: int) -> KeptTable | None:
        """Return the table ``telemetry``; None if no message was ever recorded, nor copied."""
        if TELEMETRY not in self._tables and (last or self._out.has(TELEMETRY)):
            folder = Folder(self._out.below(TELEMETRY))
            self._tables[TELEMETRY] = self._table(folder, TELEMETRY_LAYOUT, self._store, self._upkeep.keep)
        return self._tables.get(TELEMETRY)

    def _accept_lost(self, after: int, before: int) -> None:
        """Count messages that were pruned before they were read. Raises :class:`PipelineError` if no gap is allowed."""
        if not self._allow_gap:
            raise PipelineError(
                f"{self._out.uri}: the telemetry has lost {before - after} messages from seq {after + 1} on: they were "
                "pruned before they were read. To go on without them, use --allow-gap. To prevent it, sync more often, "
                "or keep more (retainer.telemetry)"
            )
        self._done = evolve(self._done, lost_recorded=self._done.lost_recorded + before - after)

    def _replaced(self, how: str) -> PipelineError:
        return PipelineError(
            f"{self._out.uri}: {how}: the database has been replaced, perhaps by a backup; name another folder"
        )

    def result(self) -> Synced:
        """Return what the tables have, and what this run has done."""
        place = self._position()
        return evolve(
            self._done, last_seq=place.changes or 0, current_seq=place.current, messages=self.current.rows
        )  # fmt: skip

    def _position(self) -> _Position:
        return _Position(
            self.changes.mark(SEQ), self.changes.mark(LOST_UPTO) or 0, self.current.mark(SEQ), self.current.mark(PERIOD)
        )

    def _require_same(self, transaction: ReadTransaction, place: _Position, last: int) -> None:
        reached = max(place.changes or 0, place.current or 0)
        if reached > last:
            raise self._replaced(f"has entries up to {reached}, but the history ends at {last}")
        if place.changes and (time_of_entry(transaction, place.changes) or 0) > (self.changes.mark(CHANGED_AT) or 0):
            raise self._replaced(f"ends at entry {place.changes}, but this entry in the database is younger")

    def _covered(
        self, place: _Position, there: HistoryRange, periods: Sequence[Period], has_lost: bool
    ) -> Coverage:  # fmt: skip
        """Return the coverage before the next rows, without the periods of which entries are missing."""
        coverage = self._coverage
        if coverage is None:
            coverage = Coverage().without((one for one in periods if one.first_seq < place.lost_upto), since_here=False)
        if has_lost:
            return coverage.without(one for one in periods if one.first_seq <= there.pruned)
        if place.changes is not None and place.changes < place.lost_upto:
            # The first run does not miss what the database had forgotten. Later it may forget entries of earlier rows.
            known = {one.first_seq: one for one in coverage.periods if one.complete_since is not None}
            pruned = [
                one
                for one in periods
                if (before := known.get(one.first_seq))
                and (before.complete_since, before.depths) != (one.complete_since, one.depths)
            ]
            return coverage.without(pruned, since_here=False) if pruned else coverage
        return coverage

    def _versions(self) -> dict[str, str]:
        known = {} if self._coverage is None else self._coverage.versions  # a table that is not open yet stays known
        opened = {name: table.metadata for name, table in self._tables.items() if isinstance(table, IcebergTable)}
        return {**known, **opened}

    def _write(self, coverage: Coverage) -> None:
        write_coverage(self._out, coverage)
        self._written = coverage

    def _tell(self, seq: int) -> None:
        """Tell the database that all entries up to ``seq`` are in the tables, once."""
        if self._confirm is not None and seq != self._confirmed:
            self._out.sync()
            self._confirm(seq)
            self._confirmed = seq

    def _accepted(self, lost: MissingEntries, upto: int) -> int:
        """Count lost entries, which are known up to ``upto`` from now on; return ``upto``.

        Raises :class:`PipelineError` unless a gap is allowed.
        """
        if not self._allow_gap:
            raise PipelineError(
                f"{self._out.uri}: the history has lost {lost.count} entries from seq {lost.first} on: they were "
                "pruned before they were read. To go on without them, use --allow-gap. To prevent it, sync more often, "
                "keep the history longer (retainer.history), or let the database wait (--confirm)"
            )
        self._done = evolve(self._done, lost=self._done.lost + lost.count)
        return upto

    def _append(self, entries: Entries, marks: dict[str, int]) -> None:
        self.changes.append(entries.dated, marks)
        self._done = evolve(self._done, added=self._done.added + len(entries.rows))


def _missing(transaction: ReadTransaction, after: int, upto: int) -> MissingEntries | None:
    return missing_entries(transaction, after, upto) if after < upto else None
