"""MQTT 5 beyond the messages themselves: capabilities, Reason Strings, packet sizes, Reason Codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from zope.interface import implementer

from holdfast.identity.interfaces import Denied, Grant, IAuthenticator, IAuthorizer, UnrestrictedAuthorizer
from holdfast.retained.limits import RetainerLimits
from holdfast.sessions.connection.acknowledgements import LONGEST_REASON
from holdfast.sessions.limits import Limits, WhenFull
from holdfast.wire import Properties, ReasonCode, encode, encode_variable_byte_integer
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker

TERSE = Properties(request_problem_information=0)
VERSIONS = pytest.mark.parametrize("version", [3, 4, 5])


def connack(client: Client) -> p.Connack:
    assert client.connack is not None
    return client.connack


def ended_with(client: Client) -> int:
    """Return the Reason Code of the DISCONNECT, which must be the last packet [MQTT5-3.14.4-1]."""
    assert client.network.closed
    *_, last = client.packets()
    assert isinstance(last, p.Disconnect)
    return last.reason_code


def publish_packet(topic: bytes, properties: bytes) -> bytes:
    """Return a QoS 0 PUBLISH made by hand."""
    body = len(topic).to_bytes(2, "big") + topic + encode_variable_byte_integer(len(properties)) + properties
    return b"\x30" + encode_variable_byte_integer(len(body)) + body


# --- capabilities in CONNACK


def test_connack_has_only_limits_that_differ_from_the_default() -> None:
    """See [MQTT5-3.2.2.3.4], [MQTT5-3.2.2.3.5], [MQTT5-3.2.2.3.11] to 13."""
    told = connack(MemoryBroker().client("c", 5)).properties
    assert (told.maximum_qos, told.retain_available) == (None, None)
    assert (told.wildcard_subscription_available, told.shared_subscription_available) == (None, None)
    assert (told.subscription_identifier_available, told.response_information) == (None, None)
    nothing = Limits(
        max_qos_allowed=0,
        retain_available=False,
        wildcard_subscription=False,
        shared_subscription=False,
        subscription_identifiers=False,
        max_topic_alias=0,
    )
    told = connack(MemoryBroker(limits=nothing).client("c", 5)).properties
    assert (told.maximum_qos, told.retain_available) == (0, 0)
    assert (told.wildcard_subscription_available, told.shared_subscription_available) == (0, 0)
    assert (told.subscription_identifier_available, told.topic_alias_maximum) == (0, None)


def test_subscription_identifiers_can_be_switched_off() -> None:
    """mqtt.subscription_identifiers = false: SUBSCRIBE with one gets DISCONNECT 0xA1 [MQTT5-3.2.2.3.12]."""
    broker = MemoryBroker(limits=Limits(subscription_identifiers=False))
    client = broker.client("c", 5)
    assert client.subscribe("t", qos=1) == [p.Suback(1, (1,))]
    client.send(p.Subscribe(2, (p.SubscriptionRequest("u"),), Properties(subscription_identifiers=(7,))))
    assert ended_with(client) == ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED


@pytest.mark.parametrize("will", [p.Will("w", b"", 2), p.Will("w", b"", 0, True)])
@VERSIONS
def test_a_will_beyond_the_capabilities_refuses_the_connection(version: int, will: p.Will) -> None:
    """CONNACK 0x9B or 0x9A [MQTT5-3.2.2-12], [MQTT5-3.2.2-13].

    MQTT 3 has no return code for it, so the connection is closed without CONNACK [MQTT311-3.2.2-6].
    """
    client = MemoryBroker(limits=Limits(max_qos_allowed=1, retain_available=False)).client("c", version, will=will)
    assert client.network.closed
    if version == 5:
        expected = ReasonCode.QOS_NOT_SUPPORTED if will.qos else ReasonCode.RETAIN_NOT_SUPPORTED
        assert connack(client).reason_code == expected
    else:
        assert client.connack is None


@VERSIONS
def test_retain_ends_the_connection_if_it_is_not_available(version: int) -> None:
    """MQTT 5 gets DISCONNECT 0x9A [MQTT5-3.2.2-14]. An empty payload is no exception. Nothing is delivered."""
    broker = MemoryBroker(limits=Limits(retain_available=False))
    watcher = broker.client("w")
    watcher.subscribe("#")
    for payload in (b"x", b""):
        client = broker.client("c", version)
        client.send(p.Publish("t", payload, 0, True))
        assert client.network.closed
        if version == 5:
            assert ended_with(client) == ReasonCode.RETAIN_NOT_SUPPORTED
        else:
            assert client.packets() == []
    assert watcher.messages() == []


def test_subscriptions_get_at_most_the_maximum_qos() -> None:
    """A SUBSCRIBE with a higher QoS is granted the maximum [MQTT5-3.2.2-9], [MQTT5-3.2.2-10]."""
    client = MemoryBroker(limits=Limits(max_qos_allowed=1)).client("c", 5)
    assert client.subscribe("a", qos=2) == [p.Suback(1, (1,))]


# --- Reason Strings


@implementer(IAuthorizer)
class Deny(UnrestrictedAuthorizer):
    """Allows nothing."""

    def may_publish(self, principal, topic, qos, retain, clears=False):  # type: ignore[no-untyped-def]
        return False

    def may_subscribe(self, principal, topic_filter, qos):  # type: ignore[no-untyped-def]
        return Grant.REFUSED


def denied() -> MemoryBroker:
    return MemoryBroker(authorizer=Deny())


def limited() -> MemoryBroker:
    return MemoryBroker(
        limits=Limits(max_topic_levels=3, max_subscriptions=1),
        retainer=RetainerLimits(max_payload_size=3),
    )


FAILURES: list[tuple[Callable[[], MemoryBroker], p.Packet, p.Packet, str]] = [
    (denied, p.Publish("t", b"", 1, packet_identifier=1), p.Puback(1, 0x87), "not allowed"),
    (denied, p.Publish("t", b"", 2, packet_identifier=1), p.Pubrec(1, 0x87), "not allowed"),
    (denied, p.Subscribe(1, (p.SubscriptionRequest("t"),)), p.Suback(1, (0x87,)), "not allowed"),
    (limited, p.Publish("t", b"long", 1, True, False, 1), p.Puback(1, 0x97), "retainer.max_payload_size is 3"),
    (limited, p.Publish("t", b"long", 2, True, False, 1), p.Pubrec(1, 0x97), "retainer.max_payload_size is 3"),
    (
        limited,
        p.Subscribe(1, tuple(map(p.SubscriptionRequest, ("a", "b", "a/b/c/d")))),
        p.Suback(1, (0, 0x97, 0x8F)),
        "a Topic Filter has at most 3 levels here (mqtt.max_topic_levels); a Session has at most"
        " 1 Subscriptions (mqtt.max_subscriptions) and 32 patterns of + here",
    ),
    (limited, p.Pubrel(1), p.Pubcomp(1, 0x92), "no QoS 2 message has this identifier"),
    (limited, p.Pubrec(1), p.Pubrel(1, 0x92), "no QoS 2 message has this identifier"),
]


@pytest.mark.parametrize(("make", "packet", "answer", "why"), FAILURES)
def test_a_failure_is_explained_unless_the_client_declines_it(
    make: Callable[[], MemoryBroker], packet: p.Packet, answer: p.Packet, why: str
) -> None:
    """No Reason String with Request Problem Information 0 [MQTT5-3.1.2-29], or if the packet gets too large with it."""
    broker = make()
    talkative = broker.client("a", 5)
    talkative.send(packet)
    (explained,) = talkative.packets()
    assert type(explained) is type(answer)
    assert why in (explained.properties.reason_string or "")  # type: ignore[union-attr]
    terse = broker.client("b", 5, properties=TERSE)
    terse.send(packet)
    assert terse.packets() == [answer]
    narrow = broker.client("c", 5, properties=Properties(maximum_packet_size=len(encode(explained, 5)) - 1))
    narrow.send(packet)
    assert narrow.packets() == [answer]
    exact = broker.client("d", 5, properties=Properties(maximum_packet_size=len(encode(explained, 5))))
    exact.send(packet)
    assert exact.packets() == [explained]


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("packet", [failure[1] for failure in FAILURES])
def test_mqtt_3_gets_no_reasons(version: int, packet: p.Packet) -> None:
    """Its packets have no field for a reason."""
    broker = MemoryBroker(authorizer=Deny(), retainer=RetainerLimits(max_payload_size=3))
    client = broker.client("c", version)
    client.send(packet)
    (answer,) = client.packets()
    assert answer in (p.Puback(1), p.Pubrec(1), p.Pubcomp(1), p.Pubrel(1)) or isinstance(answer, p.Suback)


def test_a_full_queue_is_explained() -> None:
    """PUBACK 0x97 names the topic of the subscriber with the full queue."""
    broker = MemoryBroker(limits=Limits(max_mqueue_len=0, mqueue_full=WhenFull.REJECT))
    away = broker.client("away", 5, clean=False, properties=Properties(session_expiry_interval=100))
    away.subscribe("t", qos=1)
    away.drop()
    client = broker.client("c", 5)
    client.publish("t", qos=1)
    (answer,) = client.got(p.Puback)
    assert answer.reason_code == ReasonCode.QUOTA_EXCEEDED
    assert "'t'" in (answer.properties.reason_string or "")


def test_successes_are_not_explained() -> None:
    """Only failures get a Reason String."""
    client = MemoryBroker().client("c", 5)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t"),)), p.Unsubscribe(2, ("t", "u")))
    client.publish("t", qos=1, identifier=3)
    assert client.packets() == [p.Suback(1, (0,)), p.Unsuback(2, (0, 0x11)), p.Puback(3, 0x10)]


def test_connack_and_disconnect_are_explained_to_everyone() -> None:
    """Request Problem Information does not concern these two packets [MQTT5-3.1.2-29]."""
    broker = MemoryBroker(limits=Limits(max_clientid_len=23))
    refused = connack(broker.client("c" * 24, 5, properties=TERSE))
    assert refused.properties.reason_string == "a Client Identifier has at most 23 bytes here"
    client = broker.client("c", 5, properties=TERSE)
    client.send(p.Pingreq(), p.Connect("c", 5))
    (_, disconnect) = client.packets()
    assert isinstance(disconnect, p.Disconnect)
    assert disconnect.properties.reason_string


def test_text_of_the_client_is_quoted_only_in_part() -> None:
    """A Reason String stays short enough to be encoded, however long the quoted text is."""
    client = MemoryBroker(limits=Limits(max_properties_bytes=1 << 20)).client("c", 5)
    client.raw(publish_packet(b"t", b"\x08\xff\xff" + b"+" * 65535))
    *_, disconnect = client.packets()
    assert isinstance(disconnect, p.Disconnect)
    assert disconnect.reason_code == ReasonCode.PROTOCOL_ERROR
    assert len(disconnect.properties.reason_string or "") <= LONGEST_REASON


# --- the Client's Maximum Packet Size


def smallest_connack(broker: MemoryBroker) -> int:
    return len(encode(connack(broker.client("x", 5)), 5))


def test_connack_stays_within_the_maximum_packet_size(broker: MemoryBroker) -> None:
    """A CONNACK that is too large is replaced by a refusal, if necessary without Reason String [MQTT5-3.1.2-24]."""
    size = smallest_connack(broker)
    first = broker.client("c", 5, properties=Properties(maximum_packet_size=size))
    assert connack(first).reason_code == 0
    client = broker.client("c", 5, properties=Properties(maximum_packet_size=size - 1))
    assert encode(connack(client), 5) == b"\x20\x03\x00\x83\x00"
    assert client.network.closed
    assert not first.network.closed  # not taken over for a connection that cannot be admitted
    for tiny in (1, 4):
        client = broker.client("d", 5, properties=Properties(maximum_packet_size=tiny))
        assert client.network.closed
        assert client.network.take() == b""
    assert broker.registry.session_count == 2


def test_a_refusal_leaves_out_a_reason_string_that_does_not_fit() -> None:
    """CONNACK with 0x85 and nothing else [MQTT5-3.2.2-19]."""
    properties = Properties(maximum_packet_size=30)
    refused = connack(MemoryBroker(limits=Limits(max_clientid_len=23)).client("c" * 24, 5, properties=properties))
    assert refused == p.Connack(False, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)


@pytest.mark.parametrize("kind", ["subscribe", "unsubscribe"])
def test_a_too_large_answer_ends_the_connection(broker: MemoryBroker, kind: str) -> None:
    """SUBACK and UNSUBACK grow with the number of filters. If they are too large: DISCONNECT 0x95, and no change."""
    client = broker.client(
        "c", 5, clean=False, properties=Properties(maximum_packet_size=40, request_problem_information=0)
    )
    names = tuple(f"t/{number}" for number in range(36))
    request = p.Subscribe(1, tuple(map(p.SubscriptionRequest, names[:35])))
    client.send(request)
    assert client.packets() == [p.Suback(1, (0,) * 35)]
    client.send(p.Unsubscribe(2, names[1:36]))
    assert client.packets() == [p.Unsuback(2, (0,) * 34 + (0x11,))]
    before = set(broker.registry._sessions["c"].subscriptions)
    if kind == "subscribe":
        client.send(p.Subscribe(3, tuple(map(p.SubscriptionRequest, names))))
    else:
        client.send(p.Unsubscribe(3, names))
    assert before == {"t/0"}
    (disconnect,) = client.packets()
    assert disconnect == p.Disconnect(ReasonCode.PACKET_TOO_LARGE)
    assert client.network.closed


# --- the end of a connection


@implementer(IAuthenticator)
class Refusing:
    """Refuses with a Reason Code that CONNACK cannot carry."""

    def authenticate(self, credentials: object) -> Denied:
        return Denied(ReasonCode.KEEP_ALIVE_TIMEOUT, "")


def test_connack_carries_only_its_own_reason_codes() -> None:
    """Other Reason Codes become Unspecified error [MQTT5-3.2.2-8]."""
    assert connack(MemoryBroker(authenticator=Refusing()).client("c", 5)).reason_code == ReasonCode.UNSPECIFIED_ERROR


def test_no_disconnect_before_connack(tmp_path: Path) -> None:
    """A Client that waits for CONNACK gets a refusing CONNACK instead [MQTT5-3.14.0-1]."""
    broker = RestartableBroker(tmp_path / "h.db", manual=True)
    session = Properties(session_expiry_interval=100)
    taken = broker.client("same", 5, clean=False, properties=session)
    other = broker.client("same", 5, clean=False, properties=session)
    stopped = broker.client("stopped", 5, clean=False, properties=session)
    broker.registry.shut_down()
    broker.commit()
    answers = [client.packets() for client in (taken, other, stopped)]
    codes = [ReasonCode.UNSPECIFIED_ERROR, ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_UNAVAILABLE]
    for (answer,), code in zip(answers, codes, strict=True):
        assert isinstance(answer, p.Connack)
        assert answer.reason_code == code


def test_nothing_follows_disconnect(broker: MemoryBroker) -> None:
    """The Server sends nothing after its DISCONNECT [MQTT5-3.14.4-1], and ignores packets after the Client's."""
    client = broker.client("c", 5)
    client.subscribe("t", qos=1)
    client.send(p.Publish("t", b"1", 1, packet_identifier=5), p.Connect("c", 5), p.Publish("t", b"2"), p.Pingreq())
    assert [type(packet) for packet in client.packets()] == [p.Publish, p.Puback, p.Disconnect]
    broker.client("p").publish("t", b"3", qos=1)
    assert client.packets() == []
    watcher = broker.client("w")
    watcher.subscribe("t")
    client = broker.client("d", 5)
    client.send(p.Disconnect(), p.Publish("t", b"after"), p.Pingreq())
    assert client.packets() == []
    assert watcher.messages() == []


