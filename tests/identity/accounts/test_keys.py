"""API keys in the database: found by their secrets, revoked at once, followed from other nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.identity.accounts import AlreadyThere, BadValue, Unknown
from holdfast.identity.api_keys import MOST_KEYS, Keys, StoredKey
from holdfast.storage.driver import Connection
from tests.identity.accounts.conftest import NOW, Node
from tests.storage.doubles import result_of


class Desk:
    """The keys of a node, whose clock can be moved."""

    def __init__(self, url: str, number: int = 1, kept: bool = True) -> None:
        self.now = NOW
        self.node = Node(url, number)
        self.keys = Keys(self.node.store, now=lambda: self.now, kept=kept)
        self.node.open()

    def add(self, name: str, expires_at: int | None = None) -> tuple[StoredKey, str]:
        made: tuple[StoredKey, str] = result_of(self.keys.add(name, frozenset({"read"}), expires_at, "root"))
        return made


@pytest.fixture
def desk(url: str) -> Iterator[Desk]:
    made = Desk(url)
    yield made
    result_of(made.node.store.close())


def test_a_key_is_proven_by_its_secret_only(desk: Desk) -> None:
    key, secret = desk.add("grafana")
    assert desk.keys.found(key.key, secret) == key
    assert (key.scopes, key.created_by, key.created_at) == (frozenset({"read"}), "root", NOW)
    other, _ = desk.add("other")
    for name, text in ((key.key, secret + "x"), (key.key, ""), (other.key, secret), ("grafana", secret), ("", "")):
        assert desk.keys.found(name, text) is None


def test_neither_key_nor_secret_can_be_guessed_or_read_from_the_database(desk: Desk) -> None:
    (one, first), (two, second) = desk.add("a"), desk.add("b")
    assert len({one.key, two.key, first, second}) == 4
    assert len(first) >= 43  # 256 bits
    assert not set(":.") & set(one.key + first)  # what separates both in a header
    assert first not in repr(result_of(desk.keys.all()))


def test_a_revoked_key_counts_no_more(desk: Desk) -> None:
    key, secret = desk.add("grafana")
    result_of(desk.keys.remove("grafana"))
    assert desk.keys.found(key.key, secret) is None
    with pytest.raises(Unknown):
        result_of(desk.keys.remove("grafana"))
    assert result_of(desk.keys.all()) == []


def test_a_key_ends_at_its_time(desk: Desk) -> None:
    key, secret = desk.add("week", expires_at=NOW + 1000)
    assert desk.keys.found(key.key, secret) == key
    desk.now += 1000
    assert desk.keys.found(key.key, secret) is None


def test_a_name_is_used_once(desk: Desk) -> None:
    desk.add("grafana")
    with pytest.raises(AlreadyThere):
        result_of(desk.keys.add("grafana", frozenset({"admin"}), None, ""))
    assert [key.scopes for key in result_of(desk.keys.all())] == [{"read"}]


def test_keys_are_limited_in_number(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_KEYS == 1000
    monkeypatch.setattr("holdfast.identity.api_keys.MOST_KEYS", 2)
    desk.add("a")
    desk.add("b")
    with pytest.raises(BadValue):
        result_of(desk.keys.add("c", frozenset({"read"}), None, ""))


def test_keys_survive_a_restart_and_are_followed_from_another_node(desk: Desk) -> None:
    key, secret = desk.add("grafana")
    other = Desk(desk.node.url, 2)
    assert other.keys.found(key.key, secret) == key
    late, late_secret = desk.add("late")
    assert other.keys.found(late.key, late_secret) is None
    result_of(other.keys.refresh())
    assert other.keys.found(late.key, late_secret) == late
    result_of(desk.keys.remove("grafana"))
    result_of(other.keys.refresh())
    assert other.keys.found(key.key, secret) is None
    result_of(other.node.store.close())


def test_a_row_of_somebody_else_admits_nobody_and_stops_no_start(desk: Desk, tmp_path: Path) -> None:
    def spoil(connection: Connection) -> None:
        connection.cursor().execute("UPDATE api_keys SET scopes_json = ?", ("{",))

    key, secret = desk.add("grafana")
    assert desk.node.store.parts is not None
    result_of(desk.node.store.parts.writer.run(spoil))
    other = Desk(desk.node.url, 2)
    assert other.keys.found(key.key, secret) is None
    result_of(other.node.store.close())


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_text_is_a_key(key: str, secret: str) -> None:
    """Not even of characters that UTF-8 does not have."""
    assert Keys.found(_EMPTY, key, secret) is None


class _Empty(Keys):
    def __init__(self) -> None:
        self._keys = {}


_EMPTY = _Empty()
