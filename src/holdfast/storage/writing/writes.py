"""Writes: durable changes on their way to the database, whatever they are about."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from attrs import define
from zope.interface import Attribute, Interface

from holdfast.hot_values import hot_frozen
from holdfast.storage.driver import Cursor
from holdfast.tickets import CommitTicket, StorageFailure


class IWriteKind(Interface):
    """One kind of durable change: it knows the tables its writes go to."""

    name = Attribute("What the writes are called in log lines.")
    order = Attribute("Kinds are applied in ascending order within a transaction.")

    def apply(cursor: Cursor, writes: Sequence[Write]) -> Any:
        """Write rows of distinct keys, in the writer's thread, inside its transaction; return an account of it.

        It may be called again with fewer writes after a rollback, so it must change nothing but the database.
        """

    def committed(account: Any) -> None:
        """Take the account of a transaction that is now durable, in the reactor thread."""

    def failed(writes: Sequence[Write], failure: StorageFailure) -> None:
        """Take the writes that were not stored, in the reactor thread, before their tickets are settled."""


@hot_frozen
class Write:
    """One change: the row its kind writes for ``key``, None to delete it, and how many bytes it counts for (``size``).

    Of two writes with the same kind and key that wait for the same commit, the one of higher ``rank`` is written; of
    the same rank, the later one. ``fresh`` promises that the database has no row of this key, and that none is on its
    way: when such a write is deleted while it waits, both are forgotten and never reach the disk.
    """

    kind: IWriteKind
    key: Hashable
    row: Any
    size: int
    rank: int = 0
    fresh: bool = False


Identity = tuple[IWriteKind, Hashable]


class Pending:
    """Writes waiting for the same commit, coalesced, with the tickets that wait for it in order of submission."""

    __slots__ = ("acknowledged_at", "cancelled", "coalesced", "size", "tickets", "writes")

    def __init__(self) -> None:
        self.writes: dict[Identity, Write] = {}
        self.tickets: list[tuple[Identity | None, CommitTicket]] = []
        self.size = 0
        self.coalesced = 0
        self.cancelled = 0
        #: when the first of these changes was acknowledged that did not wait for the commit, None for none
        self.acknowledged_at: float | None = None

    def add(self, write: Write) -> int:
        """Take a write in; return by how many bytes that changed the size of what is pending."""
        identity = (write.kind, write.key)
        before = self.writes.get(identity)
        grown = write.size
        if before is not None:
            self.coalesced += 1
            if before.rank > write.rank:
                return 0
            grown -= before.size
            # Rows stay in order of submission: what a kind writes last was submitted last.
            del self.writes[identity]
            if before.fresh and write.row is None:
                self.cancelled += 1
                self.size -= before.size
                return -before.size
            if write.fresh is not before.fresh:
                write = Write(write.kind, write.key, write.row, write.size, write.rank, before.fresh)
        self.writes[identity] = write
        self.size += grown
        return grown


def put_back(left: Sequence[Write], batch: Pending, queued: Pending | None) -> Pending:
    """Return what is pending once a batch has left these writes: with what was ``queued`` behind it, if anything.

    The tickets of what was stored are not among its own. None of the writes is fresh any more: the commit whose outcome
    is unknown may have stored it.
    """
    merged = Pending()
    merged.acknowledged_at = batch.acknowledged_at
    for write in left:
        merged.add(Write(write.kind, write.key, write.row, write.size, write.rank))
    identities = set(merged.writes)
    merged.tickets = [entry for entry in batch.tickets if entry[0] is None or entry[0] in identities]
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
class Stored:
    """What became of a batch: accounts of the transactions that committed, and the writes that were not stored.

    ``left`` are those that can be stored later, because the database was ``away``.
    """

    accounts: list[tuple[IWriteKind, Any]]
    failures: dict[Identity, StorageFailure]
    rows: int = 0
    commits: int = 0
    seconds: float = 0.0
    away: StorageFailure | None = None
    left: Sequence[Write] = ()


@define
class WriterCounters:
    """What the writer has done since it was made. ``seconds`` is the time spent in its thread on batches."""

    commits: int = 0
    rows: int = 0
    coalesced: int = 0
    cancelled: int = 0
    failed: int = 0
    seconds: float = 0.0
