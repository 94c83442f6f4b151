"""The columns of the tables: ``values``, ``bad``, and ``rollup_1m``, ``rollup_1h``, ``rollup_1d``."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from attrs import frozen

from holdfast_pipeline.lake.growing_table import Layout
from holdfast_pipeline.sources.lake import PARTITION

VALUES, BAD = "values", "bad"
_SECOND = 1_000_000
_TIME = pa.timestamp("us", "UTC")
_OF_SERIES = (("name", pa.string()), ("topic", pa.string()))


@frozen
class WindowLength:
    """A length of windows: the table of its windows, and its microseconds."""

    table: str
    length: int
    divided: bool = True

    def start(self, at: int) -> int:
        """Return the start of the window that contains a time."""
        return at // self.length * self.length


MINUTE = WindowLength("rollup_1m", 60 * _SECOND)
HOUR = WindowLength("rollup_1h", 3600 * _SECOND)
DAY = WindowLength("rollup_1d", 86_400 * _SECOND, divided=False)
LENGTHS = (MINUTE, HOUR, DAY)


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
