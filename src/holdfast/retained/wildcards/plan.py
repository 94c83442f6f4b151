"""From a Topic Filter to the search of a database: ranges of topics, and a pattern to check within them. Pure.

How it works
------------
The database keeps topics sorted by their UTF-8 bytes, so the levels before the first wildcard become ranges:

===============  =============================================  =============================
Topic Filter     ranges                                         left to check
===============  =============================================  =============================
``a/b``          ``a/b`` .. ``a/b\\x01``                         nothing
``a/#``          ``a`` .. ``a\\x01``, ``a/`` .. ``a0``           nothing
``a/+``          ``a/`` .. ``a0``                               the number of levels: 2
``a/+/c``        ``a/`` .. ``a0``                               a pattern: ``a/*/c``, 3 levels
``+/c/#``        all but the topics that begin with ``$``       patterns, one per level count
===============  =============================================  =============================

A topic contains no U+0000, so ``a\\x01`` is the first string behind the topic ``a``. The character after ``/`` is
``0``, so ``a0`` is the first string behind all topics below ``a``.

A pattern in SQL knows no levels: in GLOB, ``a/*/c`` also matches ``a/b/b/c``. So a topic is checked for its number of
levels too. If both agree, each ``*`` matches exactly one level. A filter with ``#`` needs one such term for each
level count that occurs among the topics, so the database keeps these counts.

:meth:`Plan.successor` lets a search jump. For the filter ``a/+/c`` and the topic ``a/1/d`` it returns ``a/10``: the
first string behind the topics below ``a/1``. Nothing between the two can match.

Left out: a separate index of levels or reversed topics. It would make every write slower. The jumps take 3 microseconds
for each sibling of a ``+``, in slices.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from attrs import frozen

from holdfast.topics import EVERY_TOPIC

#: Behind a topic, this ends the range of exactly that topic, and begins the range of all later topics.
JUST_AFTER = "\x01"
#: The character after "/": it ends the range of the topics below a topic.
AFTER_SEPARATOR = "0"
#: With more terms than this, Python compares the topics instead of SQL.
MOST_TERMS = 100


@frozen
class KeyRange:
    """The topics from ``low`` up to but not including ``high`` (None: to the end)."""

    low: str
    high: str | None

    def after(self, topic: str) -> KeyRange | None:
        """Return the rest of the range after a topic, None if there is none."""
        low = topic + JUST_AFTER
        if low <= self.low:
            return self
        return KeyRange(low, self.high) if self.high is None or low < self.high else None


@frozen
class PatternSyntax:
    """How a database writes patterns.

    ``wild`` matches any characters. ``before`` and ``after`` enclose a ``special`` character that matches only itself.
    """

    wild: str
    special: frozenset[str]
    before: str
    after: str = ""
    longest: int = 50_000  #: bytes; SQLite refuses more

    def escaped(self, level: str) -> str:
        """Return a pattern that matches exactly this topic level."""
        return "".join(f"{self.before}{one}{self.after}" if one in self.special else one for one in level)


GLOB = PatternSyntax("*", frozenset("*?["), "[", "]")
LIKE = PatternSyntax("%", frozenset("%_\\"), "\\")


@frozen
class Term:
    """One way to match the filter: the topic has exactly ``levels`` levels and matches the pattern."""

    levels: int
    pattern: str


@frozen
class Plan:
    """How to find the topics that match a Topic Filter.

    The matches lie in the ``ranges``, which are disjoint and ascending. Inside the ranges, a match has the ``levels``
    of the filter before a ``#``: the same number of levels (``exact``), or at least that number, and the same text
    wherever the filter has no ``+``. ``levels`` is None if every topic in the ranges matches. With ``counted``, only
    the number of levels is left to check.
    """

    topic_filter: str
    ranges: tuple[KeyRange, ...]
    exact: bool
    levels: tuple[str, ...] | None = None
    counted: bool = False

    @property
    def single(self) -> bool:
        """Whether the filter is a Topic Name: at most one topic matches."""
        return self.exact and self.levels is None

    def terms(self, levels_present: Iterable[int], syntax: PatternSyntax = GLOB) -> tuple[Term, ...] | None:
        """Return the terms of the filter: a topic in the ranges matches if and only if one of the terms holds.

        ``levels_present`` are the level counts that occur among the topics. Returns None if there are too many terms
        for a database, or if they are too long.
        """
        assert self.levels is not None
        least = len(self.levels)
        counts = [least] if self.exact else sorted(count for count in levels_present if count >= least)
        start = self.pattern(syntax)
        if len(counts) > MOST_TERMS or (counts and len(start.encode()) + 2 * (counts[-1] - least) > syntax.longest):
            return None
        # The pattern has as many separators as the topic, so each wildcard is left with exactly one level.
        return tuple(Term(count, start + f"/{syntax.wild}" * (count - least)) for count in counts)

    def pattern(self, syntax: PatternSyntax) -> str:
        """Return the pattern of the levels before a ``#``. In a longer topic, a wildcard can match many levels."""
        assert self.levels is not None
        return "/".join(syntax.wild if level == "+" else syntax.escaped(level) for level in self.levels)

    def candidate(self, topic: str) -> str | None:
        """Return the first string, from this topic of the ranges on, that can be a match; None if there is none.

        The string need not match, but no topic before it matches. The topic itself is returned if it can be a match.
        """
        if self.levels is None:
            return topic
        levels = topic.split("/")
        passed = -1  # the position of the last "+" so far: a later match can differ only there
        for position, wanted in enumerate(self.levels):
            if position == len(levels):
                return topic
            if wanted == "+":
                passed = position
            elif wanted != levels[position]:
                sought = "/".join([*levels[:position], wanted])
                if sought > topic:
                    return sought
                # The topic may lie between "a" and the topics below "a": "a!" sorts before "a/b".
                deeper = position < len(self.levels) - 1 or not self.exact
                if deeper and sought + "/" > topic:
                    return sought + "/"
                return None if passed < 0 else _after_subtree(levels[: passed + 1])
        if self.exact and len(levels) > len(self.levels):
            return _after_subtree(levels[: len(self.levels)])
        return topic

    def successor(self, topic: str) -> str | None:
        """Return the first string behind a topic of the ranges that can be a match; None if there is none."""
        candidate = self.candidate(topic)
        return topic + JUST_AFTER if candidate == topic else candidate


