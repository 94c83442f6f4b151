"""Leases of retained messages: what a publisher asks for, those of this node, and their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from typing import Any, Protocol

from attrs import frozen
from zope.interface import implementer

from holdfast.core.extensions import LeaseTerm
from holdfast.core.messages import RetainedChange
from holdfast.core.tickets import COMMITTED, CommitTicket, StorageFailure
from holdfast.retained.store.sql import statements_for
from holdfast.retained.store.statements import Statements
from holdfast.retained.store.upserts import ConditionalUpserts
from holdfast.storage import layouts
from holdfast.storage.committer import IWriteKind, Write
from holdfast.storage.driver import Bulk, Cursor
from holdfast.storage.store import DurableStore, OpenStore

# A lease of a retained message, and what a publisher asks for.


@frozen
class Wanted:
    """What a PUBLISH asks for. ``session`` is the stored identifier of its Session, 0 if that ends with the process."""

    term: LeaseTerm
    session: int

    def of(self, change: RetainedChange) -> Lease:
        """Return the lease of a change that sets a message."""
        assert change.client_id is not None
        return Lease(change.topic, change.revision, change.client_id, change.username, self.term, self.session)


@frozen(eq=False)
class Lease:
    """The lease of the message that has this revision: no other message of the topic is ever cleared by it."""

    topic: str
    revision: int
    client_id: str
    username: str | None
    term: LeaseTerm
    session: int


# The leases of this node, by topic and by client.


class LeaseBook:
    """Knows each lease until it has ended, or the next message of its topic is stored. A topic has one at most."""

    def __init__(self, rows: LeaseRows) -> None:
        #: public, because each change looks whether its topic has a lease
        self.by_topic: dict[str, Lease] = {}
        self._by_client: dict[str, dict[str, Lease]] = {}
        self.rows = rows

    def __len__(self) -> int:
        return len(self.by_topic)

    def of(self, client_id: str) -> Collection[Lease]:
        """Return the leases of a client."""
        return self._by_client.get(client_id, {}).values()

    def count(self, client_id: str) -> int:
        """Return how many leases a client has."""
        return len(self._by_client.get(client_id, ()))

    def has(self, client_id: str, topic: str) -> bool:
        """Tell whether a client has the lease of a topic."""
        return topic in self._by_client.get(client_id, ())

    def give(self, lease: Lease) -> CommitTicket:
        """Note a lease and store it, in the turn in which its message is put."""
        self.note(lease)
        return self.rows.give(lease)

    def note(self, lease: Lease) -> None:
        """Note a lease that is stored. That of an older message of the topic is over."""
        older = self.by_topic.get(lease.topic)
        if older is not None:
            if older.revision > lease.revision:
                self.rows.drop(lease)
                return
            self._forget(older)
            if older.revision != lease.revision:
                self.rows.drop(older)
        self.by_topic[lease.topic] = lease
        self._by_client.setdefault(lease.client_id, {})[lease.topic] = lease

    def changed(self, topic: str, revision: int) -> None:
        """Note that a message of a topic was replaced or cleared: its lease is over."""
        lease = self.by_topic.get(topic)
        if lease is not None and lease.revision < revision:
            self.over(lease)

    def over(self, lease: Lease) -> None:
        """Forget a lease, and delete its row."""
        if self.by_topic.get(lease.topic) is lease:
            self._forget(lease)
            self.rows.drop(lease)

    def leave(self, lease: Lease) -> None:
        """Forget a lease, and keep its row."""
        if self.by_topic.get(lease.topic) is lease:
            self._forget(lease)

    def load(self) -> Sequence[Lease]:
        """Note all leases of the last process, and return them."""
        for lease in self.rows.load():
            self.note(lease)
        return tuple(self.by_topic.values())

    def _forget(self, lease: Lease) -> None:
        del self.by_topic[lease.topic]
        leases = self._by_client[lease.client_id]
        del leases[lease.topic]
        if not leases:
            del self._by_client[lease.client_id]


# The rows of leases: given in the transaction that stores their message, and kept until they have ended.
#
# How it works. A lease is submitted in the same turn as its change, so one commit group has both, and a crash keeps or
# loses both. Its kind is applied after all changes of retained messages, and writes a lease only if the present message
# has its revision. So neither a conditional change that was refused nor one that lost to a higher revision has a lease.
#
# A row has the revision in its key. So the lease of a refused change, which waits for the same commit, never replaces a
# lease that counts.


#: the bytes that a row counts for in the writer's pending bytes, beside its texts
_ROW = 150

_TABLE = layouts.retained_leases
_READ = f"SELECT {_TABLE.names} FROM {_TABLE.name}"  # noqa: S608 - built from the table's definition


class LeaseRows(Protocol):
    """Where leases are stored."""

    def give(self, lease: Lease, committed: bool = False) -> CommitTicket:
        """Store a lease if its message is stored. Call it in the turn of its change.

        With ``committed``, the ticket waits for the commit also with durability "async".
        """

    def drop(self, lease: Lease) -> None:
        """Delete a lease that has ended, or whose message was replaced. Call it in the turn of what ends it."""

    def load(self) -> Sequence[Lease]:
        """Return all leases of this node, in the order of their revisions."""


class NoLeaseRows:
    """Stores nothing: the leases end with the process."""

    def give(self, lease: Lease, committed: bool = False) -> CommitTicket:
        """Store nothing."""
        return COMMITTED

    def drop(self, lease: Lease) -> None:
        """Store nothing."""

    def load(self) -> Sequence[Lease]:
        """Return nothing."""
        return ()


def leases_of(rows: Iterable[Sequence[Any]]) -> list[Lease]:
    """Return the leases of rows of ``retained_leases``, in the order of their revisions."""
    return [
        Lease(topic, revision, client_id, username, LeaseTerm(term), session)
        for _, topic, revision, client_id, username, term, session in sorted(rows, key=lambda row: row[2])
    ]


@implementer(IWriteKind)
class LeaseKind:
    """The write kind of leases. A key has all columns of the primary key, a row has all columns, None: delete it."""

    name = "leases"
    order = ConditionalUpserts.order + 1

    def __init__(self, statements: Statements, bulk: Bulk) -> None:
        self._statements = statements
        self._bulk = bulk

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> None:
        """Write the leases of present messages, and delete those that are over."""
        given = [write.row for write in writes if write.row is not None]
        if given:
            topics = sorted({topic for _, topic, *_ in given})
            present = {(row[0], row[1]) for row in self._statements.locked_rows(cursor, topics, ())}
            self._bulk.upsert(cursor, _TABLE, [row for row in given if (row[1], row[2]) in present])
        over: list[Any] = [write.key for write in writes if write.row is None]
        if over:
            self._bulk.delete(cursor, _TABLE, _TABLE.key, over)

    def committed(self, result: Any) -> None:
        """Do nothing: the tickets tell the publishers."""

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Do nothing. The end of a lease that is over already, because its row was not deleted, changes nothing."""


