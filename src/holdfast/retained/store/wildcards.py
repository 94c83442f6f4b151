"""Searching topics by wildcards in a database: ranges, patterns within them, and the size of each step. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from attrs import define, field, frozen

from holdfast.core.topics import EVERY_TOPIC

# From a Topic Filter to the search of a database: ranges of topics, and a pattern to check within them. Pure.
#
# How it works
# ------------
# The database keeps topics sorted by their UTF-8 bytes, so the levels before the first wildcard become ranges:
#
# ===============  =============================================  =============================
# Topic Filter     ranges                                         left to check
# ===============  =============================================  =============================
# ``a/b``          ``a/b`` .. ``a/b\x01``                         nothing
# ``a/#``          ``a`` .. ``a\x01``, ``a/`` .. ``a0``           nothing
# ``a/+``          ``a/`` .. ``a0``                               the number of levels: 2
# ``a/+/c``        ``a/`` .. ``a0``                               a pattern: ``a/*/c``, 3 levels
# ``+/c/#``        all but the topics that begin with ``$``       patterns, one per level count
# ===============  =============================================  =============================
#
# A topic contains no U+0000, so ``a\x01`` is the first string behind the topic ``a``. The character after ``/`` is
# ``0``, so ``a0`` is the first string behind all topics below ``a``.
#
# A pattern in SQL knows no levels: in GLOB, ``a/*/c`` also matches ``a/b/b/c``. So a topic is checked for its number of
# levels too. If both agree, each ``*`` matches exactly one level. A filter with ``#`` needs one such term for each
# level count that occurs among the topics, so the database keeps these counts.
#
# :meth:`Plan.successor` lets a search jump. For the filter ``a/+/c`` and the topic ``a/1/d`` it returns ``a/10``: the
# first string behind the topics below ``a/1``. Nothing between the two can match.
#
# Left out: a separate index of levels or reversed topics. It would make every write slower. The jumps take 3
# microseconds for each sibling of a ``+``, in slices.


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


# The ranges of topics that one read may look at: those of its Topic Filter, and of other filters as well. Pure.
#
# For the Topic Filter ``#`` of a subscriber who may receive ``a/#`` only, the ranges are those of ``a/#``: no row of
# another topic is read. The ranges of a filter with ``+`` have topics that do not match it, so ranges
# alone do not tell what a subscriber may receive: they only spare reads.


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


# The size of the next statement of a search: how many jumps, and how many topics of a walk.
#
# How it works
# ------------
# A jump costs about as much as a walk over fifty topics, so jumps pay if they pass over at least ``topics_per_jump``
# (64) topics each. Whether jumps pay depends on the stored topics, and no statistics tell that. So the search tries
# both
# ways in each statement, and the winning way doubles its size for the next statement. The losing way starts again with
# its smallest size, so a search never costs much more than with the winning way alone:
#
# ======================  =====  ======
# statement               jumps  topics
# ======================  =====  ======
# first                       8    1024
# jumps won                  16    1024
# jumps won                  32    1024
# walk won                    8    2048
# ======================  =====  ======
#
# A search that walks at the largest size tries jumps only in every eighth statement.
#
# If a walk has so many matches that the read was full before its end, jumps cannot help: none are tried until the next
# walk is read to its end. The sizes of a Topic Filter are kept between reads, so the second client with the same filter
# starts where the first one ended.


#: The jumps of a first attempt: few, because an unsuccessful attempt costs time.
FEWEST_JUMPS = 8
#: The topics of a first walk.
FEWEST_TOPICS = 1024
#: The walks of the largest size without an attempt to jump, after an attempt that lost.
WALKS_WITHOUT_JUMPS = 7


@define
class ScanSize:
    """The sizes for one Topic Filter. No statement walks more than ``most`` topics, or jumps for a longer time.

    Without ``jumps``, the next statement only walks. If the matches are ``dense``, it need not look for them.
    """

    topics_per_jump: int
    most: int
    jumps: int = field(init=False)
    topics: int = field(init=False)
    dense: bool = field(default=False, init=False)
    _rest: int = field(default=0, init=False)  # the walks before jumps are tried again

    def __attrs_post_init__(self) -> None:
        self.jumps = min(FEWEST_JUMPS, self.most_jumps)
        self.topics = min(FEWEST_TOPICS, self.most)

    @property
    def most_jumps(self) -> int:
        """The most jumps of a statement: at least two, because the first one only reaches the start of the range."""
        return max(2, self.most // self.topics_per_jump)

    def jumped(self) -> None:
        """Take note that the jumps won."""
        self.jumps = min(2 * self.jumps, self.most_jumps)
        self.topics = min(FEWEST_TOPICS, self.most)

    def filled(self) -> None:
        """Take note that a part of a walk filled the read: matches are dense, so no jumps are tried."""
        self.dense = True
        self.jumps = self._rest = 0
        self.topics = min(FEWEST_TOPICS, self.most)

    def walked(self) -> None:
        """Take note that the walk won."""
        self.dense = False
        if self._rest:
            self._rest -= 1
        elif self.topics == self.most and self.jumps:
            self._rest = WALKS_WITHOUT_JUMPS
        self.jumps = 0 if self._rest else min(FEWEST_JUMPS, self.most_jumps)
        self.topics = min(2 * self.topics, self.most)


# The rule of :meth:`holdfast.retained.store.wildcards.Plan.successor` as an expression in SQL, for Postgres.
#
# SQLite calls the method itself for each jump. Postgres cannot call into this process, so the rule is a part of the
# statement: for ``a/+/c``, "if the third level is not c, then continue at a/LEVEL/c, or behind a/LEVEL".


#: The most levels to compare. Later levels are not compared: then a search jumps less far than it could.
_MOST_LEVELS = 16
_NEXT = "visited.topic || chr(1)"


@lru_cache(maxsize=256)
def successor(levels: tuple[str, ...], exact: bool) -> tuple[str, dict[str, str]]:
    """Return the expression and its bound values, for a plan's ``levels`` with a ``+`` among them.

    The expression uses the row ``visited``: a ``topic`` in the plan's ranges, and the array of its ``levels``. The
    ranges have checked the levels before the first ``+`` already.
    """
    cases, bound = [], {}
    first = levels.index("+")
    for position in [at for at, level in enumerate(levels) if at > first and level != "+"][:_MOST_LEVELS]:
        # If this level is passed, the next candidate differs in the last "+" before it.
        wild = max(at for at in range(position) if levels[at] == "+")
        sought, deeper = (f"{_leading(position)} || :{name}{position}" for name in ("level", "below"))
        bound[f"level{position}"] = f"/{levels[position]}"
        further = ""
        if position < len(levels) - 1 or not exact:
            bound[f"below{position}"] = f"/{levels[position]}/"
            further = f"WHEN {deeper} > visited.topic THEN {deeper} "
        cases += [
            f"WHEN cardinality(visited.levels) <= {position} THEN {_NEXT} ",
            f"WHEN '/' || visited.levels[{position + 1}] <> :level{position} "
            f"THEN CASE WHEN {sought} > visited.topic THEN {sought} {further}ELSE {_behind(wild + 1)} END ",
        ]
    if exact:
        cases.append(f"WHEN cardinality(visited.levels) > {len(levels)} THEN {_behind(len(levels))} ")
    return (f"CASE {''.join(cases)}ELSE {_NEXT} END" if cases else _NEXT), bound


def _leading(count: int) -> str:
    return f"array_to_string(visited.levels[1 : {count}], '/')"


def _behind(count: int) -> str:
    """Return the first string behind all topics that begin with the first ``count`` levels."""
    return f"{_leading(count)} || '{AFTER_SEPARATOR}'"
