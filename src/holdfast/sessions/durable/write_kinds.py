"""The write kinds of Session State: one for each of its tables, and one that ends Sessions.

``RowKind`` writes many rows of one table with one statement. ``EndedSessions`` deletes a Session's rows from
``sessions``, ``session_subscriptions``, ``session_deliveries`` and ``session_received``.

How failed writes are repeated. Memory is ahead of the database when a commit fails: a Client was told that its Session
exists. Say the row of delivery (7, 3) cannot be written because the disk is full:

    the commit fails          the write is kept in ``unwritten`` under its key (7, 3)
    a newer write of (7, 3)   replaces it: once the newer one is committed, the old one is forgotten
    a second later            ``DurableSessionStates`` submits all of ``unwritten`` again

The invariant: for each key, the database has the last write, or the last write is pending or in ``unwritten``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from zope.interface import implementer

from holdfast.storage import layouts
from holdfast.storage.driver import Cursor
from holdfast.storage.layouts import Layout
from holdfast.storage.writing.bulk import Bulk
from holdfast.storage.writing.writes import IWriteKind, Write
from holdfast.tickets import FailureKind, StorageFailure


@implementer(IWriteKind)
class RowKind:
    """Writes of one table's rows. A key is a tuple of the primary key, a row is a tuple of all columns, the key first.

    Writes that failed because of the database are kept in ``unwritten``, and ``when_failed`` is called.
    """

    def __init__(self, table: Layout, order: int, bulk: Bulk, when_failed: Callable[[], None]) -> None:
        self.name = table.name
        self.order = order
        self.unwritten: dict[Hashable, Write] = {}
        self._table = table
        self._bulk = bulk
        self._key = table.key
        self._when_failed = when_failed

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> Any:
        """Insert, replace and delete rows. Returns the keys that have an older write in ``unwritten``."""
        self._bulk.upsert(cursor, self._table, [write.row for write in writes if write.row is not None])
        self._bulk.delete(cursor, self._table, self._key, [_tuple(write.key) for write in writes if write.row is None])
        return [write.key for write in writes if write.key in self.unwritten] if self.unwritten else ()

    def committed(self, account: Any) -> None:
        """Forget the failed writes of these keys: newer ones are committed."""
        for key in account:
            self.unwritten.pop(key, None)

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Keep the writes for later, except writes that the database refuses because of their row."""
        if failure.kind is not FailureKind.REFUSED:
            self.unwritten.update((write.key, write) for write in writes)
            self._when_failed()


@implementer(IWriteKind)
class EndedSessions(RowKind):
    """Ends Sessions: the key is the Session's id, and all rows of the Session are deleted.

    The unwritten rows of the kinds ``of_sessions`` are forgotten too: written later, they would bring the Session back.
    """

    def __init__(
        self, order: int, bulk: Bulk, when_failed: Callable[[], None], of_sessions: Sequence[RowKind] = ()
    ) -> None:
        super().__init__(layouts.sessions, order, bulk, when_failed)
        self.name = "ended sessions"
        self._of_sessions = of_sessions
        self._tables = (
            (layouts.sessions, ("id",)),
            (layouts.session_subscriptions, ("session_id",)),
            (layouts.session_deliveries, ("session_id",)),
            (layouts.session_received, ("session_id",)),
        )

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> frozenset[Any]:
        """Delete every row of these Sessions. Returns their ids."""
        keys = [_tuple(write.key) for write in writes]
        for table, key in self._tables:
            self._bulk.delete(cursor, table, key, keys)
        return frozenset(identifier for (identifier,) in keys)

    def committed(self, account: Any) -> None:
        """Forget the unwritten rows of these Sessions."""
        super().committed([(identifier,) for identifier in account])
        for kind in self._of_sessions:
            for key in [key for key in kind.unwritten if _tuple(key)[0] in account]:
                del kind.unwritten[key]


def _tuple(key: Hashable) -> tuple[Any, ...]:
    assert isinstance(key, tuple)
    return key
