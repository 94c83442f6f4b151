"""The kinds of options. A kind reads one TOML value, and describes the allowed values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Protocol

from attrs import field, frozen

from holdfast.config.toml.text import literal
from holdfast.config.units import parse_duration, parse_rate, parse_size
from holdfast.scheduling import rates

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class InvalidValue(ValueError):
    """An option does not allow this value. The text says why."""


class Kind(Protocol):
    """One kind of values."""

    @property
    def allowed(self) -> str:
        """The allowed values in words, for messages and the reference."""

    def read(self, value: object) -> object:
        """Return the value for the program; raises InvalidValue."""


def invalid_value(value: object, allowed: str) -> InvalidValue:
    """Return the error that tells the value found and the allowed values."""
    return InvalidValue(f"found {literal(value)}; allowed: {allowed}")


@frozen
class Flag:
    """True or false, or one of some words with a special meaning."""

    words: Mapping[str, bool | None] = field(factory=dict)

    @property
    def allowed(self) -> str:
        """The values and the words."""
        return " or ".join(["true or false", *map(literal, self.words)])

    def read(self, value: object) -> bool | None:
        """Return the truth value, or the meaning of the word; raises InvalidValue."""
        if isinstance(value, str) and value in self.words:
            return self.words[value]
        if not isinstance(value, bool):
            raise invalid_value(value, self.allowed)
        return value


@frozen
class Integer:
    """A whole number within limits, or one of some words with a special meaning."""

    minimum: int
    maximum: int | None = None
    words: Mapping[str, int | None] = field(factory=dict)
    unit: str = ""

    @property
    def allowed(self) -> str:
        """The limits and the words."""
        limits = f"from {self.minimum} to {self.maximum}" if self.maximum is not None else f"of {self.minimum} or more"
        text = f"an integer {limits} ({self.unit})" if self.unit else f"an integer {limits}"
        return " or ".join([text, *map(literal, self.words)])

    def read(self, value: object) -> int | None:
        """Return the number, or the meaning of the word; raises InvalidValue."""
        if isinstance(value, str) and value in self.words:
            return self.words[value]
        if not isinstance(value, int) or isinstance(value, bool) or not _within(value, self.minimum, self.maximum):
            raise invalid_value(value, self.allowed)
        return value


@frozen
class Number:
    """A number, whole or not, within limits."""

    minimum: float
    maximum: float

    @property
    def allowed(self) -> str:
        """The limits."""
        return f"a number from {self.minimum} to {self.maximum}"

    def read(self, value: object) -> float:
        """Return the number; raises InvalidValue (nan is within no limits)."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise invalid_value(value, self.allowed)
        if not self.minimum <= value <= self.maximum:
            raise invalid_value(value, self.allowed)
        return float(value)


@frozen
class Choice:
    """One of a few words or numbers."""

    values: tuple[str | int, ...]

    @property
    def allowed(self) -> str:
        """The values."""
        *others, last = map(literal, self.values)
        return f"{', '.join(others)} or {last}" if others else f"only {last}"

    def read(self, value: object) -> str | int:
        """Return the value; raises InvalidValue."""
        for choice in self.values:  # the type counts too: neither true nor 1.0 is 1
            if type(value) is type(choice) and value == choice:
                return choice
        raise invalid_value(value, self.allowed)


@frozen
class Text:
    """A string without control characters."""

    allowed: str = "a string"
    empty: bool = True

    def read(self, value: object) -> str:
        """Return the string; raises InvalidValue."""
        if not isinstance(value, str) or not (value or self.empty):
            raise invalid_value(value, self.allowed)
        if _CONTROL.search(value):
            raise InvalidValue(f"found a control character in {literal(value)}; allowed: {self.allowed}")
        return value


@frozen
class FilePath:
    """The kind of options with the path of a file, or an empty string."""

    allowed: str = field(default="the path of a file, relative or absolute, or an empty string for none", init=False)

    def read(self, value: object) -> str:
        """Return the path; raises InvalidValue."""
        path = Text(allowed=self.allowed).read(value)
        if path.startswith("~"):
            raise InvalidValue(f"found a path that begins with ~, which is not expanded; allowed: {self.allowed}")
        return path


