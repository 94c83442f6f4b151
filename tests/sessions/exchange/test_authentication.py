"""Enhanced authentication with a method that the test controls: it answers at once or later, in any number of steps."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent
from zope.interface import implementer

from holdfast.identity.interfaces import (
    Authenticated,
    AuthenticationStep,
    Challenge,
    Credentials,
    IAuthenticationExchange,
    IEnhancedAuthenticator,
    Principal,
)
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode
from holdfast.wire import packets as p
from tests.conformance.expect import Door, Forbidding, payloads, refused
from tests.doubles import PEER, Client, MemoryBroker

CONTINUE = ReasonCode.CONTINUE_AUTHENTICATION
AGAIN = ReasonCode.RE_AUTHENTICATE


@implementer(IAuthenticationExchange)
class Exchange:
    """Gives each step the next prepared answer. If there is none, the test answers later."""

    username: str | None = None
    explanation = "a riddle was not solved"

    def __init__(self, method: Method) -> None:
        self._method = method

    def step(self, data: bytes | None) -> AuthenticationStep | Deferred[AuthenticationStep]:
        self._method.heard.append(data)
        if self._method.answers:
            return self._method.answers.pop(0)
        self._method.asked.append(Deferred())
        return self._method.asked[-1]


@implementer(IEnhancedAuthenticator)
class Method:
    """Offers the Authentication Method ``riddle``. ``answers`` are the prepared answers, in order."""

    def __init__(self, *answers: AuthenticationStep) -> None:
        self.answers = list(answers)
        self.heard: list[bytes | None] = []
        self.asked: list[Deferred[AuthenticationStep]] = []
        self.shown: list[Credentials] = []

    def begin(self, method: str, credentials: Credentials) -> Exchange | None:
        self.shown.append(credentials)
        return Exchange(self) if method == "riddle" else None


def riddle(data: bytes | None = None, **more: object) -> Properties:
    return Properties(authentication_method="riddle", authentication_data=data, **more)  # type: ignore[arg-type]


def auth(reason: ReasonCode, data: bytes | None = None) -> p.Auth:
    return p.Auth(reason, riddle(data))


def passed(data: bytes | None = None, username: str = "alice") -> Authenticated:
    return Authenticated(Principal("c", username), data)


def begun(method: Method, **connect: object) -> tuple[MemoryBroker, Client]:
    """Return a Client that has sent CONNECT with the method."""
    broker = MemoryBroker(enhanced_authenticator=method)
    client = Client(broker, 5)
    connect.setdefault("properties", riddle(b"hello"))
    client.send(p.Connect("c", 5, **connect))  # type: ignore[arg-type]
    return broker, client


def admitted(*later: AuthenticationStep) -> tuple[MemoryBroker, Client, Method]:
    """Return a connected Client. ``answers`` are prepared for its re-authentication."""
    method = Method(passed())
    broker, client = begun(method)
    assert [type(one) for one in client.packets()] == [p.Connack]
    method.answers += later
    return broker, client, method


def test_a_method_may_have_any_number_of_steps() -> None:
    """An exchange has none, one or several AUTH packets each way. CONNACK carries the last Authentication Data."""
    method = Method(Challenge(b"1"), Challenge(None), passed(b"bye"))
    _, client = begun(method, username="bob", password=b"secret")
    assert client.packets() == [auth(CONTINUE, b"1")]
    client.send(auth(CONTINUE, b"one"))
    assert client.packets() == [auth(CONTINUE)]
    client.send(auth(CONTINUE))
    (connack,) = client.got(p.Connack)
    assert connack.reason_code == 0
    assert connack.properties.authentication_method == "riddle"
    assert connack.properties.authentication_data == b"bye"
    assert method.heard == [b"hello", b"one", None]
    assert method.shown == [Credentials("c", "bob", b"secret", "test", 5, PEER)]


def test_a_method_is_asked_in_place_of_the_authenticator() -> None:
    """The authenticator judges Clients without a method, the method judges its own."""
    door = Door(ReasonCode.BANNED)
    broker = MemoryBroker(authenticator=door, enhanced_authenticator=Method(passed()))
    with_method, without = broker.client("c", 5, properties=riddle()), broker.client("d", 5)
    assert not with_method.network.closed
    assert without.network.closed
    assert [credentials.client_id for credentials in door.shown] == ["d"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ReasonCode.NOT_AUTHORIZED, ReasonCode.NOT_AUTHORIZED),
        (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.BAD_USER_NAME_OR_PASSWORD),
        (ReasonCode.SUCCESS, ReasonCode.NOT_AUTHORIZED),
        (CONTINUE, ReasonCode.NOT_AUTHORIZED),
        (ReasonCode.PACKET_IDENTIFIER_IN_USE, ReasonCode.NOT_AUTHORIZED),
    ],
)
def test_a_refusal_is_never_taken_for_a_success(answer: ReasonCode, told: ReasonCode) -> None:
    """CONNACK carries a Reason Code that is a refusal, whichever Reason Code the method returns [MQTT5-4.12.0-4]."""
    broker, client = begun(Method(answer))
    refused(client, told)
    assert broker.registry.session_count == 0
    assert broker.counters.connections_refused == 1


def test_answers_may_come_later_and_packets_wait_for_them() -> None:
    method = Method()
    broker, client = begun(method)
    client.send(p.Disconnect())
    assert client.packets() == []
    assert not client.network.closed
    method.asked[0].callback(Challenge(b"1"))
    broker.settle()
    assert client.packets() == [auth(CONTINUE, b"1")]
    assert client.network.closed


def test_an_answer_for_a_client_that_is_gone_changes_nothing() -> None:
    method = Method()
    broker, client = begun(method)
    client.drop()
    method.asked[0].callback(passed())
    broker.settle()
    assert broker.registry.session_count == broker.registry.connection_count == 0


def test_a_method_that_fails_admits_no_client() -> None:
    method = Method()
    broker, client = begun(method)
    method.asked[0].errback(RuntimeError("backend away"))
    broker.settle()
    refused(client, ReasonCode.SERVER_UNAVAILABLE)


def test_a_client_may_give_up() -> None:
    """DISCONNECT ends the connection without an answer and without the Will."""
    broker, client = begun(Method(Challenge(b"1")), will=p.Will("wills/c", b"gone"))
    watcher = broker.client("w")
    watcher.subscribe("#")
    client.packets()
    client.send(p.Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE))
    assert client.packets() == []
    assert client.network.closed
    assert payloads(watcher) == []


def test_a_client_that_takes_too_long_is_closed() -> None:
    """``mqtt.idle_timeout`` limits CONNECT and the authentication together."""
    broker, client = begun(Method(Challenge(b"1"), Challenge(b"2")))
    broker.advance(10)
    client.send(auth(CONTINUE))
    assert not client.network.closed
    broker.advance(5)
    assert client.network.closed
    assert client.got(p.Connack) == []


@pytest.mark.parametrize(
    "packet",
    [p.Auth(), p.Auth(CONTINUE), p.Auth(CONTINUE, Properties(authentication_method="riddles")), auth(AGAIN)],
)
def test_an_unexpected_auth_ends_the_authentication(packet: p.Auth) -> None:
    """AUTH without the method, with another method, or with a new beginning before the end."""
    _, client = begun(Method(Challenge(b"1")))
    client.packets()
    client.send(packet)
    refused(client, ReasonCode.PROTOCOL_ERROR)


def test_an_auth_the_client_cannot_take_is_not_sent() -> None:
    """A CONNACK that is too large because of the last Authentication Data is not sent either [MQTT5-3.1.2-24]."""
    for answer in (Challenge(b"x" * 100), passed(b"x" * 100)):
        broker, client = begun(Method(answer), properties=riddle(maximum_packet_size=80))
        (connack,) = client.packets()
        assert isinstance(connack, p.Connack)
        assert connack.reason_code == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        assert client.network.closed
        assert broker.registry.session_count == 0


def test_the_will_is_authorized_after_the_authentication() -> None:
    broker = MemoryBroker(authorizer=Forbidding("secret"), enhanced_authenticator=Method(Challenge(None), passed()))
    client = Client(broker, 5)
    client.send(p.Connect("c", 5, will=p.Will("secret", b"x"), properties=riddle()))
    assert client.packets() == [auth(CONTINUE)]
    client.send(auth(CONTINUE))
    refused(client, ReasonCode.NOT_AUTHORIZED)


def test_the_session_belongs_to_the_authenticated_user() -> None:
    method = Method(passed(username="alice"))
    broker, _ = begun(method, username="mallory")
    (session,) = broker.registry
    assert session.principal == Principal("c", "alice")


def test_mqtt_3_has_no_auth() -> None:
    client = MemoryBroker(enhanced_authenticator=Method(passed())).client("c", 4)
    client.raw(b"\xf0\x00")
    assert client.network.closed


def test_re_authentication_runs_beside_other_packets() -> None:
    _, client, method = admitted()
    client.subscribe("t")
    client.send(auth(AGAIN, b"hello again"), p.Publish("t", b"meanwhile"), p.Pingreq())
    assert [type(one) for one in client.packets()] == [p.Publish, p.Pingresp]
    method.asked[0].callback(Challenge(b"1"))
    client.send(p.Pingreq())
    assert client.packets() == [auth(CONTINUE, b"1"), p.Pingresp()]
    client.send(auth(CONTINUE, b"one"))
    method.asked[1].callback(passed(b"bye"))
    client.send(p.Pingreq())
    assert client.packets() == [auth(ReasonCode.SUCCESS, b"bye"), p.Pingresp()]
    assert method.heard[1:] == [b"hello again", b"one"]


def test_a_client_may_re_authenticate_many_times() -> None:
    """Each re-authentication has its own time limit, and leaves no timer behind."""
    steps: list[AuthenticationStep] = [Challenge(None), passed()]
    broker, client, _ = admitted(*steps * 3)
    timers = len(broker.clock.getDelayedCalls())
    for _ in range(3):
        client.send(auth(AGAIN))
        client.send(auth(CONTINUE))
        assert client.packets() == [auth(CONTINUE), auth(ReasonCode.SUCCESS)]
        broker.advance(14)
    assert len(broker.clock.getDelayedCalls()) == timers
    assert not client.network.closed


def test_re_authentication_has_a_time_limit() -> None:
    broker, client, _ = admitted(Challenge(None))
    client.send(auth(AGAIN))
    client.packets()
    broker.advance(14)
    assert not client.network.closed
    broker.advance(1)
    refused(client, ReasonCode.NOT_AUTHORIZED)


def test_re_authentication_cannot_change_the_user() -> None:
    _, client, _ = admitted(passed(username="mallory"))
    client.send(auth(AGAIN))
    refused(client, ReasonCode.NOT_AUTHORIZED)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ReasonCode.NOT_AUTHORIZED, ReasonCode.NOT_AUTHORIZED),
        (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED),
        (ReasonCode.SUCCESS, ReasonCode.NOT_AUTHORIZED),
    ],
)
def test_a_failed_re_authentication_gets_a_code_of_disconnect_and_publishes_the_will(
    answer: ReasonCode, told: ReasonCode
) -> None:
    """See [MQTT5-4.12.1-2]."""
    method = Method(passed(), answer)
    broker, client = begun(method, will=p.Will("wills/c", b"gone"))
    watcher = broker.client("w")
    watcher.subscribe("wills/#")
    client.packets()
    client.send(auth(AGAIN))
    refused(client, told)
    assert payloads(watcher) == [b"gone"]


def test_a_method_that_fails_in_re_authentication_ends_the_connection() -> None:
    broker, client, method = admitted()
    client.send(auth(AGAIN))
    method.asked[0].errback(RuntimeError("backend away"))
    broker.settle()
    refused(client, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)


def test_an_answer_after_the_end_changes_nothing(logged_failures: list[LogEvent]) -> None:
    broker, client, method = admitted()
    client.send(auth(AGAIN))
    client.drop()
    method.asked[0].callback(passed())
    broker.settle()
    broker.advance(1000)
    assert client.packets() == []
    assert logged_failures == []


@pytest.mark.parametrize("reason", [CONTINUE, ReasonCode.SUCCESS])
def test_only_re_authenticate_begins_a_re_authentication(reason: ReasonCode) -> None:
    _, client, _ = admitted()
    client.send(auth(reason))
    refused(client, ReasonCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("reason", [AGAIN, CONTINUE])
def test_auth_is_refused_while_the_answer_of_the_server_is_pending(reason: ReasonCode) -> None:
    _, client, _ = admitted()
    client.send(auth(AGAIN))
    client.send(auth(reason))
    refused(client, ReasonCode.PROTOCOL_ERROR)


def test_a_client_without_a_method_is_not_asked_for_one() -> None:
    broker = MemoryBroker(enhanced_authenticator=Method())
    client = broker.client("c", 5, properties=NO_PROPERTIES)
    assert client.connack is not None
    assert client.connack.reason_code == 0
    client.send(auth(AGAIN))
    refused(client, ReasonCode.PROTOCOL_ERROR)
