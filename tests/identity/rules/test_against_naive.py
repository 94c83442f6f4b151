"""The compiled rules decide as the naive twin does: about topics, and about all topics of a Topic Filter."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.topics import matches
from holdfast.identity.authorizer import Permissions
from holdfast.identity.interfaces import Grant
from holdfast.identity.rules import EVERY_ACTION, GUEST, Action, Conditions, Identity, Rule, RuleList, Ruleset
from tests.identity.rules.naive import FRESH, allows, first_rule, topics

DEPTH = 4
ALPHABET = ["a", "b", "$x", "alice", "c1", ""]
TOPICS = topics(ALPHABET, DEPTH)

USERS = st.sampled_from([None, "alice", "a", "+", "$x", "a/b", "b"])
CLIENTS = st.sampled_from(["c1", "a", "#", "$x"])
GROUPS = st.frozensets(st.sampled_from(["a", "b", "+"]), max_size=2)

identities = st.builds(Identity, USERS, CLIENTS, GROUPS, st.sampled_from(["l1", "l2"]), is_located=st.booleans())


def filters(levels: list[str], depth: int) -> st.SearchStrategy[str]:
    """Topic Filters with some levels, ``+`` among them, perhaps with ``#`` at the end."""
    parts = st.lists(st.sampled_from([*levels, "+"]), max_size=depth)
    return (
        st.tuples(parts, st.booleans())
        .map(lambda made: "/".join([*made[0], "#"] if made[1] else made[0]))
        .filter(lambda topic_filter: topic_filter != "")
    )


def some(values: list[str]) -> st.SearchStrategy[frozenset[str] | None]:
    return st.none() | st.frozensets(st.sampled_from(values), min_size=1, max_size=2)


rules = st.lists(
    st.builds(
        Rule,
        allow=st.booleans(),
        actions=st.sampled_from([EVERY_ACTION, frozenset({Action.SUBSCRIBE}), frozenset({Action.RECEIVE})]),
        topics=st.lists(filters(["a", "b", "$x", "%u", "%c", "%g", ""], 3), min_size=1, max_size=2).map(tuple),
        origin=st.just("here"),
        users=some(["alice", "a", GUEST]),
        groups=some(["b", "a"]),
        conditions=st.builds(Conditions, clients=some(["c1"]), listeners=some(["l1"])),
    ),
    max_size=6,
)


@given(rules, identities, st.sampled_from(Action), st.sampled_from(TOPICS), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_topic_is_decided_by_the_first_rule(
    listed: list[Rule], identity: Identity, action: Action, topic: str, default: bool
) -> None:
    compiled = Permissions(Ruleset(RuleList(tuple(listed)), default=default), identity)
    decision = compiled.decide(action, topic)
    assert decision.rule is first_rule(listed, identity, action, topic)
    assert decision.allow == allows(listed, identity, action, topic, default or action is Action.RECEIVE)


@given(rules, identities, filters(["a", "b", "$x", "alice", ""], 3), st.booleans())
@settings(max_examples=200, deadline=None)
def test_all_verdicts_below_a_filter_are_found(
    listed: list[Rule], identity: Identity, topic_filter: str, default: bool
) -> None:
    """The twin asks for each topic over the levels of the rules and one level that no rule has."""
    compiled = Permissions(Ruleset(RuleList(tuple(listed)), default=default), identity)
    action = Action.SUBSCRIBE
    verdicts = {allows(listed, identity, action, topic, default) for topic in TOPICS if matches(topic_filter, topic)}
    found = compiled.verdicts(action, topic_filter)
    assert found.is_exact
    assert {True: found.allowed is not None, False: found.denied is not None} == {
        verdict: verdict in verdicts for verdict in (True, False)
    }
    for verdict, example in ((True, found.allowed), (False, found.denied)):
        if example is not None:
            topic = example[1].replace("any-other-name", FRESH)
            assert matches(topic_filter, topic)
            assert allows(listed, identity, action, topic, default) is verdict


@given(rules, identities, filters(["a", "b", "$x", ""], 3), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_grant_gives_more_than_the_rules(
    listed: list[Rule], identity: Identity, topic_filter: str, partially: bool
) -> None:
    """Without checks at delivery, every topic must be allowed; a refusal needs a topic that is not."""
    compiled = Permissions(Ruleset(RuleList(tuple(listed))), identity)
    matching = [topic for topic in TOPICS if matches(topic_filter, topic)]
    receive = [compiled.allows(Action.RECEIVE, topic) for topic in matching]
    subscribe = [compiled.allows(Action.SUBSCRIBE, topic) for topic in matching]
    grant = compiled.grant(topic_filter, partially=partially)
    if grant is Grant.GRANTED:
        assert all(receive)
    elif grant is Grant.REFUSED:
        assert not all(subscribe)
        assert not (partially and any(subscribe))
    elif not partially:
        assert all(subscribe)
        assert not all(receive)
    later = compiled.receivable(topic_filter)
    assert (later is Grant.GRANTED) == all(receive)
    assert later is not Grant.REFUSED or not any(receive)
