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

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from attrs import define, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import Attribute, Interface

from holdfast.core.tickets import CommitTicket, FailureKind, RunTicket, StorageFailure
from holdfast.hot_values import hot_frozen
from holdfast.storage.driver import Connection, Cursor, WritableDatabase
from holdfast.storage.revisions import TIME_SHIFT

# Writes: durable changes that wait for their commit, for any table.


class IWriteKind(Interface):
    """One kind of durable change. It knows the tables of its writes."""

    name = Attribute("The name of the writes in log lines.")
    order = Attribute("Within a transaction, kinds are applied in ascending order.")

    def apply(cursor: Cursor, writes: Sequence[Write]) -> Any:
        """Write rows of distinct keys, in the writer's thread, inside its transaction; return a result.

        After a rollback the writer calls it again with fewer writes, so it must change nothing but the database.
        """

    def committed(result: Any) -> None:
        """Take the result of ``apply`` when its transaction is durable, in the reactor thread."""

    def failed(writes: Sequence[Write], failure: StorageFailure) -> None:
        """Take the writes that were not stored, in the reactor thread, before their tickets are settled."""


@hot_frozen
class Write:
    """One change: ``row`` is the row that the kind writes for ``key`` (None: delete it), ``size`` its size in bytes.

    If two writes with the same kind and key wait for the same commit, the one with the higher ``rank`` is written. If
    the ranks are equal, the later one is written. ``fresh`` promises that the database has no row with this key, and
    that no commit in progress writes one. If its key is deleted while it waits, the write and the deletion are
    forgotten and never reach the disk.
    """

    kind: IWriteKind
    key: Hashable
    row: Any
    size: int
    rank: int = 0
    fresh: bool = False


Identity = tuple[IWriteKind, Hashable]


# Commit groups: the writes that wait for the same commit, with their tickets, and the outcome of a commit.


#: A ticket and what it waits for: a write; several writes, for a :class:`RunTicket`; None is the end of the commit,
#: with any result. None in place of one of several writes is one whose outcome is known.
Entry = tuple[Identity | list[Identity | None] | None, CommitTicket]


class CommitGroup:
    """Writes for one commit, at most one for each key, and the tickets that wait for it, in order of submission.

    ``began`` is the time of the first change, in seconds of the reactor's clock.
    """

    __slots__ = ("acknowledged_at", "began", "cancelled", "coalesced", "size", "tickets", "writes")

    def __init__(self, began: float) -> None:
        self.began = began
        self.writes: dict[Identity, Write] = {}
        self.tickets: list[Entry] = []
        self.size = 0
        self.coalesced = 0
        self.cancelled = 0
        #: when the first change was acknowledged ahead of this commit, None if none was
        self.acknowledged_at: float | None = None

    def add(self, write: Write) -> int:
        """Add a write; return the difference that it makes to the group's size in bytes."""
        identity = (write.kind, write.key)
        before = self.writes.get(identity)
        grown = write.size
        if before is not None:
            self.coalesced += 1
            if before.rank > write.rank:
                return 0
            grown -= before.size
            # The dict is in order of submission, and kinds write in that order: the new write goes to the end.
            del self.writes[identity]
            if before.fresh and write.row is None:
                self.cancelled += 1
                self.size -= before.size
                return -before.size
            if write.fresh is not before.fresh:
                # The database still has no row of this key if it had none before the first write of the group.
                write = Write(write.kind, write.key, write.row, write.size, write.rank, before.fresh)
        self.writes[identity] = write
        self.size += grown
        return grown

    def keep_settled(self, left: Sequence[Write]) -> None:
        """Drop the tickets that wait for the writes ``left`` or for the whole group; :func:`merge_left` has them."""
        identities = {(write.kind, write.key) for write in left}
        self.tickets = [
            entry for entry in self.tickets if entry[0] is not None and not _waits_for(entry[0], identities)
        ]


def note_failures(entries: Sequence[Entry], failures: Mapping[Identity, StorageFailure]) -> None:
    """Tell the tickets of several writes which of these have failed."""
    if failures:
        for waited, ticket in entries:
            if isinstance(ticket, RunTicket) and isinstance(waited, list):
                ticket.failures.update(
                    (place, failures[one]) for place, one in enumerate(waited) if one is not None and one in failures
                )


def _waits_for(waited: Identity | list[Identity | None], identities: Container[Identity]) -> bool:
    if isinstance(waited, list):
        return any(one in identities for one in waited)
    return waited in identities


