"""The tables of a roll-up: ``values``, ``bad``, and ``rollup_1m``, ``rollup_1h``, ``rollup_1d``.

Their columns, reading values and windows from them, and making rows for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast_pipeline.decoding.catalog import Entry
from holdfast_pipeline.lake.growing_table import GrowingTable, Layout
from holdfast_pipeline.rollup.changed_values import BadValue, Value
from holdfast_pipeline.rollup.windows import (
    DAY,
    HOUR,
    LENGTHS,
    MINUTE,
    Event,
    Key,
    Segment,
    Series,
    Window,
    WindowLength,
    time_mean,
)
from holdfast_pipeline.sources.lake import PARTITION

VALUES, BAD = "values", "bad"
_TIME = pa.timestamp("us", "UTC")
_OF_SERIES = (("name", pa.string()), ("topic", pa.string()))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGER = {MINUTE: HOUR, HOUR: DAY}
_WINDOW = (
    "name", "topic", "start", "count", "first", "last", "min", "max", "sum", "first_at", "last_at", "opening",
    "closing", "area", "known",
)  # fmt: skip


def layouts(levels: list[str]) -> Mapping[str, Layout]:
    """Return the layout of each table; ``levels`` are the named levels of topics, each of which is a column."""
    named = [(level, pa.string()) for level in levels]
    series = [*_OF_SERIES, *named]
    windows = [
        *series, ("unit", pa.string()), ("start", _TIME), ("count", pa.int64()),
        *((name, pa.float64()) for name in ("first", "last", "min", "max", "mean", "time_mean", "sum")),
        ("first_at", _TIME), ("last_at", _TIME), ("opening", pa.float64()), ("closing", pa.float64()),
        ("area", pa.float64()), ("known", pa.int64()), ("seq", pa.int64()),
    ]  # fmt: skip
    values = [
        *series, ("unit", pa.string()), ("at", _TIME), ("value", pa.float64()), ("seq", pa.int64()),
        ("revision", pa.int64()), ("part", pa.int32()),
    ]  # fmt: skip
    bad = [*_OF_SERIES, ("at", _TIME), ("seq", pa.int64()), ("reason", pa.string())]
    found = {VALUES: _divided(values), BAD: _divided(bad)}
    return found | {
        each.table: _divided(windows) if each.divided else Layout(pa.schema(windows)) for each in LENGTHS
    }  # fmt: skip


def _divided(columns: list[tuple[str, pa.DataType]]) -> Layout:
    return Layout(pa.schema([*columns, (PARTITION, pa.date32())]), PARTITION)


class StoredTables:
    """The tables of values and windows, for :func:`.changed_windows`."""

    def __init__(self, tables: Mapping[str, GrowingTable]) -> None:
        self._tables = tables

    def events(self, minutes: Iterable[Key]) -> dict[Key, list[Event]]:
        """Return all events in these minutes, in the order of their times; a message that came twice counts once."""
        wanted = set(minutes)
        columns = ("name", "topic", "at", "value", "revision", "part")
        rows = self._read(VALUES, columns, "at", {start for _, start in wanted}, MINUTE.length, _topics(wanted))
        found: dict[Key, dict[tuple[int, int, int], float | None]] = {key: {} for key in wanted}
        for name, topic, at, value, revision, part in rows:
            key = ((name, topic), MINUTE.start(at))
            if key in wanted:
                found[key][at, revision, part] = value
        return {key: [(order[0], value) for order, value in sorted(events.items())] for key, events in found.items()}

    def windows(self, of: WindowLength, within: Iterable[Key] | None, series: Iterable[Series]) -> dict[Key, Window]:
        """Return the windows of these series, in these larger windows; None: all windows."""
        known = set(series)
        topics = {topic for _, topic in known}
        if within is None:
            rows, wanted = self._read(of.table, _WINDOW, "start", None, 0, topics), None
        else:
            wanted, larger = set(within), _LARGER[of]
            rows = self._read(of.table, _WINDOW, "start", {start for _, start in wanted}, larger.length, topics)
        found = {}
        for name, topic, start, *figures in rows:
            key = ((name, topic), start)
            if key[0] in known and (wanted is None or (key[0], _LARGER[of].start(start)) in wanted):
                found[key] = _window(*figures)
        return found

    def _read(
        self, table: str, columns: Sequence[str], time: str, starts: set[int] | None, length: int, topics: set[str]
    ) -> Iterable[tuple[Any, ...]]:  # fmt: skip
        """Read rows whose time may be in the windows of a length that begin at ``starts``; None: at any time."""
        where = None
        if not topics or (starts is not None and not starts):
            return ()
        if starts is not None:
            days = sorted({_day(start) for start in starts})
            where = pc.field(PARTITION).isin(pa.array(days, pa.date32()))
            where &= (pc.field(time) >= _moment(min(starts))) & (pc.field(time) < _moment(max(starts) + length))
        # Not a part of the condition: Arrow cannot compare texts with the statistics that Delta's package hands it.
        rows = self._tables[table].read(columns, where)
        rows = rows.filter(pc.is_in(rows["topic"], value_set=pa.array(sorted(topics), rows["topic"].type)))
        plain = [_plain(rows[name]) for name in columns]
        return zip(*plain, strict=True)


def value_rows(values: Sequence[Value], levels: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the rows of the table ``values``."""
    return _table(
        schema,
        ({**_of_series(each.entry, each.topic, each.levels, levels), PARTITION: _day(each.at),
          "at": each.at, "value": each.value, "seq": each.seq, "revision": each.revision, "part": each.part}
         for each in values),
    )  # fmt: skip


