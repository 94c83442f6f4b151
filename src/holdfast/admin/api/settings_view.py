"""The configuration as EMQX's API shows it: values that are valid in the file, sizes in bytes, durations in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.config.options import Option, Section, Subsection, described
from holdfast.config.shown_values import shown_value

#: keys that may be changed while the broker runs; the name of a table includes all its keys
CHANGEABLE = ("delivery_rate", "max_publish_rate", "policies", "flow_control")
#: the field of an answer that lists the keys whose values differ from the file; a request with this field is accepted
UNTIL_RESTART = "until_restart"


def shown(section: Section) -> dict[str, Any]:
    """Return the values of a section, and of its tables as nested objects."""
    return {name: _shown(getattr(section, name), description) for name, description in described(type(section)).items()}


def options_of(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every option below a table."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from options_of(value, f"{path}{name}.")
        else:
            yield path + name, value


def _shown(value: Any, description: object) -> Any:
    if isinstance(value, Section):
        return shown(value)
    if isinstance(value, tuple) and isinstance(description, Subsection):
        return [shown(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _shown(one, description) for name, one in value.items()}
    return shown_value(value, description.kind if isinstance(description, Option) else None)
