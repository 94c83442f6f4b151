"""The authorizer: permissions together, remembered answers, their bounds, and what a change of the rules does."""

from __future__ import annotations

import gc

import pytest

from holdfast.core.messages import ApplicationMessage
from holdfast.identity import authorizer as module
from holdfast.identity.authorizer import Authorizer, Permissions, PresentAuthorizer, SourceCheck
from holdfast.identity.coverage import MOST_NODES
from holdfast.identity.interfaces import Grant, Principal
from holdfast.identity.rules import (
    GUEST,
    Action,
    Conditions,
    Identity,
    Node,
    Rule,
    RuleList,
    Ruleset,
    Trie,
    first_match,
)

ALICE = Principal("c1", "alice")


def rule(
    allow: bool,
    actions: str,
    *topics: str,
    users: frozenset[str] | None = None,
    listeners: frozenset[str] | None = None,
) -> Rule:
    conditions = Conditions(listeners=listeners)
    words = frozenset(Action[word.upper()] for word in actions.split())
    return Rule(allow, words, topics, "here:1", users=users, conditions=conditions)


def ruleset(*rules: Rule) -> Ruleset:
    return Ruleset(RuleList(rules))


def test_retain_and_clear_need_publish_besides() -> None:
    authorizer = Authorizer(
        ruleset(rule(True, "publish", "a", "b"), rule(True, "retain", "a", "c"), rule(True, "clear", "b"))
    )
    answers = {
        topic: [
            authorizer.may_publish(ALICE, topic, 0, False),
            authorizer.may_publish(ALICE, topic, 0, True),
            authorizer.may_publish(ALICE, topic, 0, True, clears=True),
        ]
        for topic in "abc"
    }
    assert answers == {"a": [True, True, False], "b": [True, False, True], "c": [False, False, False]}


def test_a_message_is_received_if_its_topic_may_be_subscribed_and_no_rule_denies_it() -> None:
    authorizer = Authorizer(
        ruleset(rule(False, "receive", "a/secret"), rule(True, "subscribe", "a/#"), rule(True, "receive", "b"))
    )
    received = {
        topic: authorizer.may_receive(ALICE, ApplicationMessage(topic, b"")) for topic in ("a/x", "a/secret", "b")
    }
    assert received == {"a/x": True, "a/secret": False, "b": False}
    assert authorizer.may_subscribe(ALICE, "a/#", 0) is Grant.FILTERED
    assert authorizer.checks_delivery


def test_without_rules_that_filter_no_delivery_is_checked() -> None:
    authorizer = Authorizer(ruleset(rule(True, "subscribe", "a/#"), rule(False, "subscribe", "b")))
    assert not authorizer.checks_delivery
    assert authorizer.may_subscribe(ALICE, "#", 0) is Grant.REFUSED
    assert Authorizer(authorizer.rules, subscribe_partially=True).may_subscribe(ALICE, "#", 0) is Grant.FILTERED


def test_an_empty_list_of_rules_denies_everything() -> None:
    authorizer = Authorizer(ruleset())
    assert not authorizer.may_publish(ALICE, "a", 0, False)
    assert authorizer.may_subscribe(ALICE, "a", 0) is Grant.REFUSED
    assert not authorizer.may_receive(ALICE, ApplicationMessage("a", b""))


def test_an_unproven_name_is_a_guest() -> None:
    rules = ruleset(
        rule(True, "publish", "a", users=frozenset({"alice"})), rule(True, "publish", "b", users=frozenset({GUEST}))
    )
    proven, unproven = Authorizer(rules), Authorizer(rules, names_proven=False)
    assert [proven.may_publish(ALICE, topic, 0, False) for topic in "ab"] == [True, False]
    assert [unproven.may_publish(ALICE, topic, 0, False) for topic in "ab"] == [False, True]
    assert not proven.may_publish(Principal("c", GUEST), "b", 0, False)


@pytest.mark.parametrize("name", ["+", "#", "a/b", "$SYS", "", "a\0", "a\n", "a\x85"])
def test_a_name_that_is_no_literal_level_stands_for_nothing(name: str) -> None:
    authorizer = Authorizer(ruleset(rule(True, "publish subscribe", "%u/#", "x/%c/y")))
    principal = Principal(name, name)
    for topic in (f"{name}/t", "any/t", f"x/{name}/y", "$SYS/t"):
        assert not authorizer.may_publish(principal, topic, 0, False)
    assert authorizer.may_subscribe(principal, "#", 0) is Grant.REFUSED


