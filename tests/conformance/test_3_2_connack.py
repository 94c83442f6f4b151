"""CONNACK: section 3.2 of both standards."""

from __future__ import annotations

import attrs
import pytest

from holdfast.core.tickets import CommitTicket
from holdfast.sessions.limits import Limits
from holdfast.sessions.state import MemorySessionStates, StoredWill
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.conformance.expect import VERSIONS, Door, connect, lasting, packet, refused
from tests.doubles import Client, MemoryBroker

#: the Connect Reason Codes of MQTT 5
CODES = {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F}


@VERSIONS
def test_connack_comes_first(version: int) -> None:
    """It comes before all waiting messages, and before answers to packets sent directly after CONNECT.

    [MQTT5-3.2.0-1], [MQTT5-3.1.4-5], [MQTT311-3.2.0-1], [MQTT311-3.1.4-4].
    """
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=1)
    client.drop()
    broker.client("p").publish("t", qos=1)
    client = Client(broker, version)
    client.send(p.Connect("c", version, clean_start=False), p.Pingreq())
    connack, *others = client.packets()
    assert isinstance(connack, p.Connack)
    assert connack.reason_code == 0
    assert {type(one) for one in others} == {p.Publish, p.Pingresp}


@VERSIONS
def test_there_is_one_connack(version: int) -> None:
    """No other packet, such as a second CONNECT, gets a CONNACK [MQTT5-3.2.0-2]."""
    client = MemoryBroker().client("c", version)
    client.send(p.Pingreq(), p.Connect("c", version))
    assert client.got(p.Connack) == []
    assert client.network.closed


@VERSIONS
def test_connack_flags_have_only_session_present(version: int) -> None:
    """Bits 7 to 1 are 0 [MQTT5-3.2.2-1]; the bit itself is reserved in MQTT 3.1."""
    broker = MemoryBroker()
    lasting(broker, "c", version).drop()
    client = Client(broker, version)
    client.raw(connect(version, 0))
    assert client.network.take()[2] == (version != 3)


@pytest.mark.parametrize("version", [4, 5])
def test_session_present(version: int) -> None:
    """It is 1 only if the Client asks for its Session and there is one.

    [MQTT5-3.2.2-2], [MQTT5-3.2.2-3], [MQTT311-3.2.2-1], [MQTT311-3.2.2-2], [MQTT311-3.2.2-3].
    """
    broker = MemoryBroker()
    seen = []
    for clean in (False, False, True):
        client = Client(broker, version)
        properties = Properties(session_expiry_interval=100) if version == 5 else Properties()
        connack = client.connect("c", clean, properties=properties)
        assert connack is not None
        seen.append((connack.reason_code, connack.session_present))
        client.drop()
    assert seen == [(0, False), (0, True), (0, False)]


@VERSIONS
def test_a_refusal_has_no_session_present_and_closes(version: int) -> None:
    """This is true even with a Session [MQTT5-3.2.2-6], [MQTT5-3.2.2-7], [MQTT311-3.2.2-4], [MQTT311-3.2.2-5]."""
    door = Door()
    broker = MemoryBroker(authenticator=door)
    lasting(broker, "c", version).drop()
    door.answer = ReasonCode.BAD_USER_NAME_OR_PASSWORD
    client = lasting(broker, "c", version)
    assert client.connack is not None
    assert (client.connack.reason_code, client.connack.session_present) == (0x86 if version == 5 else 4, False)
    assert client.network.closed


@pytest.mark.parametrize("reason", [ReasonCode.PACKET_TOO_LARGE, ReasonCode.USE_ANOTHER_SERVER])
@pytest.mark.parametrize("version", [3, 4])
def test_a_refusal_mqtt_3_has_no_code_for_is_a_close(version: int, reason: ReasonCode) -> None:
    """There is no CONNACK [MQTT311-3.2.2-6]."""
    client = Client(MemoryBroker(authenticator=Door(reason)), version)
    client.send(p.Connect("c", version))
    assert client.network.take() == b""
    assert client.network.closed


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (p.Connect("long", 5), ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        (p.Connect("c", 5, will=p.Will("w", b"", 2)), ReasonCode.QOS_NOT_SUPPORTED),
        (p.Connect("c", 5, will=p.Will("w", b"", 0, True)), ReasonCode.RETAIN_NOT_SUPPORTED),
        (p.Connect("c", 5, will=p.Will("a/b/c/d", b"")), ReasonCode.TOPIC_NAME_INVALID),
        (p.Connect("c", 5, properties=Properties(authentication_method="x")), ReasonCode.BAD_AUTHENTICATION_METHOD),
        (p.Connect("c", 5), ReasonCode.SUCCESS),
    ],
)
def test_connack_has_a_reason_code_of_its_own_table(asked: p.Connect, reason: ReasonCode) -> None:
    """This is true of every reason for a refusal [MQTT5-3.2.2-8], [MQTT5-3.2.2-12], [MQTT5-3.2.2-13]."""
    limits = Limits(max_clientid_len=3, max_qos_allowed=1, retain_available=False, max_topic_levels=3)
    client = Client(MemoryBroker(limits=limits), 5)
    client.send(asked)
    sent = client.network.take()
    assert sent[0] == 0x20
    assert sent[3] == reason
    assert sent[3] in CODES
    assert client.network.closed is (reason != ReasonCode.SUCCESS)


