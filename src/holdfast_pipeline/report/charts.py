"""The charts of the report, by the ids of the elements where the page draws them. Pure.

A chart is left out where it would be empty; the templates tell why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from holdfast_pipeline.formatting import moment, number, share, size
from holdfast_pipeline.report.chart import Chart, ColumnChart
from holdfast_pipeline.report.figures import AGE_BANDS, BandTotals, ChangeStep, Figures, History
from holdfast_pipeline.report.shape_details import anchor
from holdfast_pipeline.report.topic_map import topic_map
from holdfast_pipeline.report.value_charts import course, distribution

_HOUR, _DAY = 3_600_000, 86_400_000
#: Columns for less time than this (seconds) have an hour in their labels.
_HOURS_SHOWN_BELOW = 14_400


def charts_of(found: Figures) -> dict[str, Chart]:
    """Return all charts of the page."""
    charts: dict[str, Chart] = {}
    if found.totals.messages:
        charts["map"] = topic_map(found)
        charts["ages"] = _ages(found)
    if found.history is not None:
        charts["changes"] = _changes(found.history)
    if found.totals.expiring:
        charts["expiry-hours"] = _outlook(found.taken_at, found.expiry.hours, _HOUR, "hour", "%H:%M")
        charts["expiry-days"] = _outlook(found.taken_at, found.expiry.days, _DAY, "day", "%d %b")
    if found.sizes:
        charts["messages-by-size"] = _by_size(found, "messages", "count", lambda part: part.messages)
        charts["bytes-by-size"] = _by_size(found, "bytes", "bytes", lambda part: part.bytes)
    for shape, details in found.details.items():
        for place, numbers in enumerate(details.numbers):
            charts[f"{anchor(shape)}-{place}-distribution"] = distribution(numbers)
            if numbers.course and found.history is not None:
                span = found.history.first_change, found.history.last_change
                charts[f"{anchor(shape)}-{place}-course"] = course(numbers, *span)
    return charts


def _changes(history: History) -> ColumnChart:
    """Return the changes by time, also the times without changes."""
    length = history.step * 1000
    known = {one.at // length: one for one in history.churn}
    form = "%d %b" if history.step >= _HOURS_SHOWN_BELOW else "%d %b %H:%M"
    begins = range(history.since // length * length, history.until + 1, length)
    steps = [known.get(at // length, ChangeStep(at, 0, 0, 0, 0)) for at in begins]
    return ColumnChart(
        described="Changes over time",
        measured="from",
        labels=[_time(at, form) for at in begins],
        headings=[moment(at) for at in begins],
        facts=[
            f"{number(one.sets)} set, {number(one.clears)} cleared, {number(one.expires)} expired; {size(one.bytes)}"
            for one in steps
        ],
        series=[
            ("set", [one.sets for one in steps]),
            ("cleared", [one.clears for one in steps]),
            ("expired", [one.expires for one in steps]),
        ],
    )


def _ages(found: Figures) -> ColumnChart:
    labels = [label for _, label in AGE_BANDS]
    parts = list(_filled(found.ages, range(len(AGE_BANDS))))
    return ColumnChart(
        described="Messages by age",
        measured="age",
        labels=labels,
        headings=labels,
        facts=[_facts(part, found) for part in parts],
        series=[("messages", [part.messages for part in parts])],
    )


def _outlook(taken_at: int, counts: Sequence[int], length: int, unit: str, form: str) -> ColumnChart:
    """Return how many messages expire in each of the next steps of this ``length``."""
    begins = [taken_at + place * length for place in range(len(counts))]
    return ColumnChart(
        described=f"Expiry by {unit}",
        measured="expiry",
        labels=[_time(at, form) for at in begins],
        headings=[f"in {place} to {place + 1} {unit}s (from {moment(at)})" for place, at in enumerate(begins)],
        facts=[f"{number(count)} messages" for count in counts],
        series=[("messages", list(counts))],
    )


def _by_size(found: Figures, name: str, unit: str, value: Callable[[BandTotals], int]) -> ColumnChart:
    keys = [part.key for part in found.sizes]
    parts = list(_filled(found.sizes, range(min(keys), max(keys) + 1)))
    return ColumnChart(
        described=f"{name.capitalize()} by size",
        measured="payload",
        labels=[_short_size(2**part.key) for part in parts],
        headings=[_limits(part.key) for part in parts],
        facts=[_facts(part, found) for part in parts],
        series=[(name, [value(part) for part in parts])],
        unit=unit,
    )


def _limits(key: int) -> str:
    return "up to 1 byte" if key == 0 else f"more than {size(2 ** (key - 1))}, up to {size(2**key)}"


def _short_size(count: float) -> str:
    """Return a number of bytes with the room of a label: 512 B, 4 KB."""
    return size(count).replace(".0 ", " ").replace(" bytes", " B").replace(" byte", " B")


def _facts(part: BandTotals, found: Figures) -> str:
    totals = found.totals
    return (
        f"{number(part.messages)} messages ({share(part.messages, totals.messages)}), {size(part.bytes)}"
        f" ({share(part.bytes, totals.bytes)})"
    )


def _filled(parts: Iterable[BandTotals], keys: Iterable[int]) -> Iterator[BandTotals]:
    """Give a part for each key, an empty one where nothing was found."""
    known = {part.key: part for part in parts}
    return (known.get(key, BandTotals(key, 0, 0)) for key in keys)


def _time(at: int, form: str) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime(form)