def test_other_rules_change_the_epoch_and_all_answers() -> None:
    authorizer = Authorizer(ruleset(rule(True, "publish", "a")))
    epoch = authorizer.epoch
    assert authorizer.may_publish(ALICE, "a", 0, False)
    assert authorizer.epoch is epoch
    authorizer.replace(ruleset(rule(True, "publish", "b")))
    assert authorizer.epoch is not epoch
    assert [authorizer.may_publish(ALICE, topic, 0, False) for topic in "ab"] == [False, True]


def test_the_source_check_asks_for_the_publisher_wherever_it_is() -> None:
    rules = ruleset(
        rule(False, "retain", "denied", listeners=frozenset({"outside"})),
        rule(True, "publish retain", "inside", listeners=frozenset({"inside"})),
        rule(True, "publish retain", "a", "denied", users=frozenset({"alice"})),
        rule(True, "publish retain", "g", users=frozenset({GUEST})),
    )
    by_check = {
        check: [
            Authorizer(rules, source_check=check).may_keep(user, "c1", topic)
            for user, topic in [
                ("alice", "a"),
                ("bob", "a"),
                ("alice", "inside"),
                ("alice", "denied"),
                (None, "a"),
                (None, "g"),
            ]
        ]
        for check in SourceCheck
    }
    assert by_check == {
        SourceCheck.OFF: [True] * 6,
        SourceCheck.USERS: [True, False, False, False, True, True],
        SourceCheck.STRICT: [True, False, False, False, False, True],
    }


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 10)
    monkeypatch.setattr(module, "MOST_VERDICTS", 50)
    monkeypatch.setattr(module, "MOST_OF_ONE", 20)
    authorizer = Authorizer(ruleset(rule(True, "publish", "%c/#")))
    principals = [Principal(f"c{number}", None) for number in range(30)]
    for _ in range(2):
        for principal in principals:
            for topic in range(40):
                assert authorizer.may_publish(principal, f"{principal.client_id}/{topic}", 0, False)
                assert not authorizer.may_publish(principal, f"other/{topic}", 0, False)
        entries = authorizer._by_identity.values()
        assert len(entries) <= 10
        assert len(authorizer._by_object) <= 10
        held = sum(len(verdicts) for entry in entries for verdicts in entry.verdicts)
        assert held == authorizer._count
        assert held <= 50