class DurableLeaseRows:
    """The rows of leases in a durable store, usable while the store is open."""

    def __init__(self, store: DurableStore) -> None:
        self._node = store.node if store.shared else 0
        self._kind = LeaseKind(statements_for(store.dialect), store.bulk)
        self._parts: OpenStore
        store.when_open(self._opened)

    def give(self, lease: Lease, committed: bool = False) -> CommitTicket:
        """Store a lease if its message is stored."""
        row = (
            self._node, lease.topic, lease.revision, lease.client_id, lease.username, lease.term.value, lease.session,
        )  # fmt: skip
        size = _ROW + len(lease.topic) + len(lease.client_id)
        return self._parts.writer.submit(Write(self._kind, row[:3], row, size), committed=committed)

    def drop(self, lease: Lease) -> None:
        """Delete a lease."""
        key = (self._node, lease.topic, lease.revision)
        self._parts.writer.add(Write(self._kind, key, None, _ROW + len(lease.topic)))

    def load(self) -> Sequence[Lease]:
        """Read all leases of this node. Raises StoreUnusable."""
        database = self._parts.database
        with database.explaining_errors(), closing(database.connect_reader()) as connection:
            cursor = connection.cursor()
            cursor.execute(_READ)
            rows = [row for row in cursor.fetchall() if row[0] == self._node]
        return leases_of(rows)

    def _opened(self, parts: OpenStore) -> None:
        self._parts = parts
