"""The rules of what clients may do: one rule, and the rules of all sources, compiled."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from hashlib import blake2b
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from attrs import evolve, field, frozen

from holdfast.core.topics import EVERY_TOPIC
from holdfast.identity.addresses import plain
from holdfast.identity.interfaces import Principal

# A rule: who may, or may not, do what with which topics.


class Action(IntEnum):
    """What a rule allows or denies."""

    PUBLISH = 0  #: send an Application Message or a Will Message
    RETAIN = 1  #: with RETAIN 1: set the retained message
    CLEAR = 2  #: with RETAIN 1 and an empty payload: remove the retained message
    SUBSCRIBE = 3
    RECEIVE = 4  #: take a message by a Subscription

    @property
    def word(self) -> str:
        """The action as rule files write it."""
        return self.name.lower()


EVERY_ACTION = frozenset(Action)
#: among the users of a rule: clients without a proven User Name
GUEST = "$guest"
#: among the addresses of a rule: the peers of UNIX domain sockets
UNIX = "unix"

Network = IPv4Network | IPv6Network


@frozen
class Conditions:
    """Further conditions of a rule, which must all hold. None sets no condition.

    ``characters``: only clients whose User Name or Client Identifier has one of these characters.
    """

    clients: frozenset[str] | None = None
    listeners: frozenset[str] | None = None
    addresses: frozenset[Network | str] | None = None
    characters: str = ""


NO_CONDITIONS = Conditions()


@frozen
class Rule:
    """One rule. It is for the ``users`` and the members of the ``groups``; with None in both, for everyone.

    ``topics`` are Topic Filters, or :data:`holdfast.core.topics.EVERY_TOPIC`. With ``has_templates``, ``%u``, ``%c``
    and ``%g`` in a level stand for the User Name, the Client Identifier and each of the groups. ``origin`` tells where
    the rule stands, as in ``rules.toml:12``.
    """

    allow: bool
    actions: frozenset[Action]
    topics: tuple[str, ...]
    origin: str = field(eq=False)
    users: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    conditions: Conditions = NO_CONDITIONS
    has_templates: bool = True

    def __str__(self) -> str:
        """Return what the rule says, for messages."""
        actions = "everything" if self.actions == EVERY_ACTION else _listed(each.word for each in sorted(self.actions))
        topics = [topic or "every topic" for topic in self.topics]
        return f"{'allow' if self.allow else 'deny'} {actions} on {_listed(topics)}{self._who}"

    @property
    def _who(self) -> str:
        conditions = self.conditions
        parts: dict[str, Iterable[object]] = {
            "users": self.users or (),
            "groups": self.groups or (),
            "clients": conditions.clients or (),
            "listeners": conditions.listeners or (),
            "addresses": conditions.addresses or (),
            "names with one of": [ascii(conditions.characters)] if conditions.characters else (),
        }
        given = [f"{name} {_listed(sorted(map(str, values)))}" for name, values in parts.items() if values]
        return f" for {', '.join(given)}" if given else ""


def _listed(words: Iterable[str], most: int = 5) -> str:
    """Return some words in a line; of many, the first ones and the number of the rest."""
    words = list(words)
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"


# The identity of a client, as rules see it, and the levels of topics that its names stand for.


PLACEHOLDER = re.compile("%[ucg]")
_UNSAFE = re.compile(r"[+#/\x00-\x1f\x7f-\x9f]")


@frozen
class Identity:
    """Who a client is. ``username`` is proven, and None for a guest.

    ``is_located`` is False if the listener and the address are unknown: for the publisher of a retained message.
    Without ``knows_groups``, the client may be in any further group, too: what a rule allows to a group, it allows to
    this client, and what it denies to a further group, it does not deny.
    """

    username: str | None
    client_id: str
    groups: frozenset[str] = frozenset()
    listener: str = ""
    address: str = ""
    is_located: bool = field(default=True, kw_only=True)
    knows_groups: bool = field(default=True, kw_only=True)

    @classmethod
    def of(cls, principal: Principal, groups: frozenset[str] = frozenset()) -> Identity:
        """Return the identity of a client that is also in other groups."""
        return cls(
            principal.username,
            principal.client_id,
            principal.groups | groups,
            principal.listener,
            principal.address,
        )

    def meets(self, conditions: Conditions, allow: bool) -> bool:
        """Tell whether a rule with these conditions is for this client.

        If the listener and the address are unknown, a rule limited by them is for this client if it denies, and is not
        if it allows: what remains is allowed wherever the client is.
        """
        if conditions.clients is not None and self.client_id not in conditions.clients:
            return False
        if conditions.characters and not set(conditions.characters) & {*(self.username or ""), *self.client_id}:
            return False
        if conditions.listeners is None and conditions.addresses is None:
            return True
        if not self.is_located:
            return not allow
        if conditions.listeners is not None and self.listener not in conditions.listeners:
            return False
        return conditions.addresses is None or self._is_within(conditions)

    def _is_within(self, conditions: Conditions) -> bool:
        networks = conditions.addresses or ()
        if self.address == UNIX:
            return UNIX in networks
        ip = _address(self.address)
        return ip is not None and any(not isinstance(network, str) and ip in network for network in networks)

    def expansions(self, template: str) -> Iterator[str]:
        """Yield the levels that a template stands for: none if a name in it is missing or not :func:`is_literal`."""
        names: Mapping[str, list[str]] = {
            "%u": [] if self.username is None else [self.username],
            "%c": [self.client_id],
            "%g": sorted(self.groups),
        }
        levels = [""]
        position = 0
        for match in PLACEHOLDER.finditer(template):
            before = template[position : match.start()]
            found = [name for name in names[match[0]] if is_literal(name)]
            levels = [level + before + name for level in levels for name in found]
            position = match.end()
        for level in levels:
            yield level + template[position:]


def is_literal(name: str) -> bool:
    """Tell whether a name can stand for one level of a topic.

    It cannot if it is empty, begins with ``$``, or has ``+``, ``#``, ``/`` or a control character: it could match more
    than one level, or topics of the broker.
    """
    return bool(name) and name[0] != "$" and _UNSAFE.search(name) is None


def _address(address: str) -> IPv4Address | IPv6Address | None:
    try:
        return plain(ip_address(address))
    except ValueError:  # of a transport without addresses
        return None


# The trie of the rules for one action and one condition: it finds the first rule that matches a topic.
#
# How it works. Each rule has a rank, its place in the list; the lowest rank decides. A node stands for the levels on
# the way to it, as in :mod:`holdfast.core.topics`. Of the rules that end at a node, only the first can ever decide, so
# a node has two numbers: ``here`` for filters that end at it, ``multi`` for those that go on with ``#``. A search
# follows, from level to level, the child with the level's name, the child ``+``, and the children for templates that
# stand for this level. So its cost depends on the topic and not on the number of rules. Nodes whose rules all come
# after a match are left out. Rules of many levels with ``+`` and templates can still lead a long topic to thousands of
# nodes in each level. So a search is bounded: it then answers that it does not know, and nothing is granted by that.
#
#     rank 0: deny  plant/+/secret        root -- plant -- + (multi 1) -- secret (here 0)
#     rank 1: allow plant/+/#
#
# ``soonest_allow`` and ``soonest_deny`` are the lowest ranks at a node or below it. The search for all verdicts below a
# Topic Filter (:mod:`holdfast.identity.coverage`) leaves out nodes that can change nothing.


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


# The rules of all sources, compiled.
#
# How it works. The rules of all sources form one list; the first match decides. For each action there is a trie for
# each *subject*: a user, a group, a Client Identifier or everyone, with the rule's further conditions. A rule for ten
# users stands in ten tries. An identity finds its few tries by its names, so rules for other users cost it nothing. For
# clients whose groups are unknown, there is one more subject: what rules allow to any group.


#: Filters in all tries together: a rule has one for each pair of a subject and a topic.
MOST_FILTERS = 1_000_000

#: "user", "group", "client", "guest", "everyone" or "any group", and the name
_Subject = tuple[str, str]
_EVERYONE: _Subject = ("everyone", "")
_GUEST_SUBJECT: _Subject = ("guest", "")
_ANY_GROUP: _Subject = ("any group", "")
_GROUP_TEMPLATE = "%g"
#: what is asked about clients whose groups are unknown
_PUBLISHING = frozenset({Action.PUBLISH, Action.RETAIN, Action.CLEAR})
_NO_GROUPS: frozenset[str] = frozenset()
#: the permissions that the publisher of a retained message needs
_RETAINING = frozenset({Action.PUBLISH, Action.RETAIN})


class TooManyFilters(ValueError):
    """The rules have more than :data:`MOST_FILTERS` pairs of a subject and a topic. ``rule`` is the first too many."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(
            f"the rules up to this one have more than {MOST_FILTERS} pairs of a name and a topic; give the users a"
            " group, and write a rule for the group"
        )
        self.rule = rule


