"""Decodes the bytes of one whole Control Packet to its value.

For any bytes, it raises only :class:`MalformedPacket` and :class:`ProtocolError`. The decoders of PUBLISH and
of acknowledgements without a Reason Code do not use :class:`Cursor`: they run once for each message.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.wire import packets as p
from holdfast.wire.datatypes import (
    EVERYTHING,
    Cursor,
    ExcessiveProperties,
    MalformedPacket,
    ProtocolError,
    Reception,
    WireError,
    check_characters,
)
from holdfast.wire.packets import check_first_byte, entries
from holdfast.wire.properties import NO_PROPERTIES, WILL, Properties
from holdfast.wire.property_codec import read_properties, topic_alias_in
from holdfast.wire.reasons import PERMITTED, ConnectReturnCode, ReasonCode

_PROTOCOLS = {("MQIsdp", 3), ("MQTT", 4), ("MQTT", 5)}


def decode(
    first: int, data: bytes, start: int, end: int, protocol_version: int | None, reception: Reception = EVERYTHING
) -> p.Packet:
    """Decode the packet whose fixed header begins with ``first`` and whose body is ``data[start:end]``.

    ``protocol_version`` is None before CONNECT.
    """
    if end - start == 2:  # the usual acknowledgement: a Packet Identifier, nothing else
        build = _ACKNOWLEDGEMENTS.get(first)
        identifier = data[start] << 8 | data[start + 1]
        if build is not None and identifier and protocol_version is not None:
            return build(identifier, 0, NO_PROPERTIES)
    check_first_byte(first, protocol_version, reception.from_client)
    packet_type = first >> 4
    version = protocol_version or 4
    if packet_type == 3:
        return decode_publish(first, data, start, end, version, reception)
    cursor = Cursor(data, start, end, reception)
    packet = _DECODERS[packet_type](cursor, packet_type, version)
    _check_end(cursor)
    return packet


def _check_end(cursor: Cursor) -> None:
    if cursor.remaining():
        raise MalformedPacket("bytes are left after the last field")


def decode_publish(
    first: int, data: bytes, start: int, end: int, protocol_version: int, reception: Reception = EVERYTHING
) -> p.Publish | p.ExcessivePublish:
    """Decode a PUBLISH, without calls: this is the hot path. Its first byte is one of ``PUBLISHES``."""
    topic_start = start + 2
    if topic_start > end:
        raise MalformedPacket("the packet ends inside a field")
    position = topic_start + (data[start] << 8 | data[start + 1])
    if position > end:
        raise MalformedPacket("the packet ends inside a field")
    try:
        topic = data[topic_start:position].decode()
    except UnicodeDecodeError:
        raise MalformedPacket("a string is not well-formed UTF-8") from None
    if not topic.isprintable():  # U+0000 and control characters are unprintable: usual topics cost one call
        if "\0" in topic:
            raise MalformedPacket("a string contains U+0000")
        check_characters(topic, "the Topic Name", reception)
    if "+" in topic or "#" in topic:  # [MQTT5-3.3.2-2]
        raise ProtocolError("a Topic Name contains no wildcard characters", ReasonCode.TOPIC_NAME_INVALID)
    qos = first >> 1 & 3
    packet_identifier = 0
    if qos:
        if position + 2 > end:
            raise MalformedPacket("the packet ends inside a field")
        packet_identifier = data[position] << 8 | data[position + 1]
        if not packet_identifier:
            raise ProtocolError("a Packet Identifier is not 0")  # [MQTT5-2.2.1-3]
        position += 2
    properties = NO_PROPERTIES
    if protocol_version == 5:
        if position < end and data[position] == 0:  # the usual case: no properties
            position += 1
        else:
            cursor = Cursor(data, position, end, reception)
            try:
                properties = read_properties(cursor, 3)
            except ExcessiveProperties as excess:
                if not qos:
                    raise
                return _excessive(topic, qos, packet_identifier, Cursor(data, position, end), excess)
            position = cursor.position
    if not topic and properties.topic_alias is None:
        raise ProtocolError("a Topic Name has at least one character", ReasonCode.PROTOCOL_ERROR)
    return p.Publish(topic, data[position:end], qos, first & 1 == 1, first & 8 == 8, packet_identifier, properties)


def _excessive(
    topic: str, qos: int, packet_identifier: int, cursor: Cursor, excess: ExcessiveProperties
) -> p.ExcessivePublish:
    """Return what the answer to a PUBLISH needs. It may set a Topic Alias, which later packets rely on."""
    length = cursor.variable_byte_integer()
    alias = topic_alias_in(cursor.data, cursor.position, cursor.position + length)
    if not topic and alias == 0:
        raise ProtocolError("a Topic Name has at least one character", ReasonCode.PROTOCOL_ERROR)
    return p.ExcessivePublish(topic, qos, packet_identifier, alias, str(excess))


def _connect(cursor: Cursor, _type: int, _version: int) -> p.Connect:
    name = cursor.string()
    level = cursor.byte()
    bridge = level & 0x80 == 0x80 and level & 0x7F in (3, 4)
    version = level & 0x7F if bridge else level
    if (name, version) not in _PROTOCOLS:
        if name not in ("MQIsdp", "MQTT"):
            raise ProtocolError(
                f"the protocol name is {name[:20]!r}, not 'MQTT'", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
            )
        raise ProtocolError(
            f"protocol level {level} is not supported", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, min(level, 5)
        )
    try:
        return _connect_body(cursor, version, bridge)
    except WireError as error:
        error.protocol_version = version  # the refusal is a CONNACK of this version
        raise


def _connect_body(cursor: Cursor, version: int, bridge: bool) -> p.Connect:
    flags = cursor.byte()
    if flags & 1:
        raise MalformedPacket("the reserved flag of CONNECT is set")  # [MQTT5-3.1.2-3]
    if flags & 0x18 == 0x18 or (flags & 0x38 and not flags & 4):
        raise MalformedPacket("the Will flags of CONNECT contradict each other")  # [MQTT5-3.1.2-11..15]
    if version != 5 and flags & 0x40 and not flags & 0x80:
        raise MalformedPacket("a Password needs a User Name")  # [MQTT311-3.1.2-22]
    keep_alive = cursor.two_byte_integer()
    properties = read_properties(cursor, 1) if version == 5 else NO_PROPERTIES
    try:
        return _connect_payload(cursor, version, bridge, flags, keep_alive, properties)
    except WireError as error:
        error.connect_properties = properties  # the refusal obeys the Client's Maximum Packet Size
        raise


def _connect_payload(
    cursor: Cursor, version: int, bridge: bool, flags: int, keep_alive: int, properties: Properties
) -> p.Connect:
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolError("Authentication Data needs an Authentication Method")
    client_id = _client_identifier(cursor)
    will = None
    if flags & 4:
        will_properties = read_properties(cursor, WILL) if version == 5 else NO_PROPERTIES
        topic = cursor.name("the Will Topic")
        if not topic or "+" in topic or "#" in topic:
            raise ProtocolError("the Will Topic is not a Topic Name", ReasonCode.TOPIC_NAME_INVALID)
        will = p.Will(topic, cursor.binary(), flags >> 3 & 3, bool(flags & 0x20), will_properties)
    username = cursor.name("the User Name") if flags & 0x80 else None
    password = cursor.binary() if flags & 0x40 else None
    _check_end(cursor)
    return p.Connect(
        client_id, version, bool(flags & 2), keep_alive, username, password, will, properties, bridge=bridge
    )


def _client_identifier(cursor: Cursor) -> str:
    """Read the Client Identifier, whose refusal has a code of its own in every protocol version [MQTT5-3.1.3-8]."""
    client_id = cursor.string()
    try:
        check_characters(client_id, "the Client Identifier", cursor.reception)
    except MalformedPacket as error:
        raise ProtocolError(str(error), ReasonCode.CLIENT_IDENTIFIER_NOT_VALID) from None
    return client_id


def _reason(cursor: Cursor, packet_type: int) -> ReasonCode:
    value = cursor.byte()
    try:
        reason = ReasonCode(value)
    except ValueError:
        raise ProtocolError(f"there is no Reason Code 0x{value:02x}") from None
    if reason not in PERMITTED[packet_type]:
        raise ProtocolError(f"this packet may not carry the Reason Code {reason.name}")
    return reason


def _connack(cursor: Cursor, packet_type: int, version: int) -> p.Connack:
    flags = cursor.byte()
    if flags > 1:
        raise MalformedPacket("reserved Connect Acknowledge Flags are set")  # [MQTT5-3.2.2-1]
    if version == 5:
        return p.Connack(flags == 1, _reason(cursor, packet_type), read_properties(cursor, packet_type))
    code = cursor.byte()
    if code > max(ConnectReturnCode):
        raise ProtocolError(f"there is no Connect Return Code {code}")
    return p.Connack(flags == 1, code)


def _identifier(cursor: Cursor) -> int:
    value = cursor.two_byte_integer()
    if not value:
        raise ProtocolError("a Packet Identifier is not 0")  # [MQTT5-2.2.1-3]
    return value


def _acknowledgement(
    build: Callable[[int, int, Properties], p.Packet],
) -> Callable[[Cursor, int, int], p.Packet]:
    def decoder(cursor: Cursor, packet_type: int, version: int) -> p.Packet:
        identifier = _identifier(cursor)
        if version != 5 or not cursor.remaining():
            return build(identifier, 0, NO_PROPERTIES)
        reason = _reason(cursor, packet_type)
        return build(identifier, reason, read_properties(cursor, packet_type) if cursor.remaining() else NO_PROPERTIES)

    return decoder


def _subscribe(cursor: Cursor, packet_type: int, version: int) -> p.Subscribe | p.ExcessiveSubscribe:
    identifier = _identifier(cursor)
    properties, excess = NO_PROPERTIES, None
    try:
        if version == 5:
            properties = read_properties(cursor, packet_type)
    except ExcessiveProperties as excessive:  # SUBACK has one code for each Topic Filter
        excess = str(excessive)
    if not cursor.remaining():
        raise ProtocolError("a SUBSCRIBE has at least one Topic Filter")  # [MQTT5-3.8.3-2]
    requests = entries(cursor, _request5 if version == 5 else _request3)
    if excess is not None:
        return p.ExcessiveSubscribe(identifier, requests, excess)
    return p.Subscribe(identifier, requests, properties)


def _request3(cursor: Cursor) -> p.SubscriptionRequest:
    topic_filter = _topic_filter(cursor)
    check_characters(topic_filter, "a Topic Filter", cursor.reception)
    qos = cursor.byte()
    if qos & 0xFC:
        raise MalformedPacket("reserved Subscription Options are set")  # [MQTT311-3.8.3-4]
    if qos == 3:
        raise MalformedPacket("there is no QoS 3")  # [MQTT311-3.8.3-4]
    return p.SubscriptionRequest(topic_filter, qos)


def _request5(cursor: Cursor) -> p.SubscriptionRequest:
    topic_filter = _topic_filter(cursor)
    check_characters(topic_filter, "a Topic Filter", cursor.reception)
    options = cursor.byte()
    if options & 0xC0:
        raise MalformedPacket("reserved Subscription Options are set")  # [MQTT5-3.8.3-5]
    if options & 3 == 3:  # [MQTT5-3.8.3.1]
        raise ProtocolError("there is no QoS 3")
    if options >> 4 & 3 == 3:
        raise ProtocolError("there is no Retain Handling 3")
    no_local = options & 4 == 4
    if no_local and topic_filter.startswith("$share/"):  # [MQTT5-3.8.3-4]
        raise ProtocolError("No Local is not allowed on a shared subscription")
    return p.SubscriptionRequest(topic_filter, options & 3, no_local, options & 8 == 8, options >> 4 & 3)


def _topic_filter(cursor: Cursor) -> str:
    # UNSUBSCRIBE may name one with control characters: a Session can have it from before they were refused.
    topic_filter = cursor.string()
    if not topic_filter:
        raise ProtocolError("a Topic Filter has at least one character")  # [MQTT5-4.7.3-1]
    return topic_filter


def _suback(cursor: Cursor, packet_type: int, version: int) -> p.Suback:
    identifier = _identifier(cursor)
    properties = read_properties(cursor, packet_type) if version == 5 else NO_PROPERTIES
    codes = []
    while cursor.remaining():
        if version == 5:
            codes.append(int(_reason(cursor, packet_type)))
            continue
        code = cursor.byte()
        if code not in (0, 1, 2, 0x80):
            raise ProtocolError(f"there is no SUBACK return code 0x{code:02x}")  # [MQTT311-3.9.3-2]
        codes.append(code)
    return p.Suback(identifier, tuple(codes), properties)


def _unsubscribe(cursor: Cursor, packet_type: int, version: int) -> p.Unsubscribe:
    identifier = _identifier(cursor)
    properties = read_properties(cursor, packet_type) if version == 5 else NO_PROPERTIES
    if not cursor.remaining():
        raise ProtocolError("an UNSUBSCRIBE has at least one Topic Filter")  # [MQTT5-3.10.3-2]
    return p.Unsubscribe(identifier, entries(cursor, _topic_filter), properties)


def _unsuback(cursor: Cursor, packet_type: int, version: int) -> p.Unsuback:
    identifier = _identifier(cursor)
    if version != 5:
        return p.Unsuback(identifier)
    properties = read_properties(cursor, packet_type)
    codes = []
    while cursor.remaining():
        codes.append(int(_reason(cursor, packet_type)))
    return p.Unsuback(identifier, tuple(codes), properties)


def _disconnect(cursor: Cursor, packet_type: int, version: int) -> p.Disconnect:
    if version != 5 or not cursor.remaining():
        return p.Disconnect()
    reason = _reason(cursor, packet_type)
    return p.Disconnect(reason, read_properties(cursor, packet_type) if cursor.remaining() else NO_PROPERTIES)


def _auth(cursor: Cursor, packet_type: int, _version: int) -> p.Auth:
    if not cursor.remaining():
        return p.Auth()
    reason = _reason(cursor, packet_type)
    return p.Auth(reason, read_properties(cursor, packet_type) if cursor.remaining() else NO_PROPERTIES)


#: By the first byte. A body of two bytes means success without properties, in every protocol version.
_ACKNOWLEDGEMENTS: dict[int, Callable[[int, int, Properties], p.Packet]] = {
    0x40: p.Puback,
    0x50: p.Pubrec,
    0x62: p.Pubrel,
    0x70: p.Pubcomp,
}

_DECODERS: dict[int, Callable[[Cursor, int, int], p.Packet]] = {
    1: _connect,
    2: _connack,
    4: _acknowledgement(p.Puback),
    5: _acknowledgement(p.Pubrec),
    6: _acknowledgement(p.Pubrel),
    7: _acknowledgement(p.Pubcomp),
    8: _subscribe,
    9: _suback,
    10: _unsubscribe,
    11: _unsuback,
    12: lambda _cursor, _type, _version: p.Pingreq(),
    13: lambda _cursor, _type, _version: p.Pingresp(),
    14: _disconnect,
    15: _auth,
}
