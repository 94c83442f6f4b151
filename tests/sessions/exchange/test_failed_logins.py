"""Failed logins of Clients: counted, answered later, and at last not at all. Right credentials never wait."""

from __future__ import annotations

import gc
import weakref
from ipaddress import ip_address

import pytest
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.identity.addresses import Peer
from holdfast.identity.bans import Bans, Exempt, ban_of
from holdfast.identity.failed_logins import MOST_FOR_ADDRESS, FailureLimits, Failures
from holdfast.identity.interfaces import Answer, Credentials, Denied, IAuthenticator, Principal
from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.doubles import START, Client, MemoryBroker

LIMITS = FailureLimits()
ATTACKER, BYSTANDER = Peer(ip_address("192.0.2.66"), 5555), Peer(ip_address("192.0.2.1"), 5555)


@implementer(IAuthenticator)
class Passwords:
    """Knows the password of all users. While it is ``slow``, its answers wait."""

    def __init__(self) -> None:
        self.slow = False
        self.busy = False
        self.asked = 0
        self.waiting: list[tuple[Deferred[Answer], Answer]] = []

    def authenticate(self, credentials: Credentials) -> Answer | Deferred[Answer]:
        self.asked += 1
        answer: Answer = Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "a wrong password")
        if credentials.password == b"right":
            answer = Principal(credentials.client_id, credentials.username)
        elif credentials.password == b"expired":
            answer = Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "the token has expired", counts=False)
        if self.busy:
            answer = Denied(ReasonCode.SERVER_BUSY, "too many")
        if not self.slow:
            return answer
        later: Deferred[Answer] = Deferred()
        self.waiting.append((later, answer))
        return later

    def catch_up(self) -> None:
        """Give all answers that wait, in their order."""
        waiting, self.waiting = self.waiting, []
        for later, answer in waiting:
            later.callback(answer)


class Guarded(MemoryBroker):
    """A broker that counts failures."""

    def __init__(self) -> None:
        self.passwords = Passwords()
        exempt = Exempt()

        def seconds() -> float:  # the clock is made later
            return self.clock.seconds()

        self.bans = Bans(now=seconds, exempt=exempt)
        self.failures = Failures(LIMITS, seconds=seconds, ban=self.bans.ban_peer, exempt=exempt)
        super().__init__(authenticator=self.passwords, failures=self.failures, bans=self.bans)

    def login(self, password: bytes, peer: Peer = ATTACKER, username: str = "alice", version: int = 5) -> Client:
        """Return a Client that has sent CONNECT."""
        client = Client(self, version)
        client.network.peer = peer
        client.send(p.Connect(f"c{self.passwords.asked}", version, True, 0, username, password))
        return client


@pytest.fixture
def broker() -> Guarded:
    return Guarded()


def code(client: Client) -> int | None:
    """Return the code of the CONNACK that has come, None without one."""
    packets = client.got(p.Connack)
    return int(packets[0].reason_code) if packets else None


@pytest.mark.parametrize(("version", "told"), [(4, 4), (5, 0x86)])
def test_after_five_failures_the_answers_wait_for_longer_and_longer(broker: Guarded, version: int, told: int) -> None:
    for _ in range(5):
        assert code(broker.login(b"wrong", version=version)) == told
    for seconds in (1, 2, 4, 8, 16, 32, 60, 60):  # beyond the 15 seconds that an admission may take
        client = broker.login(b"wrong", version=version)
        broker.advance(seconds - 0.01)
        assert code(client) is None
        assert not client.network.closed
        broker.advance(0.01)
        assert (code(client), client.network.closed) == (told, True)
    assert (broker.counters.logins_failed, broker.counters.logins_delayed) == (13, 8)
    assert len(broker.failures.waiting) == 0


@pytest.mark.parametrize(("version", "told"), [(4, 4), (5, 0x86)])
def test_real_credentials_that_have_expired_are_no_failed_logins(broker: Guarded, version: int, told: int) -> None:
    """They are refused like wrong ones, at once each time, and ban nobody. They excuse no failure either."""
    for _ in range(30):
        assert code(broker.login(b"expired", version=version)) == told
    assert (broker.counters.logins_failed, broker.counters.logins_delayed) == (0, 0)
    for _ in range(19):
        broker.login(b"wrong", version=version)
        broker.login(b"expired", version=version)
    assert code(broker.login(b"right", version=version, username="bob")) == 0
    broker.login(b"wrong", version=version)
    assert broker.bans.has_peer(ATTACKER)


