"""Policies of the retainer for the topics of a Topic Filter: the first one that matches, in the order of the file.

How it works. The Topic Filters of all policies are in one topic tree. So a look-up costs the levels of the topic and
the policies that match it, however many others there are. The answers of recent topics are remembered. An example:

    1  filter = "plant/+/alarm"                        write_interval = "0s"
    2  filter = "plant/#"                              write_interval = "1m"

    plant/7/alarm   matches 1 and 2: policy 1 applies, all of it, and nothing of policy 2
    plant/7/speed   matches 2: policy 2 applies
    office/light    matches none: the general options of ``[retainer]`` apply

A policy has only what differs from the general options: None stands for the general value.

A policy with a quota has a *scope* in the table of usage (``retained/store/usage.py``): the topics to which it
applies. The name of the scope says which topics these are: it has the filter, and a digest of the filters of earlier
policies that match topics of it too. So the count goes on over restarts and reloads as long as the topics are the same.
Else the name is new, and the topics are counted anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from types import MappingProxyType
from typing import Protocol

from attrs import frozen

from holdfast.core.topics import TopicTree, overlap

#: Topics whose answers are remembered, and the most characters of such a topic.
_REMEMBERED = 16_384
_LONGEST = 256
_WILD = ("#", "+")


@frozen
class Policy:
    """What applies to the topics of a Topic Filter. None: the general option. Intervals are in seconds, sizes in bytes.

    ``number`` is the place in the file, from 1 on. An ``msg_expiry_interval_override`` of 0 is no limit. With
    ``records_all``, messages without RETAIN are recorded, and with ``waits_for_record`` before their acknowledgement.
    """

    number: int
    topic_filter: str
    msg_expiry_interval: float | None = None
    msg_expiry_interval_override: float | None = None
    max_payload_size: int | None = None
    max_retained_messages: int = 0
    max_retained_bytes: int = 0
    force_retain: bool = False
    announce_expiry: bool | None = None
    write_interval: float = 0.0
    records_all: bool = False
    waits_for_record: bool = False

    @property
    def name(self) -> str:
        """The beginning of its options' names, in messages."""
        return f"retainer.policies, number {self.number}, "

    @property
    def has_quota(self) -> bool:
        """Whether the messages of its topics are counted."""
        return bool(self.max_retained_messages or self.max_retained_bytes)


class Policies:
    """Finds the policy of a topic."""

    def __init__(self, policies: Sequence[Policy] = ()) -> None:
        self.policies = tuple(policies)
        self._tree: TopicTree[int, Policy] = TopicTree()
        for policy in self.policies:
            self._tree.add(policy.topic_filter, policy.number, policy)
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._find)
        scopes = _scopes(self.policies)
        #: the Topic Filters of the policies with a quota, by the names of their scopes of usage
        self.counted_filters = {scope: self.policies[number - 1].topic_filter for number, scope in scopes.items()}
        self._scopes = scopes
        #: the longest ``write_interval``, in seconds
        self.longest_wait = max((policy.write_interval for policy in self.policies), default=0.0)
        #: tells whether a message of a topic is retained without RETAIN 1; None if no policy says so
        self.forces: Callable[[str], bool] | None = (
            self._forces if any(policy.force_retain for policy in self.policies) else None
        )
        #: whether a policy retains or records messages without RETAIN 1
        self.keep_others = any(policy.force_retain or policy.records_all for policy in self.policies)

    def announces(self, general: bool) -> Callable[[str], bool] | None:
        """Return what tells whether the expiry of a topic's message is announced; None: no expiry is.

        ``general`` holds for topics whose policy says nothing.
        """
        own = {policy.announce_expiry for policy in self.policies} - {None}
        if own <= {general}:
            return _always if general else None

        def announces(topic: str) -> bool:
            policy = self.of(topic)
            return general if policy is None or policy.announce_expiry is None else policy.announce_expiry

        return announces

    @property
    def loss_window(self) -> str:
        """What a crash may cost, as the end of a sentence; "" if no policy lets messages wait."""
        if not self.longest_wait:
            return ""
        return f"; retainer.policies let QoS 0 messages wait: a crash may lose up to {self.longest_wait:g} s of them"

    def scope_of(self, topic: str) -> str | None:
        """Return the name of the scope of usage that a topic counts in, None if its policy has no quota."""
        policy = self.of(topic) if self._scopes else None
        return None if policy is None else self._scopes.get(policy.number)

    def scope_name(self, policy: Policy) -> str:
        """Return the name of the scope of a policy with a quota."""
        return self._scopes[policy.number]

    @property
    def has_quotas(self) -> bool:
        """Whether a policy has a quota."""
        return bool(self._scopes)

    def of(self, topic: str) -> Policy | None:
        """Return the policy that applies to a topic, None if none matches."""
        return self._remembered(topic) if len(topic) <= _LONGEST else self._find(topic)

    def _find(self, topic: str) -> Policy | None:
        found = self._tree.match(topic)
        return min(found, key=_number)[1] if found else None

    def _forces(self, topic: str) -> bool:
        policy = self.of(topic)
        return policy is not None and policy.force_retain


def _always(_topic: str) -> bool:
    return True


def _number(found: tuple[int, Policy]) -> int:
    return found[0]


def _scopes(policies: Sequence[Policy]) -> dict[int, str]:
    """Return the names of the scopes of the policies with a quota, by number. No Topic Filter is such a name."""
    #: earlier filters by their first level; filters with a wildcard there are below ""
    earlier: dict[str, list[str]] = {}
    scopes = {}
    for policy in policies:
        topic_filter = policy.topic_filter
        first = topic_filter.partition("/")[0]
        if policy.has_quota:
            firsts = tuple(earlier) if first in _WILD else (first, "")
            near = chain.from_iterable(earlier.get(each, ()) for each in firsts)
            others = sorted(each for each in near if overlap(each, topic_filter))
            digest = sha256("\0".join(others).encode()).hexdigest()[:16] if others else ""
            scopes[policy.number] = f"#policy{digest} {topic_filter}"
        earlier.setdefault("" if first in _WILD else first, []).append(topic_filter)
    return scopes


NO_POLICIES = Policies()


# The seam between the counting of usage and the policies.


class ICountedPolicies(Protocol):
    """The policies with a quota, as the store counts their topics."""

    @property
    def counted_filters(self) -> Mapping[str, str]:
        """The Topic Filter of each scope; not all of its topics need count in the scope."""

    def scope_of(self, topic: str) -> str | None:
        """Return the scope that a topic counts in, None for none."""


class NoCountedPolicies:
    """No policy has a quota."""

    counted_filters: Mapping[str, str] = MappingProxyType({})

    def scope_of(self, topic: str) -> str | None:
        """Return None."""
        return None


NO_COUNTED_POLICIES = NoCountedPolicies()
