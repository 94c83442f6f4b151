"""Writes: durable changes on their way to the database, whatever they are about."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define
from zope.interface import Attribute, Interface

from holdfast.storage.driver import Cursor
from holdfast.tickets import CommitTicket, StorageFailure

if TYPE_CHECKING:
    from attrs import frozen
else:  # immutable to the type checker, cheap at run time
    from attrs import define as frozen


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


@frozen
class Write:
    """One change: the row its kind writes for ``key``, and how many bytes it counts for (``size``).

    Of two writes with the same kind and key that wait for the same commit, the one of higher ``rank`` is written; of
    the same rank, the later one.
    """

    kind: IWriteKind
    key: Hashable
    row: Any
    size: int
    rank: int = 0


Identity = tuple[IWriteKind, Hashable]


class Pending:
    """Writes waiting for the same commit, coalesced, with the tickets that wait for it in order of submission."""

    __slots__ = ("coalesced", "size", "tickets", "writes")

    def __init__(self) -> None:
        self.writes: dict[Identity, Write] = {}
        self.tickets: list[tuple[Identity | None, CommitTicket]] = []
        self.size = 0
        self.coalesced = 0

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
        self.writes[identity] = write
        self.size += grown
        return grown


@define
class Stored:
    """What became of a batch: accounts of the transactions that committed, and the writes that were not stored."""

    accounts: list[tuple[IWriteKind, Any]]
    failures: dict[Identity, StorageFailure]
    rows: int = 0
    commits: int = 0
    seconds: float = 0.0


@define
class WriterCounters:
    """What the writer has done since it was made. ``seconds`` is the time spent in its thread on batches."""

    commits: int = 0
    rows: int = 0
    coalesced: int = 0
    failed: int = 0
    seconds: float = 0.0
