"""Clients whose identity has ended are disconnected: in parts, with their Wills, and none slips through."""

from __future__ import annotations

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent
from zope.interface import implementer

from holdfast.identity.interfaces import (
    Answer,
    Authenticated,
    AuthenticationStep,
    Credentials,
    IAuthenticationExchange,
    IAuthenticator,
    IEnhancedAuthenticator,
    Principal,
)
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import START, Client, MemoryBroker

WILL = p.Will("wills/a", b"gone")


@implementer(IAuthenticator, IEnhancedAuthenticator, IAuthenticationExchange)
class Identities:
    """Believes every User Name, whose identity ends at ``ends`` [seconds since the epoch], at once or when asked to."""

    username: str | None = None
    explanation = ""

    def __init__(self, ends: float | None = None) -> None:
        self.ends = ends
        self.waits = False
        self.asked: list[Deferred[Answer]] = []
        self.principal = Principal("", None)

    def authenticate(self, credentials: Credentials) -> Principal | Deferred[Answer]:
        self.principal = Principal(credentials.client_id, credentials.username, expires_at=self.ends)
        if not self.waits:
            return self.principal
        self.asked.append(Deferred())
        return self.asked[-1]

    def begin(self, method: str, credentials: Credentials) -> Identities:
        self.principal = Principal(credentials.client_id, credentials.username)
        return self

    def step(self, data: bytes | None) -> AuthenticationStep:
        return Authenticated(attrs.evolve(self.principal, expires_at=self.ends))


@pytest.fixture
def identities() -> Identities:
    return Identities()


@pytest.fixture
def broker(identities: Identities) -> MemoryBroker:
    return MemoryBroker(authenticator=identities, enhanced_authenticator=identities)


def dismiss(broker: MemoryBroker, user: str, reason: ReasonCode = ReasonCode.ADMINISTRATIVE_ACTION) -> int:
    """Dismiss the clients of a user, and return how many there were."""
    found: list[int] = []
    broker.registry.dismissals.dismiss(lambda each: each.username == user, reason, "removed").addCallback(found.append)
    broker.settle()
    (count,) = found
    return count


def test_the_clients_of_a_user_are_disconnected_and_no_others(broker: MemoryBroker) -> None:
    mine = [broker.client(f"a{number}", 5, username="alice") for number in range(3)]
    other = broker.client("b", 5, username="bob")
    assert dismiss(broker, "alice") == 3
    for client in mine:
        assert client.packets() == [p.Disconnect(0x98, Properties(reason_string="removed"))]
        assert client.network.closed
    other.send(p.Pingreq())
    assert other.packets() == [p.Pingresp()]


def test_the_will_is_published(broker: MemoryBroker) -> None:
    """The Client has not sent DISCONNECT [MQTT5-3.1.2-8], [MQTT311-3.1.2-8]."""
    watcher = broker.client("w", 5)
    watcher.subscribe("wills/#")
    for version in (4, 5):
        broker.client("a", version, username="alice", will=WILL)
        assert dismiss(broker, "alice") == 1
        assert [topic for topic, *_ in watcher.messages()] == ["wills/a"]


def test_a_client_of_mqtt_3_is_only_closed(broker: MemoryBroker) -> None:
    client = broker.client("a", 4, username="alice")
    dismiss(broker, "alice")
    assert (client.packets(), client.network.closed) == ([], True)


def test_the_session_stays(broker: MemoryBroker) -> None:
    """It belongs to the user: nobody else resumes it. It expires as any other."""
    broker.client("a", 5, username="alice", properties=Properties(session_expiry_interval=100))
    dismiss(broker, "alice")
    assert broker.registry.session_count == 1
    broker.advance(101)
    assert broker.registry.session_count == 0


def test_many_clients_are_dismissed_in_portions(broker: MemoryBroker) -> None:
    clients = [broker.client(f"a{number}", 5, username="alice") for number in range(100)]
    found: list[int] = []
    dismissals = broker.registry.dismissals
    dismissals.dismiss(lambda _: True, ReasonCode.NOT_AUTHORIZED, "removed").addCallback(found.append)
    at_once = sum(client.network.closed for client in clients)
    assert 0 < at_once <= 25
    before = at_once
    while not found:
        broker.clock.turn()
        now = sum(client.network.closed for client in clients)
        assert now - before <= 25
        before = now
    assert found == [100]


