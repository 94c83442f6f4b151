"""Enhanced authentication: sections 3.15 and 4.12 of MQTT 5.0, with SCRAM-SHA-256 (RFC 7677)."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from holdfast.identity.scram import ScramAuthenticator, new_verifier
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.conformance.expect import payloads, refused
from tests.doubles import Client, MemoryBroker

METHOD = "SCRAM-SHA-256"

USERS = {"user": new_verifier("pencil", 4096)}


def scram_broker() -> MemoryBroker:
    """Return a broker that knows the user ``user`` with the password ``pencil`` by SCRAM-SHA-256."""
    return MemoryBroker(enhanced_authenticator=ScramAuthenticator(lambda: USERS, b"a secret"))


class Scram:
    """The Client's side of one exchange."""

    def __init__(self, password: str = "pencil") -> None:
        self.password = password.encode()
        self.bare = b"n=user,r=clientnonce"

    def begin(self) -> Properties:
        return Properties(authentication_method=METHOD, authentication_data=b"n,," + self.bare)

    def go_on(self, challenge: p.Auth, method: str = METHOD) -> Properties:
        """Answer the Server's first message."""
        data = challenge.properties.authentication_data
        assert data is not None
        parts = dict(part.split(b"=", 1) for part in data.split(b","))
        salted = hashlib.pbkdf2_hmac("sha256", self.password, base64.b64decode(parts[b"s"]), int(parts[b"i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        last = b"c=biws,r=" + parts[b"r"]
        signed = b",".join((self.bare, data, last))
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        return Properties(authentication_method=method, authentication_data=last + b",p=" + base64.b64encode(proof))


def challenged(scram: Scram, broker: MemoryBroker | None = None) -> tuple[Client, p.Auth]:
    """Return a Client that has sent CONNECT, and the AUTH that it received."""
    client = Client(broker or scram_broker(), 5)
    client.send(p.Connect("c", 5, properties=scram.begin()))
    (challenge,) = client.packets()
    assert isinstance(challenge, p.Auth)
    return client, challenge


def admitted(broker: MemoryBroker | None = None) -> Client:
    """Return a Client that has authenticated."""
    scram = Scram()
    client, challenge = challenged(scram, broker)
    client.send(p.Auth(ReasonCode.CONTINUE_AUTHENTICATION, scram.go_on(challenge)))
    (connack,) = client.packets()
    assert isinstance(connack, p.Connack)
    assert connack.reason_code == 0
    client.connack = connack
    return client


def test_an_exchange_that_succeeds() -> None:
    """Both sides send AUTH 0x18, then comes CONNACK, all with the method of CONNECT.

    [MQTT5-4.12.0-2], [MQTT5-4.12.0-3], [MQTT5-4.12.0-5], [MQTT5-3.15.2-1].
    """
    scram = Scram()
    client, challenge = challenged(scram)
    assert challenge.reason_code == ReasonCode.CONTINUE_AUTHENTICATION
    assert challenge.properties.authentication_method == METHOD
    client.send(p.Auth(ReasonCode.CONTINUE_AUTHENTICATION, scram.go_on(challenge)))
    (connack,) = client.packets()
    assert isinstance(connack, p.Connack)
    assert connack.reason_code == 0
    assert connack.properties.authentication_method == METHOD
    client.send(p.Pingreq())
    assert client.packets() == [p.Pingresp()]


def test_auth_carries_nothing_that_might_not_fit() -> None:
    """It has neither a Reason String nor User Properties [MQTT5-3.15.2-2], [MQTT5-3.15.2-3]."""
    _, challenge = challenged(Scram())
    assert challenge.properties.reason_string is None
    assert challenge.properties.user_properties == ()


def test_a_wrong_password_is_refused() -> None:
    """The answer is CONNACK and a close [MQTT5-4.12.0-4]."""
    scram = Scram("wrong")
    client, challenge = challenged(scram)
    client.send(p.Auth(ReasonCode.CONTINUE_AUTHENTICATION, scram.go_on(challenge)))
    (connack,) = client.packets()
    assert isinstance(connack, p.Connack)
    assert connack.reason_code in (ReasonCode.NOT_AUTHORIZED, ReasonCode.BAD_USER_NAME_OR_PASSWORD)
    assert client.network.closed


@pytest.mark.parametrize("step", [ReasonCode.SUCCESS, ReasonCode.RE_AUTHENTICATE])
def test_a_client_goes_on_with_0x18(step: ReasonCode) -> None:
    """Another Reason Code in its AUTH ends the connection [MQTT5-4.12.0-3]."""
    scram = Scram()
    client, challenge = challenged(scram)
    client.send(p.Auth(step, scram.go_on(challenge)))
    refused(client, ReasonCode.PROTOCOL_ERROR)


def test_another_method_within_the_exchange_is_refused() -> None:
    """Only the method of CONNECT is allowed [MQTT5-4.12.0-5]."""
    scram = Scram()
    client, challenge = challenged(scram)
    client.send(p.Auth(ReasonCode.CONTINUE_AUTHENTICATION, scram.go_on(challenge, "SCRAM-SHA-1")))
    assert client.network.closed


@pytest.mark.parametrize(
    "early", [p.Publish("t", b"early"), p.Subscribe(1, (p.SubscriptionRequest("t"),)), p.Pingreq()]
)
def test_nothing_but_auth_and_disconnect_comes_before_connack(early: p.Packet) -> None:
    """A Client must send other packets after the authentication [MQTT5-3.1.2-30]."""
    broker = scram_broker()
    watcher = admitted(broker)
    watcher.subscribe("#")
    client = Client(broker, 5)
    client.send(p.Connect("d", 5, properties=Scram().begin()), early)
    assert client.network.closed
    assert client.got(p.Suback) == []
    assert payloads(watcher) == []


@pytest.mark.parametrize("broker", [MemoryBroker(), scram_broker()], ids=["none offered", "others offered"])
@pytest.mark.parametrize("method", ["SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "scram-sha-256", "GS2-KRB5", ""])
def test_an_unknown_method_is_refused(broker: MemoryBroker, method: str) -> None:
    """The answer is CONNACK 0x8C and a close [MQTT5-4.12.0-1]."""
    client = broker.client("c", 5, properties=Properties(authentication_method=method))
    assert client.connack is not None
    assert client.connack.reason_code == ReasonCode.BAD_AUTHENTICATION_METHOD
    assert client.network.closed


@pytest.mark.parametrize("step", [ReasonCode.SUCCESS, ReasonCode.CONTINUE_AUTHENTICATION, ReasonCode.RE_AUTHENTICATE])
def test_there_is_no_auth_without_a_method(step: ReasonCode) -> None:
    """The broker sends no AUTH, and no method in CONNACK. An AUTH of the Client is a Protocol Error.

    [MQTT5-4.12.0-6], [MQTT5-4.12.0-7].
    """
    client = MemoryBroker().client("c", 5, username="user", password=b"pencil")
    assert client.backlog == []
    assert client.connack is not None
    assert client.connack.properties.authentication_method is None
    client.send(p.Auth(step, Properties(authentication_method=METHOD)))
    refused(client, ReasonCode.PROTOCOL_ERROR)


def again(client: Client, scram: Scram, method: str = METHOD) -> None:
    """Authenticate once more on the same connection."""
    data = scram.begin().authentication_data
    client.send(p.Auth(ReasonCode.RE_AUTHENTICATE, Properties(authentication_method=method, authentication_data=data)))


def test_a_client_authenticates_again() -> None:
    """It can do so at any time, with its first method [MQTT5-4.12.1-1]."""
    client, scram = admitted(), Scram()
    again(client, scram)
    (challenge,) = client.packets()
    assert isinstance(challenge, p.Auth)
    client.send(p.Auth(ReasonCode.CONTINUE_AUTHENTICATION, scram.go_on(challenge)))
    (done,) = client.packets()
    assert isinstance(done, p.Auth)
    assert (done.reason_code, done.properties.authentication_method) == (ReasonCode.SUCCESS, METHOD)
    assert not client.network.closed


def test_another_method_ends_the_connection() -> None:
    """A re-authentication needs the same method [MQTT5-4.12.1-1]."""
    client = admitted()
    again(client, Scram(), "SCRAM-SHA-1")
    assert client.network.closed


def test_failing_to_authenticate_again_ends_the_connection() -> None:
    """DISCONNECT has the Reason Code [MQTT5-4.12.1-2]."""
    client, scram = admitted(), Scram("wrong")
    again(client, scram)
    (challenge,) = client.packets()
    assert isinstance(challenge, p.Auth)
    client.send(p.Auth(ReasonCode.CONTINUE_AUTHENTICATION, scram.go_on(challenge)))
    refused(client, ReasonCode.NOT_AUTHORIZED)
