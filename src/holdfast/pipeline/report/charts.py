"""The charts of the report: changes, ages, expiry and sizes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from holdfast.pipeline.formatting import moment, number, share, short, size
from holdfast.pipeline.report.column_chart import ChartColumn, ColumnChart
from holdfast.pipeline.report.figures import AGE_BANDS, BandTotals, ChangeStep, Figures, History

_HOUR, _DAY = 3_600_000, 86_400_000
#: Columns for less time than this (seconds) have an hour in their labels.
_HOURS_SHOWN_BELOW = 14_400


def changes(history: History) -> ColumnChart:
    """Return the changes by time, also the times without changes."""
    length = history.step * 1000
    known = {one.at // length: one for one in history.churn}
    form = "%d %b" if history.step >= _HOURS_SHOWN_BELOW else "%d %b %H:%M"
    columns = []
    for at in range(history.since // length * length, history.until + 1, length):
        one = known.get(at // length, ChangeStep(at, 0, 0, 0, 0))
        counts = f"{number(one.sets)} set, {number(one.clears)} cleared, {number(one.expires)} expired"
        columns.append(
            ChartColumn(
                _time(at, form), moment(at), f"{counts}; {size(one.bytes)}", (one.sets, one.clears, one.expires)
            )
        )
    return ColumnChart("Changes over time", columns, short)


def ages(found: Figures) -> ColumnChart:
    """Return the retained messages by age."""
    columns = [
        ChartColumn(label, label, _facts(part, found), (part.messages,))
        for part, (_, label) in zip(_filled(found.ages, range(len(AGE_BANDS))), AGE_BANDS, strict=True)
    ]
    return ColumnChart("Messages by age", columns, short, every_label=True)


def expiry_by_hour(found: Figures) -> ColumnChart:
    """Return how many messages expire in each of the next hours."""
    columns = _outlook(found.taken_at, found.expiry.hours, _HOUR, "hours", "%H:%M")
    return ColumnChart("Expiry by hours", columns, short)


def expiry_by_day(found: Figures) -> ColumnChart:
    """Return how many messages expire on each of the next days."""
    columns = _outlook(found.taken_at, found.expiry.days, _DAY, "days", "%d %b")
    return ColumnChart("Expiry by days", columns, short)


def messages_by_size(found: Figures) -> ColumnChart:
    """Return how many messages have payloads of each size."""
    return ColumnChart("Messages by size", _by_size(found, lambda part: part.messages), short)


def bytes_by_size(found: Figures) -> ColumnChart:
    """Return how many bytes are in payloads of each size."""
    return ColumnChart("Bytes by size", _by_size(found, lambda part: part.bytes), _short_size, thousand=1024)


def _outlook(taken_at: int, counts: Sequence[int], length: int, unit: str, form: str) -> list[ChartColumn]:
    columns = []
    for place, count in enumerate(counts):
        at = taken_at + place * length
        heading = f"in {place} to {place + 1} {unit} (from {moment(at)})"
        columns.append(ChartColumn(_time(at, form), heading, f"{number(count)} messages", (count,)))
    return columns


def _by_size(found: Figures, value: Callable[[BandTotals], int]) -> list[ChartColumn]:
    columns = []
    keys = [part.key for part in found.sizes]
    for part in _filled(found.sizes, range(min(keys), max(keys) + 1)):
        limit = "up to 1 byte" if part.key == 0 else f"more than {size(2 ** (part.key - 1))}, up to {size(2**part.key)}"
        columns.append(ChartColumn(_short_size(2**part.key), limit, _facts(part, found), (value(part),)))
    return columns


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