@frozen
class Duration:
    """Seconds, written with a unit: ``"30s"``, ``"1h30m"``, ``"500ms"``; ``"infinity"``, where allowed, is None.

    Other words may have special values.
    """

    minimum: str
    maximum: str
    infinity: bool = False
    zero: str = ""
    words: Mapping[str, float | None] = field(factory=dict)

    @property
    def allowed(self) -> str:
        """The limits and the words."""
        text = f"a duration with its unit (ms, s, m, h, d, w) from {self.minimum} to {self.maximum}"
        if self.zero:
            text = f"{text}, or 0s ({self.zero})"
        words = [*self.words, "infinity"] if self.infinity else self.words
        return " or ".join([text, *map(literal, words)])

    def read(self, value: object) -> float | None:
        """Return the seconds, None for ``"infinity"``; raises InvalidValue."""
        if self.infinity and value == "infinity":
            return None
        if not isinstance(value, str):
            raise invalid_value(value, self.allowed)
        if value in self.words:
            return self.words[value]
        try:
            seconds = parse_duration(value)
        except ValueError:
            raise invalid_value(value, self.allowed) from None
        if self.zero and seconds == 0.0:
            return seconds
        if not _within(seconds, parse_duration(self.minimum), parse_duration(self.maximum)):
            raise invalid_value(value, self.allowed)
        return seconds


@frozen
class Size:
    """Bytes, written with a unit or as a plain number: ``"1MB"``, ``"64KB"``, ``512``.

    ``"infinity"``, where allowed, is None. Other words may have special values.
    """

    minimum: str
    maximum: str
    zero: str = ""
    infinity: bool = False
    words: Mapping[str, int | None] = field(factory=dict)

    @property
    def allowed(self) -> str:
        """The limits and the words."""
        text = f"a size (B, KB, MB, GB; a plain integer is bytes) from {self.minimum} to {self.maximum}"
        if self.zero:
            text = f"{text}, or 0 ({self.zero})"
        words = [*self.words, "infinity"] if self.infinity else self.words
        return " or ".join([text, *map(literal, words)])

    def read(self, value: object) -> int | None:
        """Return the bytes, None for ``"infinity"``; raises InvalidValue."""
        if self.infinity and value == "infinity":
            return None
        if isinstance(value, str):
            if value in self.words:
                return self.words[value]
            try:
                size = parse_size(value)
            except ValueError:
                raise invalid_value(value, self.allowed) from None
        elif isinstance(value, int) and not isinstance(value, bool):
            size = value
        else:
            raise invalid_value(value, self.allowed)
        if self.zero and size == 0:
            return size
        if not _within(size, parse_size(self.minimum), parse_size(self.maximum)):
            raise invalid_value(value, self.allowed)
        return size


@frozen
class Rate:
    """A number in a time: ``"1000/s"``, ``"1/2s"``; ``"infinity"`` is None."""

    words: ClassVar[Mapping[str, None]] = {"infinity": None}
    allowed: str = field(
        default='"infinity", or a number of 1 or more in a time from 1ms to 1d, such as "1000/s", "1/2s" or "60/m"',
        init=False,
    )

    def read(self, value: object) -> rates.Rate | None:
        """Return the rate, None for ``"infinity"``; raises InvalidValue."""
        if value == "infinity":
            return None
        if not isinstance(value, str):
            raise invalid_value(value, self.allowed)
        try:
            rate = parse_rate(value)
        except ValueError:
            raise invalid_value(value, self.allowed) from None
        if not _within(rate.seconds, 0.001, 86400):
            raise invalid_value(value, self.allowed)
        return rate


def _within(value: float, minimum: float, maximum: float | None) -> bool:
    return minimum <= value and (maximum is None or value <= maximum)
