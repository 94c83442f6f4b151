"""Typed values from changes: each set of a matching topic is decoded once for each kind of value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from attrs import field, frozen

from holdfast.core.messages import ChangeKind
from holdfast.core.topics import matches
from holdfast.storage.api import time_of
from holdfast_pipeline.decoding.decoder import BadPayload
from holdfast_pipeline.formatting import visible
from holdfast_pipeline.rollup.catalog import Catalog, ValueKind
from holdfast_pipeline.rollup.json_path import MISSING, value_at
from holdfast_pipeline.rollup.sparkplug_values import metrics_named

#: The most rows of one message, and the most characters of a reason.
_MOST_ROWS, _LONGEST_REASON = 100_000, 300
#: The times that a value may have: from 1970 to 2200, in microseconds since the epoch.
_LAST_TIME = 7_258_118_400_000_000
_MOST_TOPICS = 200_000


@frozen
class Value:
    """A value of a kind, from the change ``seq`` on ``topic``: ``at`` microseconds since the epoch; None: cleared.

    ``part`` is its place among the values of the message. The broker may record a message twice (when it begins a
    history anew), with the same ``revision``.
    """

    kind: ValueKind
    topic: str
    levels: Mapping[str, str]
    at: int
    value: float | None
    seq: int
    revision: int
    part: int


@frozen
class BadValue:
    """A payload that has no value of a kind, and the reason."""

    kind: ValueKind
    topic: str
    seq: int
    at: int
    reason: str


@frozen
class Decoding:
    """Finds the kinds of topics, and remembers them for some topics."""

    catalog: Catalog
    _known: dict[str, Sequence[tuple[ValueKind, Mapping[str, str]]]] = field(factory=dict, init=False)

    def values(self, change: Mapping[str, Any]) -> Iterator[Value | BadValue]:
        """Return the values of a change: a row of the table ``changes``."""
        topic, seq, revision = change["topic"], change["seq"], change["revision"]
        for kind, levels in self._kinds(topic):
            at = time_of(revision) * 1000
            if change["op"] != ChangeKind.SET.value:
                yield Value(kind, topic, levels, at, None, seq, revision, 0)
                continue
            try:
                for part, (own, value) in enumerate(_found(kind, topic, change["payload"])):
                    yield Value(kind, topic, levels, at if own is None else own, value, seq, revision, part)
            except BadPayload as error:
                yield BadValue(kind, topic, seq, at, visible(str(error), _LONGEST_REASON))

    def _kinds(self, topic: str) -> Sequence[tuple[ValueKind, Mapping[str, str]]]:
        known = self._known.get(topic)
        if known is None:
            levels = topic.split("/")
            known = [
                (kind, {name: levels[place] for name, place in pattern.levels.items()})
                for kind in self.catalog.kinds
                for pattern in [next((each for each in kind.patterns if matches(each.topic_filter, topic)), None)]
                if pattern is not None
            ]
            if len(self._known) >= _MOST_TOPICS:
                self._known.clear()
            self._known[topic] = known
        return known


def _found(kind: ValueKind, topic: str, payload: bytes) -> list[tuple[int | None, float]]:
    """Return the values in a payload with their own times. Raises :class:`BadPayload`."""
    if kind.checked is not None:
        reason = kind.checked(topic, payload)[1]
        if reason is not None:
            raise BadPayload(reason)
    try:
        rows = list(kind.decoder.decode(topic, payload))
    except BadPayload:
        raise
    except Exception as error:  # - a decoder of another package may raise anything
        raise BadPayload(f"the decoder failed: {type(error).__name__}: {error}") from error
    if len(rows) > _MOST_ROWS:
        raise BadPayload(f"it has more than {_MOST_ROWS} rows")
    found = []
    for row in rows if kind.metric is None else metrics_named(rows, kind.metric):
        value = value_at(row, kind.path)
        if value is not MISSING and value is not None:
            found.append((_time(kind, row), _number(value)))
    return found


def _number(value: Any) -> float:
    if not isinstance(value, (bool, int, float, Decimal)):
        raise BadPayload(f"the value is '{visible(str(value), 60)}', which is no number")
    try:
        number = float(value)
    except (OverflowError, ValueError):  # a Decimal may be no number
        number = math.inf
    if not math.isfinite(number):
        raise BadPayload(f"the number {visible(str(value), 60)} does not fit into 64 bits")
    return number


def _time(kind: ValueKind, row: Any) -> int | None:
    if kind.time is None:
        return None
    value = value_at(row, kind.time)
    at: int | None = None
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is not None:
            at = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)
    elif isinstance(value, datetime):
        at = round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1_000_000)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LAST_TIME:
        at = round(value * kind.time_unit)
    if at is None or not 0 <= at < _LAST_TIME:
        shown = "missing" if value is MISSING else f"'{visible(str(value), 60)}'"
        raise BadPayload(f"the time is {shown}; allowed: ISO 8601, or a number, from 1970 to 2200")
    return at
