"""Periods of the history: their lock, their baselines, and pruning."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from attrs import frozen

from holdfast.changes.entries import (
    GENERAL,
    NO_RULES,
    NOT_RECORDED,
    WEIGHT,
    Depth,
    Entry,
    LeftOut,
    Rules,
    retained_sql,
    rules_in,
)
from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast.storage.driver import MOST_ROWS, Cursor, split

_TURN = "UPDATE retained_history_state SET last_seq = last_seq WHERE id = 1 RETURNING last_seq, last_at, rules"
_ADVANCE = "UPDATE retained_history_state SET last_seq = ?, last_at = ?, bytes = bytes + ? WHERE id = 1"
_PERIODS = (
    "SELECT first_seq, complete_since, ended_at, baseline_to, pruned_to, rules, depths FROM retained_history_periods "
    "ORDER BY first_seq"
)
_BEGIN = "INSERT INTO retained_history_periods VALUES (?, NULL, NULL, '', ?, ?, NULL)"
_RULES = "UPDATE retained_history_state SET rules = ? WHERE id = 1"
_PRESENT_RULES = "SELECT rules FROM retained_history_periods WHERE ended_at IS NULL"
_END = "UPDATE retained_history_periods SET ended_at = ? WHERE ended_at IS NULL"
_CONFIRM = "UPDATE retained_history_state SET archived_seq = ? WHERE archived_seq IS NULL OR archived_seq < ?"
_STATE = "SELECT last_seq, last_at, bytes, archived_seq FROM retained_history_state"
_DIGEST = "SELECT rules FROM retained_history_state"


class DepthState(NamedTuple):
    """How far the entries of one depth are pruned, and from when on they answer (milliseconds since the epoch)."""

    pruned_to: int
    since: int


@frozen
class Period:
    """A stretch of time in which every change of the recorded topics was recorded.

    Its entries come after ``first_seq``. It answers for moments from ``complete_since`` to just before ``ended_at``
    (milliseconds since the epoch), both None until then. The baseline is written up to the topic ``baseline_to``, and
    superseded entries are pruned up to ``pruned_to``. Topics whose ``rules`` have a depth of their own have their own
    state of pruning in ``depths``; both are texts of :mod:`.entries`.
    """

    first_seq: int
    complete_since: int | None
    ended_at: int | None
    baseline_to: str
    pruned_to: int
    rules: str | None = None
    depths: str | None = None

    @property
    def parsed(self) -> Rules:
        """The rules."""
        return rules_in(self.rules)

    def states(self) -> dict[Depth, DepthState]:
        """Return the state of pruning of each depth, empty while the period answers for nothing."""
        if self.complete_since is None:
            return {}
        found: dict[Depth, DepthState] = {GENERAL: DepthState(self.pruned_to, self.complete_since)}
        if self.depths is not None:
            found |= {int(depth): DepthState(*state) for depth, state in json.loads(self.depths).items()}
        return found

    @property
    def since(self) -> int | None:
        """The first moment that the period answers for, be it for some topics only. None while there is none."""
        return min((state.since for state in self.states().values()), default=None)

    def answers_for(self, at: int) -> bool:
        """Tell whether the period has the retained messages of a moment, of some topics at least."""
        since = self.since
        if since is None or at < since:
            return False
        return self.ended_at is None or at < self.ended_at

    def hidden_at(self, at: int) -> frozenset[Depth]:
        """Return the depths whose topics it does not know at a moment that it answers for."""
        return frozenset((NOT_RECORDED, *(depth for depth, state in self.states().items() if at < state.since)))

    def left_out_at(self, at: int, topic_filter: str) -> LeftOut:
        """Return which topics of a Topic Filter it does not know at a moment that it answers for."""
        return self.parsed.left_out(topic_filter, self.hidden_at(at).__contains__)

    def pruned_in(self, topic_filter: str) -> int:
        """Return up to which position entries of a Topic Filter's topics may be missing."""
        states = self.states()
        depths = {depth for _, depth in self.parsed.depths_in(topic_filter)}
        return max((states[depth].pruned_to for depth in depths if depth in states), default=self.pruned_to)

    def pruned_anywhere(self) -> int:
        """Return up to which position entries of any topic may be missing."""
        return max((state.pruned_to for state in self.states().values()), default=self.pruned_to)


@frozen
class HistoryState:
    """The position and time of the last entry, the size, and the last entry that an archive has confirmed, if any."""

    last_seq: int
    last_at: int
    size: int
    archived_seq: int | None


def states_text(states: dict[Depth, DepthState]) -> str | None:
    """Return the states of depths as the database has them; None for none. The general one is left out."""
    own = {str(depth): state for depth, state in states.items() if depth is not GENERAL}
    return json.dumps(own, separators=(",", ":")) if own else None


