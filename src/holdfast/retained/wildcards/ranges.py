"""The ranges of topics that one read may look at: those of its Topic Filter, and of other filters as well. Pure.

For the Topic Filter ``#`` of a subscriber who may receive ``a/#`` only, the ranges are those of ``a/#``: no row of
another topic is read. The ranges of a filter with ``+`` have topics that do not match it (:mod:`.plan`), so ranges
alone do not tell what a subscriber may receive: they only spare reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from holdfast.retained.wildcards.plan import JUST_AFTER, KeyRange, plan

Ranges = tuple[KeyRange, ...]


@lru_cache(maxsize=1024)
def ranges_of(topic_filter: str, within: tuple[str, ...] | None = None) -> Ranges:
    """Return the ranges of a Topic Filter that the filters ``within`` have too (None: all). Disjoint and ascending."""
    ranges = plan(topic_filter).ranges
    if within is None:
        return ranges
    return _intersection(ranges, _union(one for each in within for one in plan(each).ranges))


def up_to(ranges: Ranges, topic: str) -> Ranges:
    """Return the parts of the ranges up to and including a topic."""
    return _intersection(ranges, (KeyRange("", topic + JUST_AFTER),))


def next_low(ranges: Ranges, after: str) -> str | None:
    """Return where the first range after a topic begins, or its rest; None if no range is left."""
    for one in ranges:
        rest = one.after(after)
        if rest is not None:
            return rest.low
    return None


def _union(ranges: Iterable[KeyRange]) -> Ranges:
    union: list[KeyRange] = []
    for one in sorted(ranges, key=lambda one: one.low):
        last = union[-1] if union else None
        if last is None or (last.high is not None and last.high < one.low):
            union.append(one)
        elif last.high is not None and (one.high is None or one.high > last.high):
            union[-1] = KeyRange(last.low, one.high)
    return tuple(union)


def _intersection(some: Sequence[KeyRange], others: Sequence[KeyRange]) -> Ranges:
    """Walk both together: the range that ends first is passed."""
    found: list[KeyRange] = []
    at, other_at = 0, 0
    while at < len(some) and other_at < len(others):
        one, other = some[at], others[other_at]
        low = max(one.low, other.low)
        if one.high is None or (other.high is not None and other.high < one.high):
            high = other.high
            other_at += 1
        else:
            high = one.high
            at += 1
        if high is None or low < high:
            found.append(KeyRange(low, high))
    return tuple(found)
