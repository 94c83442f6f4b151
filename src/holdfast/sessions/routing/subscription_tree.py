"""The subscription tree: it finds the subscriptions that match a Topic Name [MQTT5-4.7].

The tree has one node per level of a Topic Filter. A look-up follows only the branches that the Topic Name can take:
its cost depends on the topic's levels and on the matches, not on how many other subscriptions there are.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from holdfast.sessions.state.subscription import Subscription

Subscriber = TypeVar("Subscriber", bound=Hashable)


class _Node(Generic[Subscriber]):
    """One level of filters with the same beginning. Filters in ``here`` end at it, filters in ``multi`` in ``#``."""

    __slots__ = ("children", "here", "multi")

    def __init__(self) -> None:
        self.children: dict[str, _Node[Subscriber]] = {}
        self.here: dict[Subscriber, Subscription] = {}
        self.multi: dict[Subscriber, Subscription] = {}

    def is_empty(self) -> bool:
        """Tell whether no subscription is here or below."""
        return not (self.children or self.here or self.multi)


class SubscriptionTree(Generic[Subscriber]):
    """Subscriptions by Topic Filter. Each subscriber has at most one per filter [MQTT5-3.8.4-3]."""

    def __init__(self) -> None:
        self._root: _Node[Subscriber] = _Node()

    def add(self, subscriber: Subscriber, subscription: Subscription) -> None:
        """Add a subscription. It replaces the subscriber's earlier one to the same Topic Filter."""
        node = self._root
        levels = subscription.topic_filter.split("/")
        multi = levels[-1] == "#"
        for level in levels[:-1] if multi else levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        (node.multi if multi else node.here)[subscriber] = subscription

    def remove(self, subscriber: Subscriber, topic_filter: str) -> None:
        """Remove a subscription, if there is one, and the branches that it leaves empty."""
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
        (path[-1].multi if multi else path[-1].here).pop(subscriber, None)
        for parent, level, node in zip(reversed(path[:-1]), reversed(levels), reversed(path[1:]), strict=True):
            if not node.is_empty():
                return
            del parent.children[level]

    def match(self, topic: str) -> list[tuple[Subscriber, Subscription]]:
        """Return every subscription whose Topic Filter matches, once per filter.

        Wildcards in the first level do not match topics that begin with ``$`` [MQTT5-4.7.2-1].
        """
        found: list[tuple[Subscriber, Subscription]] = []
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