def bad_rows(values: Sequence[BadValue], schema: pa.Schema) -> pa.Table:
    """Return the rows of the table ``bad``."""
    return _table(
        schema,
        ({"name": each.entry.name, "topic": each.topic, "at": each.at, "seq": each.seq, "reason": each.reason,
          PARTITION: _day(each.at)} for each in values),
    )  # fmt: skip


def window_rows(
    windows: Mapping[Key, Window], of: WindowLength, entries: Mapping[str, Entry],
    levels_of: Mapping[Series, Mapping[str, str]], levels: Sequence[str], seq: int, schema: pa.Schema,
) -> pa.Table:  # fmt: skip
    """Return the rows of a table of windows; ``seq`` is the change up to which they count."""
    rows = []
    for (series, start), window in windows.items():
        part = window.segment
        rows.append({
            **_of_series(entries[series[0]], series[1], levels_of[series], levels), PARTITION: _day(start),
            "start": start, "count": part.count, "first": part.first, "last": part.last, "min": part.least,
            "max": part.most, "mean": part.total / part.count if part.count else None,
            "time_mean": time_mean(part, window.opening, start, start + of.length), "sum": part.total,
            "first_at": part.first_at, "last_at": part.last_at, "opening": window.opening, "closing": part.closing,
            "area": part.area, "known": part.known, "seq": seq,
        })  # fmt: skip
    return _table(schema, rows)


def _of_series(
    entry: Entry, topic: str, found: Mapping[str, str], levels: Sequence[str]
) -> dict[str, str | None]:  # fmt: skip
    return {"name": entry.name, "topic": topic, "unit": entry.unit, **{level: found.get(level) for level in levels}}


def _table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    listed = list(rows)
    return pa.table(
        [pa.array([row.get(field.name) for row in listed], field.type) for field in schema], schema=schema
    )  # fmt: skip


def _window(
    count: int, first: float | None, last: float | None, least: float | None, most: float | None, total: float,
    first_at: int, last_at: int, opening: float | None, closing: float | None, area: float, known: int,
) -> Window:  # fmt: skip
    return Window(
        Segment(first_at, last_at, count, total, first, last, least, most, closing, area, known), opening
    )  # fmt: skip


def _topics(keys: Iterable[Key]) -> set[str]:
    return {topic for (_, topic), _ in keys}


def _day(at: int) -> date:
    return (_EPOCH + timedelta(microseconds=at)).date()


def _moment(at: int) -> pa.Scalar:
    return pa.scalar(at, pa.timestamp("us", "UTC"))


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Return values; times in microseconds since the epoch."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found