def test_a_client_for_which_the_question_fails_is_disconnected(
    broker: MemoryBroker, logged_failures: list[LogEvent]
) -> None:
    """Fail closed; and the others are dismissed as usual."""
    broken, fine = broker.client("a", 5, username="broken"), broker.client("b", 5, username="alice")

    def matching(principal: Principal) -> bool:
        if principal.username == "broken":
            raise ValueError("no answer")
        return principal.username == "alice"

    broker.registry.dismissals.dismiss(matching, ReasonCode.NOT_AUTHORIZED, "removed")
    broker.settle()
    assert broken.network.closed
    assert fine.network.closed
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_a_client_that_is_being_admitted_meanwhile_is_refused(broker: MemoryBroker, identities: Identities) -> None:
    """Its password may have been verified against the user that is removed now."""
    identities.waits = True
    clients = []
    for version, user in ((5, "alice"), (4, "alice"), (5, "bob")):
        client = Client(broker, version)
        client.send(p.Connect("c" + user + str(version), version, username=user))
        clients.append((client, identities.principal))
    assert dismiss(broker, "alice") == 0
    for asked, (_, principal) in zip(identities.asked, clients, strict=True):
        asked.callback(principal)
    broker.settle()
    codes = [packet.reason_code for client, _ in clients for packet in client.got(p.Connack)]
    assert codes == [ReasonCode.NOT_AUTHORIZED, 5, 0]
    identities.waits = False
    again = broker.client("a", 5, username="alice").connack
    assert again is not None
    assert again.reason_code == 0


def test_an_admission_that_outlasts_the_memory_of_dismissals_tries_again(
    broker: MemoryBroker, identities: Identities
) -> None:
    identities.waits = True
    client = Client(broker, 5)
    client.send(p.Connect("a", 5, username="alice"))
    for _ in range(100):
        dismiss(broker, "bob")
    identities.asked[0].callback(identities.principal)
    broker.settle()
    (connack,) = client.got(p.Connack)
    assert connack.reason_code == ReasonCode.SERVER_BUSY


def test_an_identity_that_expires_ends_the_connection(broker: MemoryBroker, identities: Identities) -> None:
    watcher = broker.client("w", 5)
    watcher.subscribe("wills/#")
    identities.ends = START + 60
    client = broker.client("a", 5, username="alice", will=WILL)
    broker.advance(59)
    assert not client.network.closed
    broker.advance(1.1)
    assert [packet.reason_code for packet in client.got(p.Disconnect)] == [ReasonCode.NOT_AUTHORIZED]
    assert len(watcher.messages()) == 1


def test_an_identity_that_has_expired_already_is_refused(broker: MemoryBroker, identities: Identities) -> None:
    identities.ends = START - 1
    client = Client(broker, 5)
    client.send(p.Connect("a", 5, username="alice"))
    assert [packet.reason_code for packet in client.got(p.Connack)] == [ReasonCode.NOT_AUTHORIZED]
    assert (broker.registry.connection_count, broker.registry.session_count) == (0, 0)


def test_the_time_of_a_connection_that_is_over_counts_no_more(broker: MemoryBroker, identities: Identities) -> None:
    identities.ends = START + 60
    broker.client("a", 5, username="alice").drop()
    identities.ends = None
    client = broker.client("a", 5, username="alice")
    broker.advance(1000)
    assert not client.network.closed


def test_a_take_over_brings_its_own_time(broker: MemoryBroker, identities: Identities) -> None:
    identities.ends = START + 60
    broker.client("a", 5, username="alice")
    identities.ends = START + 120
    client = broker.client("a", 5, username="alice")
    broker.advance(100)
    assert not client.network.closed
    broker.advance(21)
    assert client.network.closed


@pytest.mark.parametrize(
    ("renewed", "closed_at"), [(START + 120.0, 120), (None, None), (START + 30.0, 30), (START - 5.0, 1)]
)
def test_a_re_authentication_moves_the_time(
    broker: MemoryBroker, identities: Identities, renewed: float | None, closed_at: int | None
) -> None:
    method = Properties(authentication_method="M")
    identities.ends = START + 60
    client = broker.client("a", 5, username="alice", properties=method)
    identities.ends = renewed
    client.send(p.Auth(ReasonCode.RE_AUTHENTICATE, method))
    assert client.got(p.Auth)
    closed = None
    for second in range(1, 200):
        broker.advance(1)
        if client.network.closed:
            closed = second
            break
    assert closed == closed_at


def test_clients_whose_identities_have_no_end_have_no_timer(broker: MemoryBroker, identities: Identities) -> None:
    before = len(broker.clock.getDelayedCalls())
    for number in range(10):
        broker.client(f"a{number}", 5)
    assert len(broker.clock.getDelayedCalls()) == before
    identities.ends = START + 1000.0
    for number in range(10):
        broker.client(f"b{number}", 5)
    assert len(broker.clock.getDelayedCalls()) == before + 1  # one for all ends of identities