@pytest.mark.parametrize(
    ("reason", "published"),
    [(0x00, False), (0x04, True), (0x80, True), (0x83, True), (0x97, True)],
)
def test_a_will_is_discarded_by_a_normal_disconnection_only(broker: MemoryBroker, reason: int, published: bool) -> None:
    """DISCONNECT 0x00 discards it [MQTT5-3.14.4-3]. After other Reason Codes it is published [MQTT5-3.1.2-8]."""
    watcher = broker.client("w")
    watcher.subscribe("gone")
    client = broker.client("c", 5, will=p.Will("gone", b"!"))
    client.send(p.Disconnect(reason))
    assert watcher.messages() == ([("gone", b"!", 0, False)] if published else [])


@pytest.mark.parametrize(
    ("connect", "disconnect", "cap", "kept"),
    [
        (50, None, None, 50),
        (50, 20, None, 20),
        (50, 0, None, 0),
        (50, 90, None, 90),
        (50, 0xFFFFFFFF, 60, 60),
        (0xFFFFFFFF, None, None, None),
        (0xFFFFFFFF, 0xFFFFFFFF, None, None),
        (50, 40, 0, 0),  # CONNECT had another value than 0, and the Server reduced it
        (0, 0, None, 0),
        (None, None, None, 0),
    ],
)
def test_disconnect_can_change_the_session_expiry(
    connect: int | None, disconnect: int | None, cap: int | None, kept: int | None
) -> None:
    """Without an interval in DISCONNECT, that of CONNECT holds [MQTT5-3.14.2.2.2]. The zone limits both."""
    broker = MemoryBroker(limits=Limits(session_expiry_interval=cap))
    client = broker.client("c", 5, properties=Properties(session_expiry_interval=connect))
    client.send(p.Disconnect(0, Properties(session_expiry_interval=disconnect)))
    assert client.packets() == []
    if kept is None:
        broker.advance(10**9)
        assert broker.registry.session_count == 1
        return
    if kept:
        broker.advance(kept - 1)
        assert broker.registry.session_count == 1
        broker.advance(2)
    assert broker.registry.session_count == 0


