"""The configuration as EMQX's API shows it: durations with their unit, sizes in bytes."""

from __future__ import annotations

from typing import Any

from holdfast.config.fields import Option, Section, described
from holdfast.config.kinds import Duration


def shown(section: Section) -> dict[str, Any]:
    """Return the values of a section, those of its tables nested."""
    return {name: _shown(getattr(section, name), description) for name, description in described(type(section)).items()}


def _shown(value: Any, description: object) -> Any:
    if isinstance(value, Section):
        return shown(value)
    if isinstance(description, Option) and isinstance(description.kind, Duration):
        return "infinity" if value is None else f"{value:g}s" if value < 1e6 else f"{round(value)}s"
    return value
