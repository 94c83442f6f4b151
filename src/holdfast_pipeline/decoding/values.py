"""The values in payloads, by paths such as ``$.climate.temperature`` or ``$['odd name'][0]``. Pure.

Paths are a part of JSONPath (RFC 9535). Only member names and indexes are allowed, so a path names one value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from attrs import frozen

from holdfast_pipeline.decoding.plain_formats import BadPayload, Decoder
from holdfast_pipeline.decoding.sparkplug import metrics_named
from holdfast_pipeline.decoding.typed_rows import MOST_ROWS, DecodeFunction
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.formatting import visible

_STEP = re.compile(r"\.(?P<plain>[^\W\d]\w*)|\['(?P<quoted>[^']+)'\]|\[(?P<index>\d{1,6})\]")
#: What :func:`value_at` returns if there is nothing at a path.
MISSING = object()

JsonPath = tuple[str | int, ...]


def json_path(text: str) -> JsonPath:
    """Return the steps of a path. Raises :class:`PipelineError`."""
    steps: list[str | int] = []
    place = 1
    while text[:1] == "$" and (found := _STEP.match(text, place)):
        steps.append(int(found["index"]) if found["index"] else found["plain"] or found["quoted"])
        place = found.end()
    if place != len(text) or not steps:
        raise PipelineError(
            f"{text!r} is not a path; write it as in $.temperature, $.sensors[0].value or $['odd name']"
        )
    return tuple(steps)


def value_at(document: Any, path: JsonPath) -> Any:
    """Return the value at a path, or :data:`MISSING`."""
    for step in path:
        if isinstance(step, str):
            if not isinstance(document, Mapping) or step not in document:
                return MISSING
            document = document[step]
        else:
            if not isinstance(document, Sequence) or isinstance(document, (str, bytes)) or step >= len(document):
                return MISSING
            document = document[step]
    return document


#: Microseconds of the units in which a payload may tell its time as a number.
TIME_UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}
#: The times that a value may have: from 1970 to 2200, in microseconds since the epoch.
_LAST_TIME = 7_258_118_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@frozen
class ValuePlace:
    """Where a value is in payloads: at ``path`` in each row of ``decoder``.

    ``time`` is the path of the value's own time, None if it has none; a number there is in ``time_unit`` microseconds.
    ``checked`` compares a payload with a given schema first. ``metric`` is the name of a metric of Sparkplug, None for
    all other formats.
    """

    decoder: Decoder
    checked: DecodeFunction | None
    path: JsonPath
    time: JsonPath | None
    time_unit: int
    metric: str | None

    def values(self, topic: str, payload: bytes) -> list[tuple[int | None, float]]:
        """Return the values in a payload with their own times, in microseconds since the epoch.

        Raises :class:`BadPayload`.
        """
        if self.checked is not None:
            reason = self.checked(topic, payload)[1]
            if reason is not None:
                raise BadPayload(reason)
        try:
            rows = list(self.decoder.decode(topic, payload))
        except BadPayload:
            raise
        except Exception as error:  # - a decoder of another package may raise anything
            raise BadPayload(f"the decoder failed: {type(error).__name__}: {error}") from error
        if len(rows) > MOST_ROWS:
            raise BadPayload(f"it has more than {MOST_ROWS} rows")
        found = []
        for row in rows if self.metric is None else metrics_named(rows, self.metric):
            value = value_at(row, self.path)
            if value is not MISSING and value is not None:
                found.append((self._own_time(row), _number(value)))
        return found

    def _own_time(self, row: Any) -> int | None:
        if self.time is None:
            return None
        value = value_at(row, self.time)
        at: int | None = None
        if isinstance(value, str):
            with suppress(ValueError):
                value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            at = round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1_000_000)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LAST_TIME:
            at = round(value * self.time_unit)
        if at is None or not 0 <= at < _LAST_TIME:
            shown = "missing" if value is MISSING else f"'{visible(str(value), 60)}'"
            raise BadPayload(f"the time is {shown}; allowed: ISO 8601, or a number, from 1970 to 2200")
        return at


class ValueRows(Decoder):
    """Decodes the values at a place: a row for each ``value``, with its own time ``at`` if the place has one."""

    def __init__(self, place: ValuePlace) -> None:
        self._place = place
        self.schema = "value double NOT NULL" if place.time is None else "at timestamp NOT NULL, value double NOT NULL"

    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the rows; a payload without the value has none. Raises :class:`BadPayload`."""
        return [
            {"value": value} if at is None else {"value": value, "at": _EPOCH + timedelta(microseconds=at)}
            for at, value in self._place.values(topic, payload)
        ]


def _number(value: Any) -> float:
    if not isinstance(value, (bool, int, float, Decimal)):
        raise BadPayload(f"the value is '{visible(str(value), 60)}', which is no number")
    try:
        number = float(value)
    except (OverflowError, ValueError):  # a Decimal may be no number
        number = math.inf
    if not math.isfinite(number):
        raise BadPayload(f"the number '{visible(str(value), 60)}' does not fit into 64 bits")
    return number
