"""Takes over Sessions of another broker, while no broker uses the database.

How it works. The entries of a file (:mod:`holdfast.retained.formats.mosquitto_sessions`) become rows of ``sessions``,
``session_subscriptions``, ``session_messages`` and ``session_deliveries``, as if the clients had disconnected from this
broker. All rows are written in one transaction, in batches: a killed import leaves nothing.

A client that has a Session here keeps it, with all its messages: the Session of the file is left out. So a second
import changes nothing. A message that waits for several clients is stored once. Which numbers the stored messages and
the Sessions got stands in a temporary file.

A QoS 2 message that comes from a client and is not released yet is left out: mosquitto has given it to nobody, and here
such a message is given to its subscribers before it is released.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from holdfast.core.messages import ApplicationMessage
from holdfast.core.topics import MOST_LEVELS, InvalidShare, InvalidTopicFilter, check_topic_filter, split_shared
from holdfast.retained.fields import BadRecord, Fields
from holdfast.retained.formats.mosquitto_sessions import (
    FoundClient,
    FoundDelivery,
    FoundSubscription,
    SessionSource,
    Stage,
    Unusable,
)
from holdfast.retained.records import properties_in
from holdfast.sessions.rows import Row, delivery_row, message_row, subscription_row
from holdfast.sessions.state import DeliveryState, Subscription
from holdfast.storage import layouts
from holdfast.storage.driver import Bulk, Cursor
from holdfast.storage.layout import Layout
from holdfast.wire.properties import NO_PROPERTIES

_ROWS, _BYTES = 500, 4 << 20
_HIGHEST_IDENTIFIER = 268_435_455
_HIGHEST_PACKET_IDENTIFIER = 65_535
_MOST_REASONS = 100
_NO_CLIENT = "belongs to a client whose Session was left out"


class SessionImport:
    """One import into an open transaction. ``taken`` counts what was taken over by kind, ``left_out`` by reason.

    ``next_id`` returns ids that are never used again, with the node in the low byte; ``listener_at`` returns the name
    of the listener with a port, ``now`` is in milliseconds since the epoch.
    """

    def __init__(
        self, cursor: Cursor, bulk: Bulk, next_id: Callable[[], int], listener_at: Callable[[int], str], now: int
    ) -> None:
        self.taken: Counter[str] = Counter(sessions=0, subscriptions=0, messages=0)
        self.left_out: Counter[str] = Counter()
        self._cursor = cursor
        self._bulk = bulk
        self._next_id = next_id
        self._listener_at = listener_at
        self._now = now
        self._rows: dict[str, dict[tuple[Any, ...], Row]] = {}
        self._pending = 0
        self._bytes = 0

    def run(self, source: SessionSource) -> None:
        """Write all rows. Raises :class:`holdfast.retained.formats.file_entry.UnreadableFile`."""
        with closing(sqlite3.connect("", isolation_level=None)) as notes:
            notes.execute("CREATE TABLE clients (client_id TEXT PRIMARY KEY, session INTEGER, seq INTEGER)")
            notes.execute("CREATE TABLE messages (number INTEGER PRIMARY KEY, id INTEGER)")
            notes.execute("CREATE TABLE used (session INTEGER, packet INTEGER, PRIMARY KEY (session, packet))")
            notes.execute("BEGIN")
            self._notes = notes
            for entry in source.entries():
                match entry:
                    case FoundClient():
                        self._client(entry)
                    case FoundSubscription():
                        self._subscription(entry)
                    case FoundDelivery():
                        self._delivery(entry, source)
                    case Unusable(reason):
                        self._leave_out(reason)
            self._flush()

    def _client(self, found: FoundClient) -> None:
        try:
            fields = Fields({"client_id": found.client_id, "username": found.username})
            if not fields.text("client_id"):
                raise BadRecord("client_id: is empty")
            fields.text("username")
        except BadRecord as error:
            self._leave_out(str(error))
            return
        expires_at = found.expires_at
        if expires_at is None and found.expiry_interval is not None:
            expires_at = self._now + 1000 * found.expiry_interval
        if expires_at is not None and expires_at <= self._now:
            self._leave_out("the Session has expired")
            return
        self._cursor.execute("SELECT 1 FROM sessions WHERE client_id = ?", (found.client_id,))
        if self._cursor.fetchone() is not None:
            self._leave_out("the client has a Session here already")
            return
        identifier = self._next_id()
        if not self._notes.execute(
            "INSERT OR IGNORE INTO clients VALUES (?, ?, 0)", (found.client_id, identifier)
        ).rowcount:
            self._leave_out("the client is in the file twice")
            return
        row = (
            identifier, found.client_id, found.username, self._listener_at(found.port), found.expiry_interval,
            expires_at, None, identifier & 255,
        )  # fmt: skip
        self._add(layouts.sessions, row)
        self.taken["sessions"] += 1

    def _subscription(self, found: FoundSubscription) -> None:
        session = self._session(found.client_id)
        if session is None:
            return
        try:
            topic_filter = str(Fields({"topic_filter": found.topic_filter}).text("topic_filter", required=True))
            group, inner = split_shared(topic_filter)
            check_topic_filter(inner, MOST_LEVELS)
            if found.qos > 2 or found.retain_handling > 2 or (found.identifier or 1) > _HIGHEST_IDENTIFIER:
                raise BadRecord("the options of a Subscription are not those of MQTT")
        except (BadRecord, InvalidShare, InvalidTopicFilter) as error:
            self._leave_out(f"a Subscription: {error}"[:200])
            return
        subscription = Subscription(
            inner,
            found.qos,
            found.no_local,
            found.retain_as_published,
            found.retain_handling,
            found.identifier,
            group,
        )
        self._add(layouts.session_subscriptions, subscription_row(session, topic_filter, subscription, None))
        self.taken["subscriptions"] += 1

    def _delivery(self, found: FoundDelivery, source: SessionSource) -> None:
        if found.stage is Stage.INCOMING:
            self._leave_out("a QoS 2 message from a client is not released yet")
            return
        session = self._session(found.client_id)
        if session is None:
            return
        if found.qos > 2:
            self._leave_out("a message: its QoS is not one of MQTT")
            return
        released = found.stage is Stage.RELEASED
        message = None if released else self._message(found.number, source)
        if message is None and not released:
            return
        packet_identifier = 0
        if found.stage is not Stage.QUEUED and found.qos and 1 <= found.packet_identifier <= _HIGHEST_PACKET_IDENTIFIER:
            used = self._notes.execute("INSERT OR IGNORE INTO used VALUES (?, ?)", (session, found.packet_identifier))
            packet_identifier = found.packet_identifier if used.rowcount else 0
        if released and not packet_identifier:
            self._leave_out("a message: its Packet Identifier is not one of MQTT")
            return
        self._notes.execute("UPDATE clients SET seq = seq + 1 WHERE session = ?", (session,))
        seq = self._notes.execute("SELECT seq FROM clients WHERE session = ?", (session,)).fetchone()[0]
        identifiers = tuple(each for each in found.identifiers if 1 <= each <= _HIGHEST_IDENTIFIER)
        state = DeliveryState(seq, message, found.qos, found.retain, identifiers, packet_identifier, released, None)
        self._add(layouts.session_deliveries, delivery_row(session, state))
        self.taken["messages"] += 1

    def _leave_out(self, reason: str) -> None:
        """Count a reason; a file may have as many as it has entries."""
        known = reason in self.left_out or len(self.left_out) < _MOST_REASONS
        self.left_out[reason if known else "other reasons"] += 1

    def _session(self, client_id: str) -> int | None:
        """Return the new Session of a client, None if it has none."""
        found = self._notes.execute("SELECT session FROM clients WHERE client_id = ?", (client_id,)).fetchone()
        if found is None:
            self._leave_out(_NO_CLIENT)
            return None
        return int(found[0])

    def _message(self, number: int, source: SessionSource) -> int | None:
        """Return the id of the row of a stored message, None if it was left out."""
        noted = self._notes.execute("SELECT id FROM messages WHERE number = ?", (number,)).fetchone()
        if noted is not None:
            return int(noted[0])
        given = source.message(number)
        if given is None:
            self._leave_out("a message is not in the file; it has expired")
            return None
        try:
            if isinstance(given, str):
                raise BadRecord(given)
            message = _message_of(given)
        except BadRecord as error:
            self._leave_out(f"a message: {error}"[:200])
            return None
        if message.expires_at is not None and message.expires_at <= self._now:
            self._leave_out("a message has expired")
            return None
        identifier = self._next_id()
        self._notes.execute("INSERT INTO messages VALUES (?, ?)", (number, identifier))
        self._add(layouts.session_messages, message_row(identifier, message), len(message.payload))
        return identifier

    def _add(self, table: Layout, row: Row, size: int = 0) -> None:
        self._rows.setdefault(table.name, {})[row[: len(table.key)]] = row
        self._pending += 1
        self._bytes += size
        if self._pending >= _ROWS or self._bytes >= _BYTES:
            self._flush()

    def _flush(self) -> None:
        for table in (
            layouts.session_messages, layouts.sessions, layouts.session_subscriptions, layouts.session_deliveries,
        ):  # fmt: skip
            self._bulk.upsert(self._cursor, table, list(self._rows.pop(table.name, {}).values()))
        self._pending = self._bytes = 0


def _message_of(given: Mapping[str, Any]) -> ApplicationMessage:
    """Return the message that a reader found. Raises :class:`BadRecord`."""
    fields = Fields(given)
    properties = given.get("properties_json")
    payload = given.get("payload")
    return ApplicationMessage(
        fields.topic(),
        bytes(payload) if isinstance(payload, bytes) else str(payload or "").encode(errors="replace"),
        fields.qos(),
        False,
        fields.text("client_id"),
        fields.text("username"),
        NO_PROPERTIES if not properties else properties_in(properties),
        fields.expires_at(),
    )