@pytest.mark.parametrize("connect", [0, None])
def test_session_expiry_cannot_begin_with_disconnect(broker: MemoryBroker, connect: int | None) -> None:
    """An interval of 0 in CONNECT, or none, cannot be changed: DISCONNECT 0x82, and the Will is published."""
    watcher = broker.client("w")
    watcher.subscribe("gone")
    properties = Properties(session_expiry_interval=connect)
    client = broker.client("c", 5, will=p.Will("gone", b"!"), properties=properties)
    client.send(p.Disconnect(0, Properties(session_expiry_interval=20)))
    assert ended_with(client) == ReasonCode.PROTOCOL_ERROR
    assert watcher.messages() == [("gone", b"!", 0, False)]


@pytest.mark.parametrize(
    ("clean", "delay", "expiry", "published"),
    [
        (False, 10, 100, False),  # back in time
        (True, 10, 100, True),  # the Session has ended
        (False, 0, 100, True),  # due at once
        (False, 10, 0, True),  # the Session ended with its connection
    ],
)
def test_a_take_over_publishes_the_will_unless_the_session_continues_in_time(
    broker: MemoryBroker, clean: bool, delay: int, expiry: int, published: bool
) -> None:
    """The Will is sent unless the new connection comes to the Session within the delay [MQTT5-3.1.3-9]."""
    watcher = broker.client("w")
    watcher.subscribe("gone")
    will = p.Will("gone", b"!", properties=Properties(will_delay_interval=delay))
    properties = Properties(session_expiry_interval=expiry)
    broker.client("c", 5, clean=False, will=will, properties=properties)
    broker.client("c", 5, clean=clean, properties=properties)
    broker.advance(50)
    assert watcher.messages() == ([("gone", b"!", 0, False)] if published else [])


