"""Session State in the database, written through the one writer.

``DurableSessionStates`` writes ``session_messages`` and ``wills``; each ``DurableRecord`` writes its Session's rows of
``sessions``, ``session_subscriptions``, ``session_deliveries`` and ``session_received``. The rows of ``session_cuts``
are those of Sessions that come from other nodes.

The kinds of writes (:mod:`.rows`) are applied in the order of their numbers within one transaction. Messages come
before the deliveries that refer to them. Ended Sessions come last, so that rows pending for a Session are deleted with
it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from functools import partial

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from holdfast.core.messages import ApplicationMessage, held_size
from holdfast.core.tickets import COMMITTED, CommitTicket
from holdfast.identity.interfaces import Principal
from holdfast.sessions.loading import EVERY_SESSION, Loading, Selection, read_orphans, read_wills
from holdfast.sessions.rows import (
    EndedSessions,
    Expiry,
    RowKind,
    SessionRows,
    delivery_row,
    key_of,
    message_row,
    subscription_row,
    will_row,
)
from holdfast.sessions.state import (
    DeliveryState,
    ISessionRecord,
    ISessionStates,
    KeptMessage,
    ReplayProgress,
    StoredSession,
    StoredWill,
    Subscription,
)
from holdfast.storage import layouts
from holdfast.storage.committer import Write
from holdfast.storage.driver import Connection
from holdfast.storage.store import DurableStore, OpenStore

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
        self.node = store.node  #: the owner of the Sessions that are stored here
        #: whether Sessions come from other nodes: see :class:`Loading`
        self.moves = False
        bulk = store.bulk
        self.messages = RowKind(layouts.session_messages, 20, bulk, self._failed)
        self.sessions = SessionRows(layouts.sessions, 30, bulk, self._failed)
        self.subscriptions = RowKind(layouts.session_subscriptions, 40, bulk, self._failed)
        self.deliveries = RowKind(layouts.session_deliveries, 50, bulk, self._failed)
        self.received = RowKind(layouts.session_received, 60, bulk, self._failed)
        self.cuts = RowKind(layouts.session_cuts, 65, bulk, self._failed)
        self.wills = RowKind(layouts.wills, 70, bulk, self._failed)
        of_sessions = (self.sessions, self.subscriptions, self.deliveries, self.received, self.cuts)
        self.ended = EndedSessions(90, bulk, self._failed, of_sessions)
        self._of_sessions = (*of_sessions, self.ended)
        #: ids of messages that no Session of this node needs, while other nodes may: see :meth:`forget_if_unused`
        self.unused: set[int] = set()
        self._kinds = (
            self.messages, self.sessions, self.subscriptions, self.deliveries, self.received, self.cuts, self.wills,
            self.ended,
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
        selection = Selection.of_node(self.node, self.moves) if self._shared else EVERY_SESSION
        database = self._parts.database
        with database.explaining_errors(), closing(database.connect_reader()) as connection:
            loading = Loading(connection, selection, partial(DurableRecord, self), self._forgetting)
            wills = read_wills(connection, self._node if self._shared else None)
            orphans = read_orphans(connection, self.node if self._shared else None)
        for identifier in orphans:
            self.forget_message(identifier)
        return loading.sessions, wills

    def load_some(self, connection: Connection, identifiers: Sequence[int]) -> Sequence[StoredSession]:
        """Read the Sessions with these ids of a shared database, in any thread."""
        return Loading(
            connection, Selection.of_ids(identifiers), partial(DurableRecord, self), self._forgetting
        ).sessions

    def _forgetting(self, identifier: int) -> None:
        """Forget a message that none of the loaded Sessions needs any more."""
        if self.moves:
            self.forget_if_unused(identifier)
        else:
            self.forget_message(identifier)

    def leave_out(self, gone: AbstractSet[int]) -> None:
        """Leave out the writes of these Sessions that other nodes have taken meanwhile. The set may change."""
        for kind in self._of_sessions:
            kind.gone = gone

    def has_unwritten(self, identifier: int) -> bool:
        """Tell whether writes of a Session have failed, and have to be repeated."""
        return any(key_of(key)[0] == identifier for kind in self._of_sessions for key in kind.unwritten)

    def drop_unwritten(self, identifier: int) -> None:
        """Repeat no write of a Session that another node has."""
        for kind in self._of_sessions:
            for key in [key for key in kind.unwritten if key_of(key)[0] == identifier]:
                del kind.unwritten[key]

    def forget_if_unused(self, identifier: int) -> None:
        """Forget a message, unless a Session of another node needs it: it is looked up before its row is deleted."""
        self.unused.add(identifier)

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
            self._states.node,
        )  # fmt: skip
        return self._write(self._states.sessions, (self.identifier,), row)

    def ended(self) -> CommitTicket:
        """Delete every row of the Session. Later calls write nothing."""
        if not self._over:  # before a row of the Client's next Session is written
            self._states.add(self._states.sessions, (self.identifier,), None)
        ticket = self._write(self._states.ended, (self.identifier,), ())
        self._over = True
        return ticket

    def leave(self) -> None:
        """Write nothing any more: another node owns the Session, or will load it."""
        self._over = True

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
