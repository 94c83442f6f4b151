"""Rules in the database: their order, their numbers, and that they count at once, here and on other nodes."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from holdfast.identity import database_rules as module
from holdfast.identity.accounts import BadValue, Unknown
from holdfast.identity.interfaces import Principal
from holdfast.identity.rules import EVERY_ACTION, Rule, RuleList
from holdfast.storage.location import StoreUnusable
from tests.identity.accounts.conftest import Node
from tests.storage.doubles import result_of

BOB = Principal("c", "bob", listener="default", method="accounts")


def rule(topic: str, allow: bool = True, **more: Any) -> dict[str, Any]:
    return {"action": ["publish"], "topics": [topic], "allow": allow, **more}


def numbers(node: Node) -> list[int]:
    return [number for number, _ in result_of(node.rules.page(0, 1000))]


def may(node: Node, topic: str) -> bool:
    return node.authorizer.may_publish(BOB, topic, 0, False)


def test_rules_count_at_once_in_their_order_and_after_a_restart(node: Node) -> None:
    assert not may(node, "a/b")
    result_of(node.rules.add(rule("a/#"), None))
    epoch = node.authorizer.epoch
    assert may(node, "a/b")
    result_of(node.rules.add(rule("a/b", False), None))
    assert may(node, "a/b")
    assert node.authorizer.epoch is not epoch
    result_of(node.rules.move(2, 1))
    assert not may(node, "a/b")
    result_of(node.rules.move(2, None))
    assert may(node, "a/b")
    result_of(node.rules.add(rule("a/b", False, users=["bob"]), 1))
    assert not may(node, "a/b")
    assert may(node, "a/c")
    again = node.restart()
    assert numbers(again) == [3, 1, 2]
    assert (may(again, "a/b"), may(again, "a/c")) == (False, True)
    assert again.authorizer.permissions_of(BOB) is not None


def test_a_number_is_never_used_again(node: Node) -> None:
    for _ in range(3):
        result_of(node.rules.add(rule("a"), None))
    removed = result_of(node.rules.remove(3))
    assert removed.rule.origin == "rule 3 of the database"
    assert result_of(node.rules.add(rule("a"), None)).number == 4
    assert numbers(node) == [1, 2, 4]


def test_a_rule_of_the_database_that_denies_stands_before_the_files_where_it_is_configured_so(node: Node) -> None:
    allow_all = Rule(True, EVERY_ACTION, ("#",), "file")
    node.sources = evolve(node.sources, lists={"database": None, "file": RuleList((allow_all,))})
    result_of(node.rules.add(rule("secret", False), None))
    assert (may(node, "secret"), may(node, "other")) == (False, True)
    node.sources = evolve(node.sources, lists={"file": RuleList((allow_all,)), "database": None})
    result_of(node.rules.add(rule("x"), None))
    assert may(node, "secret")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "has no action"),
        ({"action": ["fly"], "topics": ["a"], "allow": True}, "action: found"),
        (rule("a/#/b"), "topics: found"),
        (rule("a\0b"), "topics: found"),
        (rule("$share/g/a"), "without $share/NAME/"),
        (rule("a", users="bob"), "users: found"),
        (rule("a", users=[]), "users: found"),
        (rule("a", addresses=["10.0.0.1/8"]), "did you mean"),
        (rule("a", colour="red"), "colour"),
        (rule("a", listeners=["defualt"]), 'no listener is named "defualt"'),
        (rule("a", users=["x" * 70_000]), "at most 65536 bytes"),
        ({"action": "all", "topics": ["a"], "allow": "yes"}, "allow: found"),
    ],
)
def test_a_bad_rule_is_refused(node: Node, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(BadValue) as refusal:
        result_of(node.rules.add(fields, None))
    assert told in str(refusal.value)
    assert numbers(node) == []


def test_unknown_numbers_and_too_many_rules_are_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_RULES", 2)
    for _ in range(2):
        result_of(node.rules.add(rule("a"), None))
    with pytest.raises(BadValue, match="2 rules, and cannot have more"):
        result_of(node.rules.add(rule("a"), None))
    for refused in (node.rules.remove(9), node.rules.move(9, 1), node.rules.move(1, 9), node.rules.page(9, 1)):
        with pytest.raises(Unknown, match="rule 9"):
            result_of(refused)
    assert numbers(node) == [1, 2]


def test_rules_that_cannot_be_compiled_are_not_stored(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.identity.rules.MOST_FILTERS", 3)
    with pytest.raises(BadValue, match="rule 1 of the database: the rules up to this one"):
        result_of(node.rules.add(rule("a", users=["a", "b", "c", "d"]), None))
    assert numbers(node) == []


def test_two_nodes_that_change_rules_lose_none(node: Node) -> None:
    other = Node(node.url, 2).open()
    result_of(node.rules.add(rule("a"), None))
    result_of(other.rules.add(rule("b"), None))
    assert numbers(other) == [1, 2]
    assert (may(other, "a"), may(other, "b")) == (True, True)
    assert not may(node, "b")
    result_of(node.rules.refresh())
    assert may(node, "b")
    other.store.close()


def test_a_command_changes_rules_without_keeping_them(url: str) -> None:
    node = Node(url, kept=False).open()
    result_of(node.rules.add(rule("a"), None))
    result_of(node.rules.add(rule("b"), 1))
    assert numbers(node) == [2, 1]
    assert node.rules.known is None
    node.store.close()


def test_before_the_database_is_open_nothing_is_allowed(url: str) -> None:
    """A rule in the database may deny what a file allows."""
    node = Node(url, before=RuleList((Rule(True, EVERY_ACTION, ("#",), "file"),)))
    assert not may(node, "a")
    node.open()
    assert may(node, "a")
    node.store.close()


def test_other_sources_take_effect_with_the_rules_of_now(node: Node) -> None:
    result_of(node.rules.add(rule("a"), None))
    known = node.rules.known
    result_of(node.rules.add(rule("b"), None))
    sources = evolve(node.sources)
    node.authorizer.replace(sources.compiled(()))
    node.rules.use(sources, known)
    assert may(node, "b")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE authorization_rules SET rule_json = '{'", "rule 1 of the database cannot be used"),
        ("UPDATE authorization_rules SET rule_json = '{\"allow\": true}'", "has no action"),
        ("UPDATE access_state SET rules_version = -1", "could not be read from the damaged file"),
    ],
)
def test_rules_that_cannot_be_read_stop_the_start(tmp_path: Path, statement: str, told: str) -> None:
    url = f"sqlite:///{tmp_path / 'holdfast.db'}"
    node = Node(url).open()
    result_of(node.rules.add(rule("a"), None))
    node.store.close()
    with sqlite3.connect(tmp_path / "holdfast.db") as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(StoreUnusable, match=told):
        Node(url).open()
