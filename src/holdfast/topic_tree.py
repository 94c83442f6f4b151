"""The topic tree: it finds the Topic Filters that match a Topic Name [MQTT5-4.7], with the values stored for them.

The tree has one node per level of a Topic Filter. A look-up follows only the branches that the Topic Name can take:
its cost depends on the topic's levels and on the matches, not on how many other filters there are.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Node(Generic[Key, Value]):
    """One level of filters with the same beginning. Filters in ``here`` end at it, filters in ``multi`` in ``#``."""

    __slots__ = ("children", "here", "multi")

    def __init__(self) -> None:
        self.children: dict[str, _Node[Key, Value]] = {}
        self.here: dict[Key, Value] = {}
        self.multi: dict[Key, Value] = {}

    def is_empty(self) -> bool:
        """Tell whether no value is here or below."""
        return not (self.children or self.here or self.multi)


class TopicTree(Generic[Key, Value]):
    """Values by (non-shared) Topic Filter. Each filter has at most one value for each key."""

    def __init__(self) -> None:
        self._root: _Node[Key, Value] = _Node()

    def __bool__(self) -> bool:
        return not self._root.is_empty()

    def add(self, topic_filter: str, key: Key, value: Value) -> None:
        """Add a value. It replaces the earlier one of this key and filter."""
        node = self._root
        levels = topic_filter.split("/")
        multi = levels[-1] == "#"
        for level in levels[:-1] if multi else levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        (node.multi if multi else node.here)[key] = value

    def remove(self, topic_filter: str, key: Key) -> None:
        """Remove a value, if there is one, and the branches that it leaves empty."""
        levels = topic_filter.split("/")
        multi = levels[-1] == "#"
        if multi:
            levels.pop()
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return
            path.append(child)
        (path[-1].multi if multi else path[-1].here).pop(key, None)
        for parent, level, node in zip(reversed(path[:-1]), reversed(levels), reversed(path[1:]), strict=True):
            if not node.is_empty():
                return
            del parent.children[level]

    def match(self, topic: str) -> list[tuple[Key, Value]]:
        """Return the keys and values of every Topic Filter that matches.

        Wildcards in the first level do not match topics that begin with ``$`` [MQTT5-4.7.2-1].
        """
        found: list[tuple[Key, Value]] = []
        nodes = [self._root]
        wild = topic[:1] != "$"
        for level in topic.split("/"):
            following = []
            for node in nodes:
                if wild:
                    if node.multi:
                        found.extend(node.multi.items())
                    child = node.children.get("+")
                    if child is not None:
                        following.append(child)
                child = node.children.get(level)
                if child is not None:
                    following.append(child)
            if not following:
                return found
            nodes = following
            wild = True
        for node in nodes:
            found.extend(node.here.items())
            if node.multi:  # a/# matches a, too
                found.extend(node.multi.items())
        return found
