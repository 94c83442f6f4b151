"""The trie of the rules for one action and one condition: it finds the first rule that matches a topic.

How it works. Each rule has a rank, its place in the list; the lowest rank decides. A node stands for the levels on the
way to it, as in :mod:`holdfast.topic_tree`. Of the rules that end at a node, only the first can ever decide, so a node
has two numbers: ``here`` for filters that end at it, ``multi`` for those that go on with ``#``. A search follows, from
level to level, the child with the level's name, the child ``+``, and the children for templates that stand for this
level. So its cost depends on the topic and not on the number of rules. Nodes whose rules all come after a match are
left out. Rules of many levels with ``+`` and templates can still lead a long topic to thousands of nodes in each level.
So a search is bounded: it then answers that it does not know, and nothing is granted by that.

    rank 0: deny  plant/+/secret        root -- plant -- + (multi 1) -- secret (here 0)
    rank 1: allow plant/+/#

``soonest_allow`` and ``soonest_deny`` are the lowest ranks at a node or below it. The search for all verdicts below a
Topic Filter (:mod:`holdfast.authorization.coverage`) leaves out nodes that can change nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

#: the rank of no rule
NONE = 1 << 60
#: in place of a rank: the search was given up
UNKNOWN = NONE + 1
#: nodes that the search for one topic may visit: 2 ms
MOST_VISITED = 8000
#: the key of the child for ``+``
PLUS = 0

#: the key of a child: a literal level, PLUS, or the number of a template
LevelKey = str | int
#: the numbers of templates by the level that they stand for, for one client
Expansions = Mapping[str, Sequence[int]]


class Node:
    """The filters with the same beginning. Ranks are :data:`NONE` where no rule ends."""

    __slots__ = ("children", "here", "multi", "soonest_allow", "soonest_deny")

    def __init__(self) -> None:
        self.children: dict[LevelKey, Node] = _NO_CHILDREN
        self.here = NONE
        self.multi = NONE
        self.soonest_allow = NONE
        self.soonest_deny = NONE


_NO_CHILDREN: dict[LevelKey, Node] = {}  #: shared by all leaves, and never changed


class Trie:
    """Topic Filters with the ranks of their rules. Rules are added in the order of their ranks."""

    __slots__ = ("every", "root")

    def __init__(self) -> None:
        self.root = Node()
        self.every = NONE  #: the first rule for every topic, also for those that begin with $

    def add(self, levels: Sequence[LevelKey], is_multi: bool, rank: int, allow: bool) -> None:
        """Add a filter. ``is_multi`` tells that it goes on with ``#`` after the levels."""
        node = self.root
        _note(node, rank, allow)
        for level in levels:
            if node.children is _NO_CHILDREN:
                node.children = {}
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = Node()
            node = child
            _note(node, rank, allow)
        if is_multi:
            node.multi = min(node.multi, rank)
        else:
            node.here = min(node.here, rank)

    def parts(self) -> Iterator[object]:
        """Yield the objects that it consists of, each after those that refer to it."""
        yield self
        nodes = deque([self.root])
        while nodes:
            node = nodes.popleft()
            yield node
            nodes.extend(node.children.values())

    def add_every(self, rank: int) -> None:
        """Add a rule for every topic."""
        self.every = min(self.every, rank)


def first_match(tries: Iterable[Trie], levels: Sequence[str], expansions: Expansions) -> tuple[int, int]:
    """Return the lowest rank of all filters that match a topic, and the number of nodes that the search has visited.

    The rank is :data:`UNKNOWN` if it would visit more than :data:`MOST_VISITED`.
    """
    lowest = NONE
    nodes: list[Node] = []
    for trie in tries:
        if trie.every < lowest:
            lowest = trie.every
        nodes.append(trie.root)
    visited = 0
    wild = levels[0][:1] != "$"  # wildcards in the first level do not match such topics [MQTT5-4.7.2-1]
    for level in levels:
        visited += len(nodes)
        if visited > MOST_VISITED:
            return UNKNOWN, visited
        following: list[Node] = []
        templates = expansions.get(level, ())
        for node in nodes:
            if wild and node.multi < lowest:
                lowest = node.multi
            children = node.children
            child = children.get(level)
            if child is not None and (child.soonest_allow < lowest or child.soonest_deny < lowest):
                following.append(child)
            if wild:
                child = children.get(PLUS)
                if child is not None and (child.soonest_allow < lowest or child.soonest_deny < lowest):
                    following.append(child)
            for each in templates:
                child = children.get(each)
                if child is not None and (child.soonest_allow < lowest or child.soonest_deny < lowest):
                    following.append(child)
        nodes = following
        if not nodes:
            return lowest, visited
        wild = True
    for node in nodes:
        lowest = min(lowest, node.here, node.multi)  # a/# matches a, too
    return lowest, visited + len(nodes)


def _note(node: Node, rank: int, allow: bool) -> None:
    if allow:
        node.soonest_allow = min(node.soonest_allow, rank)
    else:
        node.soonest_deny = min(node.soonest_deny, rank)
