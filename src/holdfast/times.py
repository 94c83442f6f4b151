"""The times that operators write and read: in UTC, unless a time names its zone."""

from __future__ import annotations

from datetime import UTC, datetime

ALLOWED = (
    "a time such as 2026-11-21T10:00:00Z, 2026-11-21T11:00:00+01:00 or 2026-11-21 (UTC where no zone is given), how"
    " long ago it was, such as 90m, 2d or -2d, or milliseconds since the epoch"
)
#: A number of milliseconds since the epoch has at least these digits (1973 or later).
_LEAST_DIGITS = 12
_MOST_DIGITS = 15
_LONGEST = 60


class BadTime(ValueError):
    """The text is not a time. The message tells the allowed forms."""


def moment_of(text: str, now: int) -> int:
    """Return the time of a text. The result and ``now`` are in milliseconds since the epoch.

    Raises :class:`BadTime`.
    """
    text = text.strip()
    if text.isascii() and text.isdigit() and _LEAST_DIGITS <= len(text) <= _MOST_DIGITS:
        return int(text)
    # Here, because the package imports all of the configuration, which the many short processes that read times do not.
    from holdfast.config.units import parse_duration

    try:
        return max(0, now - round(1000 * parse_duration(text.removeprefix("-"))))
    except ValueError:
        pass  # not a duration; perhaps a date
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


def text_of(moment: int) -> str:
    """Return a time, in milliseconds since the epoch, as text in UTC with seconds."""
    return f"{datetime.fromtimestamp(moment // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
