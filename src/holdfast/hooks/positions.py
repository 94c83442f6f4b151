"""The places of hooks in the database: up to where each has delivered, and which node runs it.

A node claims a hook for half a minute, and renews the claim. So of several brokers on one database one delivers the
changes of retained messages. Should two of them do so for a moment, because a process or a clock stood still, changes
come twice, and none is lost: the place is written only by the node with the claim.
"""

from __future__ import annotations

from attrs import frozen

from holdfast.storage.driver import Cursor

#: milliseconds of a claim
CLAIM = 30_000

_ADD = (
    "INSERT INTO hook_positions (hook, token, revision, node, claimed_until) VALUES (?, '', 0, ?, ?) "
    "ON CONFLICT (hook) DO NOTHING"
)
_CLAIM = "UPDATE hook_positions SET node = ?, claimed_until = ? WHERE hook = ? AND (node = ? OR claimed_until < ?)"
_READ = "SELECT token, revision FROM hook_positions WHERE hook = ?"
_SAVE = "UPDATE hook_positions SET token = ?, revision = ?, claimed_until = ? WHERE hook = ? AND node = ?"


@frozen
class Position:
    """All changes up to the ``token`` of the log, and all with a ``revision`` at or below this one, are delivered.

    The token is "" before the hook has begun.
    """

    token: str
    revision: int


def claim(cursor: Cursor, hook: str, node: int, now: int) -> Position | None:
    """Claim a hook for this node, again or anew; return its place, None while another node has it."""
    cursor.execute(_CLAIM, (node, now + CLAIM, hook, node, now))
    if not cursor.rowcount:
        cursor.execute(_ADD, (hook, node, now + CLAIM))
        if not cursor.rowcount:
            return None
    cursor.execute(_READ, (hook,))
    ((token, revision),) = cursor.fetchall()
    return Position(token, revision)


def save(cursor: Cursor, hook: str, node: int, position: Position, now: int) -> bool:
    """Write the place of a hook and renew its claim. Return False if another node has claimed it meanwhile."""
    cursor.execute(_SAVE, (position.token, position.revision, now + CLAIM, hook, node))
    return bool(cursor.rowcount)
