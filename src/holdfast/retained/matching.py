"""From a Topic Filter to what the database is asked: ranges of topics, and what is left to check within them. Pure.

Topics sort by their UTF-8 bytes and contain no U+0000, so that U+0001 ends "exactly this topic" and "after this topic".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import frozen
else:
    from attrs import define as frozen

#: The end of a range that holds exactly the topic before it, and the beginning of what follows that topic.
JUST_AFTER = "\x01"
#: SQLite refuses longer GLOB patterns (bytes).
LONGEST_GLOB = 50_000
#: More level counts than this are not asked for one by one.
MOST_TERMS = 100


@frozen
class KeyRange:
    """The topics from ``low`` up to but not including ``high`` (None: to the end)."""

    low: str
    high: str | None

    def after(self, topic: str) -> KeyRange | None:
        """Return what is left of the range after a topic, None when nothing is."""
        low = topic + JUST_AFTER
        if low <= self.low:
            return self
        return KeyRange(low, self.high) if self.high is None or low < self.high else None


@frozen
class Term:
    """Topics of exactly so many levels, of which the GLOB pattern holds for those that match the filter."""

    levels: int
    glob: str


@frozen
class Plan:
    """How to find the topics that match a Topic Filter.

    They are the topics in the ``ranges`` (disjoint, ascending) that also have at least (with ``exact``: exactly)
    ``levels`` levels, and match the ``pattern``: the levels of the filter before a ``#``. None: no more to check.
    """

    topic_filter: str
    ranges: tuple[KeyRange, ...]
    exact: bool
    levels: int | None = None
    pattern: tuple[str, ...] | None = None

    @property
    def single(self) -> bool:
        """Whether the filter is a Topic Name: at most one topic matches."""
        return self.exact and self.levels is None

    def terms(self, levels_present: Iterable[int]) -> tuple[Term, ...] | None:
        """Return what to ask of topics in the ranges instead of ``pattern``: one of the terms holds for each match.

        ``levels_present`` are the level counts that occur at all. None says that a database cannot check it: there
        are too many terms, or they are too long.
        """
        assert self.pattern is not None
        assert self.levels is not None
        least = self.levels
        counts = [least] if self.exact else sorted(count for count in levels_present if count >= least)
        start = "/".join("*" if level == "+" else _escaped(level) for level in self.pattern)
        if len(counts) > MOST_TERMS or (counts and len(start.encode()) + 2 * (counts[-1] - least) > LONGEST_GLOB):
            return None
        # There are as many separators in the pattern as in the topic, so that each "*" is left with exactly one level.
        return tuple(Term(count, start + "/*" * (count - least)) for count in counts)


@lru_cache(maxsize=1024)
def plan(topic_filter: str) -> Plan:
    """Plan the search for a valid, non-shared Topic Filter [MQTT5-4.7]."""
    levels = topic_filter.split("/")
    multi = levels[-1] == "#"
    if multi:
        levels.pop()
    wild = levels.index("+") if "+" in levels else len(levels)
    ranges = _ranges(levels[:wild], exact=wild == len(levels), multi=multi)
    if wild == len(levels):
        return Plan(topic_filter, ranges, not multi)
    # Levels after the literal ones that are all "+" leave only their number to check.
    literal_later = any(level != "+" for level in levels[wild:])
    if multi and not literal_later and len(levels) == wild + 1:
        return Plan(topic_filter, ranges, False)  # a/+/#: whatever lies below a/
    return Plan(topic_filter, ranges, not multi, len(levels), tuple(levels) if literal_later else None)


def _ranges(leading: list[str], exact: bool, multi: bool) -> tuple[KeyRange, ...]:
    """Return the ranges of topics that begin with the literal leading levels."""
    if not leading:
        # A leading wildcard does not match topics beginning with $ [MQTT5-4.7.2-1].
        return KeyRange("", "$"), KeyRange("%", None)
    parent = "/".join(leading)
    itself = KeyRange(parent, parent + JUST_AFTER)
    below = KeyRange(parent + "/", parent + "0")  # "0" is the character after "/"
    if not exact:
        return (below,)
    return (itself, below) if multi else (itself,)


def _escaped(level: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in level)
