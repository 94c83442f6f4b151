"""Periods of the history, and the lock under which nodes append to it."""

from __future__ import annotations

import json
from typing import NamedTuple

from attrs import frozen

from holdfast.retained.history.rules import (
    GENERAL,
    NO_RULES,
    NOT_RECORDED,
    Depth,
    LeftOut,
    Rules,
    rules_in,
)
from holdfast.storage.driver import Cursor

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
    state of pruning in ``depths``; both are texts of :mod:`.rules`.
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
