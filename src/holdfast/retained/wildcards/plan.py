"""From a Topic Filter to what the database is asked: ranges of topics, and what is left to check within them. Pure.

Topics sort by their UTF-8 bytes and contain no U+0000, so that U+0001 ends "exactly this topic" and "after this topic".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from attrs import frozen

from holdfast.topics import EVERY_TOPIC

#: The end of a range that holds exactly the topic before it, and the beginning of what follows that topic.
JUST_AFTER = "\x01"
#: The character after "/": ends what lies below a topic.
AFTER_SEPARATOR = "0"
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
class PatternSyntax:
    """How a database writes patterns: any characters, and what stands before or around one that is itself meant."""

    wild: str
    special: frozenset[str]
    before: str
    after: str = ""
    longest: int = 50_000  #: bytes; SQLite refuses more

    def escaped(self, level: str) -> str:
        """Return a topic level as a pattern for itself."""
        return "".join(f"{self.before}{one}{self.after}" if one in self.special else one for one in level)


GLOB = PatternSyntax("*", frozenset("*?["), "[", "]")
LIKE = PatternSyntax("%", frozenset("%_\\"), "\\")


@frozen
class Term:
    """Topics of exactly so many levels, of which the pattern holds for those that match the filter."""

    levels: int
    pattern: str


@frozen
class Plan:
    """How to find the topics that match a Topic Filter.

    They are the topics in the ``ranges`` (disjoint, ascending) that also match ``levels``, the levels of the filter
    before a ``#``: they have as many (``exact``) or at least as many, and where the filter has no ``+``, the same ones.
    ``levels`` is None when there is no more to check, and with ``counted``, only their number is left to check.
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

    def terms(self, levels_present: Iterable[int], form: PatternSyntax = GLOB) -> tuple[Term, ...] | None:
        """Return what to ask of topics in the ranges: one of the terms holds for each match, and for nothing else.

        ``levels_present`` are the level counts that occur at all. None says that a database cannot check it: there
        are too many terms, or they are too long.
        """
        assert self.levels is not None
        least = len(self.levels)
        counts = [least] if self.exact else sorted(count for count in levels_present if count >= least)
        start = self.pattern(form)
        if len(counts) > MOST_TERMS or (counts and len(start.encode()) + 2 * (counts[-1] - least) > form.longest):
            return None
        # The pattern has as many separators as the topic, so that each wild part is left with exactly one level.
        return tuple(Term(count, start + f"/{form.wild}" * (count - least)) for count in counts)

    def pattern(self, form: PatternSyntax) -> str:
        """Return a pattern for the levels before a ``#``; in a topic of more levels a ``+`` may stand for several."""
        assert self.levels is not None
        return "/".join(form.wild if level == "+" else form.escaped(level) for level in self.levels)

    def candidate(self, topic: str) -> str | None:
        """Return a string not before a topic of the ranges, such that nothing between the two matches.

        None: nothing matches from the topic on. It lets a search jump over the subtrees that cannot match.
        """
        if self.levels is None:
            return topic
        levels = topic.split("/")
        passed = -1  # the last "+" so far: where there are other values to go on with
        for position, wanted in enumerate(self.levels):
            if position == len(levels):
                return topic
            if wanted == "+":
                passed = position
            elif wanted != levels[position]:
                sought = "/".join([*levels[:position], wanted])
                if sought > topic:
                    return sought
                # "a!" lies between "a" and "a/b"
                deeper = position < len(self.levels) - 1 or not self.exact
                if deeper and sought + "/" > topic:
                    return sought + "/"
                return None if passed < 0 else _after_subtree(levels[: passed + 1])
        if self.exact and len(levels) > len(self.levels):
            return _after_subtree(levels[: len(self.levels)])
        return topic

    def successor(self, topic: str) -> str | None:
        """Return where to go on behind a topic of the ranges: nothing between the two matches. None: nowhere."""
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
        return Plan(topic_filter, ranges, not multi)  # a/+/# is whatever lies below a/
    return Plan(topic_filter, ranges, not multi, tuple(levels), counted)


def _ranges(leading: list[str], exact: bool, multi: bool) -> tuple[KeyRange, ...]:
    """Return the ranges of topics that begin with the literal leading levels."""
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