@pytest.mark.parametrize(("delay", "expiry", "after"), [(10, 100, 10), (100, 10, 10), (0, 100, 0), (10, 0, 0)])
def test_a_will_delay_ends_with_the_session_at_the_latest(
    broker: MemoryBroker, delay: int, expiry: int, after: int
) -> None:
    """The Will Delay Interval or the Session's end, whichever comes first [MQTT5-3.1.3-9]."""
    watcher = broker.client("w")
    watcher.subscribe("gone")
    will = p.Will("gone", b"!", properties=Properties(will_delay_interval=delay))
    broker.client("c", 5, will=will, properties=Properties(session_expiry_interval=expiry)).drop()
    if after:
        broker.advance(after - 1)
        assert watcher.messages() == []
        broker.advance(1)
    assert watcher.messages() == [("gone", b"!", 0, False)]


# --- PUBLISH


@pytest.mark.parametrize(
    ("topic", "properties", "reason"),
    [
        (b"t", b"\x23\x00\x00", ReasonCode.TOPIC_ALIAS_INVALID),  # [MQTT5-3.3.2-8]
        (b"t", b"\x23\x00\x0b", ReasonCode.TOPIC_ALIAS_INVALID),  # [MQTT5-3.3.2-9]
        (b"", b"\x23\x00\x05", ReasonCode.PROTOCOL_ERROR),  # never set
        (b"", b"", ReasonCode.PROTOCOL_ERROR),
        (b"t", b"\x08\x00\x03r/#", ReasonCode.PROTOCOL_ERROR),  # [MQTT5-3.3.2-14]
        (b"t", b"\x08\x00\x03r/+", ReasonCode.PROTOCOL_ERROR),
        (b"t", b"\x08\x00\x01\xff", ReasonCode.MALFORMED_PACKET),  # [MQTT5-3.3.2-13]
        (b"t", b"\x01\x02", ReasonCode.PROTOCOL_ERROR),
        (b"t", b"\x0b\x01", ReasonCode.PROTOCOL_ERROR),  # [MQTT5-3.3.4-6]
    ],
)
def test_a_wrong_publish_ends_the_connection_with_its_reason(
    topic: bytes, properties: bytes, reason: ReasonCode
) -> None:
    """Topic Aliases, Response Topics and indicators that the standard forbids."""
    client = MemoryBroker(limits=Limits(max_topic_alias=10)).client("c", 5)
    client.raw(publish_packet(topic, properties))
    assert ended_with(client) == reason


