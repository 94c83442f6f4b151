"""The figures of windows computed in the plainest way: from all values at once, without segments."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from holdfast_pipeline.rollup import Event, WindowLength


@frozen
class Figures:
    """What a row of a table of windows tells."""

    count: int
    first: float | None
    last: float | None
    least: float | None
    most: float | None
    mean: float | None
    time_mean: float | None


def plain_figures(events: Iterable[Event], of: WindowLength) -> dict[int, Figures]:
    """Return the figures of each window in which something happened, by its start. ``events`` are in order."""
    listed = list(events)
    found = {}
    for start in {of.start(at) for at, _ in listed}:
        end = start + of.length
        values = [value for at, value in listed if start <= at < end and value is not None]
        held = [
            (value, min(until, end) - max(at, start))
            for (at, value), (until, _) in zip(listed, [*listed[1:], (end, None)], strict=True)
            if value is not None and at < end and until > start
        ]
        time = sum(duration for _, duration in held)
        found[start] = Figures(
            len(values),
            values[0] if values else None,
            values[-1] if values else None,
            min(values, default=None),
            max(values, default=None),
            sum(values) / len(values) if values else None,
            sum(value * duration for value, duration in held) / time if time else None,
        )
    return found
