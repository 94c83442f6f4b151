"""Bytes written by hand from the standard, both right and wrong."""

from __future__ import annotations

import pytest

from holdfast.wire import (
    MalformedPacket,
    PacketParser,
    Properties,
    ProtocolError,
    ReasonCode,
    encode,
    encode_publish,
    encode_variable_byte_integer,
)
from holdfast.wire import packets as p
from holdfast.wire.datatypes import encode_string
from holdfast.wire.reasons import ConnectReturnCode, connect_return_code

RIGHT = [
    ("connect 3.1", 3, "10 0f 0006 4d5149736470 03 02 003c 0001 61", p.Connect("a", 3, True, 60)),
    ("connect 3.1.1", 4, "10 0d 0004 4d515454 04 02 003c 0001 61", p.Connect("a", 4, True, 60)),
    (
        "connect 5 with will and credentials",
        5,
        "10 27 0004 4d515454 05 ee 000a 05 11 0000000a 0001 61 05 18 00000005 0001 77 0002 6869 0001 75 0002 7077",
        p.Connect(
            "a",
            5,
            True,
            10,
            "u",
            b"pw",
            p.Will("w", b"hi", 1, True, Properties(will_delay_interval=5)),
            Properties(session_expiry_interval=10),
        ),
    ),
    ("bridge", 4, "10 0d 0004 4d515454 84 02 003c 0001 61", p.Connect("a", 4, True, 60, bridge=True)),
    ("connack 3", 4, "20 02 01 00", p.Connack(True, 0)),
    ("connack 5", 5, "20 06 00 00 03 21 000a", p.Connack(False, 0, Properties(receive_maximum=10))),
    ("publish qos 0", 4, "30 05 0001 74 6869", p.Publish("t", b"hi")),
    ("publish qos 1 dup retain", 4, "3b 06 0001 74 0007 78", p.Publish("t", b"x", 1, True, True, 7)),
    (
        "publish 5 with alias",
        5,
        "30 06 0000 03 23 0001",
        p.Publish("", b"", properties=Properties(topic_alias=1)),
    ),
    ("puback", 4, "40 02 0007", p.Puback(7)),
    ("puback 5 with reason", 5, "40 03 0007 10", p.Puback(7, 0x10)),
    ("pubrec 5 long form", 5, "50 04 0007 00 00", p.Pubrec(7)),
    ("pubrel", 4, "62 02 0007", p.Pubrel(7)),
    ("pubcomp 5", 5, "70 03 0007 92", p.Pubcomp(7, 0x92)),
    ("subscribe", 4, "82 06 0001 0001 23 01", p.Subscribe(1, (p.SubscriptionRequest("#", 1),))),
    (
        "subscribe 5 with every option",
        5,
        "82 09 0001 02 0b 05 0001 23 2d",
        p.Subscribe(1, (p.SubscriptionRequest("#", 1, True, True, 2),), Properties(subscription_identifiers=(5,))),
    ),
    ("suback", 4, "90 04 0001 01 80", p.Suback(1, (1, 0x80))),
    ("unsubscribe", 4, "a2 05 0001 0001 74", p.Unsubscribe(1, ("t",))),
    ("unsuback 3", 4, "b0 02 0001", p.Unsuback(1)),
    ("unsuback 5", 5, "b0 04 0001 00 11", p.Unsuback(1, (0x11,))),
    ("pingreq", 4, "c0 00", p.Pingreq()),
    ("pingresp", 4, "d0 00", p.Pingresp()),
    ("disconnect", 4, "e0 00", p.Disconnect()),
    ("disconnect 5", 5, "e0 01 8b", p.Disconnect(0x8B)),
    ("auth", 5, "f0 00", p.Auth()),
]


@pytest.mark.parametrize(("version", "raw", "packet"), [case[1:] for case in RIGHT], ids=[case[0] for case in RIGHT])
def test_bytes_and_packet_are_the_same(version: int, raw: str, packet: p.Packet) -> None:
    """The bytes decode to the packet; encoding it gives bytes that decode to it again."""
    for data in (bytes.fromhex(raw), encode(packet, version)):
        parser = PacketParser(1000, None if isinstance(packet, p.Connect) else version)
        parser.receive_data(data)
        assert parser.next_packet() == packet