def test_topic_aliases_end_with_their_connection(broker: MemoryBroker) -> None:
    """A new connection to the same Session knows no alias of the former one [MQTT5-3.3.2-7]."""
    properties = Properties(session_expiry_interval=100)
    client = broker.client("c", 5, clean=False, properties=properties)
    client.publish("t", properties=Properties(topic_alias=1))
    client.drop()
    client = broker.client("c", 5, clean=False, properties=properties)
    assert connack(client).session_present
    client.publish("", properties=Properties(topic_alias=1))
    assert ended_with(client) == ReasonCode.PROTOCOL_ERROR


def test_a_payload_is_not_checked_against_its_format_indicator(broker: MemoryBroker) -> None:
    """The Server need not check that it is UTF-8 [MQTT5-3.3.2.3.2]: payload and indicator pass unchanged."""
    client = broker.client("c", 5)
    client.subscribe("t")
    broker.client("p", 5).publish("t", b"\xff\xfe", properties=Properties(payload_format_indicator=1))
    (packet,) = client.got(p.Publish)
    assert (packet.payload, packet.properties.payload_format_indicator) == (b"\xff\xfe", 1)


@VERSIONS
def test_acknowledgements_without_a_message_are_ignored(broker: MemoryBroker, publisher: Client, version: int) -> None:
    """PUBACK, PUBCOMP and a refusing PUBREC for an unknown Packet Identifier are harmless."""
    client = broker.client("c", version)
    client.subscribe("t", qos=2)
    publisher.publish("t", b"1", qos=1)
    publisher.publish("t", b"2", qos=2)
    one, two = (packet.packet_identifier for packet in client.got(p.Publish))
    client.send(p.Puback(77), p.Pubcomp(77), p.Pubrec(77, 0x80 if version == 5 else 0))
    assert not client.network.closed
    assert broker.registry._sessions["c"].inflight.count == 2
    client.packets()
    client.send(p.Puback(one), p.Pubrec(two))
    assert client.packets() == [p.Pubrel(two)]
    client.send(p.Pubcomp(two))
    assert broker.registry._sessions["c"].inflight.count == 0


