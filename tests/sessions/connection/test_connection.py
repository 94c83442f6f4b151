"""CONNECT to DISCONNECT: admission, the order of packets, and the end of connections."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.identity.interfaces import Answer, Credentials, Denied, Grant, IAuthenticator, IAuthorizer, Principal
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.authorizers import Filtering
from tests.doubles import Client, MemoryBroker

VERSIONS = pytest.mark.parametrize("version", [3, 4, 5])


@VERSIONS
def test_connect_is_answered_with_connack(version: int) -> None:
    """A new Client is accepted without a Session present."""
    client = MemoryBroker().client("c", version)
    assert client.connack is not None
    assert (client.connack.reason_code, client.connack.session_present) == (0, False)


def test_connack_has_the_limits() -> None:
    """MQTT 5 Clients learn the limits of the Server [MQTT5-3.2.2.3]."""
    limits = Limits(max_qos_allowed=1, retain_available=False, max_packet_size=5000, server_keepalive=30)
    connack = MemoryBroker(limits=limits).client("", 5).connack
    assert connack is not None
    properties = connack.properties
    assert (properties.maximum_qos, properties.retain_available) == (1, 0)
    assert (properties.maximum_packet_size, properties.server_keep_alive) == (5000, 30)
    assert properties.assigned_client_identifier


def test_an_unknown_protocol_level_gets_a_refusal(broker: MemoryBroker) -> None:
    """CONNACK 0x84, in the form of MQTT 5 for a level above it [MQTT5-3.1.2-2]."""
    client = Client(broker)
    client.raw(b"\x10\x0e\x00\x04MQTT\x06\x02\x00\x00\x00\x02ab")
    client.parser.protocol_version = 5
    (connack,) = client.packets()
    assert isinstance(connack, p.Connack)
    assert connack.reason_code == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    assert client.network.closed


@VERSIONS
@pytest.mark.parametrize("kind", [0, *range(2, 16)])
def test_the_first_packet_must_be_connect(broker: MemoryBroker, version: int, kind: int) -> None:
    """Another packet before CONNECT closes the connection without an answer [MQTT5-3.1.0-1], [MQTT311-3.1.0-1]."""
    for body in (b"", b"\0\1", b"\0\1t\0", b"\0\1\0\0\1t\0"):
        client = Client(broker, version)
        client.raw(bytes((kind << 4 | 2 * (kind in (6, 8, 10)), len(body))) + body + encode(p.Connect("c"), 4))
        assert client.network.closed
        assert client.packets() == []
    assert broker.registry.session_count == 0


@VERSIONS
def test_a_second_connect_is_a_protocol_error(version: int) -> None:
    """A second CONNECT ends the connection [MQTT5-3.1.0-2], [MQTT311-3.1.0-2]."""
    client = MemoryBroker().client("c", version)
    client.send(p.Connect("c", version))
    assert client.network.closed
    if version == 5:
        (disconnect,) = client.got(p.Disconnect)
        assert disconnect.reason_code == ReasonCode.PROTOCOL_ERROR


def test_no_connect_in_time_closes() -> None:
    """idle_timeout runs from the accept to CONNECT."""
    broker = MemoryBroker(limits=Limits(idle_timeout=15))
    client = Client(broker)
    client.connection.receive(b"\x10")
    broker.advance(14)
    assert not client.network.closed
    broker.advance(2)
    assert client.network.closed


def test_an_oversized_connect_is_refused_before_it_is_buffered() -> None:
    """An unknown Client may not make the broker buffer more than 64 KiB."""
    client = Client(MemoryBroker())
    client.raw(b"\x10\xff\xff\xff\x7f")
    assert client.network.closed


@VERSIONS
def test_ping(version: int) -> None:
    """PINGREQ is answered."""
    client = MemoryBroker().client("c", version)
    client.send(p.Pingreq())
    assert client.packets() == [p.Pingresp()]


@VERSIONS
def test_silence_beyond_the_keep_alive_closes(broker: MemoryBroker, version: int) -> None:
    """One and a half times the Keep Alive without a packet ends the connection [MQTT5-3.1.2-22], [MQTT311-3.1.2-24]."""
    client = broker.client("c", version, keep_alive=10)
    broker.advance(14)
    client.send(p.Pingreq())
    broker.advance(14)
    assert not client.network.closed
    broker.advance(2)
    assert client.network.closed
    if version == 5:
        assert client.got(p.Disconnect)[0].reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT


@VERSIONS
def test_take_over(broker: MemoryBroker, version: int) -> None:
    """A second connection with the same Client Identifier ends the first [MQTT5-3.1.4-3], [MQTT311-3.1.4-2]."""
    first = broker.client("same", version)
    second = broker.client("same", version)
    assert first.network.closed
    assert not second.network.closed
    if version == 5:
        assert first.got(p.Disconnect)[0].reason_code == ReasonCode.SESSION_TAKEN_OVER
    assert broker.registry.connection_count == 1
    assert broker.counters.takeovers == 1


def test_a_session_needs_a_client_identifier_in_mqtt_3() -> None:
    """No Client Identifier and no clean Session: return code 2 [MQTT311-3.1.3-8]."""
    client = MemoryBroker().client("", 4, clean=False)
    assert client.connack is not None
    assert client.connack.reason_code == 2
    assert client.network.closed


@pytest.mark.parametrize(("version", "code"), [(4, 2), (5, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)])
def test_a_client_identifier_that_is_too_long_is_refused(version: int, code: int) -> None:
    """mqtt.max_clientid_len, in bytes; CONNACK, then a close [MQTT5-3.1.3-8], [MQTT311-3.1.3-9]."""
    broker = MemoryBroker(limits=Limits(max_clientid_len=23))
    for name in ("x" * 24, "é" * 12):
        client = broker.client(name, version)
        assert client.connack is not None
        assert client.connack.reason_code == code
        assert client.network.closed
    for name in ("x" * 23, "é" * 11 + "x"):
        assert not broker.client(name, version).network.closed


def test_a_packet_above_max_packet_size_is_refused() -> None:
    """Maximum Packet Size: DISCONNECT 0x95 [MQTT5-3.2.2-15]."""
    client = MemoryBroker(limits=Limits(max_packet_size=1000)).client("c", 5)
    client.publish("t", b"x" * 1000)
    assert client.got(p.Disconnect)[0].reason_code == ReasonCode.PACKET_TOO_LARGE


def test_will_retain_is_refused_if_retain_is_not_available() -> None:
    """CONNACK 0x9A [MQTT5-3.2.2-13]."""
    client = MemoryBroker(limits=Limits(retain_available=False)).client("c", 5, will=p.Will("w", b"", 0, True))
    assert client.connack is not None
    assert client.connack.reason_code == ReasonCode.RETAIN_NOT_SUPPORTED


def test_extended_authentication_is_refused() -> None:
    """No method is offered: CONNACK 0x8C [MQTT5-4.12.0-1]."""
    client = MemoryBroker().client("c", 5, properties=Properties(authentication_method="SCRAM-SHA-256"))
    assert client.connack is not None
    assert client.connack.reason_code == ReasonCode.BAD_AUTHENTICATION_METHOD


@implementer(IAuthenticator)
class SlowAuthenticator:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Credentials, Deferred[Answer]]] = []

    def authenticate(self, credentials: Credentials) -> Deferred[Answer]:
        answer: Deferred[Answer] = Deferred()
        self.asked.append((credentials, answer))
        return answer


def test_packets_wait_for_authentication_in_order() -> None:
    """Packets that come before CONNACK are handled after it, in order."""
    slow = SlowAuthenticator()
    broker = MemoryBroker(authenticator=slow)
    client = Client(broker, 5)
    client.send(
        p.Connect("c", 5, username="u", password=b"p"),
        p.Subscribe(1, (p.SubscriptionRequest("t"),)),
        p.Publish("t", b"1"),
        p.Publish("t", b"2"),
    )
    assert client.packets() == []
    credentials, answer = slow.asked[0]
    assert (credentials.username, credentials.password) == ("u", b"p")
    answer.callback(Principal("c", "u"))
    broker.settle()
    kinds = [type(packet).__name__ for packet in client.packets()]
    assert kinds == ["Connack", "Suback", "Publish", "Publish"]


def test_refused_credentials_get_a_reason_code() -> None:
    """The authenticator's Reason Code goes into CONNACK."""
    slow = SlowAuthenticator()
    broker = MemoryBroker(authenticator=slow)
    client = Client(broker, 5)
    client.send(p.Connect("c", 5))
    slow.asked[0][1].callback(Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "wrong"))
    broker.settle()
    (connack,) = client.packets()
    assert isinstance(connack, p.Connack)
    assert connack.reason_code == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert client.network.closed
    assert broker.counters.connections_refused == 1


