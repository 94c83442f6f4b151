"""Values of options as they are shown: valid in the file, sizes in bytes, durations in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.config.kinds import Duration
from holdfast.config.secrets import Secret
from holdfast.config.sections.limits import MemoryShare
from holdfast.scheduling.rates import Rate


def shown_value(value: Any, kind: object) -> Any:
    """Return the value of an option of this kind, for JSON: None only if the kind has no word for it."""
    for word, meaning in getattr(kind, "words", {}).items():
        if value == meaning:
            return word
    if value is None and getattr(kind, "infinity", False):
        return "infinity"
    if isinstance(value, Rate):
        return f"{value.amount}/s" if value.seconds == 1 else f"{value.amount}/{_seconds(value.seconds)}"
    if isinstance(value, Secret | MemoryShare):
        return str(value)
    if isinstance(value, Mapping):
        return {name: shown_value(each, None) for name, each in value.items()}
    return _seconds(value) if isinstance(kind, Duration) else value


def _seconds(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".") + "s"
