"""The Topic Filters of the rules that allow something: they match every topic that is allowed, and perhaps more.

Replays read only what these filters match. So they are few, or none are told: then a replay reads all that matches its
own Topic Filter, and asks about each message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from holdfast.authorization.trie import NONE, PLUS, Expansions, LevelKey, Node, Trie
from holdfast.topics import overlap

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
