"""All verdicts about the topics that one Topic Filter matches: they tell whether a SUBSCRIBE may be granted.

How it works. A filter matches endlessly many topics, but the rules distinguish few of them: at each level, the names in
the rules, the names that templates stand for, and *any other name*. So a search that takes each of these choices once
is exact. It walks the trie as :func:`~holdfast.identity.rules.first_match` does, with all nodes that a topic with
these levels reaches, and the lowest rank of the rules ending in ``#`` that it has passed.

    rules: deny a/+/secret, allow a/#       filter: a/#
    a                    allow, by a/#
    a/OTHER              allow
    a/OTHER/secret       deny: both verdicts are found, the search ends

Most branches are never walked. A node whose rules all come after a rule that was passed cannot decide. And once a
verdict is found, names that can only lead to the same one are left out: below an ``allow #``, only denials of lower
rank are looked for. Rules can still be written for which the search is long, so it is bounded: it then answers that it
does not know, and nothing is granted by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from attrs import define

from holdfast.core.topics import overlap
from holdfast.identity.rules import NONE, PLUS, Expansions, LevelKey, Node, Trie

#: Nodes that one search may visit: 5 ms at most, measured with the costliest rules found.
MOST_NODES = 1500
#: stands in an example for any name that no rule has
OTHER = "any-other-name"


@define
class Verdicts:
    """The verdicts about the topics that a filter matches.

    ``allowed`` and ``denied`` have a rank that decides so, and an example of a topic; None if no topic has this
    verdict. ``is_exact`` is False if the search was given up: then a missing verdict may still exist.
    """

    allowed: tuple[int, str] | None = None
    denied: tuple[int, str] | None = None
    is_exact: bool = True
    visited: int = 0

    @property
    def only_allows(self) -> bool:
        """Whether every topic is allowed, for sure."""
        return self.denied is None and self.is_exact

    @property
    def only_denies(self) -> bool:
        """Whether every topic is denied, for sure."""
        return self.allowed is None and self.is_exact


#: the levels of a topic, from the last one to the first
_Path = tuple[Any, str]


@define
class _State:
    """The topics that begin with the levels of ``path`` and match the filter, whose first ``position`` levels are used.

    ``passed`` is the lowest rank of the rules that match all of these topics.
    """

    nodes: list[Node]
    passed: int
    position: int
    path: _Path | None


class Search:
    """A search for the verdicts about one (non-shared) Topic Filter. ``allows`` tells the verdict of a rank."""

    def __init__(
        self, topic_filter: str, expansions: Expansions, allows: Callable[[int], bool], most: int = MOST_NODES
    ) -> None:
        self._levels = topic_filter.split("/")
        self._expansions = expansions
        self._allows = allows
        self._most = most
        self._found = Verdicts()

    def verdicts(self, tries: Sequence[Trie]) -> Verdicts:
        """Return the verdicts about the topics that the filter matches."""
        found = self._found
        every = min((trie.every for trie in tries), default=NONE)
        waiting = [iter([_State([trie.root for trie in tries], every, 0, None)])]
        while waiting and (found.allowed is None or found.denied is None):
            state = next(waiting[-1], None)
            if state is None:
                waiting.pop()
                continue
            found.visited += 1 + len(state.nodes)
            if found.visited > self._most:
                found.is_exact = False
                break
            following = self._taken(state)
            if following is not None:
                waiting.append(following)
        return found

    def _taken(self, state: _State) -> Iterator[_State] | None:
        """Note the verdicts that are certain here; return the states of the next level, None if they tell nothing."""
        passed = state.passed
        nodes = [node for node in state.nodes if node.soonest_allow < passed or node.soonest_deny < passed]
        if not nodes:
            self._note(passed, self._example(state))
            return None
        if not self._is_open(nodes, passed):
            return None
        state.nodes = nodes
        is_end = state.position == len(self._levels)
        if is_end or (state.path is not None and self._levels[state.position] == "#"):
            self._note(min(passed, *(node.here for node in nodes)), _topic(state.path))
        return None if is_end else self._next(state)

    def _is_open(self, nodes: list[Node], passed: int) -> bool:
        """Tell whether one of the topics may have a verdict that is not found yet."""
        if self._found.allowed is None and (self._allows(passed) or any(node.soonest_allow < passed for node in nodes)):
            return True
        return self._found.denied is None and (
            not self._allows(passed) or any(node.soonest_deny < passed for node in nodes)
        )

    def _next(self, state: _State) -> Iterator[_State]:
        """Yield a state for each choice of the next level: for a wildcard, any other name comes first."""
        wanted = self._levels[state.position]
        if wanted not in ("+", "#"):
            yield self._step(state, wanted, state.position + 1)
            return
        position = state.position + (wanted == "+")
        yield self._step(state, None, position)
        for level in self._names(state):
            if state.path is not None or level[:1] != "$":  # not matched by a leading wildcard [MQTT5-4.7.2-1]
                yield self._step(state, level, position)

    def _names(self, state: _State) -> Iterator[str]:
        """Yield the names of the next level that lead to rules which may give a verdict not found yet."""
        passed = state.passed
        for index, node in enumerate(state.nodes):
            self._found.visited += len(node.children) >> 3  # a look costs less than a visit
            for key, child in node.children.items():
                if not isinstance(key, str) or not self._is_useful(child, passed):
                    continue
                others = (earlier.children.get(key) for earlier in state.nodes[:index])
                if not any(other is not None and self._is_useful(other, passed) for other in others):
                    yield key
        self._found.visited += len(self._expansions) >> 3
        for level, templates in self._expansions.items():
            children = [node.children[each] for node in state.nodes for each in templates if each in node.children]
            if any(self._is_useful(child, passed) for child in children):
                yield level

    def _is_useful(self, child: Node, passed: int) -> bool:
        return (self._found.allowed is None and child.soonest_allow < passed) or (
            self._found.denied is None and child.soonest_deny < passed
        )

    def _step(self, state: _State, level: str | None, position: int) -> _State:
        """Return the state after one more level; None is any other name."""
        passed = state.passed
        following: list[Node] = []
        templates = self._expansions.get(level, ()) if level is not None else ()
        wild = state.path is not None or level is None or level[:1] != "$"
        for node in state.nodes:
            children = node.children
            if state.path is None and wild:  # the root: # there matches this topic
                passed = min(passed, node.multi)
            if level is not None and level in children:
                following.append(children[level])
            if wild and PLUS in children:
                following.append(children[PLUS])
            following.extend(children[each] for each in templates if each in children)
        for node in following:
            passed = min(passed, node.multi)
        return _State(following, passed, position, (state.path, OTHER if level is None else level))

    def _example(self, state: _State) -> str:
        """Return a topic of the state; it is empty if there is none."""
        path = state.path
        for level in self._levels[state.position :]:
            if level != "#":
                path = (path, OTHER if level == "+" else level)
        topic = _topic(path)
        if topic or self._levels[-1] != "#":
            return topic
        return f"{topic}/{OTHER}" if path is not None else OTHER

    def _note(self, rank: int, topic: str) -> None:
        """Note a verdict; the empty string is no Topic Name [MQTT5-4.7.3-1]."""
        if not topic:
            return
        if self._allows(rank):
            self._found.allowed = self._found.allowed or (rank, topic)
        else:
            self._found.denied = self._found.denied or (rank, topic)


def _topic(path: _Path | None) -> str:
    levels = []
    while path is not None:
        path, level = path
        levels.append(level)
    return "/".join(reversed(levels))


# The Topic Filters of the rules that allow something: they match every topic that is allowed, and perhaps more.
#
# Replays read only what these filters match. So they are few, or none are told: then a replay reads all that matches
# its own Topic Filter, and asks about each message.


#: the most filters, and the most nodes of the tries that are visited for them
MOST_FILTERS, _MOST_NODES = 64, 2000


def allowed_filters(
    tries: Iterable[Trie], expansions: Expansions, allows: Callable[[int], bool], topic_filter: str
) -> tuple[str, ...] | None:
    """Return the filters of allowing rules that have topics in common with a Topic Filter; None if they are too many.

    ``allows`` tells whether the rule of a rank allows; for no rule (NONE), it tells the default.
    """
    if allows(NONE):
        return None
    levels_of: dict[LevelKey, list[str]] = {}
    for level, numbers in expansions.items():
        for number in numbers:
            levels_of.setdefault(number, []).append(level)
    found: dict[str, None] = {}
    visited = 0
    for trie in tries:
        if trie.every != NONE and allows(trie.every):
            return None
        for levels, node in _nodes(trie.root, [], levels_of):
            visited += 1
            if visited > _MOST_NODES:
                return None
            ends = ([levels] if node.here != NONE and allows(node.here) else []) + (
                [[*levels, "#"]] if node.multi != NONE and allows(node.multi) else []
            )
            found.update((each, None) for each in map("/".join, ends) if overlap(each, topic_filter))
            if len(found) > MOST_FILTERS:
                return None
    return tuple(found)


def _nodes(node: Node, levels: list[str], levels_of: dict[LevelKey, list[str]]) -> Iterator[tuple[list[str], Node]]:
    """Yield the nodes with an allowing rule at them or below, and the levels on the way to each."""
    waiting = [(node, levels)]
    while waiting:
        node, levels = waiting.pop()
        if node.soonest_allow == NONE:
            continue
        yield levels, node
        for key, child in node.children.items():
            names = [key] if isinstance(key, str) else ["+"] if key == PLUS else levels_of.get(key, [])
            waiting += [(child, [*levels, name]) for name in names]
