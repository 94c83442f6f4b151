"""The topics of a query as ranges and SQL conditions, from a Topic Filter and from conditions that Spark pushes down.

Pure: nothing here reads a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from attrs import frozen

from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained.api import GLOB, LIKE, KeyRange, plan


@frozen
class Condition:
    """A piece of SQL with ``?`` for its values."""

    sql: str
    values: tuple[Any, ...] = ()


@frozen
class TopicSelection:
    """Topics in one of the ``ranges`` that also meet all ``conditions``.

    With ``checked``, the reader must still match each topic with the Topic Filter.
    """

    ranges: tuple[KeyRange, ...]
    conditions: tuple[Condition, ...]
    checked: bool = False


def selection(topic_filter: str, levels_present: Iterable[int], dialect: str) -> TopicSelection:
    """Plan the search for a valid Topic Filter; "" means every topic, also topics that begin with ``$``."""
    if topic_filter == EVERY_TOPIC:
        return TopicSelection((KeyRange("", None),), ())
    found = plan(topic_filter)
    if found.levels is None:
        return TopicSelection(found.ranges, ())
    operator, form = ("GLOB", GLOB) if dialect == "sqlite" else ("LIKE", LIKE)
    terms = found.terms(levels_present, form)
    if terms is None:
        return TopicSelection(found.ranges, (), checked=True)
    sql = " OR ".join(f"(levels = ? AND topic {operator} ?)" for _ in terms) or "1 = 0"
    values = [value for term in terms for value in (term.levels, term.pattern)]
    return TopicSelection(found.ranges, (Condition(f"({sql})", tuple(values)),))


def narrowed(ranges: Sequence[KeyRange], low: str, high: str | None) -> tuple[KeyRange, ...]:
    """Return the parts of the ranges from ``low`` up to but not including ``high``."""
    found = []
    for one in ranges:
        begin = max(one.low, low)
        end = one.high if high is None else high if one.high is None else min(one.high, high)
        if end is None or begin < end:
            found.append(KeyRange(begin, end))
    return tuple(found)


def divided(ranges: Sequence[KeyRange], bounds: Sequence[str]) -> list[tuple[KeyRange, ...]]:
    """Divide ranges at ascending bounds; empty parts are left out."""
    edges: list[str | None] = ["", *bounds, None]
    parts = [narrowed(ranges, low or "", high) for low, high in pairwise(edges)]
    return [part for part in parts if part]


def above_prefix(prefix: str) -> str | None:
    """Return the first string after all strings that begin with a prefix; None if there is none."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1])
        if code < 0x10FFFF:
            following = 0xE000 if code == 0xD7FF else code + 1  # surrogates are not characters
            return prefix[: end - 1] + chr(following)
    return None