def merge_left(left: Sequence[Write], group: CommitGroup, queued: CommitGroup | None) -> CommitGroup:
    """Return a group of the writes that a commit has ``left``, their tickets, and the ``queued`` group behind them.

    None of the writes left is fresh: if the outcome of the commit is unknown, it may have stored them.
    """
    merged = CommitGroup(group.began)
    merged.acknowledged_at = group.acknowledged_at
    for write in left:
        merged.add(Write(write.kind, write.key, write.row, write.size, write.rank))
    identities = set(merged.writes)
    for waited, ticket in group.tickets:
        if waited is None:
            merged.tickets.append((None, ticket))
        elif _waits_for(waited, identities):
            if isinstance(waited, list):  # of the others the outcome is known; later writes of their keys are not these
                waited = [one if one in identities else None for one in waited]
            merged.tickets.append((waited, ticket))
    if queued is not None:
        for write in queued.writes.values():
            merged.add(write)
        merged.tickets += queued.tickets
        if merged.acknowledged_at is None:
            merged.acknowledged_at = queued.acknowledged_at
        merged.coalesced += queued.coalesced
        merged.cancelled += queued.cancelled
    return merged


@define
class CommitOutcome:
    """The outcome of a commit group: the results of its transactions, and the failures by identity.

    If the database was ``away``, the writes ``left`` can be stored later.
    """

    results: list[tuple[IWriteKind, Any]]
    failures: dict[Identity, StorageFailure]
    rows: int = 0
    commits: int = 0
    seconds: float = 0.0
    away: StorageFailure | None = None
    left: Sequence[Write] = ()


# An errand: work for the writer's thread that is not a write.


class Errand(CommitGroup):
    """Other work for the writer's thread. It has no writes; its tickets wait for it to be over."""

    __slots__ = ("answer", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(0.0)
        self.work = work
        self.answer: Deferred[Any] = Deferred()

    def answer_with(self, outcome: Any, database: WritableDatabase) -> None:
        """Give the outcome, a result or an exception, to whoever has sent the errand."""
        if not isinstance(outcome, BaseException):
            self.answer.callback(outcome)
            return
        failure = database.failure(outcome)
        self.answer.errback(outcome if failure.kind is FailureKind.REFUSED else failure)


# The table ``nodes``: each node's revision mark, and its share of the totals.
#
# The totals of the store are the sums over all nodes, so a start reads a few rows instead of counting all messages.
# Each commit that changes them updates the row of its node in its own transaction, so the totals always agree with the
# messages.


@frozen
class StoreTotals:
    """The totals of all nodes.

    No revision above ``revision_mark`` was ever committed. ``retained_count`` and ``retained_bytes`` are the number of
    live messages and their bytes. ``largest_packet`` is the length of the longest packet that any retained message ever
    had. ``unsent_revision`` is the highest revision of an operator's change.
    """

    revision_mark: int
    retained_count: int
    retained_bytes: int
    largest_packet: int
    unsent_revision: int


def read_totals(cursor: Cursor) -> StoreTotals:
    """Read the totals of a database with a current schema."""
    cursor.execute(
        "SELECT coalesce(max(revision_mark), 0), CAST(coalesce(sum(retained_count), 0) AS BIGINT), "
        "CAST(coalesce(sum(retained_bytes), 0) AS BIGINT), coalesce(max(largest_packet), 0), "
        "coalesce(max(unsent_revision), 0) FROM nodes"
    )
    return StoreTotals(*cursor.fetchone())


def add_node(connection: Connection, node: int) -> None:
    """Insert the row of a node, unless it exists."""
    connection.cursor().execute("INSERT INTO nodes VALUES (?, 0, 0, 0, 0, NULL) ON CONFLICT (node) DO NOTHING", (node,))


def raise_revision_mark(cursor: Cursor, node: int, revision: int) -> None:
    """Record that a node uses no revision above this one, inside a transaction; a lower one changes nothing."""
    cursor.execute(
        "UPDATE nodes SET revision_mark = ? WHERE node = ? AND revision_mark < ?", (revision, node, revision)
    )


def raise_unsent_revision(cursor: Cursor, node: int, revision: int) -> None:
    """Record the revision of an operator's change, inside its transaction; a lower one changes nothing."""
    cursor.execute(
        "UPDATE nodes SET unsent_revision = ? WHERE node = ? AND (unsent_revision IS NULL OR unsent_revision < ?)",
        (revision, node, revision),
    )


def add_to_totals(cursor: Cursor, node: int, count: int, size: int, largest_packet: int) -> None:
    """Add to a node's share of the totals, inside a transaction."""
    cursor.execute(
        "UPDATE nodes SET retained_count = retained_count + ?, retained_bytes = retained_bytes + ?, "
        "largest_packet = CASE WHEN largest_packet < ? THEN ? ELSE largest_packet END WHERE node = ?",
        (count, size, largest_packet, largest_packet, node),
    )


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
            self._database.begin(connection)
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
