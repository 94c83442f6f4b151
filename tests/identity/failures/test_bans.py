"""Bans by address, network, user and Client Identifier, and their file."""

from __future__ import annotations

import json
import os
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from holdfast.config.toml import ConfigError
from holdfast.identity import bans as module
from holdfast.identity.addresses import Peer, TrustedProxies
from holdfast.identity.bans import (
    FILE_NAME,
    BadBan,
    Ban,
    Bans,
    Exempt,
    Kind,
    ban_from,
    ban_of,
    fields_of,
    load_bans,
    store_bans,
    subject_of,
)


def at(address: str) -> Peer:
    """Return a peer with this address."""
    return Peer(ip_address(address), 5555)


def ban(who: str, kind: str = "peerhost_net", until: int | None = None) -> Ban:
    """Return a ban."""
    return ban_of(kind, who, by="root", reason="noise", at=0, until=until)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bans(clock: Clock) -> Bans:
    return Bans(now=clock.seconds, exempt=Exempt([TrustedProxies(["198.51.100.1"])]))


@pytest.mark.parametrize(
    ("who", "banned", "free"),
    [
        ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
        ("192.0.2.0/25", "192.0.2.127", "192.0.2.128"),
        ("0.0.0.0/0", "203.0.113.1", "2001:db8::1"),
        ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
        ("2001:db8::1", "2001:db8::1", "2001:db8::2"),
        ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.8"),
    ],
)
def test_a_ban_of_an_address_or_network_concerns_only_it(bans: Bans, who: str, banned: str, free: str) -> None:
    bans.add(ban(who))
    assert bans.has_peer(at(banned))
    assert not bans.has_peer(at(free))
    assert not bans.has_user("192.0.2.7")
    assert bans.remove(*subject_of("peerhost_net", who)) is not None
    assert not bans.has_peer(at(banned))
    assert len(bans) == 0


def test_not_even_a_ban_of_everybody_concerns_peers_that_stand_for_many(bans: Bans) -> None:
    for who in ("0.0.0.0/0", "::/0"):
        bans.add(ban(who))
    for peer in (at("127.0.0.1"), at("::1"), at("198.51.100.1"), Peer(None)):
        assert not bans.has_peer(peer)


@pytest.mark.parametrize("who", ["127.0.0.1", "::1", "198.51.100.1"])
def test_such_an_address_is_refused(bans: Bans, who: str) -> None:
    with pytest.raises(BadBan, match="never banned"):
        bans.add(ban(who))


def test_a_ban_ends_by_itself(bans: Bans, clock: Clock) -> None:
    for kind, who in (("peerhost", "192.0.2.7"), ("username", "bob"), ("clientid", "pump")):
        bans.add(ban(who, kind, until=10))
    assert (bans.has_peer(at("192.0.2.7")), bans.has_user("bob"), bans.has_client("pump")) == (True, True, True)
    clock.advance(10)
    assert (bans.has_peer(at("192.0.2.7")), bans.has_user("bob"), bans.has_client("pump")) == (False, False, False)
    assert list(bans) == bans.kept == []
    with pytest.raises(BadBan, match="ended already"):
        bans.add(ban("192.0.2.7", until=10))


def test_an_automatic_ban_does_not_hide_an_operators_ban(bans: Bans, clock: Clock) -> None:
    bans.add(ban("192.0.2.0/24"))
    bans.ban_peer(at("192.0.2.7"), 10, "20 failed logins")
    clock.advance(10)
    assert bans.has_peer(at("192.0.2.7"))


def test_an_operator_can_lift_an_automatic_ban(bans: Bans) -> None:
    bans.ban_peer(at("2001:db8::7"), 10, "20 failed logins")
    (listed,) = bans
    assert (listed.who, listed.kind, listed.by) == ("2001:db8::/64", Kind.NETWORK, "holdfast")
    assert bans.remove(*subject_of("peerhost_net", "2001:db8::/64")) == listed
    assert not bans.has_peer(at("2001:db8::7"))
    assert bans.remove(*subject_of("peerhost_net", "2001:db8::/64")) is None


def test_operators_bans_are_bounded(bans: Bans, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BANS", 3)
    for number in range(3):
        bans.add(ban(f"192.0.2.{number}", until=10 + number))
    with pytest.raises(BadBan, match="3 bans already"):
        bans.add(ban("192.0.2.9"))
    bans.add(ban("192.0.2.1", until=100))  # in place of the other
    clock.advance(10)
    bans.add(ban("192.0.2.9"))
    assert [one.who for one in bans] == ["192.0.2.1", "192.0.2.2", "192.0.2.9"]


@pytest.mark.parametrize(
    ("kind", "who"),
    [("peerhost", "192.0.2.0/24"), ("peerhost", "x"), ("peerhost_net", "192.0.2.1/24"), ("peerhost", "fe80::1%eth0"),
     ("host", "192.0.2.1"), ("username", ""), ("clientid", "x" * 1025)],
)  # fmt: skip
def test_what_cannot_be_banned_is_refused(kind: str, who: str) -> None:
    with pytest.raises(BadBan):
        subject_of(kind, who)


NAMES = st.text(min_size=1, max_size=20)
BANS = st.one_of(
    st.builds(lambda who, until: ban(who, "username", until), NAMES, st.none() | st.integers(0, 2**40)),
    st.builds(lambda ip: ban(str(ip), "peerhost"), st.ip_addresses().filter(lambda ip: "%" not in str(ip))),
)


@given(kept=st.lists(BANS, max_size=5))
def test_the_file_gives_back_what_it_was_given(kept: list[Ban], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    store_bans(folder, kept)
    assert load_bans(folder) == kept
    assert (folder / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_without_a_file_nobody_is_banned(tmp_path: Path) -> None:
    assert load_bans(tmp_path) == []


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"as": "username"}', '{"as": "peerhost", "who": "x"}', '{"as": "username", "who": 1}',
             '{"as": "username", "who": "x", "until": true}', '{"as": "username", "who": "x", "at": 1.5}', "\udcff"],
)  # fmt: skip
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    good = json.dumps(fields_of(ban("192.0.2.7")))
    (tmp_path / FILE_NAME).write_bytes(f"{good}\n{line}\n".encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=f"{FILE_NAME}:2: is not a ban: "):
        load_bans(tmp_path)


def test_an_unreadable_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_bans(tmp_path)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_bans(tmp_path, [ban("192.0.2.7")])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        store_bans(tmp_path, [])
    assert load_bans(tmp_path) == [ban("192.0.2.7")]
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_ban_in_the_file_may_lack_what_only_explains_it() -> None:
    assert ban_from({"as": "username", "who": "bob"}) == Ban(kind=Kind.USERNAME, who="bob")
