"""Property blocks of MQTT 5 [MQTT5-2.2.2] as bytes.

One table has a row for each property: its identifier, its type, the packets that may carry it, and its allowed values.
Reading, writing and the checks all use this table.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from attrs import frozen

from holdfast.wire.datatypes import (
    EVERYTHING,
    Cursor,
    ExcessiveProperties,
    MalformedPacket,
    ProtocolError,
    Reception,
    check_characters,
    encode_binary,
    encode_string,
    encode_variable_byte_integer,
)
from holdfast.wire.properties import NO_PROPERTIES, WILL, Properties
from holdfast.wire.reasons import ReasonCode


class PropertyType(Enum):
    """The data representations of MQTT [MQTT5-1.5]."""

    BYTE = "Byte"
    TWO_BYTE = "Two Byte Integer"
    FOUR_BYTE = "Four Byte Integer"
    VARIABLE = "Variable Byte Integer"
    STRING = "UTF-8 Encoded String"
    BINARY = "Binary Data"
    PAIR = "UTF-8 String Pair"


@frozen
class PropertyDefinition:
    """One row of the table. ``check`` returns the Reason Code for a forbidden value, None for an allowed one."""

    identifier: int
    field: str
    type: PropertyType
    packets: frozenset[int]
    check: Callable[[Any], ReasonCode | None] | None = None
    repeatable: bool = False


def _flag(value: int) -> ReasonCode | None:
    return None if value in (0, 1) else ReasonCode.PROTOCOL_ERROR


def _positive(value: int) -> ReasonCode | None:
    return None if value else ReasonCode.PROTOCOL_ERROR


def _alias(value: int) -> ReasonCode | None:
    return None if value else ReasonCode.TOPIC_ALIAS_INVALID  # [MQTT5-3.3.2-8]


def _response_topic(value: str) -> ReasonCode | None:
    return ReasonCode.PROTOCOL_ERROR if "+" in value or "#" in value else None  # [MQTT5-3.3.2-14]


def _packets(*types: int) -> frozenset[int]:
    return frozenset(types)


_T = PropertyType
_EVERYWHERE = _packets(WILL, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15)
PROPERTY_TABLE = (
    PropertyDefinition(0x01, "payload_format_indicator", _T.BYTE, _packets(WILL, 3), _flag),
    PropertyDefinition(0x02, "message_expiry_interval", _T.FOUR_BYTE, _packets(WILL, 3)),
    PropertyDefinition(0x03, "content_type", _T.STRING, _packets(WILL, 3)),
    PropertyDefinition(0x08, "response_topic", _T.STRING, _packets(WILL, 3), _response_topic),
    PropertyDefinition(0x09, "correlation_data", _T.BINARY, _packets(WILL, 3)),
    PropertyDefinition(0x0B, "subscription_identifiers", _T.VARIABLE, _packets(3, 8), _positive, True),
    PropertyDefinition(0x11, "session_expiry_interval", _T.FOUR_BYTE, _packets(1, 2, 14)),
    PropertyDefinition(0x12, "assigned_client_identifier", _T.STRING, _packets(2)),
    PropertyDefinition(0x13, "server_keep_alive", _T.TWO_BYTE, _packets(2)),
    PropertyDefinition(0x15, "authentication_method", _T.STRING, _packets(1, 2, 15)),
    PropertyDefinition(0x16, "authentication_data", _T.BINARY, _packets(1, 2, 15)),
    PropertyDefinition(0x17, "request_problem_information", _T.BYTE, _packets(1), _flag),
    PropertyDefinition(0x18, "will_delay_interval", _T.FOUR_BYTE, _packets(WILL)),
    PropertyDefinition(0x19, "request_response_information", _T.BYTE, _packets(1), _flag),
    PropertyDefinition(0x1A, "response_information", _T.STRING, _packets(2)),
    PropertyDefinition(0x1C, "server_reference", _T.STRING, _packets(2, 14)),
    PropertyDefinition(0x1F, "reason_string", _T.STRING, _packets(2, 4, 5, 6, 7, 9, 11, 14, 15)),
    PropertyDefinition(0x21, "receive_maximum", _T.TWO_BYTE, _packets(1, 2), _positive),
    PropertyDefinition(0x22, "topic_alias_maximum", _T.TWO_BYTE, _packets(1, 2)),
    PropertyDefinition(0x23, "topic_alias", _T.TWO_BYTE, _packets(3), _alias),
    PropertyDefinition(0x24, "maximum_qos", _T.BYTE, _packets(2), _flag),
    PropertyDefinition(0x25, "retain_available", _T.BYTE, _packets(2), _flag),
    PropertyDefinition(0x26, "user_properties", _T.PAIR, _EVERYWHERE, None, True),
    PropertyDefinition(0x27, "maximum_packet_size", _T.FOUR_BYTE, _packets(1, 2), _positive),
    PropertyDefinition(0x28, "wildcard_subscription_available", _T.BYTE, _packets(2), _flag),
    PropertyDefinition(0x29, "subscription_identifier_available", _T.BYTE, _packets(2), _flag),
    PropertyDefinition(0x2A, "shared_subscription_available", _T.BYTE, _packets(2), _flag),
)
_BY_IDENTIFIER = {definition.identifier: definition for definition in PROPERTY_TABLE}


def _read(kind: PropertyType, cursor: Cursor) -> Any:
    match kind:
        case PropertyType.BYTE:
            return cursor.byte()
        case PropertyType.TWO_BYTE:
            return cursor.two_byte_integer()
        case PropertyType.FOUR_BYTE:
            return cursor.four_byte_integer()
        case PropertyType.VARIABLE:
            return cursor.variable_byte_integer()
        case PropertyType.STRING:
            return cursor.string()
        case PropertyType.BINARY:
            return cursor.binary()
        case PropertyType.PAIR:
            return cursor.string(), cursor.string()


def _write(kind: PropertyType, value: Any) -> bytes:
    match kind:
        case PropertyType.BYTE:
            return bytes((value,))
        case PropertyType.TWO_BYTE:
            return int(value).to_bytes(2, "big")
        case PropertyType.FOUR_BYTE:
            return int(value).to_bytes(4, "big")
        case PropertyType.VARIABLE:
            return encode_variable_byte_integer(value)
        case PropertyType.STRING:
            return encode_string(value)
        case PropertyType.BINARY:
            return encode_binary(value)
        case PropertyType.PAIR:
            return encode_string(value[0]) + encode_string(value[1])


_RESPONSE_TOPIC, _SUBSCRIPTION_IDENTIFIER, _AUTHENTICATION_DATA, _TOPIC_ALIAS, _USER_PROPERTY = (
    0x08, 0x0B, 0x16, 0x23, 0x26,
)  # fmt: skip
#: The longest Authentication Data with its identifier and its length, in bytes.
_LONGEST_AUTHENTICATION_DATA = 3 + 65_535


def read_properties(cursor: Cursor, packet_type: int) -> Properties:
    """Read a property block, which begins with its length, of this Control Packet type (:data:`WILL` for a Will).

    Raises :class:`MalformedPacket` for unknown identifiers, for properties that the packet may not carry and for
    truncated values, :class:`ProtocolError` for duplicates and for values that the standard forbids,
    :class:`ExcessiveProperties` for more than the receiver accepts. The cursor is behind the block then.
    """
    length = cursor.variable_byte_integer()
    if not length:
        return NO_PROPERTIES
    start = cursor.position
    if length > cursor.remaining():
        raise MalformedPacket("the Property Length exceeds the packet")
    cursor.position = start + length
    reception = cursor.reception
    _check_length(length, packet_type, reception)
    block = Cursor(cursor.data, start, start + length, reception)
    found: dict[str, Any] = {}  # single values, or lists of repeatable ones
    pairs: list[tuple[str, str]] = []
    while block.remaining():
        identifier = block.variable_byte_integer()
        if identifier == _USER_PROPERTY:  # every packet may carry it, any number of times
            if len(pairs) == reception.max_user_properties:
                raise ExcessiveProperties(f"a packet has at most {len(pairs)} User Properties here")
            pairs.append((block.string(), block.string()))
            continue
        definition = _BY_IDENTIFIER.get(identifier)
        if definition is None:
            raise MalformedPacket(f"there is no property 0x{identifier:02x}")
        if packet_type not in definition.packets:
            raise MalformedPacket(f"this packet may not carry {definition.field}")  # [MQTT5-2.2.2.2]
        value = _read(definition.type, block)
        if definition.check is not None:
            reason = definition.check(value)
            if reason is not None:
                raise ProtocolError(f"{definition.field} may not be {value!r:.60}", reason)
        if identifier == _RESPONSE_TOPIC:
            _check_response_topic(value, reception)
        # SUBSCRIBE may carry one Subscription Identifier, PUBLISH several [MQTT5-3.8.2.1.2], [MQTT5-3.3.4-4].
        if identifier == _SUBSCRIPTION_IDENTIFIER and packet_type == 3:
            if reception.from_client:  # [MQTT5-3.3.4-6]
                raise ProtocolError("a Client does not send Subscription Identifiers in PUBLISH")
            found.setdefault(definition.field, []).append(value)
        elif definition.field in found:
            raise ProtocolError(f"{definition.field} occurs twice")
        else:
            found[definition.field] = (value,) if definition.repeatable else value
    data = found.get("authentication_data")
    if length - (0 if data is None else 3 + len(data)) > reception.max_properties_bytes:
        raise _too_long(reception)
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return Properties(user_properties=tuple(pairs), **values)


def _check_length(length: int, packet_type: int, reception: Reception) -> None:
    """Refuse a block that is too long, before it is decoded. Authentication Data does not count."""
    most = reception.max_properties_bytes
    if length > most and (
        packet_type not in _BY_IDENTIFIER[_AUTHENTICATION_DATA].packets or length > most + _LONGEST_AUTHENTICATION_DATA
    ):
        raise _too_long(reception)


def _too_long(reception: Reception) -> ExcessiveProperties:
    return ExcessiveProperties(f"the properties of a packet have at most {reception.max_properties_bytes} bytes here")


def _check_response_topic(value: str, reception: Reception) -> None:
    # What an earlier version has stored is read all the same.
    if reception.from_client and not value:  # [MQTT5-4.7.3-1]
        raise ProtocolError("a Response Topic has at least one character")
    check_characters(value, "the Response Topic", reception)


#: The lengths in bytes of the properties of PUBLISH whose length is fixed, and how many strings the others are.
_FIXED_LENGTHS = {0x01: 1, 0x02: 4, _TOPIC_ALIAS: 2}
_STRINGS = {0x03: 1, _RESPONSE_TOPIC: 1, 0x09: 1, _USER_PROPERTY: 2}
#: The most properties that :func:`topic_alias_in` walks over: about a millisecond.
_MOST_WALKED = 4096


def topic_alias_in(data: bytes, position: int, end: int) -> int | None:
    """Return the Topic Alias in the property block ``data[position:end]`` of a PUBLISH that is not decoded.

    Returns 0 if there is none, None if the block has too many properties to look at all of them. Raises
    :class:`MalformedPacket` or :class:`ProtocolError`.
    """
    try:
        for _ in range(_MOST_WALKED):
            if position == end:
                return 0
            identifier = data[position]
            position += 1
            if identifier == _TOPIC_ALIAS:
                break
            if identifier in _FIXED_LENGTHS:
                position += _FIXED_LENGTHS[identifier]
            elif identifier in _STRINGS:
                for _ in range(_STRINGS[identifier]):
                    position += 2 + (data[position] << 8 | data[position + 1])
            else:
                raise MalformedPacket(f"this packet may not carry the property 0x{identifier:02x}")
            if position > end:
                break
        else:
            return None
    except IndexError:
        position = end
    cursor = Cursor(data, position, end)
    alias = cursor.two_byte_integer()
    if not alias:
        raise ProtocolError("topic_alias may not be 0", ReasonCode.TOPIC_ALIAS_INVALID)
    return alias


def decode_properties(block: bytes, packet_type: int = 3, reception: Reception = EVERYTHING) -> Properties:
    """Decode a whole property block with its length, by default that of a PUBLISH."""
    return read_properties(Cursor(block, 0, len(block), reception), packet_type)


def encode_properties(properties: Properties) -> bytes:
    """Encode a property block with its length. Raises ValueError for values that do not fit their types."""
    if properties is NO_PROPERTIES:
        return b"\0"
    parts: list[bytes] = []
    for definition in PROPERTY_TABLE:
        value = getattr(properties, definition.field)
        if value is None or value == ():
            continue
        head = bytes((definition.identifier,))
        for one in value if definition.repeatable else (value,):
            parts.append(head + _write(definition.type, one))
    block = b"".join(parts)
    return encode_variable_byte_integer(len(block)) + block