@frozen
class RuleList:
    """The rules of sources in their order, and the groups of each user in these sources.

    ``grants_subscribe``: SUBSCRIBE is never refused, as by mosquitto; each delivery is checked instead.
    """

    rules: tuple[Rule, ...] = ()
    groups: Mapping[str, frozenset[str]] = field(factory=dict)
    grants_subscribe: bool = False

    @classmethod
    def joined(cls, lists: Iterable[RuleList]) -> RuleList:
        """Return several lists as one: the rules of the first list come first."""
        lists = list(lists)
        groups: dict[str, frozenset[str]] = {}
        for each in lists:
            for user, names in each.groups.items():
                groups[user] = groups.get(user, _NO_GROUPS) | names
        rules = tuple(rule for each in lists for rule in each.rules)
        return cls(rules, groups, any(each.grants_subscribe for each in lists))


class Ruleset:
    """Compiled rules; they never change. ``default`` is the verdict where no rule matches.

    Raises TooManyFilters. Compiling 10,000 rules takes tenths of a second: it may be done in a thread.
    """

    def __init__(self, listed: RuleList, *, default: bool = False) -> None:
        self.rules = listed.rules
        self.grants_subscribe = listed.grants_subscribe
        #: whether a rule may deny the delivery of a message whose topic may be subscribed
        self.limits_receive = any(Action.RECEIVE in rule.actions and not rule.allow for rule in listed.rules)
        self._default = default
        self._groups = listed.groups
        self._templates: dict[str, int] = {}
        self._allows = [rule.allow for rule in listed.rules]
        self._tries: list[dict[_Subject, dict[tuple[Conditions, bool], Trie]]] = [{} for _ in Action]
        #: stands for all that decides who may retain what
        self.retaining = _digest_of_retaining(listed, default)
        #: whether a rule about retaining is limited to listeners or addresses
        self.retaining_by_place = any(
            rule.conditions.listeners is not None or rule.conditions.addresses is not None
            for rule in listed.rules
            if rule.actions & _RETAINING
        )
        self._compile()

    def groups_of(self, username: str | None) -> frozenset[str]:
        """Return the groups of a user in the sources."""
        return _NO_GROUPS if username is None else self._groups.get(username, _NO_GROUPS)

    def allows(self, action: Action, rank: int) -> bool:
        """Return the verdict of the rule with this rank; for the rank of no rule, the default.

        What may be subscribed may be received, unless a rule denies it. Nothing is allowed by a search that was given
        up.
        """
        if rank < len(self._allows):
            return self._allows[rank]
        if rank == UNKNOWN:
            return False
        return True if action is Action.RECEIVE else self._default

    def rule(self, rank: int) -> Rule | None:
        """Return the rule with this rank; None if there is none."""
        return self.rules[rank] if rank < len(self.rules) else None

    def tries_for(self, identity: Identity, action: Action) -> list[Trie]:
        """Return the tries of all rules for this identity and action."""
        by_subject = self._tries[action]
        return [
            trie
            for subject in _subjects(identity)
            for (conditions, allow), trie in by_subject.get(subject, {}).items()
            if identity.meets(conditions, allow)
        ]

    def expansions_for(self, identity: Identity) -> dict[str, list[int]]:
        """Return the numbers of the templates by the levels that they stand for."""
        expansions: dict[str, list[int]] = {}
        for template, number in self._templates.items():
            for level in set(identity.expansions(template)):
                expansions.setdefault(level, []).append(number)
        return expansions

    def parts(self) -> Iterator[object]:
        """Yield the objects that it consists of, each after those that refer to it."""
        yield self._tries
        for by_subject in self._tries:
            yield by_subject
            for tries in by_subject.values():
                yield tries
                for trie in tries.values():
                    yield from trie.parts()
        yield from self.rules
        yield from self._groups.values()

    def _compile(self) -> None:
        filters = 0
        same: dict[Conditions, Conditions] = {}  # one object for equal conditions: they are compared often
        for rank, rule in enumerate(self.rules):
            places = [(subject, same.setdefault(each, each)) for subject, each in _places(rule)]
            filters += len(places) * len(rule.topics)
            if filters > MOST_FILTERS:
                raise TooManyFilters(rule)
            for action in rule.actions:
                for subject, conditions in places:
                    self._add(self._trie(action, subject, conditions, rule), rank, rule, rule.topics)
            topics = _for_any_group(rule)
            for action in rule.actions & _PUBLISHING if topics else ():
                conditions = same.setdefault(rule.conditions, rule.conditions)
                self._add(self._trie(action, _ANY_GROUP, conditions, rule), rank, rule, topics)

    def _trie(self, action: Action, subject: _Subject, conditions: Conditions, rule: Rule) -> Trie:
        tries = self._tries[action].setdefault(subject, {})
        return tries.setdefault((conditions, rule.allow or conditions is NO_CONDITIONS), Trie())

    def _add(self, trie: Trie, rank: int, rule: Rule, topics: Iterable[str]) -> None:
        for topic in topics:
            if topic == EVERY_TOPIC:
                trie.add_every(rank)
                continue
            parts = topic.split("/")
            is_multi = parts[-1] == "#"
            if is_multi:
                parts.pop()
            trie.add([self._key(part, rule.has_templates) for part in parts], is_multi, rank, rule.allow)

    def _key(self, level: str, may_be_template: bool) -> LevelKey:
        if level == "+":
            return PLUS
        if may_be_template and "%" in level and PLACEHOLDER.search(level):
            return self._templates.setdefault(level, PLUS + 1 + len(self._templates))
        return level


