"""Loading Session State: Sessions and Wills are built from the rows of the tables.

At start a node reads all Sessions that it owns, later those that move to it, by their ids. A message that waits for
several Sessions is stored once. If Sessions move, other nodes may own some of these. So no node deletes such a
message because its own Sessions are done with it: it looks first whether any delivery of any node refers to it
(:meth:`~holdfast.sessions.durable.DurableSessionStates.forget_if_unused`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from attrs import frozen

from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import COMMITTED
from holdfast.identity.interfaces import Principal, stored_principal
from holdfast.sessions.rows import Expiry, Row, delivery_of, message_of, subscription_of, will_of
from holdfast.sessions.state import ISessionRecord, KeptMessage, StoredDelivery, StoredSession, StoredWill
from holdfast.storage import layouts
from holdfast.storage.driver import Connection
from holdfast.storage.layout import Kind, Layout
from holdfast.storage.postgres_values import BigIntegers, parameter_of

#: the place of ``message_id`` in the row of a delivery
_MESSAGE = tuple(layouts.session_deliveries.columns).index("message_id")
#: messages that are read by one statement
_MESSAGES = 1000
#: messages that this node has made (their low byte is its number), and no delivery of any node refers to
_ORPHANS = (
    "SELECT id FROM session_messages m WHERE {whose}"
    "NOT EXISTS (SELECT 1 FROM session_deliveries d WHERE d.message_id = m.id)"
)


@frozen
class Selection:
    """Which Sessions to load: a condition on the rows of ``sessions``, and its parameters."""

    condition: str
    bound: tuple[Any, ...] = ()

    @classmethod
    def of_node(cls, node: int, moves: bool) -> Selection:
        """Select the Sessions of a node; if Sessions ``move``, only those that it has loaded before."""
        loaded = " AND id NOT IN (SELECT session_id FROM session_cuts)" if moves else ""
        return cls(f"owner = ?{loaded}", (node,))

    @classmethod
    def of_ids(cls, identifiers: Sequence[int]) -> Selection:
        """Select Sessions by their ids, in a shared database."""
        return cls(f"id = ANY({parameter_of(Kind.BIG)})", (BigIntegers(identifiers),))


EVERY_SESSION = Selection("")


class Loading:
    """The Sessions of a selection.

    Those that a later one of the same Client has replaced are marked as superseded; they remain if the broker ended
    before it could move all their shared messages. ``forget`` is called with a message that none of them needs.
    """

    def __init__(
        self,
        connection: Connection,
        selection: Selection,
        record: Callable[[int, Principal, str, Expiry, int | None], ISessionRecord],
        forget: Callable[[int], None],
    ) -> None:
        self._connection = connection
        self._selection = selection
        rows = self._rows(layouts.sessions, "id IN ({})")
        newest = {row[1]: row[0] for row in rows}
        subscriptions = self._by_session(layouts.session_subscriptions)
        deliveries = self._by_session(layouts.session_deliveries)
        received = self._by_session(layouts.session_received)
        self._messages: dict[int, tuple[ApplicationMessage, KeptMessage]] = {
            row[0]: (message_of(row), KeptMessage(row[0], COMMITTED, forget))
            for row in self._rows_of_messages(chain.from_iterable(deliveries.values()))
        }
        self.sessions: list[StoredSession] = []
        for identifier, client_id, username, listener, expiry_interval, expires_at, void_cuts, _ in rows:
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

    def _rows(self, table: Layout, condition: str) -> list[Row]:
        """Read the rows of the selected Sessions; ``{}`` in the condition stands for their ids."""
        cursor = self._connection.cursor()
        selection, where, bound = self._selection, "", ()
        if selection.condition:
            selected = f"SELECT id FROM sessions WHERE {selection.condition}"  # noqa: S608
            where = f"WHERE {condition.format(selected)} "
            bound = selection.bound
        cursor.execute(f"SELECT {table.names} FROM {table.name} {where}ORDER BY {', '.join(table.key)}", bound)  # noqa: S608
        return list(cursor.fetchall())

    def _rows_of_messages(self, deliveries: Iterable[Row]) -> Iterator[Row]:
        """Read the messages of deliveries, by their ids.

        One statement that joins both tables may take the square of their length, if the server has no statistics yet.
        """
        if not self._selection.condition:
            yield from self._rows(layouts.session_messages, "")
            return
        table = layouts.session_messages
        statement = f"SELECT {table.names} FROM {table.name} WHERE id = ANY({parameter_of(Kind.BIG)})"  # noqa: S608
        identifiers = sorted({row[_MESSAGE] for row in deliveries if row[_MESSAGE] is not None})
        cursor = self._connection.cursor()
        for start in range(0, len(identifiers), _MESSAGES):
            cursor.execute(statement, (BigIntegers(identifiers[start : start + _MESSAGES]),))
            yield from cursor.fetchall()

    def _by_session(self, table: Layout) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = {}
        for row in self._rows(table, "session_id IN ({})"):
            found.setdefault(row[0], []).append(row)
        return found

    def _delivery(self, row: Row) -> StoredDelivery:
        state = delivery_of(row)
        message, kept = self._messages.get(state.message or 0, (None, None))
        if kept is not None:
            kept.acquire()
        return StoredDelivery(state, message, kept)


def read_wills(connection: Connection, node: int | None) -> list[StoredWill]:
    """Read the Wills of a node, of all nodes (None)."""
    table = layouts.wills
    cursor = connection.cursor()
    whose = "" if node is None else "WHERE node = ? "
    cursor.execute(
        f"SELECT {table.names} FROM {table.name} {whose}ORDER BY {', '.join(table.key)}",  # noqa: S608
        () if node is None else (node,),
    )
    return [will_of(row) for row in cursor.fetchall()]


def read_orphans(connection: Connection, node: int | None) -> list[int]:
    """Read the ids of messages of a node (None: of all) that no delivery refers to.

    They remain if the broker ended before it could repeat a failed write, or two nodes were done with them at one time.
    """
    cursor = connection.cursor()
    whose = "" if node is None else "id & 255 = ? AND "
    cursor.execute(_ORPHANS.format(whose=whose), () if node is None else (node,))
    return [identifier for (identifier,) in cursor.fetchall()]
