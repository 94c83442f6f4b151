"""Topic Names and Topic Filters: their syntax, and which filter matches which name [MQTT5-4.7].

:func:`matches` is the definition of matching. The subscription tree and the SQL conditions are faster ways to the same
answer; tests compare both with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

SHARED_PREFIX = "$share/"
#: EMQX's spelling of shared subscriptions, and the standard's with which they are stored
QUEUE_PREFIX, QUEUE_SHARE = "$queue/", "$share/$queue/"
SYS_PREFIX = "$SYS/"
#: mosquitto's bridges tell their state there, to the brokers on both sides
BRIDGE_STATE = f"{SYS_PREFIX}broker/connection/+/state"
#: markers of the ends of replays, for Clients that subscribe to it
REPLAY_END_TOPIC = "$replay/end"
#: A Principal is told the publishers of the messages of a Topic Filter if it may subscribe to this with the filter.
PUBLISHERS = "$replay/publisher/"
#: what Clients publish to when they ask about retained messages: the broker answers, and routes nothing
ASK_GET, ASK_COUNT, ASK_TREE = "$retained/get", "$retained/count", "$retained/tree"
ASKED = frozenset((ASK_GET, ASK_COUNT, ASK_TREE))
#: The retained messages of a time are below this: the time, then the Topic Name.
PAST_PREFIX = "$history/at/"
#: The changes between two times are below this: both times, then the Topic Name.
CHANGES_PREFIX = "$history/changes/"
#: For a store, in place of a Topic Filter: all topics, also those beginning with $, which # does not match.
EVERY_TOPIC = ""
#: The levels of the longest UTF-8 string of MQTT, 65,535 bytes of ``/``: a limit that allows every topic.
MOST_LEVELS = 65_536


class InvalidTopicName(ValueError):
    """The string is not a valid Topic Name."""


class InvalidTopicFilter(ValueError):
    """The string is not a valid Topic Filter."""


class TooManyLevels(InvalidTopicFilter):
    """The Topic Filter has more levels than the configuration allows."""


class InvalidShare(InvalidTopicFilter):
    """The string begins like a shared subscription, but is not a valid one."""


def matches(topic_filter: str, topic: str) -> bool:
    """Tell whether a (non-shared, valid) Topic Filter matches a Topic Name.

    A leading wildcard does not match Topic Names beginning with ``$`` [MQTT5-4.7.2-1]; ``a/#`` also matches ``a``
    [MQTT5-4.7.1-2].
    """
    return matching(topic)(topic_filter)


def matching(topic: str) -> Callable[[str], bool]:
    """Return a function that tells whether a Topic Filter matches this Topic Name (see :func:`matches`).

    The Topic Name is split once, and a Topic Filter no further than it can match.
    """
    levels = topic.split("/")
    count = len(levels)
    last = count - 1
    is_dollar = topic[:1] == "$"

    def is_matched(topic_filter: str) -> bool:
        if is_dollar and topic_filter[:1] in ("+", "#"):
            return False
        wanted = topic_filter.split("/", count + 1)
        for position, level in enumerate(wanted):
            if level == "#":
                return True
            if position == count or level not in ("+", levels[position]):
                return False
            if position == last and wanted[count:] == ["#"]:
                return True
        return len(wanted) == count

    return is_matched


def covers(wide: str, narrow: str) -> bool:
    """Tell whether a Topic Filter matches every Topic Name that another one matches. Both are non-shared and valid."""
    return covering(wide)(narrow)


def covering(wide: str) -> Callable[[str], bool]:
    """Return a function that tells whether this Topic Filter covers another one (see :func:`covers`).

    This Topic Filter is split once, and the other one no further than it can be covered.
    """
    levels = wide.split("/")
    is_wild = wide[:1] in ("+", "#")
    return lambda narrow: not (is_wild and narrow[:1] == "$") and _covers(levels, narrow.split("/", len(levels) + 1))


def _covers(levels: Sequence[str], others: Sequence[str]) -> bool:
    for position, level in enumerate(levels):
        if level == "#":
            return True
        if position == len(others):
            return False
        if others[position] == "#":  # matches deeper Topic Names too
            # Before the # is a Topic Name that only # would match, unless that is the empty string.
            return levels[position:] == ["+", "#"] and others[:position] in ([], [""])
        if level not in ("+", others[position]):
            return False
        if position == len(others) - 1 and levels[position + 1 :] == ["#"]:
            return True
    return len(levels) == len(others)


def overlap(first: str, second: str) -> bool:
    """Tell whether there is a Topic Name that two (non-shared, valid) Topic Filters both match."""
    if {first[:1], second[:1]} in ({"$", "+"}, {"$", "#"}):
        return False
    if {first, second} == {"+", "/#"}:  # both match the empty string only, which is no Topic Name
        return False
    levels, others = first.split("/"), second.split("/")
    for level, other in zip(levels, others, strict=False):
        if "#" in (level, other):
            return True
        if level != other and "+" not in (level, other):
            return False
    rest = max(levels, others, key=len)[min(len(levels), len(others)) :]
    return rest in ([], ["#"])


def is_sys(topic: str) -> bool:
    """Tell whether a Topic Name or Topic Filter is ``$SYS`` or below it: the broker's own topics."""
    return topic.startswith(SYS_PREFIX) or topic == "$SYS"


