"""Makes the row to stage from the fields of a message, or refuses the message with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from holdfast.core.messages import RetainedMessage
from holdfast.retained.api import (
    FUTURE,
    HIGHEST_REVISION,
    NO_PROPERTIES,
    BadRecord,
    Fields,
    Properties,
    Row,
    check_payload,
    properties_in,
    staged_row,
)

#: The fields of a message; all but the first two have defaults.
FIELDS = (
    "topic", "payload", "qos", "client_id", "username", "stored_at", "expires_at", "properties_json", "revision",
)  # fmt: skip
#: The kinds of rejects that are not named like the field at fault.
_KINDS = {"stored_at": "date", "expires_at": "date"}


class UnfitMessage(ValueError):
    """The given fields are not a message that can be retained. ``kind`` is the reason in a word, for counting."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def row_of_fields(given: Mapping[str, Any], now: int) -> Row:
    """Return the row of a message, with the given revision (0 for none).

    Times are in milliseconds since the epoch; a message without ``stored_at`` gets ``now``. Raises
    :class:`UnfitMessage`.
    """
    fields = Fields(given)
    payload = given.get("payload")
    if isinstance(payload, str):
        payload = payload.encode(errors="surrogatepass")
    payload = bytes(payload) if isinstance(payload, (bytes, bytearray)) else b""
    try:
        topic = fields.topic()
        check_payload(payload)
        stored_at = fields.stored_at(now + FUTURE)
        message = RetainedMessage(
            topic,
            payload,
            fields.qos(),
            _properties(given.get("properties_json")),
            fields.text("client_id"),
            fields.text("username"),
            now if stored_at is None else stored_at,
            fields.expires_at(),
            fields.whole("revision", 0, HIGHEST_REVISION) or 0,
        )
        return staged_row(message)
    except BadRecord as error:
        raise UnfitMessage(_KINDS.get(error.field, error.field), str(error)) from error


@lru_cache(maxsize=1024)  # devices of one kind send the same properties again and again
def _properties(text: str | None) -> Properties:
    if not text:
        return NO_PROPERTIES
    try:
        return properties_in(text)
    except BadRecord as error:
        raise BadRecord(str(error), "properties") from error
