"""The rows of Session State: the values made from them, and how they are written.

Each pair of functions belongs to one table: ``session_messages``, ``session_subscriptions``, ``session_deliveries`` and
``wills``. The rows of ``sessions``, ``session_received`` and ``session_cuts`` hold plain values.

``RowKind`` writes many rows of one table with one statement. ``EndedSessions`` deletes a Session's rows from
``sessions``, ``session_subscriptions``, ``session_deliveries`` and ``session_received``.

How failed writes are repeated. Memory is ahead of the database when a commit fails: a Client was told that its
Session exists. Say the row of delivery (7, 3) cannot be written because the disk is full:

    the commit fails          the write is kept in ``unwritten`` under its key (7, 3)
    a newer write of (7, 3)   replaces it: once the newer one is committed, the old one is forgotten
    a second later            ``DurableSessionStates`` submits all of ``unwritten`` again

The invariant: for each key, the database has the last write, or the last write is pending or in ``unwritten``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from zope.interface import implementer

from holdfast.core.extensions import facts_in, text_of
from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.core.topics import split_shared
from holdfast.identity.interfaces import Principal
from holdfast.sessions.state import LONG_AGO, DeliveryState, ReplayProgress, StoredWill, Subscription
from holdfast.storage import layouts
from holdfast.storage.committer import IWriteKind, Write
from holdfast.storage.driver import Bulk, Cursor
from holdfast.storage.layout import Layout
from holdfast.wire.packets import Will
from holdfast.wire.properties import NO_PROPERTIES, WILL, Properties
from holdfast.wire.property_codec import decode_properties, encode_properties

#: a row, in the order of the table's columns
Row = tuple[Any, ...]

#: the Session Expiry Interval in seconds, and the time of expiry
Expiry = tuple[int | None, int | None]
#: the place of ``expires_at`` in the row of a Session
_EXPIRES_AT = tuple(layouts.sessions.columns).index("expires_at")


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
        #: the first values of keys whose writes are left out, if any: Sessions that belong to another node by now
        self.gone: AbstractSet[int] = frozenset()

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> Any:
        """Insert, replace and delete rows. Returns the keys that have an older write in ``unwritten``."""
        if self.gone:
            writes = [write for write in writes if key_of(write.key)[0] not in self.gone]
        self._bulk.upsert(cursor, self._table, [write.row for write in writes if write.row is not None])
        self._bulk.delete(cursor, self._table, self._key, [key_of(write.key) for write in writes if write.row is None])
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


class SessionRows(RowKind):
    """Writes of the rows of Sessions. A Client Identifier has one Session that is not being ended.

    So the rows of those that end come first: a Client may end one Session and begin the next one in one commit.
    """

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> Any:
        """Delete rows, then write those of Sessions that are being ended, then all others."""
        gone = [write for write in writes if write.row is None]
        ending = [write for write in writes if write.row is not None and write.row[_EXPIRES_AT] == LONG_AGO]
        others = [write for write in writes if write.row is not None and write.row[_EXPIRES_AT] != LONG_AGO]
        kept: list[Hashable] = []
        for part in (gone, ending, others):
            if part:
                kept += super().apply(cursor, part)
        return kept


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
        keys = [key_of(write.key) for write in writes if key_of(write.key)[0] not in self.gone]
        for table, key in self._tables:
            self._bulk.delete(cursor, table, key, keys)
        return frozenset(identifier for (identifier,) in keys)

    def committed(self, account: Any) -> None:
        """Forget the unwritten rows of these Sessions."""
        super().committed([(identifier,) for identifier in account])
        for kind in self._of_sessions:
            for key in [key for key in kind.unwritten if key_of(key)[0] in account]:
                del kind.unwritten[key]


def key_of(key: Hashable) -> tuple[Any, ...]:
    """Return the key of a write: its first value is the id of the Session, if its table has rows of Sessions."""
    assert isinstance(key, tuple)
    return key
