"""The leases of this node, by topic and by client."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.retained.leases.lease import Lease
from holdfast.retained.leases.rows import LeaseRows
from holdfast.tickets import CommitTicket


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
