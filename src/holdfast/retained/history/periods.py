"""Periods of the history, and the lock under which nodes append to it."""

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
    """A stretch of time in which every change was recorded.

    Its entries come after ``first_seq``. It answers for moments from ``complete_since`` to just before ``ended_at``
    (milliseconds since the epoch), both None until then. The baseline is written up to the topic ``baseline_to``, and
    superseded entries are pruned up to ``pruned_to``.
    """

    first_seq: int
    complete_since: int | None
    ended_at: int | None
    baseline_to: str
    pruned_to: int

    def answers_for(self, at: int) -> bool:
        """Tell whether the period has the retained messages of a moment."""
        if self.complete_since is None or at < self.complete_since:
            return False
        return self.ended_at is None or at < self.ended_at


@frozen
class HistoryState:
    """The position and time of the last entry, the size, and the last entry that an archive has confirmed, if any."""

    last_seq: int
    last_at: int
    size: int
    archived_seq: int | None


def take_turn(cursor: Cursor) -> tuple[int, int]:
    """Lock the history against other writers until the transaction ends; return its last position and time."""
    cursor.execute(_TURN)
    ((last_seq, last_at),) = cursor.fetchall()
    return last_seq, last_at


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


def begin(cursor: Cursor, now: int, node: int) -> list[int]:
    """Continue the present period, or begin one. If other nodes do not record, do neither, and return those nodes."""
    last_seq, last_at = take_turn(cursor)
    cursor.execute("DELETE FROM retained_history_absent WHERE node = ?", (node,))
    cursor.execute("SELECT node FROM retained_history_absent ORDER BY node")
    absent = [other for (other,) in cursor.fetchall()]
    periods = read_periods(cursor)
    if not absent and (not periods or periods[-1].ended_at is not None):
        first_seq = last_seq + 1  # a position of its own, so that no two periods begin at the same one
        cursor.execute(_BEGIN, (first_seq, first_seq))
        advance(cursor, first_seq, max(last_at, now), 0)
    return absent


def end(cursor: Cursor, now: int, node: int) -> None:
    """End the present period, if there is one, because this node does not record from now on.

    ``node`` is 0 for a database that only one node may use.
    """
    last_seq, last_at = take_turn(cursor)
    if node:
        cursor.execute("INSERT INTO retained_history_absent VALUES (?) ON CONFLICT (node) DO NOTHING", (node,))
    ended_at = max(last_at, now)
    cursor.execute(_END, (ended_at,))
    if cursor.rowcount:
        advance(cursor, last_seq, ended_at, 0)


def confirm(cursor: Cursor, seq: int) -> HistoryState:
    """Record that an archive has all entries up to a position; return the state of the history.

    The recorded position never decreases, and is never after the end of the history.
    """
    last_seq, _ = take_turn(cursor)
    if seq <= last_seq:
        cursor.execute(_CONFIRM, (seq, seq))
    return read_state(cursor)


def is_recorded(cursor: Cursor) -> bool:
    """Tell whether a period has not ended: then every change must be recorded, also those of tools."""
    periods = read_periods(cursor)
    return bool(periods) and periods[-1].ended_at is None
