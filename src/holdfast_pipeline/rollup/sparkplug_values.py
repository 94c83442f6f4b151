"""The values of one metric of Sparkplug B. A roll-up sees each message alone, so it needs metrics with their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast_pipeline.decoding.decoder import BadPayload
from holdfast_pipeline.decoding.sparkplug_payload import signed

#: The key for the value in each row, whatever its type is.
VALUE = "value"
_TIME = "DateTime"


def metrics_named(rows: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """Return the rows of :class:`.Sparkplug` for the metric ``name``, each with its number or flag as :data:`VALUE`.

    Integers have their sign, as far as the message tells their datatype. Raises :class:`BadPayload` where the metric
    may be one that has nothing but an alias: only the last birth knows its name.
    """
    found: list[Mapping[str, Any]] = [{**row, VALUE: _value(row)} for row in rows if row.get("metric") == name]
    unnamed = [row["alias"] for row in rows if row.get("metric") is None and row.get("alias") is not None]
    if unnamed and not found:
        raise BadPayload(f"a metric has the alias {unnamed[0]} and no name; a roll-up needs names")
    return found


def _value(row: Mapping[str, Any]) -> Any:
    """Return the value, None if there is none. The caller refuses a text."""
    if row.get("integer") is not None:
        if row.get("datatype") == _TIME:
            raise BadPayload("the metric is a time, which is no number")
        return signed(row["integer"], row.get("datatype"))
    return next((row[name] for name in ("number", "flag", "text", "bytes") if row.get(name) is not None), None)
