"""Write kinds of Session State: one per table, many rows to a statement, and what failed written again later."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from sqlalchemy import Table
from zope.interface import implementer

from holdfast.storage import tables
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.bulk import Bulk
from holdfast.storage.writing.writes import IWriteKind, Write
from holdfast.tickets import FailureKind, StorageFailure


@implementer(IWriteKind)
class RowKind:
    """Rows of one table: keys are its primary key's values as a tuple, rows are tuples of all columns, the key first.

    Writes that failed because of the database are kept in ``unwritten`` until they are written, or newer ones of the
    same key are: memory is ahead of the database then, and catches up when ``when_failed``'s receiver says so.
    """

    def __init__(self, table: Table, order: int, bulk: Bulk, when_failed: Callable[[], None]) -> None:
        self.name = table.name
        self.order = order
        self.unwritten: dict[Hashable, Write] = {}
        self._table = table
        self._bulk = bulk
        self._key = tuple(column.name for column in table.primary_key)
        self._when_failed = when_failed

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> Any:
        """Insert, replace and delete rows; return the keys of those that older ones of are unwritten."""
        self._bulk.upsert(cursor, self._table, [write.row for write in writes if write.row is not None])
        self._bulk.delete(cursor, self._table, self._key, [_tuple(write.key) for write in writes if write.row is None])
        return [write.key for write in writes if write.key in self.unwritten] if self.unwritten else ()

    def committed(self, account: Any) -> None:
        """Forget what is unwritten and has been overtaken: it was submitted before, and failed after that."""
        for key in account:
            self.unwritten.pop(key, None)

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Keep what the database could not take for later. A row it refuses for itself is given up."""
        if failure.kind is not FailureKind.REFUSED:
            self.unwritten.update((write.key, write) for write in writes)
            self._when_failed()


@implementer(IWriteKind)
class EndedSessions(RowKind):
    """Ends Sessions: the key is the Session's id alone, and all its rows go.

    So does what the database could not take of them (``of_sessions``): written later, it would bring them back.
    """

    def __init__(
        self, order: int, bulk: Bulk, when_failed: Callable[[], None], of_sessions: Sequence[RowKind] = ()
    ) -> None:
        super().__init__(tables.sessions, order, bulk, when_failed)
        self.name = "ended sessions"
        self._of_sessions = of_sessions
        self._tables = (
            (tables.sessions, ("id",)),
            (tables.session_subscriptions, ("session_id",)),
            (tables.session_deliveries, ("session_id",)),
            (tables.session_received, ("session_id",)),
        )

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> frozenset[Any]:
        """Delete every row of these Sessions; return their ids."""
        keys = [_tuple(write.key) for write in writes]
        for table, key in self._tables:
            self._bulk.delete(cursor, table, key, keys)
        return frozenset(identifier for (identifier,) in keys)

    def committed(self, account: Any) -> None:
        """Forget what is unwritten of these Sessions."""
        super().committed([(identifier,) for identifier in account])
        for kind in self._of_sessions:
            for key in [key for key in kind.unwritten if _tuple(key)[0] in account]:
                del kind.unwritten[key]


def _tuple(key: Hashable) -> tuple[Any, ...]:
    assert isinstance(key, tuple)
    return key
