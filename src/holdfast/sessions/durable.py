"""Session State in the database: its rows, their writes, and loading them at start."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from holdfast.core.extensions import facts_in, text_of
from holdfast.core.messages import ApplicationMessage, held_size
from holdfast.core.tickets import COMMITTED, CommitTicket, FailureKind, StorageFailure
from holdfast.core.topics import split_shared
from holdfast.identity.interfaces import Principal, stored_principal
from holdfast.sessions.state import (
    DeliveryState,
    ISessionRecord,
    ISessionStates,
    KeptMessage,
    ReplayProgress,
    StoredDelivery,
    StoredSession,
    StoredWill,
    Subscription,
)
from holdfast.storage import layouts
from holdfast.storage.committer import IWriteKind, Write
from holdfast.storage.driver import Bulk, Connection, Cursor
from holdfast.storage.layout import Layout
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.wire.packets import Will
from holdfast.wire.properties import NO_PROPERTIES, WILL, Properties
from holdfast.wire.property_codec import decode_properties, encode_properties

# The rows of Session State, in the order of the tables' columns, and the values made from them.
#
# Each pair of functions belongs to one table: ``session_messages``, ``session_subscriptions``, ``session_deliveries``
# and ``wills``. The rows of ``sessions`` and ``session_received`` hold plain values and are made in ``states``.


Row = tuple[Any, ...]


def message_row(identifier: int, message: ApplicationMessage) -> Row:
    """Return the row of ``session_messages``."""
    return (
        identifier, message.topic, message.qos, int(message.retain), message.client_id, message.username,
        message.expires_at, encode_properties(message.properties), message.payload,
    )  # fmt: skip


def message_of(row: Row) -> ApplicationMessage:
    """Return the message of a row of ``session_messages``."""
    _, topic, qos, retain, client_id, username, expires_at, properties5, payload = row
    properties = _properties(properties5, 3)
    return ApplicationMessage(topic, payload, qos, bool(retain), client_id, username, properties, expires_at)


def subscription_row(
    session: int, topic_filter: str, subscription: Subscription, progress: ReplayProgress | None
) -> Row:
    """Return the row of ``session_subscriptions``."""
    return (
        session, topic_filter, subscription.qos, int(subscription.no_local), int(subscription.retain_as_published),
        subscription.retain_handling, subscription.identifier,
        None if progress is None else progress.after, (progress.cut or None) if progress is not None else None,
        None if progress is None else progress.marker, subscription.conflate or None,
        text_of(progress.facts) if progress is not None and progress.facts else None,
        None if progress is None else progress.since,
    )  # fmt: skip


def subscription_of(row: Row) -> tuple[Subscription, ReplayProgress | None]:
    """Return the subscription of a row of ``session_subscriptions``, and the progress of its replay."""
    (_, topic_filter, qos, no_local, as_published, retain_handling, identifier, replay_after, cut, marker, conflate,
     facts, since) = row  # fmt: skip
    group, inner = split_shared(topic_filter)
    subscription = Subscription(
        inner, qos, bool(no_local), bool(as_published), retain_handling, identifier, group, conflate=conflate or 0
    )
    if replay_after is None:
        return subscription, None
    told = () if facts is None else facts_in(facts)
    return subscription, ReplayProgress(replay_after, cut or 0, marker, told, since)


def delivery_row(session: int, delivery: DeliveryState) -> Row:
    """Return the row of ``session_deliveries``."""
    return (
        session, delivery.seq, delivery.message, delivery.qos, int(delivery.retain),
        ",".join(map(str, delivery.identifiers)), delivery.packet_identifier or None, int(delivery.released),
        delivery.shared_filter,
    )  # fmt: skip


def delivery_of(row: Row) -> DeliveryState:
    """Return the delivery of a row of ``session_deliveries``."""
    _, seq, message, qos, retain, identifiers, packet_identifier, released, shared_filter = row
    return DeliveryState(
        seq,
        message,
        qos,
        bool(retain),
        tuple(int(one) for one in identifiers.split(",") if one),
        packet_identifier or 0,
        bool(released),
        shared_filter,
    )


def will_row(node: int, stored: StoredWill) -> Row:
    """Return the row of ``wills``."""
    principal, will = stored.principal, stored.will
    return (
        node, principal.client_id, principal.username, will.topic, will.qos, int(will.retain), int(stored.delay),
        stored.due_at, encode_properties(will.properties), will.payload, principal.listener, int(stored.lost),
        int(stored.untold),
    )  # fmt: skip


def will_of(row: Row) -> StoredWill:
    """Return the Will Message of a row of ``wills``."""
    _, client_id, username, topic, qos, retain, delay, due_at, properties5, payload, listener, lost, untold = row
    will = Will(topic, payload, qos, bool(retain), _properties(properties5, WILL))
    principal = Principal(client_id, username, listener=listener, names_only=True)
    return StoredWill(principal, will, delay, due_at, bool(lost), bool(untold))


def _properties(block: bytes, packet_type: int) -> Properties:
    return NO_PROPERTIES if block == b"\0" else decode_properties(block, packet_type)


# The write kinds of Session State: one for each of its tables, and one that ends Sessions.
#
# ``RowKind`` writes many rows of one table with one statement. ``EndedSessions`` deletes a Session's rows from
# ``sessions``, ``session_subscriptions``, ``session_deliveries`` and ``session_received``.
#
# How failed writes are repeated. Memory is ahead of the database when a commit fails: a Client was told that its
# Session exists. Say the row of delivery (7, 3) cannot be written because the disk is full:
#
#     the commit fails          the write is kept in ``unwritten`` under its key (7, 3)
#     a newer write of (7, 3)   replaces it: once the newer one is committed, the old one is forgotten
#     a second later            ``DurableSessionStates`` submits all of ``unwritten`` again
#
# The invariant: for each key, the database has the last write, or the last write is pending or in ``unwritten``.


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


# Session State in the database, written through the one writer.
#
# ``DurableSessionStates`` writes ``session_messages`` and ``wills``; each ``DurableRecord`` writes its Session's rows
# of ``sessions``, ``session_subscriptions``, ``session_deliveries`` and ``session_received``.
#
# The kinds are applied in the order of their numbers within one transaction. Messages come before the deliveries that
# refer to them. Ended Sessions come last, so that rows pending for a Session are deleted with it.


#: The bytes that a row without a message counts for in the writer's pending bytes, beside its texts.
_ROW_OVERHEAD = 150

#: Seconds after which failed writes are repeated.
_AGAIN = 1.0


@implementer(ISessionStates)
class DurableSessionStates:
    """Session State in a durable store, usable while the store is open."""

    def __init__(self, store: DurableStore, clock: IReactorTime) -> None:
        self._clock = clock
        self._parts: OpenStore
        self._retry: IDelayedCall | None = None
        self._node = store.node if store.shared else 0
        self._shared = store.shared
        bulk = store.bulk
        self.messages = RowKind(layouts.session_messages, 20, bulk, self._failed)
        self.sessions = RowKind(layouts.sessions, 30, bulk, self._failed)
        self.subscriptions = RowKind(layouts.session_subscriptions, 40, bulk, self._failed)
        self.deliveries = RowKind(layouts.session_deliveries, 50, bulk, self._failed)
        self.received = RowKind(layouts.session_received, 60, bulk, self._failed)
        self.wills = RowKind(layouts.wills, 70, bulk, self._failed)
        of_sessions = (self.sessions, self.subscriptions, self.deliveries, self.received)
        self.ended = EndedSessions(90, bulk, self._failed, of_sessions)
        self._kinds = (
            self.messages, self.sessions, self.subscriptions, self.deliveries, self.received, self.wills, self.ended,
        )  # fmt: skip
        store.when_open(self._opened)

    def record(self, client_id: str) -> DurableRecord:
        """Return a new record; its id is never used again."""
        return DurableRecord(self, self._parts.clock.next_revision(), Principal(client_id, None))

    def keep(self, message: ApplicationMessage) -> KeptMessage:
        """Keep a message."""
        identifier = self._parts.clock.next_revision()
        return KeptMessage(identifier, self._write_message(identifier, message, True), self.forget_message)

    def changed(self, kept: KeptMessage, message: ApplicationMessage) -> None:
        """Write the row of a message again."""
        self._write_message(kept.identifier, message, False)

    def _write_message(self, identifier: int, message: ApplicationMessage, fresh: bool) -> CommitTicket:
        row = message_row(identifier, message)
        size = held_size(len(message.topic.encode()), message.properties, len(message.payload))
        return self.submit(self.messages, (identifier,), row, size, fresh)

    def forget_message(self, identifier: int) -> None:
        """Forget a message that no delivery refers to any more."""
        self.add(self.messages, (identifier,), None)

    def will_kept(self, will: StoredWill) -> CommitTicket:
        """Keep a Will Message."""
        row = will_row(self._node, will)
        size = held_size(len(will.will.topic.encode()), will.will.properties, len(will.will.payload))
        return self.submit(self.wills, (self._node, will.principal.client_id), row, size)

    def will_over(self, client_id: str) -> None:
        """Forget a Will Message."""
        self.add(self.wills, (self._node, client_id), None)

    def load(self) -> tuple[Sequence[StoredSession], Sequence[StoredWill]]:
        """Read all Sessions and Wills, and delete rows that nothing refers to. Raises StoreUnusable."""
        node = self._node if self._shared else None
        database = self._parts.database
        with database.explaining_errors(), closing(database.connect_reader()) as connection:
            loading = Loading(connection, node, partial(DurableRecord, self), self.forget_message)
        for identifier in loading.orphans:
            self.forget_message(identifier)
        return loading.sessions, loading.wills

    def submit(self, kind: RowKind, key: Hashable, row: object, size: int, fresh: bool = False) -> CommitTicket:
        """Write a row, or delete it (None). Returns the ticket of the commit."""
        if kind.unwritten and kind.unwritten.pop(key, None) is not None:
            fresh = False  # an older write of this key failed, but may still have reached the database
        return self._parts.writer.submit(Write(kind, key, row, size, 0, fresh))

    def add(self, kind: RowKind, key: Hashable, row: object, fresh: bool = False) -> None:
        """Write a row, or delete it (None), without a ticket."""
        if kind.unwritten and kind.unwritten.pop(key, None) is not None:
            fresh = False
        self._parts.writer.add(Write(kind, key, row, _ROW_OVERHEAD, 0, fresh))

    def _opened(self, parts: OpenStore) -> None:
        self._parts = parts

    def _failed(self) -> None:
        if self._retry is None:
            self._retry = self._clock.callLater(_AGAIN, self._write_again)

    def _write_again(self) -> None:
        """Repeat failed writes, after all pending ones: a newer write of the same key must not be overwritten."""
        self._retry = None
        self._parts.writer.flushed().when_settled(lambda _: self._write_unwritten())

    def _write_unwritten(self) -> None:
        for kind in self._kinds:
            unwritten, kind.unwritten = kind.unwritten, {}
            for write in unwritten.values():
                self._parts.writer.add(Write(kind, write.key, write.row, write.size))


@implementer(ISessionRecord)
class DurableRecord:
    """The rows of one Session."""

    __slots__ = ("_expiry", "_over", "_principal", "_states", "_void_cuts", "identifier", "listener")

    durable = True

    def __init__(
        self,
        states: DurableSessionStates,
        identifier: int,
        principal: Principal,
        listener: str = "",
        expiry: Expiry = (None, None),
        void_cuts: int | None = None,
    ) -> None:
        self.identifier = identifier
        self.listener = listener
        self._principal = principal
        self._states = states
        self._over = False
        self._expiry = expiry
        self._void_cuts = void_cuts

    def attached(self, principal: Principal, listener: str, expiry_interval: float | None) -> CommitTicket:
        """Write the Session's row, without an expiry."""
        self._principal = principal
        self.listener = listener
        return self.detached(expiry_interval, None)

    def detached(self, expiry_interval: float | None, expires_at: int | None) -> CommitTicket:
        """Write the Session's row."""
        self._expiry = (None if expiry_interval is None else int(expiry_interval), expires_at)
        return self._write_session()

    def lost(self, void_cuts: int) -> None:
        """Write the Session's row, with these cuts."""
        self._void_cuts = void_cuts
        self._write_session()

    def _write_session(self) -> CommitTicket:
        principal = self._principal
        row = (
            self.identifier, principal.client_id, principal.username, self.listener, *self._expiry, self._void_cuts,
        )  # fmt: skip
        return self._write(self._states.sessions, (self.identifier,), row)

    def ended(self) -> CommitTicket:
        """Delete every row of the Session. Later calls write nothing."""
        ticket = self._write(self._states.ended, (self.identifier,), ())
        self._over = True
        return ticket

    def subscribed(
        self, topic_filter: str, subscription: Subscription, progress: ReplayProgress | None
    ) -> CommitTicket:
        """Write a subscription's row."""
        row = subscription_row(self.identifier, topic_filter, subscription, progress)
        size = _ROW_OVERHEAD + len(topic_filter) + (0 if progress is None else len(progress.after))
        return self._write(self._states.subscriptions, (self.identifier, topic_filter), row, size=size)

    def unsubscribed(self, topic_filter: str) -> CommitTicket:
        """Delete a subscription's row."""
        return self._write(self._states.subscriptions, (self.identifier, topic_filter), None)

    def delivering(self, delivery: DeliveryState, fresh: bool) -> CommitTicket:
        """Write a delivery's row. Below QoS 2 the ticket of its message is enough, so none is returned."""
        key = (self.identifier, delivery.seq)
        row = delivery_row(self.identifier, delivery)
        if delivery.qos < 2 and not delivery.released:
            if not self._over:
                self._states.add(self._states.deliveries, key, row, fresh)
            return COMMITTED
        return self._write(self._states.deliveries, key, row, fresh)

    def delivered(self, seq: int) -> None:
        """Delete a delivery's row."""
        if not self._over:
            self._states.add(self._states.deliveries, (self.identifier, seq), None)

    def received(self, packet_identifier: int, at: int, fresh: bool) -> CommitTicket:
        """Write the row of a received QoS 2 message."""
        key = (self.identifier, packet_identifier)
        return self._write(self._states.received, key, (*key, at), fresh)

    def released(self, packet_identifier: int) -> CommitTicket:
        """Delete the row of a received QoS 2 message."""
        return self._write(self._states.received, (self.identifier, packet_identifier), None)

    def _write(
        self, kind: RowKind, key: Hashable, row: object, fresh: bool = False, size: int = _ROW_OVERHEAD
    ) -> CommitTicket:
        if self._over:
            return COMMITTED
        return self._states.submit(kind, key, row, size, fresh)