@lru_cache(maxsize=1024)
def plan(topic_filter: str) -> Plan:
    """Plan the search for a valid, non-shared Topic Filter [MQTT5-4.7], or for every topic."""
    if topic_filter == EVERY_TOPIC:
        return Plan(topic_filter, (KeyRange("", None),), exact=False)
    levels = topic_filter.split("/")
    multi = levels[-1] == "#"
    if multi:
        levels.pop()
    wild = levels.index("+") if "+" in levels else len(levels)
    ranges = _ranges(levels[:wild], exact=wild == len(levels), multi=multi)
    counted = all(level == "+" for level in levels[wild:])
    if wild == len(levels) or (multi and counted and len(levels) == wild + 1):
        return Plan(topic_filter, ranges, not multi)  # every topic below a/ matches a/+/#
    return Plan(topic_filter, ranges, not multi, tuple(levels), counted)


def _ranges(leading: list[str], exact: bool, multi: bool) -> tuple[KeyRange, ...]:
    """Return the ranges of the topics that begin with the levels before the first wildcard."""
    if not leading:
        # A leading wildcard does not match topics beginning with $ [MQTT5-4.7.2-1].
        return KeyRange("", "$"), KeyRange("%", None)
    parent = "/".join(leading)
    itself = KeyRange(parent, parent + JUST_AFTER)
    below = KeyRange(parent + "/", parent + AFTER_SEPARATOR)
    if not exact:
        return (below,)
    return (itself, below) if multi else (itself,)


def _after_subtree(levels: list[str]) -> str:
    return "/".join(levels) + AFTER_SEPARATOR
