"""Moments: positions in the history by time, and the retained messages of a moment.

How it works. Every entry has a position ``seq``, in the order of commits, and a time ``changed_at``, which never
decreases. So a moment is a position: the last entry that is not later. An example, within a period that began with
entry 10::

    seq  topic  op      changed_at
     11  a      set     12:00:01    (baseline)
     12  b      set     12:00:01    (baseline)
     13  a      set     12:00:07
     14  b      clear   12:00:09

The moment 12:00:08 is the position 13, found by bisection. For each topic, the newest entry from 11 to 13 decides:
``a`` has the message of entry 13, ``b`` the message of entry 12. At 12:00:10 ``b`` has none.

The invariant: from the time when its baseline is complete, a period has an entry for every topic with a retained
message, and pruning keeps the newest entry of each topic before the horizon. So entries of the period alone give the
answer, and no read of the table ``retained`` is needed. A read pages through topics while pruning continues: each page
ends with :func:`check_moment`, and a moment that pruning has passed fails, so no answer lacks topics.

Some topics may be left out of a moment (:mod:`.entries`): those that are not recorded, and those whose entries of that
time are pruned earlier than others. Nothing is known of them, so no answer tells of any message there, and an answer
about such topics alone is refused (:func:`check_recorded`). If pruning passes further topics while a read pages, the
next page fails too.

The reads walk from topic to topic with one index search each, however many entries a topic has. Grouping all entries
by topic would read a million entries for a topic that changes every second. Full snapshots at intervals were left out:
each would copy all payloads.

All functions read, on a reader's connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attrs import frozen

from holdfast.changes.entries import (
    GENERAL,
    NOT_RECORDED,
    Depth,
    Entry,
    HistoryEvent,
    LeftOut,
    event_of,
    retained_sql,
    rules_in,
)
from holdfast.changes.periods import HistoryState, Period, read_periods, read_state
from holdfast.core.topics import EVERY_TOPIC, matches
from holdfast.core.units import date_of
from holdfast.retained.store.wildcards import plan
from holdfast.storage.driver import Cursor, split

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

#: The positions that one read of events visits, and the wildcards and characters of its pattern.
_VISITED = 10_000
_MOST_WILDCARDS = 2
_LONGEST_PATTERN = 1000
#: The most rows of one statement.
_MOST_ROWS = 200
_COLUMNS = ", ".join(Entry._fields)
_FROM = "SELECT seq, {time} FROM {table} WHERE seq >= ? AND seq <= ? ORDER BY seq LIMIT 1"
_ENTRIES = (
    "SELECT seq, topic, size + length(properties5) FROM {table}"
    " WHERE {topic}seq > ? AND seq <= ? ORDER BY seq{order} LIMIT ?"
)
_NOT_RECORDED = (
    "there is no history: no broker has recorded changes in this database; retainer.history.enable = true does"
)
_NOT_BEGUN = (
    "the history has only changes made by commands while no broker ran, so it does not know all retained messages of a "
    "time; it begins when a broker starts or reloads with retainer.history.enable = true"
)


@frozen
class NumberedTable:
    """A table with the columns ``seq``, ``topic``, ``size`` and ``properties5``, and that of its time.

    The time never decreases.
    """

    name: str
    time: str


HISTORY = NumberedTable("retained_history", "changed_at")


class HistoryUnavailable(Exception):
    """The history cannot answer; the text says why.

    ``earliest`` is the earliest moment that the history can answer for (milliseconds since the epoch), None if it can
    answer for none.
    """

    def __init__(self, message: str, earliest: int | None = None) -> None:
        super().__init__(message)
        self.earliest = earliest


class BaselineUnfinished(HistoryUnavailable):
    """The history cannot answer yet: its baseline is being written."""


@frozen
class Moment:
    """A moment (``at``, milliseconds since the epoch) and its entries: after ``first_seq``, up to ``last_seq``.

    The history does not know the topics to which its ``rules`` (a text of :mod:`.entries`) give one of the depths
    ``hidden``.
    """

    at: int
    first_seq: int
    last_seq: int
    hidden: frozenset[Depth] = frozenset((NOT_RECORDED,))
    rules: str | None = None

    def left_out(self, topic_filter: str) -> tuple[str, ...]:
        """Return the Topic Filters of unknown topics among those of a Topic Filter."""
        return rules_in(self.rules).left_out(topic_filter, self.hidden.__contains__).filters

    def knows(self, topic: str) -> bool:
        """Tell whether the history knows a topic then."""
        return rules_in(self.rules).depth_of(topic) not in self.hidden

    @property
    def hides_entries(self) -> bool:
        """Whether there may be entries of unknown topics: those that are not recorded have none."""
        return self.hidden != {NOT_RECORDED}


@frozen
class TopicStates:
    """Topics in order. Each has the position of its newest entry at each moment, None if it has no entry by then.

    The next page begins after the topic ``after``; ``done`` says that no topic is left.
    """

    entries: Sequence[tuple[str, tuple[int | None, ...]]]
    after: str
    done: bool


def find_moment(cursor: Cursor, at: int, now: int) -> Moment:
    """Find a moment. Raises :class:`HistoryUnavailable` if the history cannot answer for it.

    ``at`` and ``now`` are in milliseconds since the epoch.
    """
    state, periods = read_state(cursor), read_periods(cursor)
    if at > max(now, state.last_at):
        raise HistoryUnavailable(f"{date_of(at)} is still to come", _earliest(periods))
    for number in reversed(range(len(periods))):
        period = periods[number]
        if period.answers_for(at):
            last = periods[number + 1].first_seq - 1 if number + 1 < len(periods) else state.last_seq
            hidden = period.hidden_at(at)
            return Moment(at, period.first_seq, last_position(cursor, period.first_seq, last, at), hidden, period.rules)
    raise refusal(periods, at, state)


def check_moment(cursor: Cursor, moment: Moment) -> Period:
    """Return the period of a moment.

    Call it behind a read. It raises :class:`HistoryUnavailable` if pruning has passed the moment: some of its entries
    may be missing.
    """
    periods = read_periods(cursor)
    for period in periods:
        if period.first_seq == moment.first_seq and period.answers_for(moment.at):
            if period.hidden_at(moment.at) <= moment.hidden:
                return period
            raise HistoryUnavailable("the history of some topics was pruned meanwhile", period.since)
    raise refusal(periods, moment.at, read_state(cursor))


def check_recorded(period: Period, at: int, topic_filter: str) -> LeftOut:
    """Return which topics of a Topic Filter the period leaves out of a moment that it answers for.

    Raises :class:`HistoryUnavailable` if it leaves out all of them.
    """
    found = period.left_out_at(at, topic_filter)
    if not found.everything:
        return found
    names = ", ".join(found.filters)
    states, depths = period.states(), {depth for _, depth in period.parsed.depths_in(topic_filter)}
    if depths == {NOT_RECORDED}:
        raise HistoryUnavailable(
            f"the history has no changes of {names}, neither old nor new ones: a policy with history = false excludes "
            "these topics"
        )
    earliest = min(states[depth].since for depth in depths if depth in states)
    raise HistoryUnavailable(
        f"the history of {names} does not go back to {date_of(at)}; the earliest possible time is {date_of(earliest)}",
        earliest,
    )


def present_moment(cursor: Cursor) -> Moment:
    """Return the present as a moment. Raises :class:`HistoryUnavailable` while the baseline is being written."""
    state, periods = read_state(cursor), read_periods(cursor)
    if not periods:
        raise _without_periods(state)
    if periods[-1].ended_at is not None:
        raise HistoryUnavailable("changes are not recorded now: some nodes of this database do not record theirs")
    if periods[-1].complete_since is None:
        raise BaselineUnfinished("the baseline of the history is still being written; try again soon")
    return Moment(state.last_at, periods[-1].first_seq, state.last_seq, rules=periods[-1].rules)


def last_position(cursor: Cursor, low: int, high: int, at: int, table: NumberedTable = HISTORY) -> int:
    """Return the position of the last entry after ``low`` and up to ``high`` that is not later than ``at``, or ``low``.

    The times of entries never decrease, so bisection finds it.
    """
    statement = _FROM.format(time=table.time, table=table.name)
    while low < high:
        middle = (low + high + 1) // 2
        cursor.execute(statement, (middle, high))
        found = cursor.fetchall()
        if found and found[0][1] <= at:
            low = found[0][0]
        else:
            high = middle - 1
    return low


def states_at(cursor: Cursor, topic_filter: str, after: str, moments: Sequence[Moment], topics: int) -> TopicStates:
    """Find the newest entries at some moments, for the next matching topics after ``after``.

    One call visits at most ``topics`` topics, matching or not. The number of their entries does not matter.
    """
    chosen = plan(topic_filter)
    for key_range in chosen.ranges:
        rest = key_range.after(after)
        if rest is None:
            continue
        bound: dict[str, Any] = {"low": rest.low, "high": rest.high, "topics": topics}
        for number, moment in enumerate(moments):
            bound |= {f"first{number}": moment.first_seq, f"last{number}": moment.last_seq}
        cursor.execute(_walk(rest.high is not None, len(moments)), bound)
        found = cursor.fetchall()
        entries = [(topic, tuple(seqs)) for topic, *seqs in found if matches_filter(topic_filter, topic)]
        if len(found) == topics:
            return TopicStates(entries, found[-1][0], False)
        if rest.high is None or key_range is chosen.ranges[-1]:
            return TopicStates(entries, found[-1][0] if found else after, True)
        return TopicStates(entries, rest.high, False)
    return TopicStates((), after, True)


def still_retained(cursor: Cursor, positions: Iterable[int | None], at: int) -> dict[int, int]:
    """Return the entries whose message was still retained at a moment, with the sizes of their payloads."""
    found: dict[int, int] = {}
    for part in split([seq for seq in positions if seq is not None], _MOST_ROWS):
        cursor.execute(
            f"SELECT seq, size FROM retained_history WHERE {retained_sql('?')} "
            f"AND seq IN ({', '.join('?' * len(part))})",
            [at, *part],
        )
        found.update(dict(cursor.fetchall()))
    return found


def fetch(cursor: Cursor, positions: Sequence[int]) -> dict[int, HistoryEvent]:
    """Return the events at these positions, except pruned ones."""
    found: dict[int, HistoryEvent] = {}
    for part in split(positions, _MOST_ROWS):
        cursor.execute(
            f"SELECT {_COLUMNS} FROM retained_history WHERE seq IN ({', '.join('?' * len(part))})", list(part)
        )
        found.update((row[0], event_of(row)) for row in cursor.fetchall())
    return found


def matches_filter(topic_filter: str, topic: str) -> bool:
    """Tell whether a Topic Filter, or EVERY_TOPIC, matches a topic."""
    return topic_filter == EVERY_TOPIC or matches(topic_filter, topic)


@frozen
class Positions:
    """Position, topic and payload size of entries in their order. ``passed`` is the last position that was visited.

    ``done`` says that no entry is left.
    """

    entries: Sequence[tuple[int, str, int]]
    passed: int
    done: bool


def next_positions(
    cursor: Cursor,
    topic_filter: str,
    after: int,
    upto: int,
    entries: int,
    newest_first: bool = False,
    table: NumberedTable = HISTORY,
) -> Positions:
    """Return the next entries after ``after`` and up to ``upto``, at most ``entries`` of them.

    They match the filter if it is a Topic Name. Of other filters, the database leaves out most entries that do not
    match, and visits ``_VISITED`` positions at most: the caller checks each topic.
    """
    order = " DESC" if newest_first else ""
    low, high, topic, pattern = after, upto, "", []
    if plan(topic_filter).single:
        topic, pattern = "topic = ? AND ", [topic_filter]
    else:
        cursor.execute(_ENTRIES.format(table=table.name, topic="", order=order), (after, upto, 1))
        first = cursor.fetchall()
        if not first:
            return Positions((), upto + 1 if newest_first else after, True)
        if newest_first:
            low = max(after, first[0][0] - _VISITED)
        else:
            high = min(upto, first[0][0] - 1 + _VISITED)
        if like := like_pattern(topic_filter):
            topic, pattern = "topic LIKE ? ESCAPE '!' AND ", [like]
    cursor.execute(_ENTRIES.format(table=table.name, topic=topic, order=order), (*pattern, low, high, entries))
    found = list(cursor.fetchall())
    if len(found) == entries:
        return Positions(found, found[-1][0], False)
    if newest_first:
        return Positions(found, low + 1, low == after)
    return Positions(found, max(after, high), high == upto)


def like_pattern(topic_filter: str) -> str | None:
    """Return a pattern of LIKE for all topics that a Topic Filter matches, and some others; None for all topics.

    It has few wildcards, since each multiplies the time of a comparison: it ends with the last of them.
    """
    levels = topic_filter.split("/")
    if topic_filter == EVERY_TOPIC or len(topic_filter) > _LONGEST_PATTERN:
        return None
    if levels[-1] == "#":
        levels = levels[:-1]
        open_end = "%"
    else:
        open_end = ""
    pattern, wildcards = "", 0
    for number, level in enumerate(levels):
        if level == "+":
            wildcards += 1
        pattern += ("/" if number else "") + ("%" if level == "+" else _escaped(level))
        if wildcards == _MOST_WILDCARDS:
            return pattern
    pattern += open_end
    return None if pattern.strip("%/") == "" else pattern


def _escaped(level: str) -> str:
    return level.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _earliest(periods: Sequence[Period]) -> int | None:
    return next((p.since for p in periods if p.since is not None and p.answers_for(p.since)), None)


def _without_periods(state: HistoryState) -> HistoryUnavailable:
    """Commands append to the history, but only a broker begins a period."""
    return HistoryUnavailable(_NOT_BEGUN if state.last_seq else _NOT_RECORDED)


def refusal(periods: Sequence[Period], at: int, state: HistoryState) -> HistoryUnavailable:
    """Return why no period answers for a moment."""
    earliest = _earliest(periods)
    if not periods:
        return _without_periods(state)
    if earliest is None:
        return BaselineUnfinished("there is no history yet: its baseline is still being written", None)
    if at < earliest:
        return HistoryUnavailable(
            f"the history does not go back to {date_of(at)}; the earliest possible time is {date_of(earliest)}",
            earliest,
        )
    later = [p.since for p in periods if p.since is not None and p.since > at]
    kind, until = HistoryUnavailable, f"until {date_of(later[0])}" if later else "since then"
    if not later and periods[-1].ended_at is None:
        kind, until = BaselineUnfinished, "until its new baseline is complete, which is still being written"
    ended = max(p.ended_at for p in periods if p.ended_at is not None and p.ended_at <= at)
    return kind(
        f"at {date_of(at)} no history was kept: not from {date_of(ended)} {until}; the earliest possible time "
        f"is {date_of(earliest)}",
        earliest,
    )


def _walk(bounded: bool, moments: int) -> str:
    """Return the statement that walks from topic to topic: one index search for each topic, and one for each moment."""
    high = " AND topic < :high" if bounded else ""
    found = "".join(
        f", (SELECT max(seq) FROM retained_history AS entry WHERE entry.topic = walk.topic "
        f"AND entry.seq > :first{number} AND entry.seq <= :last{number})"
        for number in range(moments)
    )
    return (
        "WITH RECURSIVE walk (topic, number) AS (SELECT * FROM (SELECT topic, 1 FROM retained_history "
        f"WHERE topic >= :low{high} ORDER BY topic LIMIT 1) AS start "
        "UNION ALL SELECT (SELECT topic FROM retained_history WHERE topic > walk.topic"
        f"{high} ORDER BY topic LIMIT 1), number + 1 FROM walk WHERE walk.topic IS NOT NULL AND number < :topics) "
        f"SELECT walk.topic{found} FROM walk WHERE walk.topic IS NOT NULL ORDER BY walk.topic"
    )


# Spans: the entries between two times, in their order.
#
# How it works. A span has the entries after one position and up to another. Its first time is a moment
# of one period, and the period lasts until its second time. So the messages of the first moment,
# changed by the entries of the span, are the messages of the second one. An example, with the span from 12:00:01 to
# 12:00:09::
#
#     seq  topic  op      changed_at
#      12  b      set     12:00:01    the span begins after 12
#      13  a      set     12:00:07
#      14  b      clear   12:00:09    and ends here
#      15  a      set     12:00:12
#
# Pruning deletes no entry after the ``pruned_to`` of its period. So a page of a span is whole if ``pruned_to`` is not
# behind the position at which the page begins: each page ends with :func:`check_span`. A time would not tell as much,
# since several entries can have the same time.
#
# The span leaves out the topics that the period does not know at its first time (:mod:`.entries`). Their depths are
# found once, when the span begins: if pruning passes another depth later, changes would be missing in the middle, so
# the span ends instead.
#
# All functions read, on a reader's connection.


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
    chosen, passed, done = choose(cursor, topic_filter, after, upto, entries, events, most_bytes, newest_first)
    read = fetch(cursor, chosen)
    return EventPage([read[seq] for seq in chosen if seq in read], passed, done)


def choose(
    cursor: Cursor,
    topic_filter: str,
    after: int,
    upto: int,
    entries: int,
    most: int,
    most_bytes: int,
    newest_first: bool = False,
    table: NumberedTable = HISTORY,
) -> tuple[list[int], int, bool]:
    """Return the positions of the next page, the position that it has passed, and whether it is the last page.

    The arguments are those of :func:`page_of_events`.
    """
    found = next_positions(cursor, topic_filter, after, upto, entries, newest_first, table)
    passed = upto + 1 if newest_first else after
    chosen: list[int] = []
    for seq, topic, size in found.entries:
        if matches_filter(topic_filter, topic):
            if len(chosen) == most or (chosen and size > most_bytes):
                return chosen, passed, False
            chosen.append(seq)
            most_bytes -= size
        passed = seq
    return chosen, found.passed, found.done


def _depths(period: Period) -> tuple[Depth, ...]:
    """Return the depths that entries of a period can have, in an order that never changes."""
    return (GENERAL, *period.parsed.depths)


def _always(_topic: str) -> bool:
    return True
