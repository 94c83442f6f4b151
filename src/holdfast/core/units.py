"""Durations, sizes, rates, times and URLs as operators write them: ``"1h30m"``, ``"64KB"``, ``"1000/s"``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction

from attrs import frozen

_SECONDS = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
    "w": Fraction(604800),
}
_BYTES = {"": 1, "B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}

# Twelve digits are more than any limit here needs, and keep the arithmetic exact and quick.
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|[smhdw]))+")
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|[smhdw])")
_SIZE = re.compile(rf"({_NUMBER}) ?([KMG]?B|)", re.IGNORECASE)
_RATE = re.compile(rf"([0-9]{{1,12}})/({_NUMBER})?(ms|[smhdw])")


def parse_duration(text: str) -> float:
    """Return the seconds of a duration: numbers with the units ms, s, m, h, d or w, in any order.

    Raises ValueError if the text is not a duration.
    """
    if _DURATION.fullmatch(text) is None:
        raise ValueError(f"not a duration: {text!r}")
    return float(sum(Fraction(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text)))


def parse_size(text: str) -> int:
    """Return the bytes of a size: a number with the unit B, KB, MB, GB (powers of 1024) or none (bytes).

    Raises ValueError if the text is not a size, or not a whole number of bytes.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    size = Fraction(match[1]) * _BYTES[match[2].upper()]
    if size.denominator != 1:
        raise ValueError(f"not a whole number of bytes: {text!r}")
    return size.numerator


def parse_rate(text: str) -> Rate:
    """Return the rate of a text such as ``"1000/s"`` or ``"10/2s"``.

    Raises ValueError if the text is not a rate.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a rate: {text!r}")
    count, interval = int(match[1]), Fraction(match[2] or 1) * _SECONDS[match[3]]
    if count == 0 or interval == 0:
        raise ValueError(f"a rate is above 0: {text!r}")
    return Rate(count, float(interval))


# Rates, and a token bucket. Arithmetic only: the caller passes the time.
#
# Every rate of the configuration has this meaning: after a pause, ``amount`` may come at once. Under sustained load the
# tokens come evenly, and a waiter takes them in parts of a tenth of the amount.


@frozen
class Rate:
    """An amount (1 or more) in a number of seconds (above 0)."""

    amount: int
    seconds: float

    @property
    def per_second(self) -> float:
        """The amount per second; above 0."""
        return self.amount / self.seconds

    @property
    def tenth(self) -> int:
        """The tokens for which a waiter waits under sustained load: a tenth of the amount, and at least 1."""
        return max(1, self.amount // 10)

    def __str__(self) -> str:
        """Return the rate as in the configuration, without units of time other than seconds."""
        return f"{self.amount}/{'' if self.seconds == 1 else f'{self.seconds:g}'}s"


#: tokens may come this many seconds earlier, because timers are not more exact
_PRECISION = 1e-6


class TokenBucket:
    """A bucket that a rate fills with tokens, up to the rate's amount. A full bucket takes no more.

    In any *t* seconds, at most ``amount + t * per_second`` tokens are taken, to the microsecond. ``now`` is in seconds
    of any clock. If the clock is set back, the bucket continues from the new time.
    """

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._level = float(rate.amount)
        self._at = now

    def wait(self, count: int, now: float) -> float:
        """Return the seconds until ``count`` tokens (1 to the rate's amount) can be taken; 0 for at once."""
        self._fill(now)
        wait = (count - self._level) / self.rate.per_second
        return wait if wait > _PRECISION else 0.0

    def available(self, now: float) -> int:
        """Return how many tokens can be taken now."""
        self._fill(now)
        return max(0, int(self._level + _PRECISION * self.rate.per_second))

    def take(self, count: int, now: float) -> None:
        """Take tokens that are :meth:`available`, or for which :meth:`wait` returned 0."""
        self._fill(now)
        self._level -= count

    def change(self, rate: Rate, now: float) -> None:
        """Continue with another rate. The tokens stay, up to the new amount."""
        self._fill(now)
        self.rate = rate
        self._level = min(self._level, float(rate.amount))

    def _fill(self, now: float) -> None:
        elapsed = max(0.0, now - self._at)
        self._at = now
        self._level = min(float(self.rate.amount), self._level + elapsed * self.rate.per_second)


# The times that operators write and read: in UTC, unless a time names its zone.


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


#: the end of the year 9999, in milliseconds since the epoch: the text of a later time is that of the millisecond before
LATEST = 253_402_300_800_000


def date_of(milliseconds: float) -> str:
    """Return the text of a time since the epoch in RFC 3339, in UTC, with milliseconds."""
    moment = datetime.fromtimestamp(min(milliseconds, LATEST - 1) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def second_of(milliseconds: int) -> str:
    """Return the text of a time since the epoch in RFC 3339, in UTC, with whole seconds."""
    return f"{datetime.fromtimestamp(min(milliseconds, LATEST - 1) // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


#: How other programs write the URL of a Postgres database.
_POSTGRES = re.compile(r"\Apostgres(ql)?://")


def database_url(text: str) -> str:
    """Return the URL of a database in its one form: ``postgres://`` and ``postgresql://`` name the driver, too."""
    return _POSTGRES.sub("postgresql+psycopg://", text)
