"""Decode the changes of a lake to typed values, and keep their figures for each minute, hour and day.

How it works. A step takes the next changes of the table ``changes``, for example those up to ``seq`` 1500:

1. The values in them are appended to ``values``, and bad payloads to ``bad``.
2. The windows that these values change get their new figures by MERGE, first the minutes, then the hours and the days.

Each of the five commits moves the mark of its table to 1500. After a kill the marks differ: the next job reads from
the lowest one again, appends only what is missing, and computes the windows once more from all values, with the same
result.

A catalogue with a higher version begins again from the first change: the tables are emptied, each in one commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pyarrow.compute as pc
from attrs import evolve, field, frozen

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.lake.following import follow
from holdfast_pipeline.lake.growing_table import GrowingTable
from holdfast_pipeline.lake.table_reader import TableReader
from holdfast_pipeline.lake.upkeep import Upkeep
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.progress.phases import progressed
from holdfast_pipeline.rollup.catalog import Catalog
from holdfast_pipeline.rollup.decoded_values import BadValue, Decoding, Value
from holdfast_pipeline.rollup.layouts import BAD, DAY, HOUR, LENGTHS, MINUTE, VALUES, layouts
from holdfast_pipeline.rollup.stored import StoredTables, bad_rows, value_rows, window_rows
from holdfast_pipeline.rollup.windows import changed_windows
from holdfast_pipeline.sources.lake import CHANGES, SEQ

#: The marks of the catalogue with which a table was made.
VERSION, FINGERPRINT = "holdfast.catalog_version", "holdfast.catalog_fingerprint"
#: Most changes of a step, and most bytes of their payloads: one change may have more.
ROWS, BYTES = 50_000, 16 << 20
_COLUMNS = ("op", "topic", "payload", "seq", "revision")
_MOST_REASONS, _HELD_REASONS = 10, 10_000


@frozen
class RolledUp:
    """The tables have the values of all changes up to ``last_seq``; before this run those up to ``before``.

    This run has added ``values`` (clears included) and ``bad`` payloads, whose most frequent ``reasons`` are given, and
    has written so many ``minutes``, ``hours`` and ``days``.
    """

    before: int
    last_seq: int
    values: int = 0
    bad: int = 0
    reasons: Mapping[str, int] = field(factory=dict)
    minutes: int = 0
    hours: int = 0
    days: int = 0


class Rollup:
    """The tables below ``out``, made from the table ``changes`` below ``lake``.

    Raises :class:`PipelineError` if they cannot be used, or if the catalogue was changed without a new version.
    """

    def __init__(
        self, lake: Folder, out: Folder, catalog: Catalog, rows: int = ROWS, upkeep: Upkeep | None = None,
        size: int = BYTES,
    ) -> None:  # fmt: skip
        self._out = out
        self._catalog = catalog
        self._decoding = Decoding(catalog)
        self._rows, self._bytes = rows, size
        self._upkeep = upkeep or Upkeep()
        self._changes = TableReader(Folder(lake.below(CHANGES)))
        self._layouts = layouts(catalog.levels)
        self._kinds = {kind.name: kind for kind in catalog.kinds}
        self._tables = {
            name: GrowingTable(Folder(out.below(name)), layout, self._changes.store, self._upkeep.keep)
            for name, layout in self._layouts.items()
        }
        self._stored = StoredTables(self._tables)
        self._reasons: Counter[str] = Counter()
        for name, table in self._tables.items():
            self._begin(name, table)
        self._done = RolledUp(self._reached(), 0)

    def run(self, stopped: Callable[[], bool] = lambda: False, every: float | None = None) -> RolledUp:
        """Take in all changes of the lake; with ``every``, again after so many seconds. Raises :class:`PipelineError`.

        It ends early, between two steps, when ``stopped`` returns True.
        """
        follow(self.step, tuple(self._tables.values()), self._upkeep, stopped, every)
        return evolve(self._done, last_seq=self._reached(), reasons=dict(self._reasons.most_common(_MOST_REASONS)))

    def step(self) -> bool:
        """Take in the next changes; return whether there may be more."""
        self._changes.refresh()
        for table in self._tables.values():
            table.refresh()
        end, start = self._changes.mark(SEQ) or 0, self._reached()
        highest = max(self._has(name) for name in self._tables)
        if highest > end:
            raise PipelineError(
                f"{self._out.uri}: has the values of changes up to {highest}, but {self._changes.uri} ends at {end}: "
                "it has been replaced; name another folder"
            )
        if start >= end:
            return False
        upto = self._upto(start, end)
        where = (pc.field("seq") > start) & (pc.field("seq") <= upto)
        changes = self._changes.read(_COLUMNS, where).sort_by("seq")
        values: list[Value] = []
        bad: list[BadValue] = []
        for batch in changes.to_batches(max_chunksize=1000):
            for change in batch.to_pylist():
                for found in self._decoding.values(change):
                    if isinstance(found, Value):
                        values.append(found)
                    else:
                        bad.append(found)
        self._append(values, bad, upto)
        self._merge(values, upto)
        progressed(upto - self._done.before, end - self._done.before)
        return upto < end

    def _upto(self, start: int, end: int) -> int:
        """Return the last change of a step that begins after ``start``."""
        first = self._changes.first_after("seq", start)
        if first is None:
            return end
        upto = min(end, first - 1 + self._rows)
        sizes = self._changes.read(("seq", "size"), (pc.field("seq") > start) & (pc.field("seq") <= upto)).sort_by(
            "seq"
        )
        total, before = 0, None
        for seq, size in zip(sizes["seq"].to_pylist(), sizes["size"].to_pylist(), strict=True):
            total += size or 0
            if total > self._bytes and before is not None:
                return int(before)
            before = seq
        return upto

    def _append(self, values: list[Value], bad: list[BadValue], upto: int) -> None:
        """Add what the tables do not have yet."""
        levels, columns = self._catalog.levels, self._layouts
        table, has = self._tables[VALUES], self._has(VALUES)
        new = [value for value in values if value.seq > has]
        if has < upto:
            table.append(value_rows(new, levels, columns[VALUES].columns), self._marks(upto))
        table, has = self._tables[BAD], self._has(BAD)
        failed = [value for value in bad if value.seq > has]
        if has < upto:
            table.append(bad_rows(failed, columns[BAD].columns), self._marks(upto))
        self._reasons.update(f"{value.kind.name}: {value.reason}" for value in failed)
        if len(self._reasons) > _HELD_REASONS:  # they may quote payloads, and a run may take years
            self._reasons = Counter(dict(self._reasons.most_common(_MOST_REASONS)))
        self._done = evolve(self._done, values=self._done.values + len(new), bad=self._done.bad + len(failed))

    def _merge(self, values: list[Value], upto: int) -> None:
        """Write the windows that these values change."""
        touched = {((value.kind.name, value.topic), MINUTE.start(value.at)) for value in values}
        levels = {(value.kind.name, value.topic): value.levels for value in values}
        changed = changed_windows(touched, self._stored)
        for of in LENGTHS:
            table, windows = self._tables[of.table], changed[of]
            if self._has(of.table) >= upto:
                continue
            rows = window_rows(
                windows, of, self._kinds, levels, self._catalog.levels, upto, self._layouts[of.table].columns
            )  # fmt: skip
            same = ["name", "topic", "start", *(["date"] if of.divided else [])]
            table.merge(rows, same, "seq", None, self._marks(upto))
        counts = {of: len(changed[of]) for of in LENGTHS}
        self._done = evolve(
            self._done, minutes=self._done.minutes + counts[MINUTE], hours=self._done.hours + counts[HOUR],
            days=self._done.days + counts[DAY],
        )  # fmt: skip

    def _reached(self) -> int:
        return min(self._has(name) for name in self._tables)

    def _has(self, name: str) -> int:
        """Return the last change that a table has."""
        return self._tables[name].mark(SEQ) or 0

    def _marks(self, upto: int) -> dict[str, int]:
        return {SEQ: upto, VERSION: self._catalog.version, FINGERPRINT: self._catalog.fingerprint}

    def _begin(self, name: str, table: GrowingTable) -> None:
        """Empty a table that an earlier version of the catalogue has made."""
        version = table.mark(VERSION)
        if version is None:
            return
        if version > self._catalog.version:
            raise PipelineError(
                f"{self._out.below(name)}: was made with version {version} of the catalogue, and this one has version "
                f"{self._catalog.version}; take the newer catalogue, or name another folder"
            )
        if version == self._catalog.version:
            if table.mark(FINGERPRINT) != self._catalog.fingerprint:
                raise PipelineError(
                    f"{self._out.below(name)}: was made with another catalogue of the same version {version}; raise "
                    "the version, and the tables are made anew"
                )
            return
        table.replace([], self._marks(0))