@VERSIONS
@pytest.mark.parametrize("reason", [one for one in ReasonCode if one >= ReasonCode.UNSPECIFIED_ERROR])
def test_every_refusal_has_a_code_of_connack(version: int, reason: ReasonCode) -> None:
    """For any answer of an authenticator: CONNACK has a code of its own or is left out, then comes a close.

    [MQTT5-3.2.2-8], [MQTT5-3.2.2-7], [MQTT5-4.13.2-1], [MQTT311-3.2.2-5], [MQTT311-3.2.2-6].
    """
    client = Client(MemoryBroker(authenticator=Door(reason)), version)
    client.send(p.Connect("c", version), p.Pingreq())
    sent = client.network.take()
    assert client.network.closed
    if version == 5:
        assert sent[0] == 0x20
        nearest = ReasonCode.SERVER_UNAVAILABLE if reason == ReasonCode.SERVER_SHUTTING_DOWN else 0x80
        assert sent[3] == (reason if reason in CODES else nearest)
    else:
        assert sent in (b"", *(bytes((0x20, 2, 0, code)) for code in range(1, 6)))


class SlowStates(MemorySessionStates):
    """Wills with a commit that never ends."""

    def will_kept(self, will: StoredWill) -> CommitTicket:
        return CommitTicket()


@pytest.mark.parametrize("cause", ["taken over", "shut down"])
def test_a_connection_ended_before_its_connack_gets_a_code_of_connack(cause: str) -> None:
    """0x8E and 0x8B belong to DISCONNECT, not to CONNACK [MQTT5-3.2.2-8]."""
    broker = MemoryBroker(states=SlowStates())
    client = Client(broker, 5)
    client.send(p.Connect("c", 5, will=p.Will("gone", b"!")))
    if cause == "taken over":
        Client(broker, 5).send(p.Connect("c", 5))
    else:
        broker.registry.shut_down()
        broker.settle()
    sent = client.network.take()
    assert client.network.closed
    assert not sent or (sent[0] == 0x20 and sent[3] in CODES)


@VERSIONS
@pytest.mark.parametrize("cause", ["lost", "taken over"])
def test_a_connection_that_was_not_accepted_leaves_no_will(version: int, cause: str) -> None:
    """This is true for every cause of its end [MQTT311-3.1.2-8], [MQTT5-3.1.4-6]."""
    broker = MemoryBroker(states=SlowStates())
    watcher = broker.client("w")
    watcher.subscribe("#")
    client = Client(broker, version)
    client.send(p.Connect("c", version, will=p.Will("gone", b"!")))
    if cause == "lost":
        client.drop()
    else:
        assert broker.client("c", version).connack is not None
    assert client.network.closed
    broker.advance(10)
    assert watcher.messages() == []


def test_the_maximum_qos_is_announced_and_enforced() -> None:
    """CONNACK has Maximum QoS. Subscriptions get no more than that, and a higher PUBLISH ends the connection.

    [MQTT5-3.2.2-9], [MQTT5-3.2.2-10], [MQTT5-3.2.2-11].
    """
    for most in (0, 1):
        client = MemoryBroker(limits=Limits(max_qos_allowed=most)).client("c", 5)
        assert client.connack is not None
        assert client.connack.properties.maximum_qos == most
        requests = tuple(p.SubscriptionRequest(f"t{qos}", qos) for qos in (0, 1, 2))
        client.send(p.Subscribe(1, requests))
        assert client.packets() == [p.Suback(1, (0, min(1, most), min(2, most)))]
        client.publish("t0", qos=most + 1)
        refused(client, ReasonCode.QOS_NOT_SUPPORTED)


def test_retain_is_refused_if_it_is_not_available() -> None:
    """A Client that retains nevertheless gets 0x9A [MQTT5-3.2.2-14]."""
    client = MemoryBroker(limits=Limits(retain_available=False)).client("c", 5)
    assert client.connack is not None
    assert client.connack.properties.retain_available == 0
    client.publish("t", retain=True)
    refused(client, ReasonCode.RETAIN_NOT_SUPPORTED)


@pytest.mark.parametrize(("most", "alias"), [(5, 6), (0, 1)])
def test_a_topic_alias_above_the_maximum_ends_the_connection(most: int, alias: int) -> None:
    """If no aliases are allowed, CONNACK omits the maximum, and the first alias ends the connection.

    [MQTT5-3.2.2-17], [MQTT5-3.2.2-18], [MQTT5-3.3.2-9].
    """
    client = MemoryBroker(limits=Limits(max_topic_alias=most)).client("c", 5)
    assert client.connack is not None
    assert client.connack.properties.topic_alias_maximum == (most or None)
    client.publish("t", properties=Properties(topic_alias=alias))
    refused(client, ReasonCode.TOPIC_ALIAS_INVALID)


