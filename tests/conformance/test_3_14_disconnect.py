"""DISCONNECT, and how errors end a connection: sections 3.14 and 4.13 of MQTT 5.0, 3.14 and 4.8 of MQTT 3.1.1."""

from __future__ import annotations

import pytest

from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.conformance.expect import VERSIONS, Door, connect, lasting, payloads
from tests.doubles import Client, MemoryBroker
from tests.retained.store.delayed_store import DelayedStore
from tests.wire.test_vectors import WRONG

#: the Reason Codes of a Server's DISCONNECT
CODES = {0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, *range(0x8D, 0x91), *range(0x93, 0xA3)}


def test_no_disconnect_comes_before_connack() -> None:
    """A refused connection gets CONNACK or nothing [MQTT5-3.14.0-1]."""
    for data in (encode(p.Pingreq(), 5), connect(5, 3), encode(p.Disconnect(0x80), 5), connect(5, 2, b"\0\3c")):
        client = Client(MemoryBroker(), 5)
        client.raw(data)
        assert client.network.closed
        assert client.got(p.Disconnect) == []
    client = Client(MemoryBroker(authenticator=Door(ReasonCode.BANNED)), 5)
    client.send(p.Connect("c", 5))
    assert [type(one) for one in client.packets()] == [p.Connack]


def ended() -> list[tuple[ReasonCode, Client]]:
    """Return connections that the broker has ended, each for another reason."""
    limits = Limits(max_packet_size=1000, max_topic_alias=1, max_topic_levels=3, max_awaiting_rel=1)
    broker = MemoryBroker(limits=limits)
    found = []
    for number, (sent, reason) in enumerate(
        [
            (encode(p.Connect("c", 5), 5), ReasonCode.PROTOCOL_ERROR),
            (b"\xc1\x00", ReasonCode.MALFORMED_PACKET),
            (b"\x30\xff\x7f", ReasonCode.PACKET_TOO_LARGE),
            (encode(p.Publish("a/b/c/d", b""), 5), ReasonCode.TOPIC_NAME_INVALID),
            (encode(p.Publish("a", b"", properties=Properties(topic_alias=2)), 5), ReasonCode.TOPIC_ALIAS_INVALID),
            (
                b"".join(encode(p.Publish("a", b"", 2, packet_identifier=one), 5) for one in (1, 2)),
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
            ),
        ]
    ):
        client = broker.client(f"c{number}", 5)
        client.raw(sent)
        found.append((reason, client))
    found.append((ReasonCode.KEEP_ALIVE_TIMEOUT, broker.client("silent", 5, keep_alive=1)))
    broker.advance(2)
    found.append((ReasonCode.SESSION_TAKEN_OVER, broker.client("twice", 5)))
    broker.client("twice", 5)
    found.append((ReasonCode.SERVER_SHUTTING_DOWN, broker.client("last", 5)))
    broker.registry.shut_down()
    broker.settle()
    return found


def test_disconnect_has_a_reason_code_of_its_own_table() -> None:
    """It has neither a Session Expiry Interval nor User Properties, and ends the connection.

    [MQTT5-3.14.2-1], [MQTT5-3.14.2-2], [MQTT5-3.14.4-2], [MQTT5-4.13.2-1].
    """
    for reason, client in ended():
        disconnect = [one for one in client.packets() if isinstance(one, p.Disconnect)][-1]
        assert disconnect.reason_code == reason
        assert disconnect.reason_code in CODES
        assert disconnect.properties.session_expiry_interval is None
        assert disconnect.properties.user_properties == ()
        assert client.network.closed


def test_disconnect_omits_a_reason_string_that_does_not_fit() -> None:
    """It always has the Reason Code [MQTT5-3.14.2-3]."""
    for size in (20, 1000):
        client = MemoryBroker().client("c", 5, properties=Properties(maximum_packet_size=size))
        client.send(p.Connect("c", 5))
        sent = client.network.take()
        assert len(sent) <= size
        assert (sent[0], sent[2]) == (0xE0, ReasonCode.PROTOCOL_ERROR)
        assert (len(sent) > 20) is (size == 1000)


@VERSIONS
def test_nothing_follows_the_end_of_a_connection(version: int) -> None:
    """The broker sends neither answers nor messages, and ignores later packets of the Client [MQTT5-3.14.4-1]."""
    broker = MemoryBroker()
    client = broker.client("c", version)
    client.subscribe("t")
    client.send(p.Connect("c", version), p.Pingreq(), p.Publish("t", b"1", 0, True))
    client.send(p.Publish("t", b"2", 0, True))
    broker.client("p").publish("t", b"3")
    broker.advance(10)
    assert [type(one) for one in client.packets()] == ([p.Disconnect] if version == 5 else [])
    assert broker.retained.totals.refreshed().count == 0