def test_a_failing_authenticator_refuses() -> None:
    """An error admits no Client."""
    slow = SlowAuthenticator()
    broker = MemoryBroker(authenticator=slow)
    client = Client(broker, 5)
    client.send(p.Connect("c", 5))
    slow.asked[0][1].errback(RuntimeError("backend away"))
    broker.settle()
    (connack,) = client.packets()
    assert isinstance(connack, p.Connack)
    assert connack.reason_code == ReasonCode.SERVER_UNAVAILABLE


def test_no_session_begins_if_the_client_leaves_before_the_answer() -> None:
    """The late answer is ignored."""
    slow = SlowAuthenticator()
    broker = MemoryBroker(authenticator=slow)
    client = Client(broker, 5)
    client.send(p.Connect("c", 5))
    client.drop()
    slow.asked[0][1].callback(Principal("c", None))
    broker.settle()
    assert broker.registry.session_count == 0


def test_a_flood_while_waiting_stops_the_reading() -> None:
    """While an answer is awaited, no more than about 64 KiB is read ahead."""
    slow = SlowAuthenticator()
    broker = MemoryBroker(authenticator=slow)
    client = Client(broker, 4)
    client.send(p.Connect("c", 4))
    client.raw(encode(p.Publish("t", b"x" * 1000), 4) * 100)
    assert client.network.paused
    slow.asked[0][1].callback(Principal("c", None))
    broker.settle()
    assert not client.network.paused
    assert broker.counters.messages_received == 100


