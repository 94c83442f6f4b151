"""Failed logins of addresses and users, and the promise to everybody else."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from holdfast.identity.addresses import Peer, TrustedProxies
from holdfast.identity.bans import Bans, Exempt
from holdfast.identity.failed_logins import FailureLimits, Failures

LIMITS = FailureLimits()


def at(address: str, port: int = 5555) -> Peer:
    """Return a peer with this address."""
    return Peer(ip_address(address), port)


ATTACKER, BYSTANDER = at("192.0.2.66"), at("192.0.2.1")
PROXY = at("198.51.100.1")


class Logins:
    """Failures and bans with one fake clock."""

    def __init__(self, most: int = 50_000) -> None:
        self.clock = Clock()
        exempt = Exempt([TrustedProxies(["198.51.100.0/24", "unix"])])
        self.bans = Bans(now=self.clock.seconds, exempt=exempt, most=most)
        self.failures = Failures(
            LIMITS, seconds=self.clock.seconds, ban=self.bans.ban_peer, exempt=exempt, most=most
        )  # fmt: skip

    def fail(self, peer: Peer, username: str | None, times: int = 1) -> list[float]:
        """Fail so many times at once; return the delays."""
        return [self.failures.failed(peer, username) for _ in range(times)]


def test_failures_of_one_address_add_up_whatever_users_they_name() -> None:
    logins = Logins()
    found = [logins.failures.failed(ATTACKER, f"user {number}") for number in range(8)]
    assert found == [0, 0, 0, 0, 0, 1, 2, 4]


def test_the_twentieth_failure_bans_the_address_for_ten_minutes() -> None:
    logins = Logins()
    logins.fail(ATTACKER, "alice", 19)
    assert not logins.bans.has_peer(ATTACKER)
    assert logins.fail(ATTACKER, "alice") == [0]
    assert logins.bans.has_peer(at("192.0.2.66", 1))
    logins.clock.advance(LIMITS.ban - 1)
    assert logins.bans.has_peer(ATTACKER)
    logins.clock.advance(1)
    assert not logins.bans.has_peer(ATTACKER)
    assert logins.fail(ATTACKER, "alice", 6) == [0, 0, 0, 0, 0, 1]


def test_all_addresses_of_a_64_are_one() -> None:
    logins = Logins()
    for number in range(20):
        logins.fail(at(f"2001:db8::{number + 1:x}"), "alice")
    assert logins.bans.has_peer(at("2001:db8::ffff:1"))
    assert not logins.bans.has_peer(at("2001:db8:0:1::1"))


@pytest.mark.parametrize(
    "peer", [Peer(None), Peer(None, proxied=True), at("127.0.0.1"), at("::1"), PROXY,
             Peer(ip_address("127.0.0.9"), 1, proxied=True)],
)  # fmt: skip
def test_peers_that_stand_for_many_are_never_banned_and_delay_only_one_user(peer: Peer) -> None:
    logins = Logins()
    assert logins.fail(peer, "alice", 100)[-1] == LIMITS.longest
    assert not logins.bans.has_peer(peer)
    assert logins.fail(peer, "bob") == [0]


def test_a_user_who_mistypes_owes_nothing_after_the_right_password() -> None:
    logins = Logins()
    for _ in range(10):
        assert set(logins.fail(BYSTANDER, "alice", 4)) == {0}
        logins.failures.succeeded(BYSTANDER, "alice")
    assert len(logins.failures) == 0


def test_ones_own_account_does_not_pay_for_guesses_at_others() -> None:
    logins = Logins()
    for _ in range(19):
        logins.fail(ATTACKER, "alice")
        logins.failures.succeeded(ATTACKER, "mallory")
    logins.fail(ATTACKER, "alice")
    assert logins.bans.has_peer(ATTACKER)


def test_a_ban_answers_the_refusals_that_wait() -> None:
    logins = Logins()
    answered: list[str] = []
    waiting = logins.failures.waiting
    waiting.enter(ATTACKER.group, lambda: answered.append("attacker"))
    waiting.enter(BYSTANDER.group, lambda: answered.append("bystander"))
    logins.fail(ATTACKER, "alice", 20)
    assert answered == ["attacker"]


def test_a_whole_32_of_ipv6_does_not_grow_the_tables() -> None:
    logins = Logins(most=200)
    for number in range(2000):
        peer = Peer(ip_address((0x20010DB8 << 96) + (number << 64) + 1), 5)
        logins.fail(peer, "x" * 1000, 20 if number % 2 else 1)
    assert len(logins.failures) <= 400
    assert len(logins.bans) <= 200


ATTACKERS = st.sampled_from([ATTACKER, at("192.0.2.67"), at("2001:db8::1"), at("127.0.0.1"), PROXY])
USERS = st.sampled_from(["alice", "bob", None])


@given(attacks=st.lists(st.tuples(ATTACKERS, USERS, st.booleans(), st.floats(0, 100)), max_size=120))
def test_whatever_attackers_do_bystanders_are_neither_delayed_nor_banned(
    attacks: list[tuple[Peer, str | None, bool, float]],
) -> None:
    """A bystander is at another address. It may mistype now and then."""
    logins = Logins(most=16)  # even if the tables overflow
    for peer, username, right, pause in attacks:
        if right:
            logins.failures.succeeded(peer, "mallory")
        else:
            logins.failures.failed(peer, username)
        logins.clock.advance(pause)
        assert not logins.bans.has_peer(BYSTANDER)
        assert logins.failures.failed(BYSTANDER, "alice") == 0
        logins.failures.succeeded(BYSTANDER, "alice")


@given(attempts=st.lists(st.tuples(USERS, st.floats(0, 200)), min_size=1, max_size=200))
def test_of_one_address_at_most_twenty_guesses_are_verified_in_a_window(
    attempts: list[tuple[str | None, float]],
) -> None:
    """The window begins with a failure."""
    logins = Logins()
    began, verified = 0.0, 0
    for username, pause in attempts:
        logins.clock.advance(pause)
        now = logins.clock.seconds()
        if logins.bans.has_peer(ATTACKER):
            continue
        if verified == LIMITS.most or now - began >= LIMITS.window:
            began, verified = now, 0
        logins.failures.failed(ATTACKER, username)
        verified += 1
        assert verified < LIMITS.most or logins.bans.has_peer(ATTACKER)
