"""The ranges of the history and of the telemetry that the database holds, and whether entries are missing from them.

How it works. Each change has a number, ``seq``, in the order of commits, without gaps. Two kinds of numbers have no
entry: pruning deletes entries, and the first number of a period has none, because the period itself takes it. With
periods that begin at 1 and 6, the entries 2 3 4 5 7 8 are complete. So entries are counted: a range of n numbers with p
beginnings of periods must hold n - p entries. If it holds fewer, a binary search finds the first missing number; each
step is one count on the primary key.

The telemetry has no periods, and pruning deletes its first messages only. So a message is missing if its number is
lower than the first one that is there.
"""

from __future__ import annotations

from attrs import frozen

from holdfast.changes.api import read_periods, read_state, read_telemetry_state
from holdfast_pipeline.database.connection import ReadTransaction

_COUNT = "SELECT count(*) FROM retained_history WHERE seq > ? AND seq <= ?"
_FIRST = "SELECT coalesce(min(seq), 0) FROM {table}"


@frozen
class HistoryRange:
    """The entries later than ``before``, up to ``last``. Up to ``pruned``, some may be missing."""

    before: int
    last: int
    pruned: int


@frozen
class MissingEntries:
    """``count`` entries are missing; ``first`` is the ``seq`` of the first one."""

    first: int
    count: int


def history_range(transaction: ReadTransaction) -> HistoryRange:
    """Return the range of the entries in the database."""
    cursor = transaction.connection.cursor()
    last = read_state(cursor).last_seq
    ((first,),) = transaction.rows(_FIRST.format(table="retained_history"))
    pruned = max((period.pruned_anywhere() for period in read_periods(cursor)), default=0)
    before = first - 1 if first else last
    return HistoryRange(before, last, max(pruned, before))


def telemetry_range(transaction: ReadTransaction) -> HistoryRange:
    """Return the range of the recorded messages in the database."""
    last = read_telemetry_state(transaction.connection.cursor()).last_seq
    ((first,),) = transaction.rows(_FIRST.format(table="telemetry"))
    before = first - 1 if first else last
    return HistoryRange(before, last, before)


def missing_entries(transaction: ReadTransaction, after: int, upto: int) -> MissingEntries | None:
    """Return the entries that are missing from those later than ``after``, up to ``upto``; None if all are there."""
    begun = [period.first_seq for period in read_periods(transaction.connection.cursor())]

    def missing(low: int, high: int) -> int:
        ((count,),) = transaction.rows(_COUNT, (low, high))
        expected = high - low - sum(low < seq <= high for seq in begun)
        return int(expected - count)

    lost = missing(after, upto)
    if lost <= 0:
        return None
    low, high = after, upto  # the first missing number is later than low, and at most high
    while high - low > 1:
        middle = (low + high) // 2
        if missing(low, middle) > 0:
            high = middle
        else:
            low = middle
    return MissingEntries(high, lost)
