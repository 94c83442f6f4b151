"""The rules of all sources, compiled.

How it works. The rules of all sources form one list; the first match decides. For each action there is a trie for each
*subject*: a user, a group, a Client Identifier or everyone, with the rule's further conditions. A rule for ten users
stands in ten tries. An identity finds its few tries by its names, so rules for other users cost it nothing. For clients
whose groups are unknown, there is one more subject: what rules allow to any group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

from attrs import evolve, field, frozen

from holdfast.authorization.identity import PLACEHOLDER, Identity
from holdfast.authorization.rule import GUEST, NO_CONDITIONS, Action, Conditions, Rule
from holdfast.authorization.trie import PLUS, UNKNOWN, LevelKey, Trie
from holdfast.topics import EVERY_TOPIC

#: Filters in all tries together: a rule has one for each pair of a subject and a topic.
MOST_FILTERS = 1_000_000

#: "user", "group", "client", "guest", "everyone" or "any group", and the name
_Subject = tuple[str, str]
_EVERYONE: _Subject = ("everyone", "")
_GUEST: _Subject = ("guest", "")
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
    yield _GUEST if identity.username is None else ("user", identity.username)
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
            yield (_GUEST if user == GUEST else ("user", user)), conditions
        for group in rule.groups or ():
            yield ("group", group), conditions
    elif conditions.clients is not None:
        rest = evolve(conditions, clients=None)
        for client in conditions.clients:
            yield ("client", client), NO_CONDITIONS if rest == NO_CONDITIONS else rest
    else:
        yield _EVERYONE, conditions