def test_a_packet_above_the_servers_maximum_ends_the_connection() -> None:
    """A packet of exactly that size is accepted [MQTT5-3.2.2-15]."""
    client = MemoryBroker(limits=Limits(max_packet_size=1000)).client("c", 5)
    assert client.connack is not None
    assert client.connack.properties.maximum_packet_size == 1000
    room = 1000 - len(encode(p.Publish("t", b"x" * 200), 5)) + 200
    client.publish("t", b"x" * room)
    assert not client.network.closed
    client.publish("t", b"x" * (room + 1))
    refused(client, ReasonCode.PACKET_TOO_LARGE)


def test_a_refusal_omits_a_reason_string_that_does_not_fit() -> None:
    """The Maximum Packet Size of CONNECT holds for its answer [MQTT5-3.2.2-19]."""
    broker = MemoryBroker(limits=Limits(max_clientid_len=3))
    for size in (20, 1000):
        client = Client(broker, 5)
        client.send(p.Connect("long", 5, properties=Properties(maximum_packet_size=size)))
        sent = client.network.take()
        assert len(sent) <= size
        assert sent[:1] == b"\x20"
        assert sent[3] == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        assert (len(sent) > 20) is (size == 1000)


@pytest.mark.parametrize("size", [20, 1000])
def test_a_connect_that_cannot_be_read_is_refused_within_the_clients_maximum(size: int) -> None:
    """If the maximum is unknown, there is no Reason String [MQTT5-3.2.2-19], [MQTT5-3.1.2-24]."""
    asked = Properties(maximum_packet_size=size)
    for data in (
        encode(p.Connect("c", 5, will=p.Will("#", b""), properties=asked), 5),
        encode(p.Connect("c", 5, properties=attrs.evolve(asked, authentication_data=b"x")), 5),
        encode(p.Connect("c", 5, properties=asked), 5)[:-1] + b"\xff",
        connect(5, 3),
        packet(0x10, encode(p.Connect("c", 5, properties=asked), 5)[2:] + b"more"),
    ):
        client = Client(MemoryBroker(), 5)
        client.raw(data)
        sent = client.network.take()
        assert client.network.closed
        assert len(sent) <= size
        assert sent[:1] == b"\x20"
        assert sent[3] in (0x81, 0x82, 0x90)


@pytest.mark.parametrize("told", [None, 5, 20])
def test_the_keep_alive_in_force(told: int | None) -> None:
    """It is the value of the Client, unless CONNACK has another one [MQTT5-3.2.2-21], [MQTT5-3.2.2-22]."""
    broker = MemoryBroker(limits=Limits(server_keepalive=told))
    client = broker.client("c", 5, keep_alive=10)
    assert client.connack is not None
    assert client.connack.properties.server_keep_alive == told
    due = 1.5 * (told or 10)
    broker.advance(due - 0.1)
    assert not client.network.closed
    broker.advance(0.2)
    refused(client, ReasonCode.KEEP_ALIVE_TIMEOUT)


@pytest.mark.parametrize(
    ("asked", "server", "told"),
    [(0, None, 60), (61, None, 60), (65535, None, 60), (60, None, None), (1, None, None), (10, 20, 20), (10, 90, 60),
     (10, 0, 60)],
)  # fmt: skip
def test_a_keep_alive_that_is_too_long_is_replaced(asked: int, server: int | None, told: int | None) -> None:
    """0 means that silence may last for ever. See mqtt.max_keepalive [MQTT5-3.2.2-21]."""
    broker = MemoryBroker(limits=Limits(max_keepalive=60, server_keepalive=server))
    client = broker.client("c", 5, keep_alive=asked)
    assert client.connack is not None
    assert client.connack.properties.server_keep_alive == told
    due = 1.5 * (told or asked)
    broker.advance(due - 0.1)
    assert not client.network.closed
    broker.advance(0.2)
    refused(client, ReasonCode.KEEP_ALIVE_TIMEOUT)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(("asked", "code"), [(0, 2), (61, 2), (60, 0), (1, 0)])
def test_a_keep_alive_that_is_too_long_is_refused_where_no_other_can_be_told(
    version: int, asked: int, code: int
) -> None:
    """With return code 2. The Session, if there is one, is not disturbed."""
    broker = MemoryBroker(limits=Limits(max_keepalive=60))
    present = broker.client("c", version, keep_alive=30)
    client = broker.client("c", version, keep_alive=asked)
    assert client.connack is not None
    assert client.connack.reason_code == code
    assert client.network.closed is (code == 2)
    assert present.network.closed is (code == 0)
    assert broker.counters.connections_refused == (code == 2)