def _digest_of_retaining(listed: RuleList, default: bool) -> str:
    """Return a digest of the rules about retaining, their order, and the groups. Their places in files do not count."""
    digest = blake2b(repr(default).encode(), digest_size=16)
    for rule in listed.rules:
        actions = rule.actions & _RETAINING
        if actions:
            conditions = rule.conditions
            digest.update(
                repr((
                    rule.allow, sorted(actions), rule.topics, rule.has_templates, _sorted(rule.users),
                    _sorted(rule.groups), _sorted(conditions.clients), _sorted(conditions.listeners),
                    _sorted(conditions.addresses), conditions.characters,
                )).encode(errors="backslashreplace")
            )  # fmt: skip
    for user in sorted(listed.groups):
        digest.update(repr((user, sorted(listed.groups[user]))).encode(errors="backslashreplace"))
    return digest.hexdigest()


def _sorted(values: Iterable[object] | None) -> list[str] | None:
    return None if values is None else sorted(map(str, values))


def _subjects(identity: Identity) -> Iterator[_Subject]:
    yield _EVERYONE
    yield _GUEST_SUBJECT if identity.username is None else ("user", identity.username)
    yield ("client", identity.client_id)
    for group in identity.groups:
        yield ("group", group)
    if not identity.knows_groups:
        yield _ANY_GROUP


def _for_any_group(rule: Rule) -> list[str]:
    """Return the Topic Filters that the rule allows to clients of some group, with ``+`` for the group's name."""
    if not rule.allow or (rule.groups is None and rule.users is not None):
        return []
    topics = [topic for topic in rule.topics if rule.groups is not None or _GROUP_TEMPLATE in topic]
    if not rule.has_templates:
        return topics
    return ["/".join("+" if _GROUP_TEMPLATE in level else level for level in topic.split("/")) for topic in topics]


def _places(rule: Rule) -> Iterator[tuple[_Subject, Conditions]]:
    """Yield the subjects of a rule, with the conditions that remain for each."""
    conditions = rule.conditions
    if rule.users is not None or rule.groups is not None:
        for user in rule.users or ():
            yield (_GUEST_SUBJECT if user == GUEST else ("user", user)), conditions
        for group in rule.groups or ():
            yield ("group", group), conditions
    elif conditions.clients is not None:
        rest = evolve(conditions, clients=None)
        for client in conditions.clients:
            yield ("client", client), NO_CONDITIONS if rest == NO_CONDITIONS else rest
    else:
        yield _EVERYONE, conditions
