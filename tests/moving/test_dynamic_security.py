"""mosquitto's dynamic-security.json becomes users and rules with the same verdicts."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.toml import ConfigError
from holdfast.identity.authorizer import Permissions
from holdfast.identity.hashes import verify
from holdfast.identity.rule_files import read_rules
from holdfast.identity.rules import Action, Identity, Ruleset
from holdfast.moving.dynamic_security import read_dynamic_security, rules_of, users_of
from holdfast.moving.report import Outcome, Report
from tests.moving.dynamic_security_files import TOPICS, USERS, files, verdict

QUESTIONS = {"publishClientSend": (Action.PUBLISH, Action.RETAIN, Action.CLEAR), "subscribe": (Action.SUBSCRIBE,)}


def permissions(folder: Path, tree: dict[str, Any], user: str | None, client_id: str = "c") -> Permissions:
    """Return the permissions of a client by the rule file that a file of dynamic security becomes."""
    path, rules = folder / "dynamic-security.json", folder / "rules.toml"
    path.write_text(json.dumps(tree))
    book = rules_of(read_dynamic_security(path, "m.conf:1"), Report("a test"))
    rules.write_text(book.text(["a test"]))
    ruleset = Ruleset(read_rules(rules))
    return Permissions(ruleset, Identity(user, client_id, ruleset.groups_of(user)))


@given(tree=files())
def test_each_topic_has_the_verdicts_of_mosquitto(tree: dict[str, Any]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        for user in (*USERS, None):
            found = permissions(folder, tree, user)
            for topic in TOPICS:
                may_subscribe = verdict(tree, user, "subscribe", topic)
                assert found.allows(Action.SUBSCRIBE, topic) == may_subscribe
                may_receive = may_subscribe and verdict(tree, user, "publishClientReceive", topic)
                assert found.allows(Action.RECEIVE, topic) == may_receive
                if topic[0] != "$":  # nobody publishes to the broker's own topics
                    may_publish = verdict(tree, user, "publishClientSend", topic)
                    for action in QUESTIONS["publishClientSend"]:
                        assert found.allows(action, topic) == may_publish


def read(folder: Path, tree: object, text: str = "") -> tuple[dict[str, str], Report]:
    """Return the users of a file, and the report about them."""
    path = folder / "dynamic-security.json"
    path.write_text(text or json.dumps(tree))
    report = Report("a test")
    found = users_of(read_dynamic_security(path, "m.conf:1"), report).hashes
    return found, report


def test_passwords_of_both_versions_are_verified(tmp_path: Path) -> None:
    salt = b"salt of 2.0!"
    digest = hashlib.pbkdf2_hmac("sha512", b"old", salt, 101)
    encoded = f"$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
    tree = {
        "clients": [
            {
                "username": "two",
                "salt": base64.b64encode(salt).decode(),
                "password": base64.b64encode(digest).decode(),
                "iterations": 101,
            },
            {"username": "three", "encoded_password": encoded},
        ]
    }
    found, report = read(tmp_path, tree)
    assert verify(found["two"], b"old")
    assert found["two"] == found["three"] == encoded
    assert not report.of(Outcome.MISSING)


def test_clients_that_cannot_log_in_are_reported_and_no_secret_is(tmp_path: Path) -> None:
    tree = {
        "clients": [
            {"username": "off", "disabled": True, "encoded_password": "$7$1$SECRET$SECRET"},
            {"username": "none"},
            {"username": "odd", "encoded_password": "$9$SECRET"},
            {"username": "a:b", "encoded_password": "$9$SECRET"},
        ]
    }
    found, report = read(tmp_path, tree)
    assert found == {}
    assert [entry.setting for entry in report.of(Outcome.MISSING)] == [
        "client off",
        "client none",
        "user odd",
        "user a:b",
    ]
    assert "SECRET" not in report.markdown()


def test_a_client_with_an_identifier_has_its_rules_with_that_one_only(tmp_path: Path) -> None:
    tree = {
        "defaultACLAccess": {"publishClientSend": True},
        "clients": [{"username": "ann", "clientid": "meter", "encoded_password": ""}],
    }
    assert permissions(tmp_path, tree, "ann", "meter").allows(Action.PUBLISH, "a")
    assert not permissions(tmp_path, tree, "ann", "other").allows(Action.PUBLISH, "a")


def test_a_disabled_client_has_no_rules(tmp_path: Path) -> None:
    tree = {
        "defaultACLAccess": {"publishClientSend": True, "subscribe": True},
        "clients": [{"username": "ann", "disabled": True}],
    }
    assert not permissions(tmp_path, tree, "ann").allows(Action.PUBLISH, "a")


def test_patterns_with_names_are_taken_and_those_that_rules_cannot_hold_open_nothing(tmp_path: Path) -> None:
    acls = [
        {"acltype": "publishClientSend", "topic": "x%u/a", "allow": False, "priority": 9},
        {"acltype": "publishClientSend", "topic": "y%u/a", "allow": True, "priority": 8},
        {"acltype": "publishClientSend", "topic": "own/%u/%c", "allow": True},
        {"acltype": "publishClientSend", "topic": "xann/a", "allow": True},
    ]
    tree = {
        "clients": [{"username": "ann", "roles": [{"rolename": "r"}]}],
        "roles": [{"rolename": "r", "acls": acls}],
    }
    found = permissions(tmp_path, tree, "ann", "c")
    assert found.allows(Action.PUBLISH, "own/ann/c")
    assert not found.allows(Action.PUBLISH, "own/bob/c")
    assert not found.allows(Action.PUBLISH, "xann/a")
    assert not found.allows(Action.PUBLISH, "yann/a")


def test_a_literal_with_a_wildcard_allows_its_topics_and_is_reported(tmp_path: Path) -> None:
    acls = [
        {"acltype": "subscribeLiteral", "topic": "a/+", "allow": True},
        {"acltype": "subscribePattern", "topic": "a/secret", "allow": False},
        {"acltype": "subscribeLiteral", "topic": "#", "allow": False},
    ]
    tree = {
        "defaultACLAccess": {"publishClientReceive": True},
        "clients": [{"username": "ann", "roles": [{"rolename": "r"}]}],
        "roles": [{"rolename": "r", "acls": acls}],
    }
    found = permissions(tmp_path, tree, "ann")
    assert found.allows(Action.RECEIVE, "a/b")
    assert not found.allows(Action.RECEIVE, "a/secret")
    report = Report("a test")
    rules_of(read_dynamic_security(tmp_path / "dynamic-security.json", "m.conf:1"), report)
    assert len([entry for entry in report.of(Outcome.MISSING) if "subscribeliteral" in entry.setting]) == 2


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, '{"clients": [{"username": "\\ud800"}]}'])
def test_what_is_no_such_file_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"dynamic-security\.json"):
        read(tmp_path, None, text)


def test_elements_of_another_form_are_skipped(tmp_path: Path) -> None:
    tree = {"clients": [1, {}, {"username": 1}, {"username": ""}], "roles": {"a": 1}, "groups": [{"groupname": None}]}
    found, _ = read(tmp_path, tree)
    assert found == {}


KEYS = st.sampled_from([
    "clients", "groups", "roles", "acls", "username", "groupname", "rolename", "priority", "acltype", "topic", "allow",
    "defaultACLAccess", "anonymousGroup", "iterations", "salt", "password", "encoded_password", "clientid",
])  # fmt: skip
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("publishClientSend")),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=25,
)


@given(tree=st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_json_becomes_rules_that_can_be_read(tree: dict[str, Any]) -> None:
    with TemporaryDirectory() as name:
        path = Path(name) / "dynamic-security.json"
        path.write_text(json.dumps(tree))
        try:
            found = read_dynamic_security(path, "m.conf:1")
        except ConfigError:
            return
        users_of(found, Report("a test"))
        (Path(name) / "rules.toml").write_text(rules_of(found, Report("a test")).text(["a test"]))
        Ruleset(read_rules(Path(name) / "rules.toml"))


@given(names=st.lists(st.text(min_size=1, max_size=4), min_size=3, max_size=3), topic=st.text(max_size=6))
def test_any_names_and_topics_become_rules_that_can_be_read(names: list[str], topic: str) -> None:
    user, role, group = names
    kinds = ("publishClientSend", "subscribeLiteral", "subscribePattern", "publishClientReceive")
    acls = [{"acltype": kind, "topic": topic, "allow": kind != "subscribePattern"} for kind in kinds]
    tree = {
        "clients": [
            {"username": user, "roles": [{"rolename": role}]},
            {"username": f"{user}2", "clientid": group},
            {"username": f"{user}3"},
        ],
        "groups": [{"groupname": group, "clients": [{"username": user}, {"username": f"{user}3"}]}],
        "roles": [{"rolename": role, "acls": acls}],
        "defaultACLAccess": {"publishClientSend": True},
    }
    with TemporaryDirectory() as name:
        permissions(Path(name), tree, user)