PUBACK, PUBREC, REFUSES, PUBCOMP = p.Puback(1), p.Pubrec(1), p.Pubrec(1, 0x80), p.Pubcomp(1)

#: the state of the message, the acknowledgement, and what it leads to in MQTT 3 and in MQTT 5
OUT_OF_PLACE = [
    ("QoS 1, sent", PUBACK, "over", "over"),
    ("QoS 1, sent", PUBREC, "closed", "closed"),
    ("QoS 1, sent", REFUSES, None, "closed"),
    ("QoS 1, sent", PUBCOMP, "closed", "closed"),
    ("QoS 2, sent", PUBACK, "closed", "closed"),
    ("QoS 2, sent", PUBREC, "released", "released"),
    ("QoS 2, sent", REFUSES, None, "over"),
    ("QoS 2, sent", PUBCOMP, "ignored", "closed"),
    ("QoS 2, released", PUBACK, "closed", "closed"),
    ("QoS 2, released", PUBREC, "released", "released"),
    ("QoS 2, released", REFUSES, None, "over"),
    ("QoS 2, released", PUBCOMP, "over", "over"),
]


@VERSIONS
@pytest.mark.parametrize(("state", "packet", "v3", "v5"), OUT_OF_PLACE)
@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
def test_an_acknowledgement_of_the_wrong_kind_is_a_protocol_error(
    broker: MemoryBroker,
    publisher: Client,
    state: str,
    packet: p.Packet,
    v3: str | None,
    v5: str,
    version: int,
    replayed: bool,
    resumed: bool,
) -> None:
    """0x82 in MQTT 5. In MQTT 3 only a type that the QoS never has ends the connection."""
    effect = v5 if version == 5 else v3
    if effect is None:
        return  # MQTT 3 has no refusing PUBREC
    lasting = Properties(session_expiry_interval=100) if version == 5 else Properties()
    client = broker.client("c", version, clean=False, properties=lasting)
    if not replayed:
        client.subscribe("t", qos=2)
    publisher.publish("t", b"1", qos=int(state[4]), retain=True)
    if replayed:
        client.send(p.Subscribe(9, (p.SubscriptionRequest("t", 2),)))
    assert [one.packet_identifier for one in client.got(p.Publish)] == [1]
    if state.endswith("released"):
        client.send(p.Pubrec(1))
        assert client.got(p.Pubrel) == [p.Pubrel(1)]
    if resumed:
        client.drop()
        client = broker.client("c", version, clean=False, properties=lasting)
    client.send(packet)
    came = client.packets()
    assert client.network.closed is (effect == "closed")
    assert [one.reason_code for one in came if isinstance(one, p.Disconnect)] == (
        [ReasonCode.PROTOCOL_ERROR] if effect == "closed" and version == 5 else []
    )
    assert [one for one in came if isinstance(one, p.Pubrel)] == ([p.Pubrel(1)] if effect == "released" else [])
    assert broker.registry._sessions["c"].inflight.count == (effect != "over")


