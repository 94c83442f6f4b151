"""Times in requests of clients: ISO 8601 ending in ``Z``, milliseconds since the epoch, or how long ago."""

from __future__ import annotations

import re
from datetime import datetime

from holdfast.extensions.bad_request import BadRequest

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO = re.compile(r"-([0-9]{1,9})([smhd])")
_MILLISECONDS = re.compile(r"[0-9]{12,15}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?Z")


def moment_in(text: str, now: int) -> int:
    """Return the time of a text. The result and ``now`` are in milliseconds since the epoch.

    Raises :class:`BadRequest`.
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    if ago := _AGO.fullmatch(text):
        return max(0, now - 1000 * int(ago[1]) * _SECONDS[ago[2]])
    try:
        if _DATE.fullmatch(text):
            return max(0, round(1000 * datetime.fromisoformat(text).timestamp()))
    except (ValueError, OverflowError):
        pass  # such as the 31st of February
    raise BadRequest("a time is like 2026-11-21T10:00:00Z, -90s, -15m, -1h or -2d, or milliseconds since the epoch")
