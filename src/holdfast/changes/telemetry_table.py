"""The table of the telemetry: its rows and limits, its state, pages of it, and pruning. Imports no Twisted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attrs import frozen

from holdfast.changes.entries import WEIGHT
from holdfast.changes.moments import NumberedTable, choose, last_position
from holdfast.core.messages import HELD_ENTRY, STORED_ENTRY
from holdfast.storage.driver import Cursor, split
from holdfast.wire import NO_PROPERTIES, Properties
from holdfast.wire.property_codec import decode_properties

# Built from constants and counts alone: values are always bound.
# ruff: noqa: S608

TELEMETRY = NumberedTable("telemetry", "received_at")

#: the messages of a transaction of the pruning, and about their bytes
_PRUNED_ROWS = 1000
_PRUNED_BYTES = 4 << 20
#: the messages that one read visits, and the bytes of the payloads and properties of a page
_ENTRIES = 1000
_BYTES = 1 << 20
_MOST_PLACES = 200

_TURN = "UPDATE telemetry_state SET last_seq = last_seq WHERE id = 1 RETURNING last_seq, last_at, bytes"
_ADVANCE = "UPDATE telemetry_state SET last_seq = ?, last_at = ?, bytes = bytes + ? WHERE id = 1"
_STATE = "SELECT last_seq, last_at, bytes FROM telemetry_state"
_OLDEST = (
    f"SELECT seq, received_at, {WEIGHT} + coalesce(length(properties_json), 0) FROM telemetry ORDER BY seq LIMIT ?"
)


@frozen
class TelemetryLimits:
    """The limits of the table, and of what waits for it in memory: ``keep`` in seconds. None is no limit."""

    keep: float | None = 7 * 86_400
    max_messages: int | None = 10_000_000
    max_bytes: int | None = 1 << 30
    max_waiting_bytes: int = 16 << 20


class TelemetryRow(NamedTuple):
    """One row of the table, in the order of its columns. Until it is written, ``seq`` is 0."""

    seq: int
    topic: str
    qos: int
    size: int
    received_at: int
    expires_at: int | None
    client_id: str | None
    username: str | None
    properties5: bytes
    properties_json: str | None
    payload: bytes

    @property
    def weight(self) -> int:
        """The bytes that ``retainer.telemetry.max_bytes`` counts."""
        return self.size + len(self.topic) + len(self.properties5) + len(self.properties_json or "") + STORED_ENTRY

    @property
    def held_bytes(self) -> int:
        """The bytes that the row occupies in memory while it waits for its commit."""
        return self.weight - STORED_ENTRY + HELD_ENTRY


_MESSAGES = f"SELECT {', '.join(TelemetryRow._fields)} FROM telemetry WHERE seq IN ({{places}})"


@frozen
class TelemetryMessage:
    """A recorded message. ``received_at`` and ``expires_at`` (None for never) are in milliseconds since the epoch."""

    seq: int
    topic: str
    payload: bytes
    qos: int
    properties: Properties
    client_id: str | None
    username: str | None
    received_at: int
    expires_at: int | None


@frozen
class TelemetryPage:
    """Messages in their order. The next page begins at ``cursor``; ``done`` says that this page is the last.

    A page may be empty without being the last, because one read visits a bounded number of messages.
    """

    messages: Sequence[TelemetryMessage]
    cursor: int
    done: bool


@frozen
class TelemetryState:
    """The position and the time of the last message, pruned or not, and the bytes of all messages."""

    last_seq: int
    last_at: int
    size: int


def read_telemetry_state(cursor: Cursor) -> TelemetryState:
    """Return the state of the table."""
    cursor.execute(_STATE)
    return TelemetryState(*cursor.fetchall()[0])


def missing_messages(cursor: Cursor) -> tuple[int, int]:
    """Return how many messages are missing between the first and the last one, and how many are behind the state."""
    last = read_telemetry_state(cursor).last_seq
    cursor.execute("SELECT count(*), coalesce(min(seq), 1), coalesce(max(seq), 0) FROM telemetry")
    ((messages, first, highest),) = cursor.fetchall()
    return highest - first + 1 - messages, max(0, highest - last)


def take_turn(cursor: Cursor) -> TelemetryState:
    """Lock the table against other writers until the transaction ends; return its state."""
    cursor.execute(_TURN)
    return TelemetryState(*cursor.fetchall()[0])


def advance(cursor: Cursor, last_seq: int, last_at: int, size: int) -> None:
    """Record the new end, and by how many bytes the table has grown. Needs the lock of :func:`take_turn`."""
    cursor.execute(_ADVANCE, (last_seq, last_at, size))


def page_of_messages(
    cursor: Cursor,
    topic_filter: str,
    since: int | None,
    until: int | None,
    limit: int,
    after: int,
    newest_first: bool,
) -> TelemetryPage:
    """Return the next messages that match a Topic Filter, behind the cursor of the page before (0: the first page).

    ``since`` and ``until`` are the first and the last time, in milliseconds since the epoch.
    """
    low, high = 0, read_telemetry_state(cursor).last_seq
    if until is not None:
        high = last_position(cursor, low, high, until, TELEMETRY)
    if since is not None:
        low = last_position(cursor, low, high, since - 1, TELEMETRY)
    if after and newest_first:
        high = min(high, after - 1)
    elif after:
        low = max(low, after)
    chosen, passed, done = choose(cursor, topic_filter, low, high, _ENTRIES, limit, _BYTES, newest_first, TELEMETRY)
    return TelemetryPage(_fetch(cursor, chosen), passed, done)


def _fetch(cursor: Cursor, positions: Sequence[int]) -> list[TelemetryMessage]:
    """Return the messages at these positions, in their order, without pruned ones."""
    found: dict[int, TelemetryMessage] = {}
    for part in split(positions, _MOST_PLACES):
        cursor.execute(_MESSAGES.format(places=", ".join("?" * len(part))), list(part))
        found.update((row[0], _message_of(TelemetryRow(*row))) for row in cursor.fetchall())
    return [found[seq] for seq in positions if seq in found]


def _message_of(row: TelemetryRow) -> TelemetryMessage:
    properties = NO_PROPERTIES if row.properties5 == b"\0" else decode_properties(row.properties5)
    return TelemetryMessage(
        row.seq, row.topic, row.payload, row.qos, properties, row.client_id, row.username, row.received_at,
        row.expires_at,
    )  # fmt: skip


# Pruning: deletes the first messages, some hundred in a transaction.


def prune_telemetry(cursor: Cursor, now: int, limits: TelemetryLimits) -> bool:
    """Delete the oldest messages beyond a limit, in one slice; tell whether there may be more of them.

    ``now`` is in milliseconds since the epoch.
    """
    state = take_turn(cursor)
    cursor.execute(_OLDEST, (_PRUNED_ROWS,))
    upto = gone = 0
    for seq, received_at, weight in cursor.fetchall():
        if not _is_over(limits, now, state.last_seq - seq + 1, state.size - gone, received_at) or gone > _PRUNED_BYTES:
            break
        upto, gone = seq, gone + weight
    if not upto:
        return False
    cursor.execute("DELETE FROM telemetry WHERE seq <= ?", (upto,))
    advance(cursor, state.last_seq, state.last_at, -gone)
    return True


def _is_over(limits: TelemetryLimits, now: int, messages: int, size: int, received_at: int) -> bool:
    """Tell whether the oldest message, of so many with so many bytes, has to go."""
    return (
        (limits.keep is not None and received_at <= now - round(1000 * limits.keep))
        or (limits.max_messages is not None and messages > limits.max_messages)
        or (limits.max_bytes is not None and size > limits.max_bytes)
    )


def has_too_many(cursor: Cursor, now: int, limits: TelemetryLimits) -> bool:
    """Tell without the lock whether a message is beyond a limit: most rounds of pruning find none."""
    state = read_telemetry_state(cursor)
    cursor.execute(_OLDEST, (1,))
    return any(
        _is_over(limits, now, state.last_seq - seq + 1, state.size, received_at)
        for seq, received_at, _ in cursor.fetchall()
    )
