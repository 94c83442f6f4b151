"""The lease of a PUBLISH with RETAIN 1: how long its retained message stays."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.names import RETAIN_WHILE


class LeaseTerm(Enum):
    """Until when a message stays: its publisher's Session ends, or its publisher is away for the time of grace."""

    SESSION = "session"
    CONNECTED = "connected"


def lease_of(properties: Sequence[tuple[str, str]]) -> LeaseTerm | None:
    """Return the lease that a PUBLISH asks for, None for none. Raises :class:`BadRequest`."""
    values = [value for name, value in properties if name == RETAIN_WHILE]
    if not values:
        return None
    if len(values) > 1:
        raise BadRequest(f"User Property {RETAIN_WHILE} is given more than once")
    try:
        return LeaseTerm(values[0])
    except ValueError:
        allowed = " or ".join(term.value for term in LeaseTerm)
        raise BadRequest(f"User Property {RETAIN_WHILE} is {allowed}") from None