# Loading at start: it reads all tables of Session State and builds Sessions and Wills from their rows.


#: the Session Expiry Interval in seconds, and the time of expiry
Expiry = tuple[int | None, int | None]


class Loading:
    """All Sessions and Wills of a store, or of one ``node`` if several nodes share the store.

    ``orphans`` are messages that no delivery refers to. They remain if the broker ended before it could repeat a failed
    write. The caller deletes them. Sessions that a later one of the same Client has replaced are marked as superseded;
    they remain if the broker ended before it could move all their shared messages.
    """

    def __init__(
        self,
        connection: Connection,
        node: int | None,
        record: Callable[[int, Principal, str, Expiry, int | None], ISessionRecord],
        forget_message: Callable[[int], None],
    ) -> None:
        self._connection = connection
        self._node = node
        self._forget = forget_message
        self._messages: dict[int, tuple[ApplicationMessage, KeptMessage]] = {
            row[0]: (message_of(row), KeptMessage(row[0], COMMITTED, forget_message))
            for row in self._rows(layouts.session_messages)
        }
        rows = self._rows(layouts.sessions)
        newest = {row[1]: row[0] for row in rows}
        subscriptions = self._by_session(layouts.session_subscriptions)
        deliveries = self._by_session(layouts.session_deliveries)
        received = self._by_session(layouts.session_received)
        self.sessions: list[StoredSession] = []
        for identifier, client_id, username, listener, expiry_interval, expires_at, void_cuts in rows:
            principal = stored_principal(client_id, username)
            self.sessions.append(
                StoredSession(
                    record(identifier, principal, listener, (expiry_interval, expires_at), void_cuts),
                    principal,
                    listener,
                    expiry_interval,
                    expires_at,
                    void_cuts or 0,
                    {row[1]: subscription_of(row) for row in subscriptions.get(identifier, ())},
                    [self._delivery(row) for row in deliveries.get(identifier, ())],
                    {row[1]: row[2] for row in received.get(identifier, ())},
                    newest[client_id] != identifier,
                )
            )
        self.wills: list[StoredWill] = [will_of(row) for row in self._rows(layouts.wills)]
        self.orphans = [identifier for identifier, (_, kept) in self._messages.items() if not kept.references]

    def _rows(self, table: Layout) -> list[Row]:
        cursor = self._connection.cursor()
        whose, bound = "", list[int]()
        if self._node is not None:
            # The ids of Sessions and messages are revisions: their low byte is the node that made them.
            whose = "WHERE node = ? " if table is layouts.wills else f"WHERE {table.key[0]} & 255 = ? "
            bound = [self._node]
        cursor.execute(f"SELECT {table.names} FROM {table.name} {whose}ORDER BY {', '.join(table.key)}", bound)  # noqa: S608
        return list(cursor.fetchall())

    def _by_session(self, table: Layout) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = {}
        for row in self._rows(table):
            found.setdefault(row[0], []).append(row)
        return found

    def _delivery(self, row: Row) -> StoredDelivery:
        state = delivery_of(row)
        message, kept = self._messages.get(state.message or 0, (None, None))
        if kept is not None:
            kept.acquire()
        return StoredDelivery(state, message, kept)
