"""Which rows are asked for: a Topic Filter and what Spark pushes down, as ranges of topics and conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from attrs import frozen

from holdfast.retained.wildcards.plan import GLOB, LIKE, KeyRange, plan
from holdfast.topics import EVERY_TOPIC


@frozen
class Condition:
    """A piece of SQL with ``?`` for its values."""

    sql: str
    values: tuple[Any, ...] = ()


@frozen
class Wanted:
    """What of the topics is asked for: ``ranges`` of topics, each with ``conditions`` that hold in addition.

    With ``checked``, the topics found are still to be matched with the Topic Filter.
    """

    ranges: tuple[KeyRange, ...]
    conditions: tuple[Condition, ...]
    checked: bool = False


def wanted(topic_filter: str, levels_present: Iterable[int], dialect: str) -> Wanted:
    """Plan the search for a valid Topic Filter; "" means every topic, also those beginning with ``$``."""
    if topic_filter == EVERY_TOPIC:
        return Wanted((KeyRange("", None),), ())
    found = plan(topic_filter)
    if found.levels is None:
        return Wanted(found.ranges, ())
    operator, form = ("GLOB", GLOB) if dialect == "sqlite" else ("LIKE", LIKE)
    terms = found.terms(levels_present, form)
    if terms is None:
        return Wanted(found.ranges, (), checked=True)
    sql = " OR ".join(f"(levels = ? AND topic {operator} ?)" for _ in terms) or "1 = 0"
    values = [value for term in terms for value in (term.levels, term.pattern)]
    return Wanted(found.ranges, (Condition(f"({sql})", tuple(values)),))


def narrowed(ranges: Sequence[KeyRange], low: str, high: str | None) -> tuple[KeyRange, ...]:
    """Return what of the ranges lies from ``low`` up to but not including ``high``."""
    found = []
    for one in ranges:
        begin = max(one.low, low)
        end = one.high if high is None else high if one.high is None else min(one.high, high)
        if end is None or begin < end:
            found.append(KeyRange(begin, end))
    return tuple(found)


def divided(ranges: Sequence[KeyRange], bounds: Sequence[str]) -> list[tuple[KeyRange, ...]]:
    """Divide ranges at ascending bounds; parts with nothing in them are left out."""
    edges: list[str | None] = ["", *bounds, None]
    parts = [narrowed(ranges, low or "", high) for low, high in pairwise(edges)]
    return [part for part in parts if part]


def above_prefix(prefix: str) -> str | None:
    """Return what ends the strings that begin with a prefix: None where nothing comes after them."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1])
        if code < 0x10FFFF:
            following = 0xE000 if code == 0xD7FF else code + 1
            return prefix[: end - 1] + chr(following)
    return None
