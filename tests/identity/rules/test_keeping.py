"""What stands for all that decides which publishers may keep their messages, from one process to the next."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from holdfast.identity.authorizer import Authorizer, SourceCheck
from holdfast.identity.interfaces import Principal
from holdfast.identity.rules import Action, Conditions, Rule, RuleList, Ruleset

RETAINING = frozenset({Action.PUBLISH, Action.RETAIN})
ALLOW = Rule(True, RETAINING, ("a/#", "b"), "file:1", users=frozenset({"ann", "bob"}), groups=frozenset({"g", "h"}))
DENY = Rule(False, RETAINING, ("a/b",), "file:2", conditions=Conditions(clients=frozenset({"c", "d"})))
LISTED = RuleList((ALLOW, DENY), {"ann": frozenset({"g", "x"}), "bob": frozenset({"h"})})


CHANGES: tuple[dict[str, Any], ...] = (
    {"allow": False},
    {"actions": frozenset({Action.PUBLISH})},
    {"topics": ("a/#",)},
    {"topics": ("b", "a/#", "c")},
    {"users": None},
    {"users": frozenset({"ann"})},
    {"groups": frozenset()},
    {"conditions": Conditions(listeners=frozenset({"l"}))},
    {"conditions": Conditions(addresses=frozenset({ip_network("10.0.0.0/8")}))},
    {"conditions": Conditions(characters="+")},
    {"has_templates": False},
)


def keeping(listed: RuleList = LISTED, default: bool = False, **options: Any) -> str:
    return Authorizer(Ruleset(listed, default=default), **options).keeping


def test_the_same_rules_have_the_same_fingerprint() -> None:
    """Wherever they stand in their files, and whatever else rules say about subscriptions."""
    moved = tuple(evolve(rule, origin="elsewhere:9") for rule in LISTED.rules)
    subscribing = Rule(True, frozenset({Action.SUBSCRIBE, Action.RECEIVE, Action.CLEAR}), ("#",), "file:3")
    assert keeping(RuleList((subscribing, *moved), dict(reversed(list(LISTED.groups.items()))))) == keeping()


@pytest.mark.parametrize(
    "other",
    [
        {"listed": RuleList((DENY, ALLOW), LISTED.groups)},
        {"listed": RuleList((ALLOW,), LISTED.groups)},
        {"listed": RuleList(LISTED.rules)},
        {"listed": RuleList(LISTED.rules, {**LISTED.groups, "bob": frozenset({"g"})})},
        {"default": True},
        {"source_check": SourceCheck.STRICT},
        {"names_proven": False},
        {"groups_elsewhere": True},
        {"groups_digest": lambda: "other groups in the database"},
    ]
    + [{"listed": RuleList((evolve(ALLOW, **change), DENY), LISTED.groups)} for change in CHANGES],
)
def test_whatever_may_change_a_verdict_changes_the_fingerprint(other: dict[str, Any]) -> None:
    assert keeping(**other) != keeping()


def test_an_upgrade_changes_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version may judge otherwise by the same rules."""
    before = keeping()
    monkeypatch.setattr("holdfast.identity.authorizer.version", lambda: "99")
    assert keeping() != before


NAMES = st.sampled_from(["ann", "bob", "g", "h"])
some_names = st.none() | st.frozensets(NAMES, min_size=1, max_size=2)
conditions = st.builds(
    Conditions,
    clients=some_names,
    listeners=st.none() | st.just(frozenset({"l"})),
    addresses=st.none() | st.just(frozenset({ip_network("10.0.0.0/8")})),
)
rules = st.builds(
    Rule,
    st.booleans(),
    st.frozensets(st.sampled_from(list(Action)), min_size=1),
    st.lists(st.sampled_from(["#", "a/#", "a/%u", "of/%g", "b", "+"]), min_size=1, max_size=2).map(tuple),
    st.just("here"),
    users=some_names,
    groups=some_names,
    conditions=conditions,
)


@given(st.lists(rules, max_size=5), st.data(), st.booleans())
def test_who_was_allowed_to_retain_may_keep_unless_places_matter(
    listed: list[Rule], data: st.DataObject, elsewhere: bool
) -> None:
    """After a clean stop, nobody judges such a message again. ``keeps_the_published`` promises that nobody has to."""
    authorizer = Authorizer(
        Ruleset(RuleList(tuple(listed), {"ann": frozenset({"g"})})),
        source_check=SourceCheck.STRICT,
        groups_elsewhere=elsewhere,
    )
    username, client = data.draw(st.none() | NAMES), data.draw(NAMES)
    groups = data.draw(st.frozensets(NAMES)) if elsewhere and username is not None else frozenset()
    publisher = Principal(client, username, groups=groups, listener="l", address="10.1.1.1")
    topic = data.draw(st.sampled_from(["a", "a/b", "a/ann", "of/g", "of/h", "b"]))
    if authorizer.keeps_the_published and authorizer.may_publish(publisher, topic, 0, True):
        assert authorizer.may_keep(username, client, topic)
