"""The windows that new values change, at each length, with their new figures.

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
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from attrs import frozen

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
