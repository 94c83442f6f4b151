"""Users in the database: what a change means for memory, for other nodes and for those who are connected."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from holdfast.identity.accounts import AlreadyThere, Unknown
from holdfast.identity.authorizer import PresentAuthorizer
from holdfast.identity.following import COLLECTING_SECONDS, LOOK_INTERVAL, Following, Renewal
from holdfast.identity.hashes import HashParameters, new_hash
from holdfast.identity.interfaces import IGNORED, Accepted, Credentials, Denied, Verdict
from holdfast.identity.passwords import Logins, VerifiedCredentials
from holdfast.identity.users import Changes, DatabaseUsers
from holdfast.storage.location import StoreUnusable
from tests.identity.accounts.conftest import Node
from tests.identity.passwords.doubles import CHEAP, Hashing
from tests.storage.doubles import result_of

NONE: frozenset[str] = frozenset()
ALICE = frozenset({"alice"})


def groups(*names: str) -> frozenset[str]:
    return frozenset(names)


def test_a_user_is_added_changed_and_removed_and_a_restart_keeps_that(node: Node) -> None:
    result_of(node.users.add("alice", "hash one", groups("a", "b")))
    result_of(node.users.add("bob", "hash two", NONE))
    result_of(node.users.change("alice", None, groups("c")))
    result_of(node.users.change("bob", "hash three", None))
    again = node.restart()
    for each in (node, again):
        alice, bob = each.users.stored("alice"), each.users.stored("bob")
        assert alice is not None
        assert bob is not None
        assert (alice.password_hash, alice.groups) == ("hash one", groups("c"))
        assert (bob.password_hash, bob.groups) == ("hash three", NONE)
    result_of(again.users.remove("bob"))
    assert [name for name, _ in result_of(again.users.page("", 10))] == ["alice"]
    assert again.restart().users.stored("bob") is None


def test_those_who_must_log_in_again_and_whose_groups_change_are_told(node: Node) -> None:
    result_of(node.users.add("alice", "one", NONE))
    result_of(node.users.change("alice", "two", None))
    result_of(node.users.change("alice", None, groups("a")))
    result_of(node.users.remove("alice"))
    result_of(node.users.add("alice", "one", groups("a")))
    assert node.changes == [
        Changes(NONE, NONE), Changes(ALICE, NONE), Changes(ALICE, ALICE), Changes(ALICE, ALICE), Changes(NONE, ALICE),
    ]  # fmt: skip


def test_the_digest_of_groups_is_the_same_however_they_came_about(node: Node) -> None:
    """It changes with each change of groups, and with nothing else. A restart finds it again."""
    users = node.users
    nobody = users.groups_digest()
    result_of(users.add("alice", "one", groups("a", "b")))
    alice = users.groups_digest()
    result_of(users.add("bob", "two", NONE))
    result_of(users.change("alice", "three", None))
    assert users.groups_digest() == alice
    result_of(users.change("bob", None, groups("a", "b")))
    result_of(users.change("alice", None, NONE))
    bob = users.groups_digest()
    result_of(users.remove("bob"))
    assert users.groups_digest() == nobody
    assert len({nobody, alice, bob}) == 3
    result_of(users.change("alice", None, groups("b", "a")))
    assert users.groups_digest() == alice
    again = node.restart()
    assert again.users.groups_digest() == alice
    again.store.close()


def test_what_cannot_be_done_changes_nothing(node: Node) -> None:
    result_of(node.users.add("alice", "one", NONE))
    version = node.users.version
    with pytest.raises(AlreadyThere, match="alice already"):
        result_of(node.users.add("alice", "two", NONE))
    for refused in (node.users.remove("bob"), node.users.change("bob", "x", None), node.users.one("bob")):
        with pytest.raises(Unknown, match="no user bob"):
            result_of(refused)
    assert (node.users.version, len(node.changes)) == (version, 1)
    stored = node.users.stored("alice")
    assert stored is not None
    assert stored.password_hash == "one"


def test_pages_are_in_the_order_of_names(node: Node) -> None:
    for name in ("b", "a", "ä", "Z"):
        result_of(node.users.add(name, "x", NONE))
    first = [name for name, _ in result_of(node.users.page("", 3))]
    assert first == ["Z", "a", "b"]
    assert [name for name, _ in result_of(node.users.page("b", 3))] == ["ä"]


def test_another_node_learns_of_changes(node: Node) -> None:
    """Both databases can show it here, although only Postgres has several nodes."""
    for name in ("alice", "bob", "carol"):
        result_of(node.users.add(name, "one", groups(name)))
    other = Node(node.url, 2).open()
    result_of(node.users.remove("alice"))
    result_of(node.users.change("bob", "two", None))
    result_of(node.users.rehash("carol", "one", "better"))
    assert other.users.stored("alice") is not None
    result_of(other.users.refresh())
    assert other.users.stored("alice") is None
    assert other.users.groups_of("bob") == groups("bob")
    assert other.changes == [Changes(groups("alice", "bob"), ALICE)]  # a better hash disconnects nobody
    result_of(other.users.refresh())
    assert len(other.changes) == 1
    other.store.close()


def test_a_change_between_those_of_another_node_hides_none(node: Node) -> None:
    other = Node(node.url, 2).open()
    result_of(node.users.add("alice", "one", NONE))
    result_of(other.users.add("bob", "one", NONE))
    result_of(node.users.refresh())
    result_of(other.users.refresh())
    for each in (node, other):
        assert each.users.stored("alice") is not None
        assert each.users.stored("bob") is not None
    other.store.close()


def test_a_node_looks_for_changes_by_itself_in_a_shared_database(node: Node) -> None:
    other = Node(node.url, 2).open()
    following = Following(other.store, other.users, other.rules, other.clock)
    following.startService()
    result_of(node.users.add("alice", "one", NONE))
    result_of(node.rules.add({"action": ["publish"], "topics": ["a"], "allow": True}, None))
    other.clock.advance(LOOK_INTERVAL)
    assert (other.users.stored("alice") is not None) == other.store.shared
    assert (other.rules.version == 1) == other.store.shared
    following.stopService()
    assert not other.clock.getDelayedCalls()
    other.store.close()


def test_users_that_cannot_be_read_stop_the_start(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'holdfast.db'}"
    node = Node(url).open()
    result_of(node.users.add("alice", "one", NONE))
    node.store.close()
    with sqlite3.connect(tmp_path / "holdfast.db") as connection:
        connection.execute("UPDATE users SET groups_json = '{'")
    connection.close()
    with pytest.raises(StoreUnusable, match="of user 'alice'"):
        Node(url).open()


def test_groups_count_for_the_authorizer_and_it_is_told_of_their_changes(node: Node) -> None:
    renewal = Renewal(PresentAuthorizer(node.authorizer), node.clock)
    node.users.on_change(renewal.changed)
    rule = {"groups": ["sensors"], "action": ["publish", "retain"], "topics": ["plant/%u"], "allow": True}
    result_of(node.rules.add(rule, None))
    epochs = [node.authorizer.epoch]
    result_of(node.users.add("pump", "x", groups("sensors")))
    assert node.authorizer.epoch is epochs[0]  # users who are added are told together
    node.clock.advance(COLLECTING_SECONDS)
    epochs.append(node.authorizer.epoch)
    assert node.authorizer.may_keep("pump", "c", "plant/pump")
    result_of(node.users.change("pump", None, NONE))
    epochs.append(node.authorizer.epoch)
    assert not node.authorizer.may_keep("pump", "c", "plant/pump")
    assert len(set(epochs)) == 3


# --- logins


class Door:
    """The method of these users, without threads."""

    def __init__(self, node: Node, parameters: HashParameters = CHEAP) -> None:
        self.hashing = Hashing()
        threads: object = self.hashing
        logins = Logins("accounts", threads, VerifiedCredentials(), parameters)  # type: ignore[arg-type]
        self.method = DatabaseUsers(node.users, logins)

    def __call__(self, username: str | None, password: bytes | None) -> Verdict:
        verdict = self.method.judge(Credentials("c", username, password, "test", 5))
        return result_of(verdict) if isinstance(verdict, Deferred) else verdict


def test_a_login_gets_the_groups_and_costs_a_hash_once(node: Node) -> None:
    result_of(node.users.add("alice", new_hash(b"secret", CHEAP), groups("a")))
    door = Door(node)
    assert door("alice", b"secret") == door("alice", b"secret") == Accepted("alice", groups("a"))
    assert door.hashing.count == 1
    assert isinstance(door("alice", b"wrong"), Denied)
    assert door("bob", b"secret") is door(None, None) is door("alice", None) is IGNORED
    assert door.method.stored_like(3) is not None


def test_a_changed_password_and_a_removed_user_count_at_once(node: Node) -> None:
    result_of(node.users.add("alice", new_hash(b"old", CHEAP), NONE))
    door = Door(node)
    assert door("alice", b"old") == Accepted("alice")
    result_of(node.users.change("alice", new_hash(b"new", CHEAP), None))
    assert isinstance(door("alice", b"old"), Denied)
    assert door("alice", b"new") == Accepted("alice")
    result_of(node.users.remove("alice"))
    assert door("alice", b"new") is IGNORED
    assert door.method.stored_like(3) is None


def test_a_weaker_hash_is_replaced_at_login_and_nobody_is_disconnected(node: Node) -> None:
    weak = new_hash(b"secret", CHEAP)
    result_of(node.users.add("alice", weak, NONE))
    node.changes.clear()
    door = Door(node, HashParameters(16, 2))
    assert door("alice", b"secret") == Accepted("alice")
    stored = result_of(node.users.one("alice"))
    assert "m=16,t=2" in stored.password_hash
    assert node.users.stored("alice") == stored
    assert node.changes == []
    count = door.hashing.count
    assert door("alice", b"secret") == Accepted("alice")
    assert door.hashing.count == count