def test_one_client_remembers_many_verdicts_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it keeps its fixed number, so that others find theirs."""
    monkeypatch.setattr(module, "MOST_VERDICTS", 100)
    monkeypatch.setattr(module, "MOST_OF_ONE", 5)
    monkeypatch.setattr(module, "MOST_OF_ONE_AT_EASE", 30)
    authorizer = Authorizer(ruleset(rule(True, "publish", "#")))

    def remembered(client: str, number: int) -> int:
        principal = Principal(client, None)
        for topic in range(number):
            authorizer.may_publish(principal, str(topic), 0, False)
        return len(authorizer._entry_of(principal).verdicts[Action.PUBLISH])

    assert [remembered("greedy", 31), remembered("first", 30), remembered("second", 19)] == [1, 30, 19]
    assert [remembered("third", 5), remembered("third", 6)] == [5, 1]
    assert [remembered("first", 0), remembered("second", 0)] == [30, 19]


def test_a_client_that_returns_finds_its_permissions() -> None:
    """It has another Principal then, and the old one is let go."""
    authorizer = Authorizer(ruleset(rule(True, "publish", "a")))
    for _ in range(5):
        assert authorizer.may_publish(Principal("c1", "alice"), "a", 0, False)
    assert len(authorizer._by_object) == len(authorizer._by_identity) == 1


def test_ten_thousand_rules_cost_what_ten_do() -> None:
    """Counted in the nodes of the trie that one answer visits."""
    visited = {}
    for number in (10, 10_000):
        own = [rule(True, "publish", f"plant/{one}/#", users=frozenset({f"u{one}"})) for one in range(number // 2)]
        all_users = [rule(False, "publish", f"hall/{one}/+/secret") for one in range(number // 2)]
        compiled = ruleset(*own, *all_users)
        identity = Identity("u3", "c")
        tries = compiled.tries_for(identity, Action.PUBLISH)
        visited[number] = [
            first_match(tries, topic.split("/"), {})[1] for topic in ("plant/3/a/b", "hall/3/x/secret", "z")
        ]
    assert visited[10] == visited[10_000]


def test_a_search_that_is_too_long_grants_nothing() -> None:
    """Denials that another rule takes back: only a look at each of them shows that all topics are allowed."""
    number = 200
    allows = [rule(True, "subscribe", f"+/{one}/x", f"+/+/{one}") for one in range(number)]
    denies = [rule(False, "subscribe", f"+/{one}/x") for one in range(number)]
    few = Authorizer(ruleset(*allows[:5], *denies[:5], rule(True, "subscribe", "#")))
    assert few.may_subscribe(ALICE, "#", 0) is Grant.GRANTED
    many = Authorizer(ruleset(*allows * 3, *(denies * 3), rule(True, "subscribe", "#")))
    verdicts = many.permissions_of(ALICE).verdicts(Action.SUBSCRIBE, "#")
    assert verdicts.visited <= MOST_NODES + number * 6
    if not verdicts.is_exact:
        assert many.may_subscribe(ALICE, "#", 0) is Grant.REFUSED
        assert many.receivable(ALICE, "#") is Grant.FILTERED


def everything_below(root: object) -> list[object]:
    """Return the objects of a structure that a garbage collector sees, without classes and what is not of rules."""
    kinds = (Ruleset, Trie, Node, Rule, Permissions, module._Entry, dict)
    found: dict[int, object] = {}
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += [one for one in gc.get_referents(each) if isinstance(one, (*kinds, list, tuple))]
    return [each for each in found.values() if isinstance(each, kinds) and each]


@pytest.mark.parametrize("change", ["replace", "renew", "retire"])
def test_forgotten_rules_and_answers_are_freed_a_part_at_a_time(change: str) -> None:
    """To free ten thousand at once would hold all clients up. Each part comes after those that refer to it."""
    freed: list[object] = []
    rules = ruleset(*(rule(True, "publish receive", f"a/{n}/#", "b/+", users=frozenset({f"u{n}"})) for n in range(20)))
    authorizer = Authorizer(rules, free=freed.extend)
    for number in range(10):
        principal = Principal(f"c{number}", f"u{number}")
        authorizer.may_publish(principal, f"a/{number}/b", 0, False)
        authorizer.may_subscribe(principal, "b/+", 0)
    entries = [one for each in authorizer._by_identity.values() for one in everything_below(each)]
    of_rules = {id(one): one for one in everything_below(rules)}
    if change == "replace":
        authorizer.replace(ruleset())
    else:
        getattr(authorizer, change)()
    places = {id(part): place for place, part in enumerate(freed)}
    children = {id(node.children) for node in of_rules.values() if isinstance(node, Node)}  # freed with their nodes
    expected = {id(one) for one in entries if isinstance(one, (module._Entry, Permissions))}
    if change != "renew":
        expected |= of_rules.keys() - children - {id(rules), id(rules._groups), id(rules._templates)}
        expected -= {id(one) for one in of_rules.values() if isinstance(one, dict) and id(one) == id(rules.__dict__)}
        for part in freed:
            if isinstance(part, Node):
                assert all(places[id(child)] > places[id(part)] for child in part.children.values())
    assert expected <= places.keys()


def test_a_reload_frees_the_authorizer_of_before_a_part_at_a_time() -> None:
    freed: list[object] = []
    rules = ruleset(rule(True, "publish", "a"))
    before = Authorizer(rules, free=freed.extend)
    present = PresentAuthorizer(before)
    present.may_publish(ALICE, "a", 0, False)
    assert freed == []
    present.use(Authorizer(ruleset()))
    assert rules.rules[0] in freed
    assert any(isinstance(part, Permissions) for part in freed)
    assert not present.may_publish(ALICE, "a", 0, False)
