"""Roll-ups: typed values from changes, the figures of windows of time, and their tables.

How it works. A value changes the minute, the hour and the day in which it lies. If it is the last one there, it is also
the opening value of the next window that has values, however far away. Late values are no special case: a minute is
always computed from all its values, an hour from its minutes, and a day from its hours. An example: the values of a
topic lie in 10:00, 10:05 and 11:30, and a late one comes for 10:07. New are the minute 10:07, the opening value of the
minute 11:30, the hour 10, the opening value of the hour 11, and the day.

An opening value comes from the window before, in the same hour; else from the hour before, in the same day; else from
the day before, which may be years ago. So few windows are read for a new value: a day's hours and some hours' minutes.

Segments: the figures of the values in a window, and how those of small windows make those of a larger one. A value
holds until the next one of its topic, or until the topic is cleared (the value None). The time before the first event
of a window belongs to the value that was there before, the *opening* value. So a segment knows only what lies between
its first and its last event, and is complete without its neighbours. Example, in seconds, for the minute that begins at
0, with the opening value 10.0::

    at       20     40           first_at 20, last_at 40, area 20.0 * 20 = 400, known 20
    value  20.0   30.0           closing 30.0
    time mean = (10.0 * 20 + 400 + 30.0 * 20) / 60 = 20.0

Joining the segments of sixty minutes gives the segment of the hour. Left out: sums that late values could not change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen

from holdfast.changes.api import STORED_BEFORE
from holdfast.core.messages import ChangeKind
from holdfast.core.topics import matches
from holdfast.storage.api import time_of
from holdfast_pipeline.decoding.catalog import Catalog, Entry
from holdfast_pipeline.decoding.plain_formats import BadPayload
from holdfast_pipeline.formatting import visible
from holdfast_pipeline.lake.growing_table import GrowingTable, Layout
from holdfast_pipeline.sources.lake import PARTITION

# Typed values from changes: each set of a matching topic is decoded once for each entry of the catalogue.
#
# The time of a value is that of its change, ``changed_at``, unless its payload has one. Some entries repeat a message
# that was stored before, for example at the beginning of a history: their values have the time of the first entry
# with the same revision, or that of the revision where there is none. So a value that comes twice has one time, and
# counts once. An example::
#
#     seq  topic  op   origin    changed_at  revision       at
#       4  a      set  publish        9_012  9_000 << 20    9_012
#      90  a      set  baseline      12_000  9_000 << 20    9_012
#      91  b      set  baseline      12_000  5_000 << 20    5_000    (stored while no history was kept)

#: The most characters of a reason.
_LONGEST_REASON = 300
_MOST_TOPICS = 200_000
#: The origins of entries that repeat a message.
REPEATED = tuple(origin.value for origin in STORED_BEFORE)

#: A topic and a revision, and the time of the first entry with both, in microseconds since the epoch.
FirstTimes = Mapping[tuple[str, int], int]


@frozen
class Value:
    """A value of an entry, from the change ``seq`` on ``topic``: ``at`` microseconds since the epoch; None: cleared.

    ``part`` is its place among the values of the message. The broker may record a message twice (when it begins a
    history anew), with the same ``revision``.
    """

    entry: Entry
    topic: str
    levels: Mapping[str, str]
    at: int
    value: float | None
    seq: int
    revision: int
    part: int


@frozen
class BadValue:
    """A payload that has no value of an entry, and the reason."""

    entry: Entry
    topic: str
    seq: int
    at: int
    reason: str


@frozen
class Decoding:
    """Finds the entries with a value of topics, and remembers them for some topics."""

    catalog: Catalog
    _known: dict[str, Sequence[tuple[Entry, Mapping[str, str]]]] = field(factory=dict, init=False)

    def values(self, change: Mapping[str, Any], first_times: FirstTimes) -> Iterator[Value | BadValue]:
        """Return the values of a change: a row of the table ``changes``, with ``changed_at`` in microseconds."""
        topic, seq, revision, at = change["topic"], change["seq"], change["revision"], change["changed_at"]
        if change["origin"] in REPEATED:
            at = first_times.get((topic, revision), time_of(revision) * 1000)
        for entry, levels in self._entries(topic):
            if change["op"] != ChangeKind.SET.value:
                yield Value(entry, topic, levels, at, None, seq, revision, 0)
                continue
            assert entry.place is not None
            try:
                for part, (own, value) in enumerate(entry.place.values(topic, change["payload"])):
                    yield Value(entry, topic, levels, at if own is None else own, value, seq, revision, part)
            except BadPayload as error:
                yield BadValue(entry, topic, seq, at, visible(str(error), _LONGEST_REASON))

    def _entries(self, topic: str) -> Sequence[tuple[Entry, Mapping[str, str]]]:
        known = self._known.get(topic)
        if known is None:
            levels = topic.split("/")
            known = [
                (entry, {name: levels[place] for name, place in pattern.levels.items()})
                for entry in self.catalog.valued
                for pattern in [next((each for each in entry.patterns if matches(each.topic_filter, topic)), None)]
                if pattern is not None
            ]
            if len(self._known) >= _MOST_TOPICS:
                self._known.clear()
            self._known[topic] = known
        return known


_SECOND = 1_000_000

#: A time in microseconds since the epoch, and the value from then on; None after a clear.
Event = tuple[int, float | None]


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


@frozen
class Segment:
    """The figures of at least one event.

    ``total``, ``first``, ``last``, ``least`` and ``most`` are those of the ``count`` values; without a value they are 0
    and None. ``area`` is the sum of value times seconds from ``first_at`` to ``last_at``, and ``known`` the
    microseconds in which there was a value.
    """

    first_at: int
    last_at: int
    count: int
    total: float
    first: float | None
    last: float | None
    least: float | None
    most: float | None
    closing: float | None
    area: float
    known: int


def segment_of(events: Sequence[Event]) -> Segment:
    """Return the segment of events in the order of their times."""
    return joined(
        Segment(at, at, 0, 0.0, None, None, None, None, None, 0.0, 0)
        if value is None
        else Segment(at, at, 1, value, value, value, value, value, value, 0.0, 0)
        for at, value in events
    )


def joined(segments: Iterable[Segment]) -> Segment:
    """Join segments, of which each begins at or after the end of the one before."""
    parts = list(segments)
    values = [part for part in parts if part.count]
    area, known = 0.0, 0
    before: Segment | None = None
    for part in parts:
        if before is not None and before.closing is not None:
            area += before.closing * (part.first_at - before.last_at) / _SECOND
            known += part.first_at - before.last_at
        area += part.area
        known += part.known
        before = part
    return Segment(
        parts[0].first_at,
        parts[-1].last_at,
        sum(part.count for part in values),
        sum(part.total for part in values),
        values[0].first if values else None,
        values[-1].last if values else None,
        min((part.least for part in values if part.least is not None), default=None),
        max((part.most for part in values if part.most is not None), default=None),
        parts[-1].closing,
        area,
        known,
    )


def time_mean(segment: Segment, opening: float | None, start: int, end: int) -> float | None:
    """Return the mean of the values in a window, weighted by the time for which each of them held.

    ``opening`` is the value at ``start``, None if there was none. The result is None if no value held for any time.
    """
    area, known = segment.area, segment.known
    for value, time in ((opening, segment.first_at - start), (segment.closing, end - segment.last_at)):
        if value is not None:
            area += value * time / _SECOND
            known += time
    return area / (known / _SECOND) if known else None


#: The name of the kind of value, and the topic.
Series = tuple[str, str]
Key = tuple[Series, int]


@frozen
class Window:
    """The figures of a window, and the value that held at its start, if any."""

    segment: Segment
    opening: float | None


class Stored(Protocol):
    """The tables, as far as they are read here. Times are in microseconds since the epoch."""

    def events(self, minutes: Iterable[Key]) -> Mapping[Key, Sequence[Event]]:
        """Return all events in these minutes of these series, in the order of their times."""

    def windows(self, of: WindowLength, within: Iterable[Key] | None, series: Iterable[Series]) -> dict[Key, Window]:
        """Return the windows of these series.

        ``within`` are the starts of the next larger windows that contain them; None: all windows.
        """


def changed_windows(touched: Iterable[Key], stored: Stored) -> dict[WindowLength, dict[Key, Window]]:
    """Return the windows that change, by their length; ``touched`` are the minutes with new values."""
    minutes = set(touched)
    series = {each for each, _ in minutes}
    hours = _starts(minutes, HOUR)
    days = _starts(minutes, DAY)
    old_days = stored.windows(DAY, None, series)
    near_days = days | _next(days, old_days.keys() | days)
    old_hours = stored.windows(HOUR, near_days, series)
    near_hours = hours | _next(hours, old_hours.keys() | hours)
    old_minutes = stored.windows(MINUTE, near_hours, series)
    near_minutes = minutes | _next(minutes, old_minutes.keys() | minutes)

    in_minutes = _segments(old_minutes) | {key: segment_of(found) for key, found in stored.events(minutes).items()}
    in_hours = _segments(old_hours) | _joined(in_minutes, hours, HOUR)
    in_days = _segments(old_days) | _joined(in_hours, days, DAY)

    day_openings = _openings(in_days, near_days, None, {})
    hour_openings = _openings(in_hours, near_hours, DAY, day_openings)
    minute_openings = _openings(in_minutes, near_minutes, HOUR, hour_openings)
    return {
        MINUTE: _changed(in_minutes, minute_openings, old_minutes),
        HOUR: _changed(in_hours, hour_openings, old_hours),
        DAY: _changed(in_days, day_openings, old_days),
    }


def _starts(keys: Iterable[Key], of: WindowLength) -> set[Key]:
    return {(series, of.start(at)) for series, at in keys}


def _by_series(keys: Iterable[Key]) -> dict[Series, list[int]]:
    found: dict[Series, list[int]] = defaultdict(list)
    for series, start in sorted(keys):
        found[series].append(start)
    return found


def _next(keys: Iterable[Key], existing: Iterable[Key]) -> set[Key]:
    """Return for each window the next one of its series that exists."""
    starts = _by_series(existing)
    found = set()
    for series, start in keys:
        place = bisect_right(starts[series], start)
        if place < len(starts[series]):
            found.add((series, starts[series][place]))
    return found


def _segments(windows: Mapping[Key, Window]) -> dict[Key, Segment]:
    return {key: window.segment for key, window in windows.items()}


def _joined(parts: Mapping[Key, Segment], wanted: set[Key], of: WindowLength) -> dict[Key, Segment]:
    """Return the segments of larger windows, from those of the smaller ones in them."""
    within: dict[Key, list[int]] = defaultdict(list)
    for series, start in parts:
        if (larger := (series, of.start(start))) in wanted:
            within[larger].append(start)
    return {key: joined(parts[key[0], start] for start in sorted(starts)) for key, starts in within.items()}


def _openings(
    segments: Mapping[Key, Segment], wanted: set[Key], larger: WindowLength | None,
    of_larger: Mapping[Key, float | None],
) -> dict[Key, float | None]:  # fmt: skip
    """Return the opening values of windows: the closing value of the one before, or the opening of the larger one."""
    starts = _by_series(segments)
    found: dict[Key, float | None] = {}
    for series, start in wanted:
        place = bisect_left(starts[series], start)
        before = starts[series][place - 1] if place else None
        if larger is not None and (before is None or larger.start(before) != larger.start(start)):
            found[series, start] = of_larger[series, larger.start(start)]
        else:
            found[series, start] = None if before is None else segments[series, before].closing
    return found


def _changed(
    segments: Mapping[Key, Segment], openings: Mapping[Key, float | None], old: Mapping[Key, Window]
) -> dict[Key, Window]:  # fmt: skip
    new = {key: Window(segments[key], opening) for key, opening in openings.items()}
    return {key: window for key, window in new.items() if old.get(key) != window}


# The tables of a roll-up: ``values``, ``bad``, and ``rollup_1m``, ``rollup_1h``, ``rollup_1d``.
#
# Their columns, reading values and windows from them, and making rows for them.

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
