"""The figures of the values in a window of time, and how those of small windows make those of a larger one.

How it works. A value holds until the next one of its topic, or until the topic is cleared (the value None). The time
before the first event of a window belongs to the value that was there before, the *opening* value. So a segment knows
only what lies between its first and its last event, and is complete without its neighbours. Example, in seconds, for
the minute that begins at 0, with the opening value 10.0::

    at       20     40           first_at 20, last_at 40, area 20.0 * 20 = 400, known 20
    value  20.0   30.0           closing 30.0
    time mean = (10.0 * 20 + 400 + 30.0 * 20) / 60 = 20.0

Joining the segments of sixty minutes gives the segment of the hour. Left out: sums that late values could not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

_SECOND = 1_000_000

#: A time in microseconds since the epoch, and the value from then on; None after a clear.
Event = tuple[int, float | None]


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
