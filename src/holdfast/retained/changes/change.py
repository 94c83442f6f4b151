"""One committed change of a retained message, and its JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from attrs import define

from holdfast.messages import ChangeKind
from holdfast.retained.dates import date_of
from holdfast.retained.history.entries import HistoryEvent
from holdfast.retained.store.rows import Row, json_of
from holdfast.wire.properties import NO_PROPERTIES

#: The longest payload, in bytes, that a change carries.
LONGEST_PAYLOAD = 1 << 16
#: What a change takes in memory beside its texts and its payload.
_OVERHEAD = 700


@define(eq=False)
class StoredChange:
    """A committed change. Times are in milliseconds since the epoch.

    ``payload`` is empty if it was longer than :data:`LONGEST_PAYLOAD`; ``size`` is its length. ``properties`` is a JSON
    object.
    """

    topic: str
    revision: int
    kind: ChangeKind
    at: int
    qos: int = 0
    size: int = 0
    expires_at: int | None = None
    client_id: str | None = None
    username: str | None = None
    properties: str | None = None
    payload: bytes = b""
    _text: bytes | None = None

    @property
    def weight(self) -> int:
        """The bytes that it takes in memory, at most."""
        names = len(self.client_id or "") + len(self.username or "") + len(self.properties or "")
        return _OVERHEAD + 3 * (len(self.topic) + names) + 2 * min(self.size, LONGEST_PAYLOAD)

    def json(self) -> bytes:
        """Return the change as JSON in ASCII, without a line end. It is made once."""
        if self._text is None:
            self._text = json.dumps(self._fields(), separators=(",", ":")).encode()
            self.payload = b""  # the text has it
        return self._text

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "event": self.kind.value,
            "topic": self.topic,
            "revision": str(self.revision),
            "publish_at": date_of(self.at),
            "from_clientid": self.client_id,
            "from_username": self.username,
        }
        if self.kind is not ChangeKind.SET:
            return fields
        fields |= {
            "qos": self.qos,
            "size": self.size,
            "expiry_at": None if self.expires_at is None else date_of(self.expires_at),
            "properties": json.loads(self.properties or "{}"),
        }
        if self.size > LONGEST_PAYLOAD:
            fields["payload_omitted"] = True
        else:
            fields["payload"] = b64encode(self.payload).decode()
        return fields


def change_of_row(row: Row) -> StoredChange:
    """Return the change that wrote a row. A tombstone does not tell a clear from an expiry: it counts as a clear."""
    return StoredChange(
        row.topic,
        row.revision,
        ChangeKind.CLEAR if row.tombstone else ChangeKind.SET,
        row.stored_at,
        row.qos,
        row.size,
        row.expires_at,
        row.client_id,
        row.username,
        row.properties_json,
        row.payload if row.size <= LONGEST_PAYLOAD else b"",
    )


def expiry_of(topic: str, at: int, revision: int) -> StoredChange:
    """Return the change of a message that has expired."""
    return StoredChange(topic, revision, ChangeKind.EXPIRE, at)


def change_of_event(event: HistoryEvent) -> StoredChange:
    """Return the change that an entry of the history records."""
    size = len(event.payload)
    return StoredChange(
        event.topic,
        event.revision,
        event.kind,
        event.changed_at,
        event.qos,
        size,
        event.expires_at,
        event.client_id,
        event.username,
        None if event.properties is NO_PROPERTIES else json_of(event.properties),
        event.payload if size <= LONGEST_PAYLOAD else b"",
    )
