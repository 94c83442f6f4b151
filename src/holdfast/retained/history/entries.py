"""Entries of the history: the rows of the table ``retained_history``, and the events that they describe."""

from __future__ import annotations

from typing import Any, NamedTuple

from attrs import frozen

from holdfast.messages import ChangeKind, ChangeOrigin, RetainedMessage
from holdfast.retained.history.entry_rules import stored_at_of
from holdfast.retained.store.rows import Row
from holdfast.sizes import STORED_ENTRY
from holdfast.wire.properties import NO_PROPERTIES, Properties
from holdfast.wire.property_codec import decode_properties

#: The bytes that ``retainer.history.max_bytes`` counts for an entry beside its payload, topic and properties.
ENTRY_OVERHEAD = STORED_ENTRY
#: The counted bytes of a row of ``retained`` or ``retained_history``, as SQL.
WEIGHT = f"size + length(topic) + length(properties5) + {ENTRY_OVERHEAD}"


class Entry(NamedTuple):
    """One row of the table, with the columns in the table's order. Only a "set" has a payload and properties."""

    seq: int
    topic: str
    op: str
    origin: str
    qos: int
    size: int
    changed_at: int
    expires_at: int | None
    revision: int
    client_id: str | None
    username: str | None
    properties5: bytes
    properties_json: str | None
    payload: bytes
    operator: str | None

    @property
    def weight(self) -> int:
        """The bytes that ``retainer.history.max_bytes`` counts."""
        return self.size + len(self.topic) + len(self.properties5) + ENTRY_OVERHEAD


@frozen
class HistoryEvent:
    """One recorded change of a topic's retained message.

    ``seq`` orders all changes. ``changed_at`` and ``expires_at`` (None for never) are in milliseconds since the epoch;
    ``changed_at`` never decreases from one event to the next. ``client_id`` and ``username`` are the publisher's;
    ``operator`` is the caller of the API in a set, a clear or a restore. A message that was retained before the
    history began has the origin BASELINE. :func:`retained_by` tells when the message of an event was stored.
    """

    seq: int
    kind: ChangeKind
    origin: ChangeOrigin
    topic: str
    payload: bytes
    qos: int
    properties: Properties
    client_id: str | None
    username: str | None
    changed_at: int
    expires_at: int | None
    revision: int
    operator: str | None = None


def entry_of(row: Row, changed_at: int, origin: ChangeOrigin, operator: str | None = None) -> Entry:
    """Return the entry for a row of ``retained``, without a position yet.

    ``changed_at`` is the time of the change in this store, in milliseconds since the epoch. The row of an imported
    message has the time of its first store.
    """
    return Entry(
        0, row.topic, (ChangeKind.CLEAR if row.tombstone else ChangeKind.SET).value, origin.value, row.qos, row.size,
        changed_at, row.expires_at, row.revision, row.client_id, row.username, row.properties5, row.properties_json,
        row.payload, operator,
    )  # fmt: skip


def expiry_of(topic: str, now: int, revision: int) -> Entry:
    """Return the entry for a message that the sweep has removed."""
    return Entry(
        0, topic, ChangeKind.EXPIRE.value, ChangeOrigin.EXPIRY.value, 0, 0, now, None, revision, None, None, b"", None,
        b"", None,
    )  # fmt: skip


def event_of(columns: tuple[Any, ...]) -> HistoryEvent:
    """Return the event of a row of the table."""
    entry = Entry(*columns)
    properties = NO_PROPERTIES if entry.properties5 in (b"", b"\0") else decode_properties(entry.properties5)
    return HistoryEvent(
        entry.seq,
        ChangeKind(entry.op),
        ChangeOrigin(entry.origin),
        entry.topic,
        entry.payload,
        entry.qos,
        properties,
        entry.client_id,
        entry.username,
        entry.changed_at,
        entry.expires_at,
        entry.revision,
        entry.operator,
    )


def retained_by(event: HistoryEvent) -> RetainedMessage:
    """Return the retained message of an event of the kind SET."""
    stored_at = stored_at_of(event.origin, event.changed_at, event.revision)
    return RetainedMessage(
        event.topic, event.payload, event.qos, event.properties, event.client_id, event.username, stored_at,
        event.expires_at, event.revision,
    )  # fmt: skip