def is_of_broker(topic: str) -> bool:
    """Tell whether only the broker publishes to a Topic Name: ``$SYS``, or its other topics, or below them."""
    return is_sys(topic) or topic.partition("/")[0] in ("$replay", "$retained", "$history")


def is_of_past(topic: str) -> bool:
    """Tell whether a Topic Name or Topic Filter is ``$history`` or below it."""
    return topic.startswith("$history/") or topic == "$history"


def behind_time(topic: str) -> str:
    """Return what permissions are about: of the past, the Topic Name or Topic Filter behind the times."""
    if topic.startswith(PAST_PREFIX):
        return topic[len(PAST_PREFIX) :].partition("/")[2] or topic
    if topic.startswith(CHANGES_PREFIX):
        return topic[len(CHANGES_PREFIX) :].partition("/")[2].partition("/")[2] or topic
    return topic


def is_granted_to_all(topic_filter: str) -> bool:
    """Tell whether every Client may subscribe to a Topic Filter, since it gets nothing of others there."""
    return topic_filter == REPLAY_END_TOPIC


def is_bridge_state(topic: str) -> bool:
    """Tell whether a bridge tells its state on this Topic Name."""
    return is_sys(topic) and matches(BRIDGE_STATE, topic)


def has_wildcard(topic_filter: str) -> bool:
    """Tell whether a Topic Filter contains ``+`` or ``#``."""
    return "+" in topic_filter or "#" in topic_filter


def before_wildcard(topic_filter: str) -> str:
    """Return the beginning of all Topic Names that a Topic Filter matches: ``a`` for ``a/+/b`` and for ``a/#``."""
    if not has_wildcard(topic_filter):
        return topic_filter
    return topic_filter[: min(place for place in map(topic_filter.find, "+#") if place >= 0)].removesuffix("/")


def wildcard_pattern(topic_filter: str) -> int:
    """Return in which levels a Topic Filter has ``+``: one bit for each level, the lowest for the first.

    Filters with one pattern that match the same Topic Name are the same up to their end.
    """
    if "+" not in topic_filter:
        return 0
    return sum(1 << depth for depth, level in enumerate(topic_filter.split("/")) if level == "+")


def level_count(topic: str) -> int:
    """Count the levels of a Topic Name or Topic Filter (at least 1)."""
    return topic.count("/") + 1


def levels_before_wildcard(topic_filter: str) -> int:
    """Count the levels of a Topic Filter before its first ``+`` or ``#``; without wildcards, all levels."""
    levels = topic_filter.split("/")
    return next((depth for depth, level in enumerate(levels) if level in ("+", "#")), len(levels))


