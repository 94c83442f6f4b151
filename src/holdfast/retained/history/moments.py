"""Moments: places in the history, and what was retained then. All of it reads, on a reader's connection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import frozen

from holdfast.retained.history.entries import Entry, HistoryEvent, event_of
from holdfast.retained.history.entry_rules import retained_sql
from holdfast.retained.history.periods import Period, read_periods, read_state
from holdfast.retained.wildcards.plan import plan
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.bulk import split
from holdfast.topics import EVERY_TOPIC, matches

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

#: The most rows of one statement.
_MOST_ROWS = 200
_COLUMNS = ", ".join(Entry._fields)
_FROM = "SELECT seq, changed_at FROM retained_history WHERE seq >= ? AND seq <= ? ORDER BY seq LIMIT 1"
_EVENTS = "SELECT seq, topic, size FROM retained_history WHERE {topic}seq > ? AND seq <= ? ORDER BY seq{order} LIMIT ?"
_NOT_RECORDED = (
    "there is no history: no broker has recorded changes in this database; retainer.history.enable = true does"
)


class HistoryUnavailable(Exception):
    """There is no answer from the history. The text says why; ``earliest`` is the earliest moment there is one for.

    It is in milliseconds since the epoch, None where there is none.
    """

    def __init__(self, message: str, earliest: int | None = None) -> None:
        super().__init__(message)
        self.earliest = earliest


@frozen
class Moment:
    """A moment (milliseconds since the epoch) as a place in the history: after ``first_seq``, up to ``last_seq``."""

    at: int
    first_seq: int
    last_seq: int


@frozen
class TopicStates:
    """Topics in order, each with the entries that say what it was at some moments (None: it was not retained).

    ``after`` is where to go on; with ``done`` there is nothing left.
    """

    entries: Sequence[tuple[str, tuple[int | None, ...]]]
    after: str
    done: bool


def shown_time(at: int) -> str:
    """Write a moment (milliseconds since the epoch) as people and ISO 8601 do, in UTC."""
    try:
        return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


def find_moment(cursor: Cursor, at: int, now: int) -> Moment:
    """Find a moment's place. Raises :class:`HistoryUnavailable` when the history does not say what was retained then.

    ``at`` and ``now`` are in milliseconds since the epoch.
    """
    state, periods = read_state(cursor), read_periods(cursor)
    if at > max(now, state.last_at):
        raise HistoryUnavailable(f"{shown_time(at)} is still to come", _earliest(periods))
    for number in reversed(range(len(periods))):
        period = periods[number]
        if period.answers_for(at):
            last = periods[number + 1].first_seq - 1 if number + 1 < len(periods) else state.last_seq
            return Moment(at, period.first_seq, last_place(cursor, period.first_seq, last, at))
    raise _refusal(periods, at)


def check_moment(cursor: Cursor, moment: Moment) -> None:
    """Raise :class:`HistoryUnavailable` if pruning has passed a moment: what has been read of it may have holes."""
    periods = read_periods(cursor)
    if not any(period.first_seq == moment.first_seq and period.answers_for(moment.at) for period in periods):
        raise _refusal(periods, moment.at)


def present_moment(cursor: Cursor) -> Moment:
    """Return the present as a moment. Raises :class:`HistoryUnavailable` while the baseline is being written."""
    state, periods = read_state(cursor), read_periods(cursor)
    if not periods:
        raise HistoryUnavailable(_NOT_RECORDED)
    if periods[-1].ended_at is not None:
        raise HistoryUnavailable("changes are not recorded now: not all nodes that share this database record theirs")
    if periods[-1].complete_since is None:
        raise HistoryUnavailable("what is retained now is still being taken down; try again soon")
    return Moment(state.last_at, periods[-1].first_seq, state.last_seq)


def last_place(cursor: Cursor, low: int, high: int, at: int) -> int:
    """Return the place of the last entry after ``low`` and up to ``high`` that is not later than ``at``, else ``low``.

    The times of the entries never go back, so that halving finds it.
    """
    while low < high:
        middle = (low + high + 1) // 2
        cursor.execute(_FROM, (middle, high))
        found = cursor.fetchall()
        if found and found[0][1] <= at:
            low = found[0][0]
        else:
            high = middle - 1
    return low


def states(cursor: Cursor, topic_filter: str, after: str, moments: Sequence[Moment], topics: int) -> TopicStates:
    """Find the entries that count at the moments, of the next matching topics after ``after``.

    At most ``topics`` topics are looked at, matching or not, whatever the number of their entries.
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
        entries = [(topic, tuple(seqs)) for topic, *seqs in found if selects(topic_filter, topic)]
        if len(found) == topics:
            return TopicStates(entries, found[-1][0], False)
        if rest.high is None or key_range is chosen.ranges[-1]:
            return TopicStates(entries, found[-1][0] if found else after, True)
        return TopicStates(entries, rest.high, False)
    return TopicStates((), after, True)


