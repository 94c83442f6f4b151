"""Messages for groups that a dead node was to give to a member: their origin hands them on.

How it works. A row with a ``share`` names one node, which gives the message to a member of the group. If that node dies
before its cursor has passed the row, the origin *claims* it: the row names the origin itself from then on. A node that
comes back waits for that, or its origin does not claim any more. A claimed row is nobody else's:

    row 7 for node 2, $share/g/a    node 2 is dead, and others have taken over from it
    row 7 for node 1, its origin    claimed, in a commit of its own
    delivery to a member            here or, by a new row, on another node, and row 7 is deleted, in one commit

A group may have members on dead nodes only, until others have taken over their Sessions. Then its rows wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from holdfast.cluster.crossing import CrossedMessage, crossed_of, text_of
from holdfast.core.tickets import CommitTicket, StorageFailure
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage import layouts
from holdfast.storage.committer import IWriteKind, Write
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.postgres_values import BigIntegers
from holdfast.storage.store import DurableStore

#: seconds between two looks, the rows of one, and the looks that rows wait for members when no Session may come
_INTERVAL, _ROWS, _LOOKS = 1.0, 40, 10
#: a node that comes back changes its row, so it waits until the claims are committed
_DEAD = "SELECT node FROM cluster_members WHERE state = 'dead' ORDER BY node FOR SHARE"
_CLAIM = (
    "UPDATE cluster_messages SET targets = ? WHERE origin = ? AND share IS NOT NULL AND targets = ? AND number > "
    "coalesce((SELECT number FROM cluster_cursors WHERE node = ? AND origin = ?), 0)"
)
#: a row without a group that names its origin is for a Session that moves there
_CLAIMED = (
    f"SELECT {layouts.cluster_messages.names} FROM cluster_messages WHERE origin = ? AND targets = ? "  # noqa: S608
    "AND share IS NOT NULL AND number > ? ORDER BY number LIMIT ?"
)
_ORPHANS = (
    "SELECT EXISTS (SELECT 1 FROM sessions WHERE owner IN (SELECT node FROM cluster_members WHERE state = 'dead')) "
    "OR EXISTS (SELECT 1 FROM session_cuts)"
)


@implementer(IWriteKind)
class HandedOn:
    """Deletes claimed rows, in the commit of their deliveries. The key is the number."""

    name = "cluster_messages_handed_on"
    order = 14

    def __init__(self, node: int) -> None:
        self._node = node

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> None:
        """Delete the rows."""
        numbers = BigIntegers([write.row[0] for write in writes])
        cursor.execute(
            "DELETE FROM cluster_messages WHERE origin = ? AND number = ANY(CAST(? AS bigint[]))", (self._node, numbers)
        )

    def committed(self, result: Any) -> None:
        """Do nothing: the tickets tell."""

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Do nothing: the rows are found again."""


class HandingOn:
    """Hands messages for groups on, of this node for nodes that are dead.

    ``deliver`` gives a message to a member of its group, on any node. ``has_members`` tells whether a group has members
    on nodes that live, ``some_are_dead`` whether any node is dead.
    """

    def __init__(
        self,
        durable: DurableStore,
        clock: IReactorTime,
        *,
        deliver: Callable[[CrossedMessage, CommitTicket], None],
        has_members: Callable[[str], bool],
        some_are_dead: Callable[[], bool],
    ) -> None:
        self._durable = durable
        self._deliver = deliver
        self._has_members = has_members
        self._some_are_dead = some_are_dead
        self._kind = HandedOn(durable.node)
        self._may_have_claimed = True  # an earlier process may have
        self._hopeless = 0  # how many looks ago a Session could still come
        self._last = 0  # the last row of a look that was full: its rows may wait for members
        self._job = PeriodicJob(
            self._look, name="handing messages for groups on", interval=_INTERVAL, clock=clock,
            foreseen=(StorageFailure,),
        )  # fmt: skip

    def start(self) -> None:
        """Begin to look."""
        self._job.start(_INTERVAL)

    def stop(self) -> None:
        """Hand nothing on any more."""
        self._job.stop()

    @as_deferred
    async def _look(self) -> None:
        """Claim rows for dead nodes, and hand on those whose groups have members; the others wait."""
        parts = self._durable.parts
        if parts is None or not (self._some_are_dead() or self._may_have_claimed):
            return
        rows, may_come = await parts.writer.run(partial(_claim, self._durable.node, self._last))
        self._hopeless = 0 if may_come else self._hopeless + 1
        self._may_have_claimed = bool(rows) or self._last > 0
        self._last = rows[-1].number if len(rows) == _ROWS else 0
        for row in rows:
            assert row.share is not None
            has_members = self._has_members(row.share)
            if not has_members and self._hopeless < _LOOKS:
                continue
            ticket = parts.writer.submit(Write(self._kind, row.number, (row.number,), 50))
            if has_members:
                after = CommitTicket()
                self._deliver(row, after)
                ticket.when_settled(after.settle)


def _claim(node: int, after: int, connection: Connection) -> tuple[list[CrossedMessage], bool]:
    """Claim the rows of a node for dead nodes. Return the next claimed ones, and whether Sessions may come yet."""
    cursor = connection.cursor()
    cursor.execute(_DEAD)
    own = text_of((node,))
    for (dead,) in cursor.fetchall():
        cursor.execute(_CLAIM, (own, node, text_of((dead,)), dead, node))
    cursor.execute(_CLAIMED, (node, own, after, _ROWS))
    rows = [crossed_of(row) for row in cursor.fetchall()]
    cursor.execute(_ORPHANS)
    ((may_come,),) = cursor.fetchall()
    return rows, may_come
