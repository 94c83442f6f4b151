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

The span leaves out the topics that the period does not know at its first time (:mod:`.rules`). Their depths are found
once, when the span begins: if pruning passes another depth later, changes would be missing in the middle, so the span
ends instead.

All functions read, on a reader's connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from holdfast.retained.history.entries import HistoryEvent
from holdfast.retained.history.moments import (
    HistoryUnavailable,
    check_recorded,
    fetch,
    find_moment,
    last_position,
    matches_filter,
    next_positions,
    refusal,
)
from holdfast.retained.history.periods import Period, read_periods, read_state
from holdfast.retained.history.rules import GENERAL, NOT_RECORDED, Depth
from holdfast.storage.driver import Cursor
from holdfast.topics import EVERY_TOPIC


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
    """The entries after the position ``after``, up to ``upto``.

    Topics of some depths are left out: each bit of ``left_out`` stands for one, in the order of :func:`_depths`.
    """

    after: int
    upto: int
    left_out: int = 0

    def shows(self, period: Period) -> Callable[[str], bool]:
        """Return what tells whether the span has the changes of a topic."""
        if not self.left_out:
            return _always
        hidden, depth_of = self._hidden(period), period.parsed.depth_of
        return lambda topic: depth_of(topic) not in hidden

    def lacks_topics(self, period: Period, topic_filter: str) -> bool:
        """Tell whether the span leaves out some topics of a Topic Filter."""
        return bool(period.parsed.left_out(topic_filter, self._hidden(period).__contains__).filters)

    def _hidden(self, period: Period) -> set[Depth]:
        return {NOT_RECORDED, *(depth for bit, depth in enumerate(_depths(period)) if self.left_out >> bit & 1)}


def find_span(cursor: Cursor, since: int, until: int, now: int, topic_filter: str = EVERY_TOPIC) -> Span:
    """Find the changes later than ``since`` and not later than ``until``, in milliseconds since the epoch.

    Raises :class:`HistoryUnavailable` if some of them may be missing, and if the span leaves out all topics of the
    Topic Filter. ``until`` may be after ``now``: then the span ends with the last entry of the present.
    """
    moment = find_moment(cursor, since, now)
    state, periods = read_state(cursor), read_periods(cursor)
    for number, period in enumerate(periods):
        if period.first_seq == moment.first_seq:
            if period.ended_at is not None and period.ended_at <= until:
                raise refusal(periods, period.ended_at, state)
            last = periods[number + 1].first_seq - 1 if number + 1 < len(periods) else state.last_seq
            check_recorded(period, since, topic_filter)
            # The newest entries that were pruned may have had positions after the newest one that is left.
            states, hidden = period.states(), period.hidden_at(since)
            after = max([moment.last_seq, *(states[depth].pruned_to for depth in states.keys() - hidden)])
            left_out = sum(1 << bit for bit, depth in enumerate(_depths(period)) if depth in hidden)
            return Span(after, last_position(cursor, after, max(after, last), until), left_out)
    raise refusal(periods, since, state)


def check_span(cursor: Cursor, span: Span) -> Period:
    """Return the period of a span, behind the read of its entries.

    Raises :class:`HistoryUnavailable` if some of them may be missing, because pruning has passed its beginning.
    """
    following: int | None = None
    for period in reversed(read_periods(cursor)):
        if period.first_seq <= span.after:
            states = period.states()
            wanted = [depth for bit, depth in enumerate(_depths(period)) if not span.left_out >> bit & 1]
            if (
                states
                and all(states[depth].pruned_to <= span.after for depth in wanted)
                and (following is None or span.upto < following)
            ):
                return period
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


def _depths(period: Period) -> tuple[Depth, ...]:
    """Return the depths that entries of a period can have, in an order that never changes."""
    return (GENERAL, *period.parsed.depths)


def _always(_topic: str) -> bool:
    return True
