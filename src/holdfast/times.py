"""Moments as operators write them, and as they are shown to them: always in UTC unless a time says otherwise."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.config.units import parse_duration

ALLOWED = (
    "a time such as 2026-11-21T10:00:00Z, 2026-11-21T11:00:00+01:00 or 2026-11-21 (UTC where no zone is given), how"
    " long ago it was, such as 90m or 2d, or milliseconds since the epoch"
)
#: Fewer digits than this are not milliseconds since the epoch: 1973 at the earliest.
_LEAST_DIGITS = 12
_MOST_DIGITS = 15
_LONGEST = 60


class BadTime(ValueError):
    """The text is not a time; it says what is allowed."""


def moment_of(text: str, now: int) -> int:
    """Return the moment a text stands for; this and ``now`` are in milliseconds since the epoch.

    Raises :class:`BadTime`.
    """
    text = text.strip()
    if text.isascii() and text.isdigit() and _LEAST_DIGITS <= len(text) <= _MOST_DIGITS:
        return int(text)
    try:
        return max(0, now - round(1000 * parse_duration(text)))
    except ValueError:
        pass  # it is no duration, but may be a date
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadTime(f"found {text[:_LONGEST]!a}; allowed: {ALLOWED}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return max(0, round(1000 * moment.timestamp()))
    except OverflowError:
        raise BadTime(f"found {text[:_LONGEST]!a}; allowed: {ALLOWED}") from None