@implementer(IAuthorizer)
class SlowAuthorizer(Filtering):
    """Answers about publishing, subscribing and receiving when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Deferred[Any]]] = []

    def _ask(self, what: str, topic: str) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.asked.append((what, topic, answer))
        return answer

    def may_publish(self, principal, topic, qos, retain, clears=False):  # type: ignore[no-untyped-def]
        return self._ask("publish", topic)

    def may_subscribe(self, principal, topic_filter, qos):  # type: ignore[no-untyped-def]
        return self._ask("subscribe", topic_filter)

    def may_receive(self, principal, message):  # type: ignore[no-untyped-def]
        return self._ask("receive", message.topic)


def test_every_step_passes_the_authorizer_and_keeps_its_order() -> None:
    """PUBLISH, SUBSCRIBE and delivery wait for their answers; later packets wait behind them."""
    slow = SlowAuthorizer()
    broker = MemoryBroker(authorizer=slow)
    client = broker.client("c", 5, properties=Properties(request_problem_information=0))
    client.send(
        p.Subscribe(1, (p.SubscriptionRequest("ok"), p.SubscriptionRequest("no"))),
        p.Publish("ok", b"1", 1, packet_identifier=7),
        p.Publish("ok", b"2", 1, packet_identifier=8),
    )
    assert client.packets() == []
    for (what, topic, answer), allowed in zip(list(slow.asked), (True, False), strict=True):
        assert what == "subscribe"
        assert topic in ("ok", "no")
        answer.callback(Grant.FILTERED if allowed else Grant.REFUSED)
    broker.settle()
    (suback,) = client.packets()
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (0, ReasonCode.NOT_AUTHORIZED)
    slow.asked[2][2].callback(True)
    broker.settle()
    assert slow.asked[3][:2] == ("receive", "ok")
    slow.asked[4][2].callback(False)
    broker.settle()
    assert client.packets() == [p.Puback(7), p.Puback(8, ReasonCode.NOT_AUTHORIZED)]
    slow.asked[3][2].callback(True)
    broker.settle()
    (publish,) = client.packets()
    assert isinstance(publish, p.Publish)
    assert publish.payload == b"1"


def test_a_will_that_is_not_allowed_refuses_the_connection() -> None:
    """The Will passes the authorizer at CONNECT."""
    slow = SlowAuthorizer()
    broker = MemoryBroker(authorizer=slow)
    client = Client(broker, 5)
    client.send(p.Connect("c", 5, will=p.Will("w", b"gone")))
    slow.asked[0][2].callback(False)
    broker.settle()
    (connack,) = client.packets()
    assert isinstance(connack, p.Connack)
    assert connack.reason_code == ReasonCode.NOT_AUTHORIZED


def test_a_will_is_published_when_the_connection_is_lost(broker: MemoryBroker) -> None:
    """The Will is published after a loss [MQTT5-3.1.2-8], but not after DISCONNECT [MQTT5-3.1.2-10]."""
    watcher = broker.client("w", 5)
    watcher.subscribe("gone/#")
    for version in (3, 4, 5):
        client = broker.client("c", version, will=p.Will("gone/c", b"!", 1, True))
        client.drop()
        assert watcher.messages() == [("gone/c", b"!", 0, False)]
        client = broker.client("c", version, will=p.Will("gone/c", b"!", 1, True))
        client.send(p.Disconnect())
        assert watcher.messages() == []
    client = broker.client("c", 5, will=p.Will("gone/c", b"!", 1, True))
    client.send(p.Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE))
    assert watcher.messages() == [("gone/c", b"!", 0, False)]


def test_a_delayed_will_is_not_published_if_the_client_comes_back(broker: MemoryBroker) -> None:
    """Will Delay Interval [MQTT5-3.1.3-9]."""
    watcher = broker.client("w", 5)
    watcher.subscribe("gone")
    will = p.Will("gone", b"!", 0, False, Properties(will_delay_interval=10))
    session = Properties(session_expiry_interval=100)
    client = broker.client("c", 5, will=will, properties=session, clean=False)
    client.drop()
    broker.advance(5)
    broker.client("c", 5, will=will, properties=session, clean=False).drop()
    broker.advance(9)
    assert watcher.messages() == []
    broker.advance(2)
    assert watcher.messages() == [("gone", b"!", 0, False)]


def test_a_delayed_will_goes_out_when_the_session_ends(broker: MemoryBroker) -> None:
    """The end of the Session publishes the Will even before its delay is over [MQTT5-3.1.2-8]."""
    watcher = broker.client("w", 5)
    watcher.subscribe("gone")
    will = p.Will("gone", b"!", 0, False, Properties(will_delay_interval=1000, message_expiry_interval=60))
    broker.client("c", 5, will=will, properties=Properties(session_expiry_interval=20), clean=False).drop()
    broker.advance(19)
    assert watcher.messages() == []
    broker.advance(2)
    assert watcher.messages() == [("gone", b"!", 0, False)]


def test_a_shutdown_ends_every_connection(broker: MemoryBroker) -> None:
    """MQTT 5 Clients get DISCONNECT 0x8B, MQTT 3 Clients a close. The next process publishes the Wills."""
    old, new = broker.client("a", 4), broker.client("b", 5, will=p.Will("gone", b"!", 0, True))
    broker.registry.shut_down()
    broker.settle()
    assert old.network.closed
    assert new.got(p.Disconnect)[0].reason_code == ReasonCode.SERVER_SHUTTING_DOWN
    assert broker.retained.totals.refreshed().count == 0


def test_slow_consumers_are_shut_down_with_a_reason() -> None:
    """force_shutdown: DISCONNECT 0x97 and a counter. No message is dropped in silence."""
    broker = MemoryBroker(limits=Limits(max_buffered_messages=10))
    slow = broker.client("slow", 5)
    slow.subscribe("t")
    slow.network.blocked = True
    publisher = broker.client("p", 5)
    for _ in range(12):
        publisher.publish("t", b"x")
    assert slow.network.closed
    assert slow.got(p.Disconnect)[0].reason_code == ReasonCode.QUOTA_EXCEEDED
    assert broker.counters.connections_shut_down == 1
    assert not publisher.network.closed


@pytest.mark.parametrize("expiry", [0, 50])
def test_session_expiry_cannot_be_raised_from_zero_at_disconnect(broker: MemoryBroker, expiry: int) -> None:
    """A change from 0 is a Protocol Error [MQTT5-3.14.2.2.2]. Other values can be changed."""
    client = broker.client("c", 5, properties=Properties(session_expiry_interval=expiry))
    client.send(p.Disconnect(0, Properties(session_expiry_interval=20)))
    if not expiry:
        assert client.got(p.Disconnect)[0].reason_code == ReasonCode.PROTOCOL_ERROR
        assert broker.registry.session_count == 0
    else:
        assert broker.registry.session_count == 1
        broker.advance(21)
        assert broker.registry.session_count == 0


def test_nothing_is_left_of_a_clean_session(broker: MemoryBroker) -> None:
    """A Session with an expiry of 0 leaves neither subscriptions nor state."""
    client = broker.client("c", 4)
    client.subscribe("a/+", "$share/g/b/#", "c")
    client.drop()
    assert broker.registry.session_count == 0
    assert broker.router.table._tree._root.is_empty()
    assert broker.router.table._shared_tree._root.is_empty()