def test_the_answer_to_an_unknown_pubrec_may_come_after_its_identifier_is_used_again(publisher: Client) -> None:
    """The Client must answer every PUBREL [MQTT5-4.3.3-11], and that PUBCOMP is not meant for the new message."""
    client = publisher.broker.client("c", 5)
    client.subscribe("t", qos=1)
    client.send(p.Pubrec(1))
    assert len(client.got(p.Pubrel)) == 1
    publisher.publish("t", qos=1)
    client.send(p.Pubcomp(1, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))
    assert not client.network.closed
    client.send(p.Pubcomp(1))
    assert ended_with(client) == ReasonCode.PROTOCOL_ERROR


def test_an_unknown_pubrec_of_an_earlier_connection_excuses_no_pubcomp(publisher: Client) -> None:
    """PUBREL was not repeated on the new connection, so the Client has nothing to answer there."""
    properties = Properties(session_expiry_interval=100)
    client = publisher.broker.client("c", 5, clean=False, properties=properties)
    client.subscribe("t", qos=2)
    client.send(p.Pubrec(1))
    client.drop()
    client = publisher.broker.client("c", 5, clean=False, properties=properties)
    publisher.publish("t", qos=2)
    (message,) = client.got(p.Publish)
    client.send(p.Pubcomp(message.packet_identifier))
    assert ended_with(client) == ReasonCode.PROTOCOL_ERROR


#: the state of an identifier that the Client uses, its packet, and the answers
RECEIVING = [
    ("unknown", p.Publish("t", b"x", 2, packet_identifier=1), p.Pubrec(1)),
    ("unknown", p.Pubrel(1), p.Pubcomp(1, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)),
    ("received", p.Publish("t", b"x", 2, dup=True, packet_identifier=1), p.Pubrec(1)),
    ("received", p.Pubrel(1), p.Pubcomp(1)),
]


@VERSIONS
@pytest.mark.parametrize(("state", "packet", "answer"), RECEIVING)
def test_every_packet_of_the_receiving_side_in_every_state(
    broker: MemoryBroker, version: int, state: str, packet: p.Packet, answer: p.Pubrec | p.Pubcomp
) -> None:
    """See the table in ``received``."""
    watcher = broker.client("w")
    watcher.subscribe("t", qos=2)
    client = broker.client("c", version)
    if state == "received":
        client.publish("t", b"x", qos=2, identifier=1)
        client.packets()
    client.send(packet)
    (came,) = client.packets()
    assert isinstance(came, type(answer))
    assert came.packet_identifier == 1
    assert came.reason_code == (answer.reason_code if version == 5 else 0)
    assert len(watcher.messages()) == (state == "received" or isinstance(packet, p.Publish))
    assert not client.network.closed