class Turn(NamedTuple):
    """The last position and time of the history, and the digest of the rules of the present period."""

    last_seq: int
    last_at: int
    digest: str | None


def take_turn(cursor: Cursor) -> Turn:
    """Lock the history against other writers until the transaction ends; return its end."""
    cursor.execute(_TURN)
    return Turn(*cursor.fetchall()[0])


def advance(cursor: Cursor, last_seq: int, last_at: int, size: int) -> None:
    """Record the new end of the history, and by how many bytes it has grown. Needs the lock of :func:`take_turn`."""
    cursor.execute(_ADVANCE, (last_seq, last_at, size))


def read_state(cursor: Cursor) -> HistoryState:
    """Return the state of the history."""
    cursor.execute(_STATE)
    return HistoryState(*cursor.fetchall()[0])


def read_periods(cursor: Cursor) -> list[Period]:
    """Return all periods, the oldest first."""
    cursor.execute(_PERIODS)
    return [Period(*row) for row in cursor.fetchall()]


def read_digest(cursor: Cursor) -> str | None:
    """Return the digest of the present rules."""
    cursor.execute(_DIGEST)
    ((digest,),) = cursor.fetchall()
    found: str | None = digest
    return found


def read_rules(cursor: Cursor) -> Rules:
    """Return the rules of the present period."""
    cursor.execute(_PRESENT_RULES)
    found = cursor.fetchall()
    return rules_in(found[0][0]) if found else NO_RULES


def begin(cursor: Cursor, now: int, node: int, rules: Rules = NO_RULES) -> list[int]:
    """Continue the present period if it has these rules; else end it, and begin one.

    From this transaction on, all writers follow the rules: they read the digest with their lock. If other nodes do not
    record, begin none, and return those nodes.
    """
    turn = take_turn(cursor)
    cursor.execute("DELETE FROM retained_history_absent WHERE node = ?", (node,))
    cursor.execute("SELECT node FROM retained_history_absent ORDER BY node")
    absent = [other for (other,) in cursor.fetchall()]
    if not absent:
        _begin_unless_present(cursor, turn, now, rules)
    return absent


def _begin_unless_present(cursor: Cursor, turn: Turn, now: int, rules: Rules) -> None:
    periods = read_periods(cursor)
    if periods and periods[-1].ended_at is None:
        if periods[-1].rules == rules.text:
            return
        cursor.execute(_END, (max(turn.last_at, now),))
    first_seq = turn.last_seq + 1  # a position of its own, so that no two periods begin at the same one
    cursor.execute(_BEGIN, (first_seq, first_seq, rules.text))
    cursor.execute(_RULES, (rules.digest,))
    advance(cursor, first_seq, max(turn.last_at, now), 0)


def end(cursor: Cursor, now: int, node: int) -> None:
    """End the present period, if there is one, because this node does not record from now on.

    ``node`` is 0 for a database that only one node may use.
    """
    last_seq, last_at, _ = take_turn(cursor)
    if node:
        cursor.execute("INSERT INTO retained_history_absent VALUES (?) ON CONFLICT (node) DO NOTHING", (node,))
    ended_at = max(last_at, now)
    cursor.execute(_END, (ended_at,))
    if cursor.rowcount:
        cursor.execute(_RULES, (None,))
        advance(cursor, last_seq, ended_at, 0)


def confirm(cursor: Cursor, seq: int) -> HistoryState:
    """Record that an archive has all entries up to a position; return the state of the history.

    The recorded position never decreases, and is never after the end of the history.
    """
    last_seq, _, _ = take_turn(cursor)
    if seq <= last_seq:
        cursor.execute(_CONFIRM, (seq, seq))
    return read_state(cursor)


def is_recorded(cursor: Cursor) -> bool:
    """Tell whether a period has not ended: then every change must be recorded, also those of tools."""
    periods = read_periods(cursor)
    return bool(periods) and periods[-1].ended_at is None


# The baseline: an entry for each retained message when a period begins, some hundred in a transaction.
#
# Topics that the rules of the period exclude have no entry.


# Built from constants and counts alone: values are always bound.

