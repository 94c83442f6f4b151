"""The times that clients and operators are shown."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.retained.fields import LATEST


def date_of(milliseconds: int) -> str:
    """Return a time in RFC 3339; times after the year 9999 are shown as its end."""
    moment = datetime.fromtimestamp(min(milliseconds, LATEST - 1) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
