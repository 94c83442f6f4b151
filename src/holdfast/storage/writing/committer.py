"""The part of the writer that runs in its thread: one transaction for a whole commit group.

A group is one transaction, because a commit of one row takes nearly as long as a commit of a thousand. But then one bad
row makes the whole transaction fail. The committer finds the bad row by bisection:

    transaction of a, b, c, d      fails: REFUSED (a CHECK constraint, for example)
    transaction of a, b            commits
    transaction of c, d            fails: REFUSED
    transaction of c               commits
    transaction of d               fails: REFUSED, and is alone: d is refused

Invariant: each write of the group is in exactly one of three sets at the end: committed, refused or failed, left for
later. The halves are done in order, so writes of the same group are never reordered across a commit.

No row causes the other failures, so the group is not halved:

- *conflict* (Postgres: another node was in the way): the same transaction again, at most ten times in a group;
- *away* (the server is gone, another program locks the file): the connection is closed, everything that is not
  committed yet is left, and the writer tries again later;
- all others (disk full, damage): everything that is not committed yet fails now.

Savepoints, one for each row, would find the bad row without bisection. But every group would pay for them, and bad rows
are rare.

Each commit must leave a *revision mark* that no committed revision exceeds: a restarted clock begins above it. The mark
is written ahead, by 100 milliseconds, so most of the commits of a busy writer need not write it:

    time 12:00:00.000    the mark is 12:00:00.100
    until 12:00:00.100   the revisions of all commits are below it, and these commits do not touch the table ``nodes``
    time 12:00:00.101    the next commit writes the mark 12:00:00.201

A lone row then changes one page of the database instead of two. A start takes longer than the mark is ahead, so it does
not stamp changes with a time to come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from twisted.logger import Logger

from holdfast.storage.driver import Connection, WritableDatabase
from holdfast.storage.revisions import TIME_SHIFT
from holdfast.storage.writing.groups import CommitOutcome
from holdfast.storage.writing.node_totals import raise_revision_mark
from holdfast.storage.writing.writes import IWriteKind, Write
from holdfast.tickets import FailureKind

T = TypeVar("T")

#: How often the transactions of a group are repeated at once because of other nodes.
_MOST_CONFLICTS = 10
#: How far the mark is ahead of the revision that made it necessary: 100 milliseconds.
MARK_AHEAD = 100 << TIME_SHIFT


class Committer:
    """Commits groups on the writer's connection. It opens the connection when needed, and again after an error.

    A given ``connection`` is used first.
    """

    _log = Logger()

    def __init__(self, database: WritableDatabase, node: int, connection: Connection | None = None) -> None:
        self._database = database
        self._node = node
        self._connection = connection
        self._mark = 0  #: as this connection has committed it, 0 if it has not

    def store(self, writes: Sequence[Write], revision: int) -> CommitOutcome:
        """Commit the writes, in one transaction if possible. ``revision`` is the highest one that was used."""
        started = perf_counter()
        outcome = CommitOutcome([], {})
        waiting = [writes] if writes else []  # a group is empty if all its writes have cancelled out
        conflicts = 0
        while waiting:
            part = waiting.pop()
            try:
                outcome.results += self.transact(partial(self._apply, part, revision))
            except Exception as error:  # noqa: BLE001 - every failure has a kind, which the writes are told
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
                        self._disconnect()  # after a failover, a new connection may lead to another server
                        outcome.away, outcome.left = failure, part
                        break
                outcome.failures.update({(write.kind, write.key): failure for write in part})
            else:
                if revision > self._mark:
                    self._mark = revision + MARK_AHEAD
                outcome.rows += len(part)
                outcome.commits += 1
        outcome.seconds = perf_counter() - started
        return outcome

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Do the work inside a transaction and commit it. Any exception rolls the transaction back."""
        connection = self._connected()
        try:
            connection.cursor().execute(self._database.begin_statement)
            result = work(connection)
            connection.commit()
        except BaseException:
            self._roll_back(connection)
            raise
        return result

    def maintain(self) -> None:
        """Let the database do its maintenance, if a connection is open. Raises nothing."""
        if self._connection is not None:
            self._database.maintain(self._connection)

    def run_outside_transaction(self, work: Callable[[Connection], T]) -> T:
        """Do the work outside any transaction."""
        return work(self._connected())

    def close(self) -> None:
        """Complete the database's files and close the connection, if one is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                self._database.checkpoint(connection)
            except Exception as error:  # noqa: BLE001 - nothing is lost: the changes in the log are committed
                self._log.warn("the log was not moved into the database, and stays beside it: {error}", error=error)
            finally:
                connection.close()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _apply(self, writes: Sequence[Write], revision: int, connection: Connection) -> list[tuple[IWriteKind, Any]]:
        cursor = connection.cursor()
        by_kind: dict[IWriteKind, list[Write]] = {}
        for write in writes:
            by_kind.setdefault(write.kind, []).append(write)
        results = [(kind, kind.apply(cursor, by_kind[kind])) for kind in sorted(by_kind, key=_order)]
        # In the same transaction: after a crash, the revision clock starts above every committed revision.
        if revision > self._mark:
            raise_revision_mark(cursor, self._node, revision + MARK_AHEAD)
        return results

    def _connected(self) -> Connection:
        if self._database.damage is not None:
            raise self._database.damage
        if self._connection is None:
            self._connection = self._database.connect()
            self._mark = 0  # another server may have taken over, and may not have the last commits
        return self._connection

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except Exception:  # noqa: BLE001 - the first error is the one to report
            # The state of this connection is unknown. Closing it undoes the transaction; the next one starts clean.
            self._connection = None
            connection.close()


def _order(kind: IWriteKind) -> tuple[int, str]:
    return kind.order, kind.name
