"""Periods of the history: when every change was recorded, and whose turn it is to write."""

from __future__ import annotations

from attrs import frozen

from holdfast.storage.driver import Cursor

_TURN = "UPDATE retained_history_state SET last_seq = last_seq WHERE id = 1 RETURNING last_seq, last_at"
_ADVANCE = "UPDATE retained_history_state SET last_seq = ?, last_at = ?, bytes = bytes + ? WHERE id = 1"
_PERIODS = (
    "SELECT first_seq, complete_since, ended_at, baseline_to, pruned_to FROM retained_history_periods "
    "ORDER BY first_seq"
)
_BEGIN = "INSERT INTO retained_history_periods VALUES (?, NULL, NULL, '', ?)"
_END = "UPDATE retained_history_periods SET ended_at = ? WHERE ended_at IS NULL"
_CONFIRM = "UPDATE retained_history_state SET archived_seq = ? WHERE archived_seq IS NULL OR archived_seq < ?"
_STATE = "SELECT last_seq, last_at, bytes, archived_seq FROM retained_history_state"


@frozen
class Period:
    """A time in which every change was recorded (milliseconds since the epoch; None for what has not come yet).

    Its entries come after ``first_seq``; it answers for moments from ``complete_since`` to just before ``ended_at``.
    The baseline is written up to the topic ``baseline_to``, and superseded entries are pruned up to ``pruned_to``.
    """

    first_seq: int
    complete_since: int | None
    ended_at: int | None
    baseline_to: str
    pruned_to: int

    def answers_for(self, at: int) -> bool:
        """Tell whether its entries say what was retained at a moment."""
        if self.complete_since is None or at < self.complete_since:
            return False
        return self.ended_at is None or at < self.ended_at


@frozen
class HistoryState:
    """How far the history has come: its last place and time, its size, and how far an archive has got (None: none)."""

    last_seq: int
    last_at: int
    size: int
    archived_seq: int | None


def take_turn(cursor: Cursor) -> tuple[int, int]:
    """Keep all others from writing to the history until this transaction ends; return its last place and time."""
    cursor.execute(_TURN)
    ((last_seq, last_at),) = cursor.fetchall()
    return last_seq, last_at


def advance(cursor: Cursor, last_seq: int, last_at: int, size: int) -> None:
    """Record where the history ends now, and by how many bytes it has grown. It must be one's turn."""
    cursor.execute(_ADVANCE, (last_seq, last_at, size))


def read_state(cursor: Cursor) -> HistoryState:
    """Return how far the history has come."""
    cursor.execute(_STATE)
    return HistoryState(*cursor.fetchall()[0])


def read_periods(cursor: Cursor) -> list[Period]:
    """Return all periods, in their order."""
    cursor.execute(_PERIODS)
    return [Period(*row) for row in cursor.fetchall()]


def begin(cursor: Cursor, now: int, node: int) -> list[int]:
    """Go on with the present period, or begin one, unless other nodes do not record; return those. Takes its turn."""
    last_seq, last_at = take_turn(cursor)
    cursor.execute("DELETE FROM retained_history_absent WHERE node = ?", (node,))
    cursor.execute("SELECT node FROM retained_history_absent ORDER BY node")
    absent = [other for (other,) in cursor.fetchall()]
    periods = read_periods(cursor)
    if not absent and (not periods or periods[-1].ended_at is not None):
        first_seq = last_seq + 1  # a place of its own: no two periods begin at the same
        cursor.execute(_BEGIN, (first_seq, first_seq))
        advance(cursor, first_seq, max(last_at, now), 0)
    return absent


def end(cursor: Cursor, now: int, node: int) -> None:
    """End the present period, if there is one: from now on this node does not record. Takes its turn.

    ``node`` is 0 where no other node may use the database.
    """
    last_seq, last_at = take_turn(cursor)
    if node:
        cursor.execute("INSERT INTO retained_history_absent VALUES (?) ON CONFLICT (node) DO NOTHING", (node,))
    ended_at = max(last_at, now)
    cursor.execute(_END, (ended_at,))
    if cursor.rowcount:
        advance(cursor, last_seq, ended_at, 0)


def confirm(cursor: Cursor, seq: int) -> HistoryState:
    """Record that an archive has everything up to a place, and return how far the history has come. Takes its turn.

    It never goes back, and a place behind the end of the history is not recorded.
    """
    last_seq, _ = take_turn(cursor)
    if seq <= last_seq:
        cursor.execute(_CONFIRM, (seq, seq))
    return read_state(cursor)


def is_recorded(cursor: Cursor) -> bool:
    """Tell whether a period is under way: every change must be recorded then, whoever makes it."""
    periods = read_periods(cursor)
    return bool(periods) and periods[-1].ended_at is None