def sets(cursor: Cursor, places: Iterable[int | None], at: int) -> dict[int, int]:
    """Return those of the entries by which something was retained at a moment, with the sizes of their payloads."""
    found: dict[int, int] = {}
    for part in split([seq for seq in places if seq is not None], _MOST_ROWS):
        cursor.execute(
            f"SELECT seq, size FROM retained_history WHERE {retained_sql('?')} "
            f"AND seq IN ({', '.join('?' * len(part))})",
            [at, *part],
        )
        found.update(dict(cursor.fetchall()))
    return found


def fetch(cursor: Cursor, places: Sequence[int]) -> dict[int, HistoryEvent]:
    """Return the events at these places, as far as they are still there."""
    found: dict[int, HistoryEvent] = {}
    for part in split(places, _MOST_ROWS):
        cursor.execute(
            f"SELECT {_COLUMNS} FROM retained_history WHERE seq IN ({', '.join('?' * len(part))})", list(part)
        )
        found.update((row[0], event_of(row)) for row in cursor.fetchall())
    return found


def selects(topic_filter: str, topic: str) -> bool:
    """Tell whether a Topic Filter, or EVERY_TOPIC, stands for a topic."""
    return topic_filter == EVERY_TOPIC or matches(topic_filter, topic)


def next_places(
    cursor: Cursor, topic_filter: str, after: int, upto: int, entries: int, newest_first: bool = False
) -> list[tuple[int, str, int]]:
    """Return place, topic and payload size of the next entries behind a place and up to another, at most ``entries``.

    They need not match the filter; where it is a Topic Name, they do.
    """
    order = " DESC" if newest_first else ""
    if plan(topic_filter).single:
        cursor.execute(_EVENTS.format(topic="topic = ? AND ", order=order), (topic_filter, after, upto, entries))
    else:
        cursor.execute(_EVENTS.format(topic="", order=order), (after, upto, entries))
    return list(cursor.fetchall())


def _earliest(periods: Sequence[Period]) -> int | None:
    answering = [p for p in periods if p.complete_since is not None and p.answers_for(p.complete_since)]
    return answering[0].complete_since if answering else None


def _refusal(periods: Sequence[Period], at: int) -> HistoryUnavailable:
    earliest = _earliest(periods)
    if not periods:
        return HistoryUnavailable(_NOT_RECORDED)
    if earliest is None:
        return HistoryUnavailable("there is no history yet: what is retained is still being taken down", None)
    if at < earliest:
        return HistoryUnavailable(
            f"the history does not go back to {shown_time(at)}; the earliest possible time is {shown_time(earliest)}",
            earliest,
        )
    later = [p.complete_since for p in periods if p.complete_since is not None and p.complete_since > at]
    until = f"until {shown_time(later[0])}" if later else "since then"
    ended = max(p.ended_at for p in periods if p.ended_at is not None and p.ended_at <= at)
    return HistoryUnavailable(
        f"at {shown_time(at)} no history was kept: not from {shown_time(ended)} {until}; the earliest possible time "
        f"is {shown_time(earliest)}",
        earliest,
    )


def _walk(bounded: bool, moments: int) -> str:
    """From topic to topic, each with one seek, however many entries it has; and one seek for each moment's entry."""
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
