"""Pruning: deletes old entries, some thousand at a time, and keeps the answers for all later moments.

How it works. A moment needs the newest entry of each topic before it. So an old entry may go only if a newer entry of
its topic is before the horizon too. An example with the horizon between 14 and 15::

    seq  topic  op
     11  a      set     deleted: entry 13 supersedes it
     12  b      set     deleted: entry 14 supersedes it
     13  a      set     kept: it is still the message of a at the horizon
     14  b      clear   deleted: without any entry, b has no message either
     15  a      set     kept: after the horizon

One transaction takes the next entries after ``pruned_to``, deletes the entries that they supersede, and moves
``pruned_to`` and ``complete_since`` in the same commit. The invariant: the history answers for no moment before
``complete_since``, and for every moment after it as before the pruning.

Topics whose rules have a depth of their own (:mod:`.rules`) have their own horizon. Each depth of a period is pruned by
itself, with its own ``pruned_to`` and its own beginning, and passes over the entries of the others. For the limit of
bytes, the depth that is behind comes first, so that the oldest entries go first.

Deleting by age alone would lose the topics that have not changed for long. Entries that an archive has not confirmed
are never deleted.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from holdfast.retained.history.entries import WEIGHT
from holdfast.retained.history.entry_rules import retained_sql
from holdfast.retained.history.periods import (
    DepthState,
    Period,
    read_periods,
    read_state,
    states_text,
    take_turn,
)
from holdfast.retained.history.rules import GENERAL, Depth
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.bulk import MOST_ROWS, split

# Built from constants alone: values are always bound.
# ruff: noqa: S608

#: The last entry of a transaction: not after the horizon.
_UPTO = (
    "SELECT max(seq), max(changed_at) FROM (SELECT seq, changed_at FROM retained_history WHERE seq > :after "
    "AND seq <= :last ORDER BY seq LIMIT :rows) AS slice WHERE changed_at <= :horizon"
)
_TOPICS = "SELECT DISTINCT topic FROM retained_history WHERE seq > :after AND seq <= :upto"
#: Older entries of the topics in this range. A range leaves one entry of each topic, so there are few to look through.
_SUPERSEDED = (
    "SELECT older.seq FROM (SELECT topic, max(seq) AS seq FROM retained_history WHERE seq > :after AND seq <= :upto"
    "{only} GROUP BY topic) AS newer JOIN retained_history AS older ON older.topic = newer.topic "
    "AND older.seq < newer.seq AND older.seq > :first"
)
#: The remaining entries of this range whose topic has no message: without an entry it has none either.
_DEAD = f"SELECT seq FROM retained_history WHERE seq > :after AND seq <= :upto{{only}} AND NOT {retained_sql(':since')}"
_ANY = "SELECT seq FROM retained_history WHERE seq > :first AND seq <= :last ORDER BY seq LIMIT :rows"
_MEASURE = f"SELECT CAST(coalesce(sum({WEIGHT}), 0) AS BIGINT) FROM retained_history WHERE seq IN "
_DELETE = "DELETE FROM retained_history WHERE seq IN "
_SHRINK = "UPDATE retained_history_state SET bytes = bytes - ? WHERE id = 1"
_PRUNED = "UPDATE retained_history_periods SET pruned_to = ?, complete_since = ? WHERE first_seq = ?"
_PRUNED_DEPTH = "UPDATE retained_history_periods SET depths = ? WHERE first_seq = ?"
_FORGET = "DELETE FROM retained_history_periods WHERE first_seq = ?"

_FOREVER = 2**62


@frozen
class Pruned:
    """Whether more may be pruned, and the bytes above the limit that cannot be pruned."""

    more: bool
    excess: int = 0


def prune_part(cursor: Cursor, now: int, keep: int | None, most: int | None, rows: int) -> Pruned:
    """Delete entries that only moments before a horizon need; more if the history has more than ``most`` bytes.

    The horizon is ``keep`` milliseconds before ``now`` (milliseconds since the epoch), or the depth of a topic's rule;
    None is no limit, for ``keep`` and ``most``. One call looks at ``rows`` entries at most. The newest entry of each
    topic before the new beginning stays, unless the topic had no message then. Entries that no archive has confirmed
    stay too.
    """
    take_turn(cursor)
    state, periods = read_state(cursor), read_periods(cursor)
    excess = 0 if most is None else state.size - most
    # Entries before the first period were recorded while other nodes did not record: no moment needs them.
    before = periods[0].first_seq if periods else state.last_seq
    if _delete_some(cursor, 0, before if state.archived_seq is None else min(before, state.archived_seq), rows):
        return Pruned(True)
    for number, period in enumerate(periods):
        last = periods[number + 1].first_seq - 1 if number + 1 < len(periods) else state.last_seq
        confirmed = last if state.archived_seq is None else min(last, state.archived_seq)
        depths = period.states()
        horizons = {depth: _horizon(now, keep if depth is GENERAL else depth) for depth in depths}
        if period.ended_at is not None:
            over = all(horizon is not None and period.ended_at <= horizon for horizon in horizons.values())
            if over:
                if _drop(cursor, period, confirmed, last, rows):
                    return Pruned(True)
                continue
        for depth in sorted(depths, key=lambda depth: depths[depth].pruned_to):
            limit = _FOREVER if excess > 0 else horizons[depth]
            if limit is not None and _supersede(cursor, period, depth, confirmed, limit, rows):
                return Pruned(True)
        # An ended period loses its oldest entries first too. Only its last ones make it answer for nothing.
        if period.ended_at is not None and excess > 0 and _drop(cursor, period, confirmed, last, rows):
            return Pruned(True)
    return Pruned(False, max(excess, 0))


def _horizon(now: int, keep: int | None) -> int | None:
    return None if keep is None else now - keep


def _drop(cursor: Cursor, period: Period, confirmed: int, last: int, rows: int) -> bool:
    """Delete the oldest entries of an ended period, and in the end the period; tell whether there was anything.

    With the first entry deleted, the period answers for no moment.
    """
    if _delete_some(cursor, period.first_seq, confirmed, rows):
        cursor.execute(_PRUNED, (period.pruned_to, None, period.first_seq))
        return True
    if confirmed < last:
        return False
    cursor.execute(_FORGET, (period.first_seq,))
    return True


def _supersede(cursor: Cursor, period: Period, depth: Depth, confirmed: int, horizon: int, rows: int) -> bool:
    """Delete the entries that the next entries supersede, of topics of one depth; tell whether there were next ones."""
    states = period.states()
    before = states[depth]
    bound: dict[str, Any] = {"after": before.pruned_to, "last": confirmed, "horizon": horizon, "rows": rows}
    cursor.execute(_UPTO, bound)
    ((upto, latest),) = cursor.fetchall()
    if upto is None:
        return False
    since = max(before.since, latest)
    bound |= {"upto": upto, "first": period.first_seq, "since": since}
    if depth is GENERAL:
        cursor.execute(_PRUNED, (upto, since, period.first_seq))
    else:
        cursor.execute(_PRUNED_DEPTH, (states_text(states | {depth: DepthState(upto, since)}), period.first_seq))
    if not period.parsed.depths:
        _delete_older(cursor, "", bound)
        return True
    cursor.execute(_TOPICS, bound)
    topics = [topic for (topic,) in cursor.fetchall() if period.parsed.depth_of(topic) == depth]
    for part in split(topics, MOST_ROWS):
        only = f" AND topic IN ({', '.join(f':topic{number}' for number in range(len(part)))})"
        _delete_older(cursor, only, bound | {f"topic{number}": topic for number, topic in enumerate(part)})
    return True


def _delete_older(cursor: Cursor, only: str, bound: dict[str, Any]) -> None:
    _delete(cursor, _SUPERSEDED.format(only=only), bound)
    _delete(cursor, _DEAD.format(only=only), bound)


def _delete_some(cursor: Cursor, first: int, last: int, rows: int) -> bool:
    """Delete the first entries after one position and up to another; tell whether there were any."""
    bound = {"first": first, "last": last, "rows": rows}
    cursor.execute(f"SELECT count(*) FROM ({_ANY}) AS found", bound)
    ((count,),) = cursor.fetchall()
    if count:
        _delete(cursor, _ANY, bound)
    return bool(count)


def _delete(cursor: Cursor, which: str, bound: dict[str, Any]) -> None:
    cursor.execute(f"{_MEASURE}({which})", bound)
    ((weight,),) = cursor.fetchall()
    cursor.execute(f"{_DELETE}({which})", bound)
    cursor.execute(_SHRINK, (weight,))
