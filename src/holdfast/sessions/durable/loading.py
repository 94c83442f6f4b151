"""Loading at start: it reads all tables of Session State and builds Sessions and Wills from their rows."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.auth.interfaces import Principal
from holdfast.messages import ApplicationMessage
from holdfast.sessions.durable.rows import Row, delivery_of, message_of, subscription_of, will_of
from holdfast.sessions.state.interfaces import ISessionRecord, KeptMessage, StoredDelivery, StoredSession, StoredWill
from holdfast.storage import layouts
from holdfast.storage.driver import Connection
from holdfast.storage.layouts import Layout
from holdfast.tickets import COMMITTED

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
            principal = Principal(client_id, username, names_only=True)
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