def check_topic_name(topic: str, max_levels: int) -> None:
    """Raise :class:`InvalidTopicName` unless the string is a Topic Name of at most ``max_levels`` levels.

    A Topic Name has at least one character [MQTT5-4.7.3-1], no U+0000 [MQTT5-4.7.3-2] and no wildcard
    [MQTT5-3.3.2-2].
    """
    if not topic:
        raise InvalidTopicName("a Topic Name has at least one character")
    if "+" in topic or "#" in topic:
        raise InvalidTopicName("a Topic Name contains no wildcard characters")
    if "\0" in topic:
        raise InvalidTopicName("a Topic Name contains no U+0000")
    if topic.count("/") >= max_levels:
        raise InvalidTopicName(f"a Topic Name has at most {max_levels} levels here")


def check_topic_filter(topic_filter: str, max_levels: int) -> None:
    """Raise :class:`InvalidTopicFilter` unless the string is a (non-shared) Topic Filter.

    ``#`` is alone in the last level [MQTT5-4.7.1-1], ``+`` is alone in its level [MQTT5-4.7.1-2]. Raises
    :class:`TooManyLevels` for more than ``max_levels`` levels, which are not split.
    """
    if not topic_filter:
        raise InvalidTopicFilter("a Topic Filter has at least one character")
    if "\0" in topic_filter:
        raise InvalidTopicFilter("a Topic Filter contains no U+0000")
    multi = topic_filter.find("#")
    if multi >= 0 and (multi != len(topic_filter) - 1 or topic_filter[-2:-1] not in ("", "/")):
        raise InvalidTopicFilter("'#' stands alone in the last level")
    if topic_filter.count("/") >= max_levels:
        raise TooManyLevels(f"a Topic Filter has at most {max_levels} levels here")
    if "+" in topic_filter and any("+" in level and level != "+" for level in topic_filter.split("/")):
        raise InvalidTopicFilter("'+' stands alone in its level")


def split_shared(topic_filter: str) -> tuple[str | None, str]:
    """Split ``$share/GROUP/FILTER`` into group and filter. For any other filter, the group is None.

    Raises :class:`InvalidShare` for a malformed shared subscription: the ShareName is at least one character
    without ``/``, ``+`` or ``#`` [MQTT5-4.8.2-1], [MQTT5-4.8.2-2] and is followed by a Topic Filter.
    """
    if not topic_filter.startswith(SHARED_PREFIX):
        return None, topic_filter
    group, separator, rest = topic_filter[len(SHARED_PREFIX) :].partition("/")
    if not group or not separator or not rest or "+" in group or "#" in group:
        raise InvalidShare("a shared subscription is $share/SHARENAME/TOPICFILTER")
    return group, rest


def without_queue(topic_filter: str) -> str:
    """Return ``$share/$queue/FILTER`` for EMQX's ``$queue/FILTER``, and any other string as it is."""
    if topic_filter.startswith(QUEUE_PREFIX) and len(topic_filter) > len(QUEUE_PREFIX):
        return QUEUE_SHARE + topic_filter[len(QUEUE_PREFIX) :]
    return topic_filter


# The topic tree: it finds the Topic Filters that match a Topic Name [MQTT5-4.7], with the values stored for them.
#
# The tree has one node per level of a Topic Filter. A look-up follows only the branches that the Topic Name can take:
# its cost depends on the topic's levels and on the matches, not on how many other filters there are.


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

    def add(self, topic_filter: str, key: Key, value: Value) -> Value | None:
        """Add a value. It replaces the earlier one of this key and filter, which is returned."""
        node = self._root
        levels = topic_filter.split("/")
        multi = levels[-1] == "#"
        for level in levels[:-1] if multi else levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        values = node.multi if multi else node.here
        former = values.get(key)
        values[key] = value
        return former

    def remove(self, topic_filter: str, key: Key) -> Value | None:
        """Remove a value, and the branches that it leaves empty. Return it, None if there is none."""
        levels = topic_filter.split("/")
        multi = levels[-1] == "#"
        if multi:
            levels.pop()
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return None
            path.append(child)
        removed = (path[-1].multi if multi else path[-1].here).pop(key, None)
        for parent, level, node in zip(reversed(path[:-1]), reversed(levels), reversed(path[1:]), strict=True):
            if not node.is_empty():
                break
            del parent.children[level]
        return removed

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
