"""Spans: the entries between two times, in their order.

How it works. A span has the entries after one position and up to another. Its first time is a moment
(:mod:`.moments`) of one period, and the period lasts until its second time. So the messages of the first moment,
changed by the entries of the span, are the messages of the second one. An example, with the span from 12:00:01 to
12:00:09::

    seq  topic  op      changed_at
     12  b      set     12:00:01    the span begins after 12
     13  a      set     12:00:07
     14  b      clear   12:00:09    and ends here
     15  a      set     12:00:12

Pruning deletes no entry after the ``pruned_to`` of its period. So a page of a span is whole if ``pruned_to`` is not
behind the position at which the page begins: each page ends with :func:`check_span`. A time would not tell as much,
since several entries can have the same time.

All functions read, on a reader's connection.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from holdfast.retained.history.entries import HistoryEvent
from holdfast.retained.history.moments import (
    HistoryUnavailable,
    fetch,
    find_moment,
    last_position,
    matches_filter,
    next_positions,
    refusal,
)
from holdfast.retained.history.periods import read_periods, read_state
from holdfast.storage.driver import Cursor


@frozen
class EventPage:
    """Events in their order. The next page begins at ``cursor``; ``done`` says that this page is the last.

    A page may be empty without being the last, because one read visits a bounded number of entries.
    """

    events: Sequence[HistoryEvent]
    cursor: int
    done: bool


@frozen
class Span:
    """The entries after the position ``after``, up to ``upto``."""

    after: int
    upto: int


def find_span(cursor: Cursor, since: int, until: int, now: int) -> Span:
    """Find the changes later than ``since`` and not later than ``until``, in milliseconds since the epoch.

    Raises :class:`HistoryUnavailable` if some of them may be missing. ``until`` may be after ``now``: then the span
    ends with the last entry of the present.
    """
    moment = find_moment(cursor, since, now)
    state, periods = read_state(cursor), read_periods(cursor)
    for number, period in enumerate(periods):
        if period.first_seq == moment.first_seq:
            if period.ended_at is not None and period.ended_at <= until:
                raise refusal(periods, period.ended_at, state)
            last = periods[number + 1].first_seq - 1 if number + 1 < len(periods) else state.last_seq
            # The newest entries that were pruned may have had positions after the newest one that is left.
            after = max(moment.last_seq, period.pruned_to)
            return Span(after, last_position(cursor, after, max(after, last), until))
    raise refusal(periods, since, state)


def check_span(cursor: Cursor, span: Span) -> None:
    """Raise :class:`HistoryUnavailable` if entries of a span may be missing, because pruning has passed its beginning.

    Call it behind the read of these entries.
    """
    following: int | None = None
    for period in reversed(read_periods(cursor)):
        if period.first_seq <= span.after:
            if (
                period.complete_since is not None
                and period.pruned_to <= span.after
                and (following is None or span.upto < following)
            ):
                return
            break
        following = period.first_seq
    raise HistoryUnavailable("the history was pruned meanwhile")


def page_of_events(
    cursor: Cursor,
    topic_filter: str,
    after: int,
    upto: int,
    entries: int,
    events: int,
    most_bytes: int,
    newest_first: bool = False,
) -> EventPage:
    """Read the next events that match a Topic Filter, after the position ``after`` and up to ``upto``.

    The read visits so many ``entries``, and returns so many ``events`` and payload bytes. The first event may have
    more bytes.
    """
    found = next_positions(cursor, topic_filter, after, upto, entries, newest_first)
    passed = upto + 1 if newest_first else after
    chosen: list[int] = []
    done = found.done
    for seq, topic, size in found.entries:
        if matches_filter(topic_filter, topic):
            if len(chosen) == events or (chosen and size > most_bytes):
                done = False
                break
            chosen.append(seq)
            most_bytes -= size
        passed = seq
    else:
        passed = found.passed
    read = fetch(cursor, chosen)
    return EventPage([read[seq] for seq in chosen if seq in read], passed, done)
