"""The day that is played, and its events: messages, lost connections, and clients that connect again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from enum import Enum
from random import Random
from typing import Any

from attrs import frozen

HOUR = 3600
HOURS = 24


@frozen
class Day:
    """The 24 hours that are played: ``start`` in UTC, and the ``seed`` of all random numbers.

    Events count the seconds, and messages the hours, from the start. People live by the hour of the clock.
    """

    start: datetime = datetime(2026, 3, 2, tzinfo=UTC)
    seed: int = 20260302

    def clock(self, at: int) -> str:
        """Write a second of the day in the form of the payloads."""
        return (self.start + timedelta(seconds=at)).isoformat().replace("+00:00", "Z")

    def milliseconds(self, at: int) -> int:
        """Return a second of the day in milliseconds since the epoch."""
        return round((self.start.timestamp() + at) * 1000)

    def hour_of_clock(self, hour: int) -> int:
        """Return the hour (0 to 23) that the clock shows in an hour of the day."""
        return (self.start.hour + hour) % HOURS

    def chance(self, *parts: object) -> Random:
        """Return random numbers that depend only on the seed and the parts: other numbers stay as they are."""
        return Random("/".join(map(str, (self.seed, *parts))))


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


def encoded(**fields: Any) -> bytes:
    """Return a JSON object without blanks."""
    return json.dumps(fields, separators=(",", ":")).encode()
