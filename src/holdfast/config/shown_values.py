"""Values of options as they are shown: valid in the file, sizes in bytes, durations in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.config.options import Duration
from holdfast.core.units import Rate


def shown_value(value: Any, kind: object) -> Any:
    """Return the value of an option of this kind, for JSON: None only if the kind has no word for it."""
    for word, meaning in getattr(kind, "words", {}).items():
        if value == meaning:
            return word
    if value is None and getattr(kind, "infinity", False):
        return "infinity"
    if isinstance(value, Rate):
        return f"{value.amount}/s" if value.seconds == 1 else f"{value.amount}/{_seconds(value.seconds)}"
    if isinstance(value, Mapping):
        return {name: shown_value(each, None) for name, each in value.items()}
    if isinstance(kind, Duration) and value is not None:
        return _seconds(value)
    is_plain = isinstance(value, str | int | float | list | tuple | None)
    return value if is_plain else str(value)  # a secret's place, a share of the memory


def _seconds(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".") + "s"
