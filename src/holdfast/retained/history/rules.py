"""The rules of the history: which topics are recorded, and for how long their changes are kept.

How it works. Rules belong to a period (:mod:`.periods`), and never change within it: other rules begin a new period.
They stand in the database, so that commands that write without a broker obey them too. As for policies, the first rule
whose Topic Filter matches a topic applies. An example:

    plant/+/alarm   31536000000    kept for a year
    plant/#         0              not recorded

    plant/7/alarm   is recorded, and kept for a year
    plant/7/speed   is not recorded
    office/light    matches no rule: recorded, and kept for ``retainer.history.keep``

The *depth* of a topic is the time for which its changes are kept, in milliseconds; :data:`GENERAL` is the general one,
:data:`NOT_RECORDED` is none. Pruning takes each depth of a period by itself, so the configuration allows few of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from attrs import frozen

from holdfast.topic_tree import TopicTree
from holdfast.topics import EVERY_TOPIC, covers, overlap

#: The depth of topics without a rule of their own.
GENERAL = None
#: The depth of topics that are not recorded.
NOT_RECORDED = 0
#: The depth of topics whose changes are kept for ever, in milliseconds.
FOREVER = 2**52
#: Topics whose depths are remembered, and the most characters of such a topic.
_REMEMBERED = 16_384
_LONGEST = 256

Depth = int | None


class Rule(NamedTuple):
    """A Topic Filter, and the depth of the topics that it matches."""

    topic_filter: str
    depth: Depth


@frozen
class LeftOut:
    """Which topics of a Topic Filter are left out of an answer.

    ``filters`` are the Topic Filters of their rules, ``#`` for topics without a rule. ``everything`` says that no topic
    is left.
    """

    filters: tuple[str, ...] = ()
    everything: bool = False


class Rules:
    """Finds the depth of a topic."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = _needed(rules)
        #: the depths of the rules in their order, without :data:`GENERAL` and :data:`NOT_RECORDED`
        self.depths = tuple(sorted({rule.depth for rule in self.rules if rule.depth}))
        #: whether some topics are not recorded
        self.excludes = any(rule.depth == NOT_RECORDED for rule in self.rules)
        #: how the database has them; None for no rules
        self.text = json.dumps(self.rules, ensure_ascii=False, separators=(",", ":")) if self.rules else None
        self.digest = None if self.text is None else sha256(self.text.encode()).hexdigest()[:16]
        self._tree: TopicTree[int, Depth] = TopicTree()
        for number, rule in enumerate(self.rules):
            self._tree.add(rule.topic_filter, number, rule.depth)
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._find)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rules) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def depth_of(self, topic: str) -> Depth:
        """Return the depth of a topic."""
        if not self.rules:
            return GENERAL
        return self._remembered(topic) if len(topic) <= _LONGEST else self._find(topic)

    def records(self, topic: str) -> bool:
        """Tell whether a topic is recorded."""
        return self.depth_of(topic) != NOT_RECORDED

    def depths_in(self, topic_filter: str) -> list[tuple[str, Depth]]:
        """Return the rules that may apply to topics of a Topic Filter, and ``#`` for the topics without a rule."""
        found: list[tuple[str, Depth]] = []
        for rule in self.rules:
            if topic_filter == EVERY_TOPIC or overlap(rule.topic_filter, topic_filter):
                found.append(rule)
                if topic_filter != EVERY_TOPIC and covers(rule.topic_filter, topic_filter):
                    return found
        return [*found, ("#", GENERAL)]

    def left_out(self, topic_filter: str, hides: Callable[[Depth], bool]) -> LeftOut:
        """Return which topics of a Topic Filter are left out if those of some depths are."""
        found = self.depths_in(topic_filter)
        hidden = tuple(dict.fromkeys(name for name, depth in found if hides(depth)))
        return LeftOut(hidden, all(hides(depth) for _, depth in found))

    def _find(self, topic: str) -> Depth:
        found = self._tree.match(topic)
        return min(found, key=_number)[1] if found else GENERAL


def _number(found: tuple[int, Depth]) -> int:
    return found[0]


def _needed(rules: Iterable[Rule]) -> Sequence[Rule]:
    """Return the rules up to the last one whose depth is not the general one: later ones change nothing."""
    kept = list(rules)
    while kept and kept[-1].depth is GENERAL:
        kept.pop()
    return tuple(kept)


NO_RULES = Rules()


@lru_cache(maxsize=32)
def rules_in(text: str | None) -> Rules:
    """Return the rules that the database has as a text."""
    if text is None:
        return NO_RULES
    return Rules(Rule(topic_filter, depth) for topic_filter, depth in json.loads(text))
