"""A Session on its way to this node: what it misses until it is loaded.

How it works. A Session that moves from node 2 to node 3 has a receiver in the routing table of node 3, before node 2
gives it away: :class:`Arriving`, with the Topic Filters of the Session. So all other nodes send node 3 the messages for
it. They are rows, and wait in the database. A message of a client of node 3 itself becomes such a row too, for node 3.

    node 3   expects the Session: its filters are in the table, and all nodes know it
    node 2   gives it away, with its *cuts*: up to which row of each origin it has the messages
    node 3   loads it, and gives it the rows behind its cuts: the *second look*

The rows that the second look reads are those that are committed when it begins. Messages of own clients that come
later, and before the Session is loaded, are kept in memory besides (``held``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from heapq import merge

from holdfast.cluster.crossing import CrossedMessage, crossed_of
from holdfast.cluster.receivers import ClusterTable, Peer
from holdfast.core.tickets import CommitTicket
from holdfast.core.topics import TopicTree, matches
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.routing_table import merged
from holdfast.sessions.state import StoredSession, Subscription
from holdfast.storage import layouts
from holdfast.storage.driver import Connection
from holdfast.storage.postgres_values import BigIntegers

#: rows that one statement of the second look reads
_ROWS = 100
_BEHIND = (
    f"SELECT {layouts.cluster_messages.names} FROM cluster_messages WHERE origin = ? AND number > ? AND number <= ? "  # noqa: S608
    f"AND share IS NULL ORDER BY number LIMIT {_ROWS}"
)
_FILTERS = (
    "SELECT session_id, topic_filter, qos FROM session_subscriptions WHERE session_id = ANY(CAST(? AS bigint[])) "
    "AND topic_filter NOT LIKE '$share/%'"
)
_SIZE = "SELECT count(*) FROM (SELECT 1 FROM session_deliveries WHERE session_id = ? LIMIT ?) AS counted"
#: of all Sessions of a node that have moved to it, and are not loaded
ARRIVED_FILTERS = (
    "SELECT session_id, topic_filter, qos FROM session_subscriptions WHERE topic_filter NOT LIKE '$share/%' AND "
    "session_id IN (SELECT id FROM sessions WHERE owner = ? AND id IN (SELECT session_id FROM session_cuts))"
)

#: the number of the last row of each origin that a Session has
Cuts = Mapping[int, int]


class Arriving(Peer):
    """The receiver of a Session that moves to this node. ``filters`` has its Topic Filters, each with its QoS.

    ``held`` has the messages of own clients, in their order, while the Session is being loaded.
    """

    def __init__(self, node: int, identifier: int, cross: Callable[[int, OutgoingMessage, int], None]) -> None:
        super().__init__(node, cross)
        self.client_id = f"\0session {identifier}"
        self.filters: dict[str, int] = {}
        self.held: list[OutgoingMessage] | None = None
        self.is_over = False  #: whether the Session is loaded, or does not come

    def deliver(self, outgoing: OutgoingMessage, options: DeliveryOptions) -> None:
        """Let a message wait for the Session. With QoS 0 it is lost, as for a client that is away."""
        message = outgoing.message
        if self.is_over or not (min(message.qos, options.qos) or message.retain):
            return
        super().deliver(outgoing, options)
        if self.held is not None:
            self.held.append(outgoing)

    def subscribe(self, table: ClusterTable, topic_filter: str, qos: int) -> CommitTicket:
        """Expect messages; return the ticket that is settled when all nodes send them."""
        if self.filters.get(topic_filter) == qos:
            return table.gate_of(topic_filter)
        self.filters[topic_filter] = qos
        table.subscribe(self.receiver, Subscription(topic_filter, qos, retain_as_published=True))
        return table.gate

    def unsubscribe(self, table: ClusterTable, topic_filter: str) -> None:
        """Expect no more messages for a Topic Filter."""
        del self.filters[topic_filter]
        table.unsubscribe(self.receiver, topic_filter)


def digest_of(filters: Iterable[tuple[str, int]]) -> int:
    """Return a number that stands for Topic Filters with their QoS: two nodes compare theirs."""
    told = "\0".join(sorted(f"{topic_filter}\0{qos}" for topic_filter, qos in filters))  # some 4 ms for 10,000 filters
    return int.from_bytes(blake2b(told.encode(), digest_size=8).digest(), "big")


def filters_of(session: Session) -> list[tuple[str, int]]:
    """Return the Topic Filters of a Session, without shared ones."""
    return [(each.topic_filter, each.qos) for each in session.subscriptions.values() if each.group is None]


def read_filters(identifiers: Sequence[int], connection: Connection) -> dict[int, dict[str, int]]:
    """Read the Topic Filters of stored Sessions, without shared ones."""
    cursor = connection.cursor()
    cursor.execute(_FILTERS, (BigIntegers(identifiers),))
    found: dict[int, dict[str, int]] = {identifier: {} for identifier in identifiers}
    for identifier, topic_filter, qos in cursor.fetchall():
        found[identifier][topic_filter] = qos
    return found


def read_size(identifiers: Sequence[int], most: int, connection: Connection) -> int:
    """Count the messages of stored Sessions, up to this number of each."""
    cursor = connection.cursor()
    count = 0
    for identifier in identifiers:
        cursor.execute(_SIZE, (identifier, most))
        count += cursor.fetchall()[0][0]
    return count


def give(session: Session, message: OutgoingMessage) -> None:
    """Give a message that has crossed to the Session, if it matches its Subscriptions."""
    topic, publisher = message.message.topic, message.message.client_id
    found = [
        each
        for each in session.subscriptions.values()
        if each.group is None
        and not (each.no_local and publisher == session.client_id)
        and matches(each.topic_filter, topic)
    ]
    if found:
        session.deliver(message, merged(found))


def read_missed(
    connection: Connection, sessions: Sequence[StoredSession], cuts: Mapping[int, Cuts], upto: Mapping[int, int]
) -> dict[int, list[CrossedMessage]]:
    """Read the rows behind the cuts of Sessions, up to a number of each origin, that match their Subscriptions.

    Return them by Session, those of each origin in their order.
    """
    tree: TopicTree[int, None] = TopicTree()
    for stored in sessions:
        for subscription, _ in stored.subscriptions.values():
            if subscription.group is None:
                tree.add(subscription.topic_filter, stored.record.identifier, None)
    by_origin: dict[int, list[list[CrossedMessage]]] = {stored.record.identifier: [] for stored in sessions}
    cursor = connection.cursor()
    for origin, last in upto.items():
        first = min((cuts.get(identifier, {}).get(origin, 0) for identifier in by_origin), default=last)
        found: dict[int, list[CrossedMessage]] = {identifier: [] for identifier in by_origin}
        while first < last:
            cursor.execute(_BEHIND, (origin, first, last))
            rows = [crossed_of(row) for row in cursor.fetchall()]
            for row in rows:
                for identifier in {identifier for identifier, _ in tree.match(row.message.topic)}:
                    if row.number > cuts.get(identifier, {}).get(origin, 0):
                        found[identifier].append(row)
            first = rows[-1].number if len(rows) == _ROWS else last
        for identifier, rows_of_origin in found.items():
            by_origin[identifier].append(rows_of_origin)
    return {
        identifier: list(merge(*origins, key=lambda row: row.revision or row.number))
        for identifier, origins in by_origin.items()
    }
