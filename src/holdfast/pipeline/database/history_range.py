"""Places in the history: how far it reaches, and whether anything is missing from a range of it.

Every place has its entry, but for those pruned and for the one with which a period begins.
"""

from __future__ import annotations

from attrs import frozen

from holdfast.pipeline.database.connection import Reading
from holdfast.retained.history.periods import read_periods, read_state

_COUNT = "SELECT count(*) FROM retained_history WHERE seq > ? AND seq <= ?"
_FIRST = "SELECT coalesce(min(seq), 0) FROM retained_history"


@frozen
class Places:
    """The entries come after ``before``, up to ``last``; up to ``pruned``, there may be some missing."""

    before: int
    last: int
    pruned: int


@frozen
class Gap:
    """So many entries are missing, the first at a place."""

    first: int
    missing: int


def extent(reading: Reading) -> Places:
    """Return how far the history reaches."""
    cursor = reading.connection.cursor()
    last = read_state(cursor).last_seq
    ((first,),) = reading.rows(_FIRST)
    pruned = max((period.pruned_to for period in read_periods(cursor)), default=0)
    before = first - 1 if first else last
    return Places(before, last, max(pruned, before))


def gap_in(reading: Reading, after: int, upto: int) -> Gap | None:
    """Tell what is missing from the entries after a place, up to another; None for nothing."""
    begun = [period.first_seq for period in read_periods(reading.connection.cursor())]

    def missing(low: int, high: int) -> int:
        ((count,),) = reading.rows(_COUNT, (low, high))
        places = high - low - sum(low < seq <= high for seq in begun)
        return int(places - count)

    lost = missing(after, upto)
    if lost <= 0:
        return None
    low, high = after, upto
    while high - low > 1:
        middle = (low + high) // 2
        if missing(low, middle) > 0:
            high = middle
        else:
            low = middle
    return Gap(high, lost)
