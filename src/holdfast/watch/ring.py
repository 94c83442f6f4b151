"""The ring of recent figures: what the dashboard's charts show, in a bounded piece of memory.

How it works. There are three levels. Each takes one record in each of its steps, and forgets the oldest one when it is
full:

    1 s     for 5 minutes    300 records
    10 s    for an hour      360 records
    60 s    for a day        1440 records

A level computes rates and quantiles from the growth of running totals over its own step: no level is made from another
one, so a record of 60 s has the exact rate of its minute. Present numbers, such as open connections, are those at the
end of the step. All records together take 8 bytes for each number: half a megabyte.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from math import isnan, nan

from attrs import define, field, frozen

from holdfast.watch.metrics import Histogram, quantile

#: (seconds of a step, number of records)
LEVELS = ((1, 300), (10, 360), (60, 1440))

Number = float | None


@frozen
class Present:
    """A present number."""

    name: str
    read: Callable[[], Number]


@frozen
class Rate:
    """The growth of a running total per second."""

    name: str
    read: Callable[[], Number]


@frozen
class Quantile:
    """A quantile of the observations of a histogram, in milliseconds. Not known while nothing is observed."""

    name: str
    read: Callable[[], Histogram | None]
    share: float


Field = Present | Rate | Quantile


@define
class _Level:
    """One level. ``records`` has the numbers of all records, one after the other."""

    step: int
    size: int
    width: int
    records: array[float] = field(init=False)
    times: array[float] = field(init=False)
    next: int = 0
    count: int = 0
    #: of each field, its running total at the last record
    before: Sequence[object] = ()
    taken_at: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.records = array("d", bytes(8 * self.size * self.width))
        self.times = array("d", bytes(8 * self.size))

    def add(self, time: float, numbers: Sequence[Number]) -> None:
        start = self.next * self.width
        self.records[start : start + self.width] = array("d", [nan if one is None else one for one in numbers])
        self.times[self.next] = time
        self.next = (self.next + 1) % self.size
        self.count = min(self.count + 1, self.size)

    def latest(self, number: int) -> Iterator[tuple[float, list[Number]]]:
        """Return the last records as they are now. Each is made when the iterator comes to it."""
        records, times = self.records[:], self.times[:]
        places = [(self.next - back) % self.size for back in range(min(number, self.count), 0, -1)]
        width = self.width
        return (
            (times[place], [None if isnan(one) else one for one in records[place * width : (place + 1) * width]])
            for place in places
        )


class Ring:
    """The recent figures. Call :meth:`tick` once a second. Times are in milliseconds since the epoch."""

    def __init__(self, fields: Sequence[Field], levels: Sequence[tuple[int, int]] = LEVELS) -> None:
        self._fields = tuple(fields)
        self._levels = [_Level(step, size, len(fields)) for step, size in levels]
        self._ticks = 0

    def tick(self, now: float) -> None:
        """Take a record, on each level whose step is over. ``now`` is the time."""
        readings = [each.read() for each in self._fields]
        totals = [list(one.counts) if isinstance(one, Histogram) else one for one in readings]
        for level in self._levels:
            if level.before and self._ticks % level.step == 0:
                seconds = max(0.001, (now - level.taken_at) / 1000)
                numbers = [
                    _number(each, reading, total, before, seconds)
                    for each, reading, total, before in zip(self._fields, readings, totals, level.before, strict=True)
                ]
                level.add(now, numbers)
            if self._ticks % level.step == 0:
                level.before, level.taken_at = totals, now
        self._ticks += 1

    def latest(self, seconds: int) -> Iterator[dict[str, Number]]:
        """Return the records of the last ``seconds``, the oldest first, of the finest level that reaches so far.

        They are those of now. Each is made when the iterator comes to it, since all of them take a while.
        """
        level = next((one for one in self._levels if one.step * one.size >= seconds), self._levels[-1])
        names = self.names
        return (
            {"time_stamp": time, **dict(zip(names, numbers, strict=True))}
            for time, numbers in level.latest(-(-seconds // level.step))
        )

    def current(self) -> dict[str, Number]:
        """Return the last record of the finest level; every number is None before the first one."""
        found = next(self.latest(self._levels[0].step), None)
        return found or {"time_stamp": None, **dict.fromkeys(self.names)}

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        return [each.name for each in self._fields]

    @property
    def reach(self) -> int:
        """The seconds of the longest level."""
        return max(level.step * level.size for level in self._levels)


def _number(field: Field, reading: object, total: object, before: object, seconds: float) -> Number:
    """Return the number of a field for a step, from its totals at the step's ends."""
    if isinstance(field, Present):
        return float(reading) if isinstance(reading, int | float) else None
    if isinstance(field, Rate):
        if not (isinstance(total, int | float) and isinstance(before, int | float)):
            return None
        return max(0.0, (total - before) / seconds)
    if not (isinstance(reading, Histogram) and isinstance(total, list) and isinstance(before, list)):
        return None
    found = quantile(reading.bounds, [now - then for now, then in zip(total, before, strict=True)], field.share)
    return None if found is None else round(1000 * found, 3)