_NEXT = "SELECT topic, size FROM retained WHERE topic > ? ORDER BY topic LIMIT ?"
#: A topic with an entry in this period needs no baseline entry: a change has recorded its message.
_WANTED = (
    "FROM retained WHERE topic > :after AND topic <= :upto AND tombstone = 0 AND NOT EXISTS (SELECT 1 "
    "FROM retained_history AS entry WHERE entry.topic = retained.topic AND entry.seq > :first){but}"
)
_MEASURE = f"SELECT count(*), CAST(coalesce(sum({WEIGHT}), 0) AS BIGINT) {_WANTED}"
_COPY = (
    f"INSERT INTO retained_history ({', '.join(Entry._fields)}) SELECT :last + row_number() OVER (ORDER BY topic), "
    f"topic, '{ChangeKind.SET.value}', '{ChangeOrigin.BASELINE.value}', qos, size, :now, expires_at, revision, "
    f"client_id, username, properties5, properties_json, payload, NULL {_WANTED}"
)
_PASSED = "UPDATE retained_history_periods SET baseline_to = ? WHERE first_seq = ?"
_COMPLETE = "UPDATE retained_history_periods SET complete_since = ?, depths = ? WHERE first_seq = ?"


def write_part(cursor: Cursor, now: int, rows: int, size: int) -> bool:
    """Write the baseline of the next topics, at most ``rows`` topics or ``size`` bytes; tell whether it is complete.

    Clients change topics in the meantime. The period answers for moments after its baseline is complete: then each
    topic has an entry, either of the baseline or of a change. Nodes that share a database write one baseline together.
    """
    last_seq, last_at, _ = take_turn(cursor)
    period = _unfinished(cursor)
    if period is None:
        return True
    now = max(now, last_at)
    topics = _next(cursor, period.baseline_to, rows, size)
    if not topics:
        rules = period.parsed
        depths = states_text({depth: DepthState(period.first_seq, now) for depth in rules.depths})
        cursor.execute(_COMPLETE, (now, depths, period.first_seq))
        advance(cursor, last_seq, now, 0)
        return True
    upto = topics[-1]
    bound: dict[str, Any] = {
        "after": period.baseline_to, "upto": upto, "first": period.first_seq, "last": last_seq, "now": now,
    }  # fmt: skip
    excluded = [topic for topic in topics if not period.parsed.records(topic)]
    bound |= {f"but{number}": topic for number, topic in enumerate(excluded)}
    but = f" AND topic NOT IN ({', '.join(f':but{number}' for number in range(len(excluded)))})" if excluded else ""
    cursor.execute(_MEASURE.format(but=but), bound)
    ((count, weight),) = cursor.fetchall()
    if count:
        cursor.execute(_COPY.format(but=but), bound)
        advance(cursor, last_seq + count, now, weight)
    cursor.execute(_PASSED, (upto, period.first_seq))
    return False


def _unfinished(cursor: Cursor) -> Period | None:
    """Return the present period, None if its baseline is complete."""
    periods = read_periods(cursor)
    if not periods or periods[-1].ended_at is not None or periods[-1].complete_since is not None:
        return None
    return periods[-1]


def _next(cursor: Cursor, after: str, rows: int, size: int) -> list[str]:
    """Return the topics of this transaction in their order, none if no topic is left."""
    cursor.execute(_NEXT, (after, rows))
    topics: list[str] = []
    for topic, bytes_ in cursor.fetchall():
        if topics and bytes_ > size:
            break
        topics.append(topic)
        size -= bytes_
    return topics


# Pruning: deletes old entries, some thousand at a time, and keeps the answers for all later moments.
#
# How it works. A moment needs the newest entry of each topic before it. So an old entry may go only if a newer entry of
# its topic is before the horizon too. An example with the horizon between 14 and 15::
#
#     seq  topic  op
#      11  a      set     deleted: entry 13 supersedes it
#      12  b      set     deleted: entry 14 supersedes it
#      13  a      set     kept: it is still the message of a at the horizon
#      14  b      clear   deleted: without any entry, b has no message either
#      15  a      set     kept: after the horizon
#
# One transaction takes the next entries after ``pruned_to``, deletes the entries that they supersede, and moves
# ``pruned_to`` and ``complete_since`` in the same commit. The invariant: the history answers for no moment before
# ``complete_since``, and for every moment after it as before the pruning.
#
# Topics whose rules have a depth of their own (:mod:`.entries`) have their own horizon. Each depth of a period is
# pruned by itself, with its own ``pruned_to`` and its own beginning, and passes over the entries of the others. For the
# limit of bytes, the depth that is behind comes first, so that the oldest entries go first.
#
# Deleting by age alone would lose the topics that have not changed for long. Entries that an archive has not confirmed
# are never deleted.


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
_MEASURE_PRUNED = f"SELECT CAST(coalesce(sum({WEIGHT}), 0) AS BIGINT) FROM retained_history WHERE seq IN "
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
    cursor.execute(f"{_MEASURE_PRUNED}({which})", bound)
    ((weight,),) = cursor.fetchall()
    cursor.execute(f"{_DELETE}({which})", bound)
    cursor.execute(_SHRINK, (weight,))