@pytest.mark.parametrize("reason", range(256))
def test_a_client_uses_only_the_reason_codes_that_are_its_own(reason: int) -> None:
    """Reason Codes of the Server and unknown ones are malformed [MQTT5-3.14.2-1]. Then the Will is published."""
    own = {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, *range(0x93, 0x9A)}
    broker = MemoryBroker()
    watcher = broker.client("w")
    watcher.subscribe("gone")
    client = broker.client("c", 5, will=p.Will("gone", b"!"))
    client.raw(bytes((0xE0, 2, reason, 0)))
    assert client.network.closed
    assert [one.reason_code for one in client.got(p.Disconnect)] == [0x82] * (reason not in own)
    assert payloads(watcher) == [b"!"] * (reason != 0)


@VERSIONS
def test_a_normal_disconnect_discards_the_will(version: int) -> None:
    """It is never published [MQTT5-3.14.4-3], [MQTT311-3.14.4-3]."""
    broker = MemoryBroker()
    watcher = broker.client("w")
    watcher.subscribe("gone")
    for delay in (0, 5):
        properties = Properties(will_delay_interval=delay) if version == 5 else Properties()
        client = lasting(broker, "c", version, will=p.Will("gone", b"!", properties=properties))
        client.send(p.Disconnect())
        client.drop()
        broker.advance(10)
        assert client.network.closed
        assert payloads(watcher) == []


IN_PLACE = [case for case in WRONG if case[1] is not None]


@pytest.mark.parametrize(
    ("version", "raw", "reason"), [(c[1], c[2], c[4]) for c in IN_PLACE], ids=[c[0] for c in IN_PLACE]
)
def test_every_mistake_ends_the_connection(version: int, raw: str, reason: ReasonCode) -> None:
    """MQTT 5 Clients get the Reason Code [MQTT5-4.13.1-1], [MQTT5-4.13.2-1], [MQTT311-4.8.0-1]."""
    client = MemoryBroker(limits=Limits(max_packet_size=1000)).client("c", version)
    client.raw(bytes.fromhex(raw))
    assert client.network.closed
    if version == 5:
        (disconnect,) = client.got(p.Disconnect)
        assert disconnect.reason_code in CODES
        expected = {reason}
        if raw.startswith(("20", "90", "b0", "d0")):  # packets of a Server are a Protocol Error with any content
            expected.add(ReasonCode.PROTOCOL_ERROR)
        assert disconnect.reason_code in expected
    else:
        assert client.packets() == []


@VERSIONS
@pytest.mark.parametrize("wrong", [p.Connack(False), p.Suback(1, (0,)), p.Unsuback(1, ()), p.Pingresp()])
def test_a_packet_of_a_server_ends_the_connection(version: int, wrong: p.Packet) -> None:
    """This is a Protocol Error [MQTT5-4.13.1-1], [MQTT311-4.8.0-1]."""
    client = MemoryBroker().client("c", version)
    client.send(wrong)
    assert client.network.closed
    if version == 5:
        assert [one.reason_code for one in client.got(p.Disconnect)] == [ReasonCode.PROTOCOL_ERROR]


def test_a_transient_error_ends_an_mqtt_3_connection() -> None:
    """A message that could not be stored is not acknowledged [MQTT311-4.8.0-2]."""
    for qos in (1, 2):
        broker = MemoryBroker(store=DelayedStore)
        client = broker.client("c")
        client.publish("t", qos=qos, retain=True)
        broker.store.commit(StorageFailure(FailureKind.UNAVAILABLE, "no disk"))
        broker.settle()
        assert client.network.closed
        assert client.packets() == []


@VERSIONS
def test_ping_is_answered_each_time(version: int) -> None:
    """[MQTT5-3.12.4-1], [MQTT311-3.12.4-1]: one PINGRESP for each PINGREQ."""
    client = MemoryBroker().client("c", version)
    client.send(p.Pingreq(), p.Pingreq(), p.Pingreq())
    assert client.packets() == [p.Pingresp()] * 3


def test_the_parser_gives_up_after_the_first_mistake() -> None:
    """Packets after a malformed one are ignored [MQTT5-4.13.1-1]."""
    broker = MemoryBroker()
    client = broker.client("c", 5)
    client.raw(b"\xc1\x00" + encode(p.Publish("t", b"x", 0, True), 5))
    assert client.network.closed
    assert broker.retained.totals.refreshed().count == 0
