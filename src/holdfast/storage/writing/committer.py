"""Batches: one transaction for all that is pending, and what to do when one row spoils it.

All of it runs in the writer's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from twisted.logger import Logger

from holdfast.storage.driver import Connection, WritableDatabase
from holdfast.storage.writing.node_totals import raise_revision_mark
from holdfast.storage.writing.writes import IWriteKind, Stored, Write
from holdfast.tickets import FailureKind

T = TypeVar("T")

#: How often a batch is done again because of other nodes before it waits a while.
_MOST_CONFLICTS = 10


class Committer:
    """Stores batches on the writer's connection, which it opens when first needed and again after it broke.

    Where a ``connection`` is given, it has that already.
    """

    _log = Logger()

    def __init__(self, database: WritableDatabase, node: int, connection: Connection | None = None) -> None:
        self._database = database
        self._node = node
        self._connection = connection

    def store(self, writes: Sequence[Write], mark: int) -> Stored:
        """Write everything in one transaction, with ``mark`` as the highest revision used.

        A transaction that fails because of a row is rolled back and tried again in halves, until the row stands alone
        and is refused. When the database fails, so does all that is not committed yet;
        when it is away, that is left for later.
        """
        started = perf_counter()
        stored = Stored([], {})
        waiting = [writes] if writes else []  # all may have been cancelled
        conflicts = 0
        while waiting:
            part = waiting.pop()
            try:
                stored.accounts += self.transact(partial(self._apply, part, mark))
            except Exception as error:  # noqa: BLE001 - every failure has a kind, and its writes are told
                if self._database.is_conflict(error) and conflicts < _MOST_CONFLICTS:
                    conflicts += 1
                    waiting.append(part)
                    continue
                failure = self._database.failure(error)
                if failure.kind is FailureKind.REFUSED and len(part) > 1:
                    middle = len(part) // 2
                    waiting += (part[middle:], part[:middle])
                    continue
                if failure.kind is not FailureKind.REFUSED:
                    waiting.append(part)
                    part = [write for rest in reversed(waiting) for write in rest]
                    waiting.clear()
                    if self._database.is_away(error):
                        self._disconnect()  # the next connection may find another server
                        stored.away, stored.left = failure, part
                        break
                stored.failures.update({(write.kind, write.key): failure for write in part})
            else:
                stored.rows += len(part)
                stored.commits += 1
        stored.seconds = perf_counter() - started
        return stored

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Do the work inside a transaction and commit it; whatever it raises, the transaction is undone."""
        connection = self._connected()
        try:
            connection.cursor().execute(self._database.begin_statement)
            result = work(connection)
            connection.commit()
        except BaseException:
            self._undo(connection)
            raise
        self._database.committed(connection)
        return result

    def attend(self, work: Callable[[Connection], T]) -> T:
        """Do the work outside any transaction."""
        return work(self._connected())

    def close(self) -> None:
        """Check the log in and close the connection, if one is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                self._database.checkpoint(connection)
            except Exception as error:  # noqa: BLE001 - nothing is lost: what is in the log is committed
                self._log.warn("the log is not checked in, and stays as it is: {error}", error=error)
            finally:
                connection.close()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _apply(self, writes: Sequence[Write], mark: int, connection: Connection) -> list[tuple[IWriteKind, Any]]:
        cursor = connection.cursor()
        by_kind: dict[IWriteKind, list[Write]] = {}
        for write in writes:
            by_kind.setdefault(write.kind, []).append(write)
        accounts = [(kind, kind.apply(cursor, by_kind[kind])) for kind in sorted(by_kind, key=_order)]
        raise_revision_mark(cursor, self._node, mark)
        return accounts

    def _connected(self) -> Connection:
        if self._database.damage is not None:
            raise self._database.damage
        if self._connection is None:
            self._connection = self._database.connect()
        return self._connection

    def _undo(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except Exception:  # noqa: BLE001 - the first error is the one to report
            # Nobody knows what state this connection is in: closing it undoes the transaction, a new one starts clean.
            self._connection = None
            connection.close()


def _order(kind: IWriteKind) -> tuple[int, str]:
    return kind.order, kind.name
