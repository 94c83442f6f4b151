"""The subscriptions of one Session, and the patterns of their wildcards.

How it works. A search for the subscriptions that match a Topic Name follows each filter as far as it matches. Filters
with ``+`` in the same levels follow one way together, since they have the Topic Name's own levels elsewhere. So the
number of their *wildcard patterns* bounds the cost of the search, whatever the number of subscriptions:

    site/+/temperature, site/+/#, town/+     one pattern
    +/site                                   another one
    all variants of a/a/a/a with a or +      16 patterns, with as many ways for the one Topic Name a/a/a/a
"""

from __future__ import annotations

from holdfast.sessions.state.subscription import Subscription
from holdfast.topics import wildcard_pattern


class Subscriptions(dict[str, Subscription]):
    """The subscriptions of one Session by Topic Filter, with its share. Changed through its own methods only."""

    __slots__ = ("patterns",)

    def __init__(self) -> None:
        #: by wildcard pattern: how many subscriptions have it; those without ``+`` are not counted
        self.patterns: dict[int, int] = {}

    def add(self, topic_filter: str, subscription: Subscription) -> None:
        """Add or replace a subscription."""
        if topic_filter not in self:
            pattern = wildcard_pattern(subscription.topic_filter)
            if pattern:
                self.patterns[pattern] = self.patterns.get(pattern, 0) + 1
        self[topic_filter] = subscription

    def remove(self, topic_filter: str) -> bool:
        """Remove a subscription. Return False if there was none."""
        subscription = self.pop(topic_filter, None)
        if subscription is None:
            return False
        pattern = wildcard_pattern(subscription.topic_filter)
        if pattern:
            self.patterns[pattern] -= 1
            if not self.patterns[pattern]:
                del self.patterns[pattern]
        return True
