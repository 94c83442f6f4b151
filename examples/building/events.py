"""The events of the day: messages, lost connections, and clients that connect again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from attrs import frozen

#: The day that is played: a Monday.
_MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
HOUR = 3600


class Kind(Enum):
    """The kind of a message; the value is its name in the printed counts."""

    FIRST = "first values"
    UPDATE = "updates"
    CLEAR = "clears"
    EXPIRING = "with a Message Expiry Interval"
    MALFORMED = "malformed"
    CHATTER = "of a chatty sensor"
    SPARKPLUG = "Sparkplug B"


@frozen
class Message:
    """A client publishes a message at a second of the day. It ``expires`` after so many seconds, None for never."""

    at: int
    client: str
    topic: str
    payload: bytes
    kind: Kind = Kind.UPDATE
    qos: int = 1
    expires: int | None = None
    content_type: str | None = None


@frozen
class Lost:
    """A client's Network Connection breaks: its Will is published."""

    at: int
    client: str


@frozen
class Back:
    """The client connects again."""

    at: int
    client: str


Event = Message | Lost | Back


def clock(at: int) -> str:
    """Write a second of the day in the form of the payloads."""
    return (_MIDNIGHT + timedelta(seconds=at)).isoformat().replace("+00:00", "Z")


def milliseconds(at: int) -> int:
    """Return a second of the day in milliseconds since the epoch."""
    return round((_MIDNIGHT.timestamp() + at) * 1000)


def encoded(**fields: Any) -> bytes:
    """Return a JSON object without blanks."""
    return json.dumps(fields, separators=(",", ":")).encode()
