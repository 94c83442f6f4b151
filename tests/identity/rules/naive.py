"""A naive twin of the compiled rules: it looks at one rule after the other, and at one topic after the other."""

from __future__ import annotations

from itertools import product

from holdfast.core.topics import matches
from holdfast.identity.rules import GUEST, Action, Identity, Rule, is_literal

#: a level that no rule of these tests has
FRESH = "~"


def first_rule(rules: list[Rule], identity: Identity, action: Action, topic: str) -> Rule | None:
    """Return the first rule for this identity, action and topic."""
    for rule in rules:
        if action in rule.actions and _is_for(rule, identity):
            for topic_filter in rule.topics:
                if any(matches(expanded, topic) for expanded in _expanded(topic_filter, identity)):
                    return rule
    return None


def allows(rules: list[Rule], identity: Identity, action: Action, topic: str, default: bool) -> bool:
    """Tell whether the first rule that matches allows it."""
    rule = first_rule(rules, identity, action, topic)
    return default if rule is None else rule.allow


def topics(alphabet: list[str], depth: int) -> list[str]:
    """Return all Topic Names with up to so many levels of this alphabet and a fresh level."""
    return [
        topic
        for levels in range(1, depth + 1)
        for parts in product([*alphabet, FRESH], repeat=levels)
        if (topic := "/".join(parts))
    ]


def _is_for(rule: Rule, identity: Identity) -> bool:
    if rule.users is not None or rule.groups is not None:
        name = GUEST if identity.username is None else identity.username
        if name not in (rule.users or ()) and not identity.groups & (rule.groups or frozenset()):
            return False
    return identity.meets(rule.conditions, rule.allow)


def _expanded(topic_filter: str, identity: Identity) -> list[str]:
    """Return the filter with the names of the identity, each a whole level."""
    users = [] if identity.username is None else [identity.username]
    names: dict[str, list[str]] = {"%u": users, "%c": [identity.client_id], "%g": sorted(identity.groups)}
    choices = [
        [name for name in names[level] if is_literal(name)] if level in names else [level]
        for level in topic_filter.split("/")
    ]
    return ["/".join(levels) for levels in product(*choices)]
