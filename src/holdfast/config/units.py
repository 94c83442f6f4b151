"""Parsing durations, sizes and rates: ``"1h30m"``, ``"64KB"``, ``"1000/s"``."""

from __future__ import annotations

import re
from fractions import Fraction

from holdfast.scheduling.rates import Rate

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