def test_right_credentials_never_wait_whoever_fails_at_the_same_address_as_the_same_user(broker: Guarded) -> None:
    for _ in range(19):
        broker.login(b"wrong")
        right = broker.login(b"right", username="bob")
        assert code(right) == 0
    assert code(broker.login(b"right")) == 0


def test_the_twentieth_failure_ends_all_connections_that_wait_and_nothing_more_is_verified(broker: Guarded) -> None:
    waiting = [broker.login(b"wrong") for _ in range(19)]
    admitted = broker.login(b"right", username="bob")
    assert code(broker.login(b"wrong")) == 0x86
    assert all(client.network.closed for client in waiting)
    asked = broker.passwords.asked
    late = broker.login(b"right")  # a connection from before the ban
    assert (code(late), late.network.closed) == (None, True)
    assert broker.passwords.asked == asked
    assert not admitted.network.closed
    assert broker.counters.addresses_banned == broker.counters.connections_of_banned_addresses == 1
    assert code(broker.login(b"right", BYSTANDER)) == 0


def test_guesses_that_are_verified_at_the_same_time_are_worth_no_more(broker: Guarded) -> None:
    """The twenty-first of them is right, and gets no answer."""
    broker.passwords.slow = True
    guesses = [broker.login(b"wrong") for _ in range(20)]
    right = broker.login(b"right")
    broker.passwords.catch_up()
    broker.settle()
    assert all(client.network.closed for client in guesses)
    assert (code(right), right.network.closed) == (None, True)
    assert broker.counters.addresses_banned == 1


def test_busy_is_no_failure(broker: Guarded) -> None:
    broker.passwords.busy = True
    for _ in range(100):
        assert code(broker.login(b"wrong")) == 0x89
    assert len(broker.failures) == 0


def test_few_of_one_address_wait_and_the_others_are_answered_at_once(broker: Guarded) -> None:
    """At a loopback address, which is never banned."""
    local = Peer(ip_address("127.0.0.1"), 5555)
    clients = [broker.login(b"wrong", local) for _ in range(5 + MOST_FOR_ADDRESS + 10)]
    assert [client.network.closed for client in clients].count(False) == MOST_FOR_ADDRESS
    assert len(broker.failures.waiting) == MOST_FOR_ADDRESS
    assert code(broker.login(b"right", local)) == 0


def test_a_client_that_goes_leaves_its_place(broker: Guarded) -> None:
    clients = [broker.login(b"wrong") for _ in range(8)]
    assert len(broker.failures.waiting) == 3
    for client in clients[5:]:
        client.drop()
    assert len(broker.failures.waiting) == 0


def test_packets_that_come_meanwhile_do_not_bring_the_answer_forward(broker: Guarded) -> None:
    client = [broker.login(b"wrong") for _ in range(6)][-1]
    client.send(p.Pingreq(), p.Connect("again", 5))
    assert (code(client), client.network.closed) == (None, False)
    broker.advance(1)
    assert code(client) == 0x86


def test_a_banned_user_is_told_so_only_after_the_right_password(broker: Guarded) -> None:
    broker.bans.add(ban_of("username", "alice", by="", reason="", at=0, until=START + 10))
    assert code(broker.login(b"wrong")) == 0x86
    assert code(broker.login(b"right")) == ReasonCode.BANNED
    assert code(broker.login(b"right", username="bob")) == 0
    broker.advance(10)
    assert code(broker.login(b"right")) == 0


@pytest.mark.parametrize(("version", "told"), [(4, 5), (5, 0x8A)])
def test_a_banned_client_identifier_is_refused_before_its_password_is_verified(
    broker: Guarded, version: int, told: int
) -> None:
    broker.bans.add(ban_of("clientid", "c0", by="", reason="", at=0, until=None))
    assert code(broker.login(b"right", version=version)) == told
    assert broker.passwords.asked == 0


@pytest.mark.parametrize("end", ["it goes", "it is answered"])
def test_a_client_that_has_waited_is_freed_at_once(broker: Guarded, end: str) -> None:
    client = [broker.login(b"wrong") for _ in range(6)][-1]
    gone = weakref.ref(client.connection)
    gc.disable()
    try:
        if end == "it goes":
            client.drop()
        else:
            broker.advance(1)
            client.connection.lost()
        del client
        assert gone() is None
    finally:
        gc.enable()
