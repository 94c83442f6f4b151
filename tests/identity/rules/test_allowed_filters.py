"""The filters that replays read: they match every topic that may be received, and are told only if they are few."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.topics import EVERY_TOPIC, matches
from holdfast.identity.authorizer import Permissions
from holdfast.identity.rules import EVERY_ACTION, Action, Identity, Rule, RuleList, Ruleset
from tests.identity.rules.test_against_naive import TOPICS, filters, identities, rules

ANN = Identity("ann", "c", frozenset(), is_located=True)


def permissions(*allowed: str, default: bool = False) -> Permissions:
    return Permissions(Ruleset(RuleList((Rule(True, EVERY_ACTION, allowed, "here"),)), default=default), ANN)


@given(rules, identities, filters(["a", "b", "$x", "alice", ""], 3), st.booleans())
@settings(max_examples=300, deadline=None)
def test_every_topic_that_may_be_received_matches_a_filter(
    listed: list[Rule], identity: Identity, topic_filter: str, default: bool
) -> None:
    compiled = Permissions(Ruleset(RuleList(tuple(listed)), default=default), identity)
    found = compiled.receivable_filters(topic_filter)
    assert found is not None or default
    for topic in TOPICS:
        if matches(topic_filter, topic) and compiled.allows(Action.RECEIVE, topic):
            assert found is None or any(matches(each, topic) for each in found)


def test_filters_without_common_topics_are_left_out() -> None:
    assert permissions("a/#", "b/%u", "c").receivable_filters("+/ann") == ("b/ann", "a/#")


def test_no_filters_are_told_if_all_may_be_allowed_or_there_are_many() -> None:
    assert permissions("a", default=True).receivable_filters("#") is None
    assert permissions(EVERY_TOPIC).receivable_filters("#") is None
    assert permissions(*(f"a/{number}" for number in range(65))).receivable_filters("#") is None
    assert len(permissions(*(f"a/{number}" for number in range(64))).receivable_filters("#") or ()) == 64
    assert permissions(*(f"a/{number}" for number in range(5000))).receivable_filters("b") is None