@VERSIONS
def test_a_packet_identifier_held_by_a_qos_2_exchange(broker: MemoryBroker, version: int) -> None:
    """A QoS 2 PUBLISH with it is the same message again, with or without DUP [MQTT5-4.3.3-10].

    Packets of other types may use it too. The standard allows to answer them with 0x91, but a Client that has lost its
    state would then lose its message.
    """
    watcher = broker.client("w")
    watcher.subscribe("t", qos=2)
    client = broker.client("c", version)
    client.publish("t", b"1", qos=2, identifier=5)
    client.publish("t", b"again", qos=2, identifier=5)
    client.publish("t", b"2", qos=1, identifier=5)
    client.send(p.Subscribe(5, (p.SubscriptionRequest("u"),)), p.Unsubscribe(5, ("u",)), p.Pubrel(5))
    assert client.packets() == [
        p.Pubrec(5), p.Pubrec(5), p.Puback(5), p.Suback(5, (0,)), p.Unsuback(5, (0,) if version == 5 else ()),
        p.Pubcomp(5),
    ]  # fmt: skip
    assert [payload for _, payload, _, _ in watcher.messages()] == [b"1", b"2"]
    client.publish("t", b"3", qos=2, identifier=5)
    assert [payload for _, payload, _, _ in watcher.messages()] == [b"3"]


# --- other packets


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("82 03 0001 00", ReasonCode.PROTOCOL_ERROR),  # SUBSCRIBE without a filter [MQTT5-3.8.3-2]
        ("a2 03 0001 00", ReasonCode.PROTOCOL_ERROR),  # UNSUBSCRIBE without one [MQTT5-3.10.3-2]
        ("c0 01 00", ReasonCode.MALFORMED_PACKET),  # PINGREQ with a body
        ("c1 00", ReasonCode.MALFORMED_PACKET),
        ("d0 00", ReasonCode.PROTOCOL_ERROR),  # PINGRESP is the Server's
        ("82 09 0001 02 0b00 0001 74 00", ReasonCode.PROTOCOL_ERROR),  # Subscription Identifier 0
    ],
)
def test_a_wrong_packet_ends_the_connection_with_its_reason(data: str, reason: ReasonCode) -> None:
    """In MQTT 5 by DISCONNECT."""
    client = MemoryBroker().client("c", 5)
    client.raw(bytes.fromhex(data))
    assert ended_with(client) == reason


@pytest.mark.parametrize("data", ["82 02 0001", "a2 02 0001", "c0 01 00"])
def test_a_wrong_packet_closes_mqtt_3_without_an_answer(data: str) -> None:
    """See [MQTT311-4.8.0-1]."""
    client = MemoryBroker().client("c", 4)
    client.raw(bytes.fromhex(data))
    assert client.network.closed
    assert client.packets() == []


def test_unsuback_has_a_code_for_each_filter_in_order() -> None:
    """Also for a filter that appears twice [MQTT5-3.11.3-1]."""
    client = MemoryBroker().client("c", 5)
    client.subscribe("a", "b", "$share/g/a")
    client.send(p.Unsubscribe(9, ("x", "b", "a", "b", "$share/h/a", "$share/g/a")))
    assert client.packets() == [p.Unsuback(9, (0x11, 0, 0, 0x11, 0x11, 0))]


# --- QoS 2 messages that are never released


def test_unreleased_messages_are_kept_for_ever_by_default() -> None:
    """The standard demands it [MQTT5-4.3.3-10]."""
    broker = MemoryBroker()
    properties = Properties(session_expiry_interval=0xFFFFFFFF)
    broker = MemoryBroker(limits=Limits(session_expiry_interval=None))
    client = broker.client("c", 5, clean=False, properties=properties)
    client.publish("t", b"1", qos=2, identifier=1)
    broker.advance(10**8)
    client.publish("t", b"2", qos=2, identifier=2)
    assert list(broker.registry._sessions["c"].received) == [1, 2]