M, E = MalformedPacket, ProtocolError
R = ReasonCode
# ruff: noqa: E501 - one case per line reads best
WRONG = [
    ("remaining length of five bytes", 4, "30 80808080 01", M, R.MALFORMED_PACKET),
    ("remaining length not the shortest", 4, "c0 8000", M, R.MALFORMED_PACKET),
    ("remaining length over the limit", 4, "30 ffffff7f", E, R.PACKET_TOO_LARGE),
    ("type 0", 4, "00 00", M, R.MALFORMED_PACKET),
    ("auth in 3.1.1", 4, "f0 00", M, R.MALFORMED_PACKET),
    ("flags of pingreq", 4, "c1 00", M, R.MALFORMED_PACKET),
    ("flags of subscribe", 4, "80 06 0001 0001 23 01", M, R.MALFORMED_PACKET),
    ("flags of pubrel", 4, "60 02 0001", M, R.MALFORMED_PACKET),
    ("pingreq with a body", 4, "c0 01 00", M, R.MALFORMED_PACKET),
    ("publish qos 3", 4, "36 05 0001 74 0001", M, R.MALFORMED_PACKET),
    ("publish qos 0 dup", 4, "38 03 0001 74", M, R.MALFORMED_PACKET),
    ("publish without a topic length", 4, "30 01 00", M, R.MALFORMED_PACKET),
    ("publish topic beyond the packet", 4, "30 03 0009 74", M, R.MALFORMED_PACKET),
    ("publish without packet identifier", 4, "32 03 0001 74", M, R.MALFORMED_PACKET),
    ("publish packet identifier 0", 4, "32 05 0001 74 0000", E, R.PROTOCOL_ERROR),
    ("publish wildcard +", 5, "30 04 0001 2b 00", E, R.TOPIC_NAME_INVALID),
    ("publish wildcard #", 4, "30 03 0001 23", E, R.TOPIC_NAME_INVALID),
    ("publish empty topic", 4, "30 02 0000", E, R.PROTOCOL_ERROR),
    ("publish empty topic without alias", 5, "30 03 0000 00", E, R.PROTOCOL_ERROR),
    ("publish NUL in topic", 4, "30 03 0001 00", M, R.MALFORMED_PACKET),
    ("publish surrogate in topic", 4, "30 05 0003 eda080", M, R.MALFORMED_PACKET),
    ("publish overlong utf-8", 4, "30 04 0002 c080", M, R.MALFORMED_PACKET),
    ("publish property length beyond the packet", 5, "30 04 0001 74 05", M, R.MALFORMED_PACKET),
    ("publish without property length", 5, "30 03 0001 74", M, R.MALFORMED_PACKET),
    ("unknown property", 5, "30 06 0001 74 02 7f 00", M, R.MALFORMED_PACKET),
    ("duplicate property", 5, "30 08 0001 74 04 01 00 01 00", E, R.PROTOCOL_ERROR),
    ("property of another packet", 5, "30 07 0001 74 03 21 0001", M, R.MALFORMED_PACKET),
    ("property cut short", 5, "30 06 0001 74 02 02 00", M, R.MALFORMED_PACKET),
    ("topic alias 0", 5, "30 07 0001 74 03 23 0000", E, R.TOPIC_ALIAS_INVALID),
    ("payload format 2", 5, "30 06 0001 74 02 01 02", E, R.PROTOCOL_ERROR),
    ("response topic with wildcard", 5, "30 08 0001 74 04 08 0001 23", E, R.PROTOCOL_ERROR),
    ("variable byte integer of five bytes", 5, "30 0a 0001 74 06 0b ffffffffff", M, R.MALFORMED_PACKET),
    ("subscription identifier 0", 5, "82 09 0001 02 0b 00 0001 23 00", E, R.PROTOCOL_ERROR),
    ("subscription identifier not the shortest", 5, "82 0a 0001 03 0b 8100 0001 23 00", M, R.MALFORMED_PACKET),
    ("two subscription identifiers", 5, "82 0b 0001 04 0b 01 0b 02 0001 23 00", E, R.PROTOCOL_ERROR),
    ("subscribe without filters", 4, "82 02 0001", E, R.PROTOCOL_ERROR),
    ("subscribe packet identifier 0", 4, "82 06 0000 0001 23 01", E, R.PROTOCOL_ERROR),
    ("subscribe qos 3", 4, "82 06 0001 0001 23 03", M, R.MALFORMED_PACKET),
    ("subscribe qos 3 in 5", 5, "82 07 0001 00 0001 23 03", E, R.PROTOCOL_ERROR),
    ("subscribe reserved bits in 3.1.1", 4, "82 06 0001 0001 23 04", M, R.MALFORMED_PACKET),
    ("subscribe reserved bits in 5", 5, "82 07 0001 00 0001 23 40", M, R.MALFORMED_PACKET),
    ("subscribe retain handling 3", 5, "82 07 0001 00 0001 23 30", E, R.PROTOCOL_ERROR),
    ("subscribe empty filter", 4, "82 05 0001 0000 01", E, R.PROTOCOL_ERROR),
    ("shared subscription with no local", 5, "82 10 0001 00 000a 2473686172652f672f74 04", E, R.PROTOCOL_ERROR),
    ("unsubscribe without filters", 4, "a2 02 0001", E, R.PROTOCOL_ERROR),
    ("unsubscribe empty filter", 4, "a2 04 0001 0000", E, R.PROTOCOL_ERROR),
    ("puback packet identifier 0", 4, "40 02 0000", E, R.PROTOCOL_ERROR),
    ("puback cut short", 4, "40 01 00", M, R.MALFORMED_PACKET),
    ("puback with more in 3.1.1", 4, "40 03 0001 00", M, R.MALFORMED_PACKET),
    ("puback unknown reason", 5, "40 03 0001 55", E, R.PROTOCOL_ERROR),
    ("puback reason of another packet", 5, "40 03 0001 8b", E, R.PROTOCOL_ERROR),
    ("suback unknown code", 4, "90 03 0001 03", E, R.PROTOCOL_ERROR),
    ("connack flags", 4, "20 02 02 00", M, R.MALFORMED_PACKET),
    ("connack unknown code", 4, "20 02 00 09", E, R.PROTOCOL_ERROR),
    ("disconnect reason of another packet", 5, "e0 01 87"[:-2] + "91", E, R.PROTOCOL_ERROR),
    ("auth reason of another packet", 5, "f0 01 87", E, R.PROTOCOL_ERROR),
    ("connect wrong name", None, "10 0d 0004 4d515455 04 02 003c 0001 61", E, R.UNSUPPORTED_PROTOCOL_VERSION),
    ("connect level 6", None, "10 0d 0004 4d515454 06 02 003c 0001 61", E, R.UNSUPPORTED_PROTOCOL_VERSION),
    ("connect old name, new level", None, "10 0f 0006 4d5149736470 04 02 003c 0001 61", E, R.UNSUPPORTED_PROTOCOL_VERSION),
    ("connect reserved flag", None, "10 0d 0004 4d515454 04 03 003c 0001 61", M, R.MALFORMED_PACKET),
    ("connect will qos without will", None, "10 0d 0004 4d515454 04 0a 003c 0001 61", M, R.MALFORMED_PACKET),
    ("connect will qos 3", None, "10 0d 0004 4d515454 04 1e 003c 0001 61", M, R.MALFORMED_PACKET),
    ("connect password without name", None, "10 0d 0004 4d515454 04 42 003c 0001 61", M, R.MALFORMED_PACKET),
    ("connect without its will", None, "10 0d 0004 4d515454 04 06 003c 0001 61", M, R.MALFORMED_PACKET),
    ("connect will topic with wildcard", None, "10 12 0004 4d515454 04 06 003c 0001 61 0001 23 0000", E, R.TOPIC_NAME_INVALID),
    ("connect receive maximum 0", None, "10 11 0004 4d515454 05 02 003c 03 21 0000 0001 61", E, R.PROTOCOL_ERROR),
    ("connect maximum packet size 0", None, "10 13 0004 4d515454 05 02 003c 05 27 00000000 0001 61", E, R.PROTOCOL_ERROR),
    ("connect authentication data alone", None, "10 12 0004 4d515454 05 02 003c 04 16 0001 61 0001 61", E, R.PROTOCOL_ERROR),
    ("connect with a tail", None, "10 0e 0004 4d515454 04 02 003c 0001 61 00", M, R.MALFORMED_PACKET),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "raw", "kind", "reason"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_wrong_bytes_are_refused_with_their_reason(
    version: int | None, raw: str, kind: type[Exception], reason: ReasonCode
) -> None:
    """Each kind of mistake has its error and its Reason Code; the error is final."""
    parser = PacketParser(1000, version)
    parser.receive_data(bytes.fromhex(raw))
    for _ in range(2):
        with pytest.raises(kind) as caught:
            parser.next_packet()
        assert caught.value.reason == reason  # type: ignore[attr-defined]


def test_an_error_in_connect_has_the_protocol_level() -> None:
    """The refusal needs them."""
    parser = PacketParser(1000)
    parser.receive_data(bytes.fromhex("10 11 0004 4d515454 05 02 003c 03 21 0000 0001 61"))
    with pytest.raises(ProtocolError) as caught:
        parser.next_packet()
    assert caught.value.protocol_version == 5


def test_a_first_packet_that_is_not_connect_is_refused_at_once() -> None:
    """It is refused before it is complete or buffered."""
    parser = PacketParser(64 * 1024)
    parser.receive_data(b"GE")
    with pytest.raises(ProtocolError):
        parser.next_packet()


def test_a_lying_length_is_refused_before_anything_is_buffered() -> None:
    """256 MB announced, three bytes sent: refused from the fixed header."""
    parser = PacketParser(64 * 1024, 4)
    parser.receive_data(bytes.fromhex("30 ffffff7f"))
    with pytest.raises(ProtocolError):
        parser.next_packet()
    assert parser.buffered <= 5


def test_a_large_packet_in_small_pieces_is_joined_once() -> None:
    """A megabyte in 100-byte pieces leads to one packet."""
    packet = p.Publish("big", bytes(range(256)) * 4096)
    stream = encode(packet, 4) + encode(p.Pingreq(), 4)
    parser = PacketParser(2 << 20, 4)
    found: list[p.Packet] = []
    for start in range(0, len(stream), 100):
        parser.receive_data(stream[start : start + 100])
        while (one := parser.next_packet()) is not None:
            found.append(one)
    assert found == [packet, p.Pingreq()]


def test_32000_levels_are_only_a_string() -> None:
    """The codec does not depend on the depth of a topic."""
    topic = "a/" * 32_000
    parser = PacketParser(1 << 20, 4)
    parser.receive_data(encode(p.Publish(topic, b""), 4))
    packet = parser.next_packet()
    assert isinstance(packet, p.Publish)
    assert packet.topic == topic


@pytest.mark.parametrize(
    "call",
    [
        lambda: encode_variable_byte_integer(268_435_456),
        lambda: encode_variable_byte_integer(-1),
        lambda: encode_string("x" * 65536),
        lambda: encode_string("\0"),
        lambda: encode(p.Puback(0), 4),
        lambda: encode_publish(b"x" * 65536, b"", 0, False, False, 0, b""),
    ],
)
def test_invalid_values_raise_value_error(call) -> None:  # type: ignore[no-untyped-def]
    """An error of the broker is not an error of the peer."""
    with pytest.raises(ValueError, match=r"\w+"):
        call()


def test_encode_publish_equals_encode() -> None:
    """The encoder of the hot path gives the same bytes for every form and length."""
    for version in (4, 5):
        for size in (0, 100, 126, 130, 20_000):
            for qos in (0, 1, 2):
                packet = p.Publish("t/ü", b"x" * size, qos, size % 4 == 0, bool(qos), 77 if qos else 0)
                block = b"\0" if version == 5 else b""
                fast = encode_publish(
                    "t/ü".encode(), packet.payload, qos, packet.retain, packet.dup, packet.packet_identifier, block
                )
                assert fast == encode(packet, version)


def test_return_codes_of_mqtt_3() -> None:
    """Reasons with a code in MQTT 3 get it; for the others, the connection is closed."""
    assert connect_return_code(ReasonCode.NOT_AUTHORIZED) is ConnectReturnCode.NOT_AUTHORIZED
    assert connect_return_code(ReasonCode.QUOTA_EXCEEDED) is ConnectReturnCode.SERVER_UNAVAILABLE
    assert connect_return_code(ReasonCode.PACKET_TOO_LARGE) is None
