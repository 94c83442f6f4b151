"""Decode the changes of a lake, or its telemetry, to typed values; keep their figures for each minute, hour and day.

How it works. A step takes the next changes of the table ``changes``, for example those up to ``seq`` 1500:

1. The values in them are appended to ``values``, and bad payloads to ``bad``.
2. The windows that these values change get their new figures by MERGE, first the minutes, then the hours and the days.

Each of the five commits moves the mark of its table to 1500. After a kill the marks differ: the next job reads from
the lowest one again, appends only what is missing, and computes the windows once more from all values, with the same
result.

A message of the table ``telemetry`` counts as a change that sets its topic, at the time when it was received. Its
revision is made of this time and its ``seq``.

A catalogue with a higher version begins again from the first change: the tables are emptied, each in one commit. So
do tables of an earlier release, whose times were those of the revisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, field, frozen

from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast.storage.api import TIME_SHIFT
from holdfast_pipeline.decoding.catalog import Catalog
from holdfast_pipeline.decoding.plain_formats import alike
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.lake.growing_table import GrowingTable, TableReader
from holdfast_pipeline.lake.upkeep import Upkeep, follow
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.progress import progressed
from holdfast_pipeline.rollup import (
    BAD,
    DAY,
    HOUR,
    LENGTHS,
    MINUTE,
    REPEATED,
    VALUES,
    BadValue,
    Decoding,
    FirstTimes,
    StoredTables,
    Value,
    bad_rows,
    changed_windows,
    layouts,
    value_rows,
    window_rows,
)
from holdfast_pipeline.sources.lake import CHANGES, SEQ, TELEMETRY

#: The marks of the catalogue with which a table was made.
VERSION, FINGERPRINT = "holdfast.catalog_version", "holdfast.catalog_fingerprint"
#: The mark of tables whose times are those of the history.
TIMES = "holdfast.rollup_times"
#: Most changes of a step, and most bytes of their payloads: one change may have more.
ROWS, BYTES = 50_000, 16 << 20
_COLUMNS = {
    CHANGES: ("op", "topic", "payload", "seq", "revision", "origin", "changed_at"),
    TELEMETRY: ("topic", "payload", "seq", "received_at"),
}
_MOST_REASONS, _HELD_REASONS = 10, 10_000
_MASK = (1 << TIME_SHIFT) - 1


@frozen
class RolledUp:
    """The tables have the values of all changes up to ``last_seq``; before this run those up to ``before``.

    This run has added ``values`` (clears included) and ``bad`` payloads, and has written so many ``minutes``, ``hours``
    and ``days``. ``reasons`` has an example of each of the most frequent reasons, with its count: a payload counts for
    each entry that it is bad for. ``anew`` says why the tables were made anew; "" if they were not.
    """

    before: int
    last_seq: int
    values: int = 0
    bad: int = 0
    reasons: Mapping[str, int] = field(factory=dict)
    minutes: int = 0
    hours: int = 0
    days: int = 0
    anew: str = ""


class Rollup:
    """The tables below ``out``, made from a table below ``lake``: ``changes`` or ``telemetry``.

    Raises :class:`PipelineError` if they cannot be used, if the catalogue has no value, or if it was changed without a
    new version.
    """

    def __init__(
        self, lake: Folder, out: Folder, catalog: Catalog, rows: int = ROWS, upkeep: Upkeep | None = None,
        size: int = BYTES, table: str = CHANGES,
    ) -> None:  # fmt: skip
        if not catalog.valued:
            raise PipelineError(
                f'{catalog.name}: no entry has a value to roll up; name its place, as in path = "$.temperature"'
            )
        self._out = out
        self._catalog = catalog
        self._decoding = Decoding(catalog)
        self._rows, self._bytes = rows, size
        self._upkeep = upkeep or Upkeep()
        self._columns = _COLUMNS[table]
        self._changes = TableReader(Folder(lake.below(table)))
        store = self._changes.store if table == CHANGES else f"{self._changes.store}, {table}"
        self._layouts = layouts(catalog.levels)
        self._entries = {entry.name: entry for entry in catalog.valued}
        self._tables = {
            name: GrowingTable(Folder(out.below(name)), layout, store, self._upkeep.keep)
            for name, layout in self._layouts.items()
        }
        self._stored = StoredTables(self._tables)
        #: By the kind of a reason: the first reason of the kind, and how often the kind came.
        self._reasons: dict[str, tuple[str, int]] = {}
        anew = {self._begin(name, table) for name, table in self._tables.items()} - {""}
        self._done = RolledUp(self._reached(), 0, anew=min(anew, default=""))

    def run(self, stopped: Callable[[], bool] = lambda: False, every: float | None = None) -> RolledUp:
        """Take in all changes of the lake; with ``every``, again after so many seconds. Raises :class:`PipelineError`.

        It ends early, between two steps, when ``stopped`` returns True.
        """
        follow(self.step, tuple(self._tables.values()), self._upkeep, stopped, every)
        return evolve(self._done, last_seq=self._reached(), reasons=dict(self._most_frequent().values()))

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
        changes = self._changes.read(self._columns, where).sort_by("seq")
        changes = _in_microseconds(changes) if "op" in self._columns else _as_changes(changes)
        first_times = self._first_times(changes, upto)
        values: list[Value] = []
        bad: list[BadValue] = []
        for batch in changes.to_batches(max_chunksize=1000):
            for change in batch.to_pylist():
                for found in self._decoding.values(change, first_times):
                    if isinstance(found, Value):
                        values.append(found)
                    else:
                        bad.append(found)
        self._append(values, bad, upto)
        self._merge(values, upto)
        progressed(upto - self._done.before, end - self._done.before)
        return upto < end

    def _first_times(self, changes: pa.Table, upto: int) -> FirstTimes:
        """Return the times of the first entries of the messages that these changes repeat."""
        repeated = changes.filter(pc.is_in(changes["origin"], value_set=pa.array(REPEATED)))["revision"]
        if not len(repeated):
            return {}
        bounds = pc.min_max(repeated)
        # The bounds leave out files, whose lowest and highest revisions are known.
        where = (pc.field("revision") >= bounds["min"]) & (pc.field("revision") <= bounds["max"])
        where &= pc.field("revision").isin(repeated.combine_chunks()) & (pc.field("seq") <= upto)
        where &= ~pc.field("origin").isin(pa.array(REPEATED)) & (pc.field("op") == ChangeKind.SET.value)
        found = self._changes.read(("topic", "revision", "changed_at"), where)
        times = _microseconds(found).to_pylist()
        return dict(
            zip(zip(found["topic"].to_pylist(), found["revision"].to_pylist(), strict=True), times, strict=True)
        )

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
        for value in failed:
            kind = f"{value.entry.name}: {alike(value.reason)}"
            reason, count = self._reasons.get(kind, (f"{value.entry.name}: {value.reason}", 0))
            self._reasons[kind] = reason, count + 1
        if len(self._reasons) > _HELD_REASONS:  # a run may take years
            self._reasons = self._most_frequent()
        payloads = len({value.seq for value in failed})
        self._done = evolve(self._done, values=self._done.values + len(new), bad=self._done.bad + payloads)

    def _most_frequent(self) -> dict[str, tuple[str, int]]:
        ranked = sorted(self._reasons.items(), key=lambda each: (-each[1][1], each[1][0]))
        return dict(ranked[:_MOST_REASONS])

    def _merge(self, values: list[Value], upto: int) -> None:
        """Write the windows that these values change."""
        touched = {((value.entry.name, value.topic), MINUTE.start(value.at)) for value in values}
        levels = {(value.entry.name, value.topic): value.levels for value in values}
        changed = changed_windows(touched, self._stored)
        for of in LENGTHS:
            table, windows = self._tables[of.table], changed[of]
            if self._has(of.table) >= upto:
                continue
            rows = window_rows(
                windows, of, self._entries, levels, self._catalog.levels, upto, self._layouts[of.table].columns
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
        return {SEQ: upto, VERSION: self._catalog.version, FINGERPRINT: self._catalog.fingerprint, TIMES: 1}

    def _begin(self, name: str, table: GrowingTable) -> str:
        """Empty a table of an earlier release, or of an earlier version of the catalogue; return why, "" if not."""
        version = table.mark(VERSION)
        if version is None:
            return ""
        if version > self._catalog.version:
            raise PipelineError(
                f"{self._out.below(name)}: was made with version {version} of the catalogue, and this one has version "
                f"{self._catalog.version}; take the newer catalogue, or name another folder"
            )
        why = ""
        if table.mark(TIMES) is None:
            why = "their times were up to some milliseconds off those of the history"
        elif version < self._catalog.version:
            why = f"the catalogue has version {self._catalog.version} now"
        elif table.mark(FINGERPRINT) != self._catalog.fingerprint:
            raise PipelineError(
                f"{self._out.below(name)}: was made with another catalogue of the same version {version}; write "
                f"version = {version + 1} into {self._catalog.name}, and the tables are made anew"
            )
        if why:
            table.replace([], self._marks(0))
        return why


def _microseconds(rows: pa.Table, name: str = "changed_at") -> pa.ChunkedArray:
    """Return the times of rows in microseconds since the epoch."""
    return rows[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64())


def _in_microseconds(changes: pa.Table) -> pa.Table:
    return changes.set_column(changes.schema.get_field_index("changed_at"), "changed_at", _microseconds(changes))


def _as_changes(messages: pa.Table) -> pa.Table:
    """Return rows of ``telemetry`` as those of ``changes``. No two messages have the same revision."""
    at = _microseconds(messages, "received_at")
    times = pc.shift_left(pc.divide(at, 1000), TIME_SHIFT)
    fixed = {"op": ChangeKind.SET.value, "origin": ChangeOrigin.PUBLISH.value}
    columns = {name: pa.repeat(value, len(messages)) for name, value in fixed.items()}
    columns |= {"changed_at": at, "revision": pc.bit_wise_or(times, pc.bit_wise_and(messages["seq"], _MASK))}
    for name, values in columns.items():
        messages = messages.append_column(name, values)
    return messages
