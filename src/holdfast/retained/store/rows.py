"""Rows of the table ``retained``: turning a change into columns, and columns into a message.

A row stores the PUBLISH packet in parts, encoded once when the message arrives. For topic ``a/b`` and payload ``21.5``:

===============  ==========================  ==================================================
part             example                     content
===============  ==========================  ==================================================
``prefix3``      ``31 09 00 03``             fixed header and topic length, for MQTT 3.1 and 3.1.1
``prefix5``      ``31 0a 00 03``             the same for MQTT 5.0
``topic``        ``a/b``                     the primary key
``properties5``  ``00``                      the properties of MQTT 5.0 with their length
``payload``      ``21.5``                    the Application Message
===============  ==========================  ==================================================

``prefix5 || topic || properties5 || payload`` is the packet, so the database itself concatenates a slice, and a replay
writes it to the socket without decoding a message. The Message Expiry Interval is not stored in ``properties5``: it
depends on the time of delivery. This costs a few bytes in each row, because a row has two prefixes for two protocols.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

from attrs import fields

from holdfast.core.extensions import PREFIX, PUBLISHER_FACT, REVISION_FACT, STORED_AT_FACT, Facts
from holdfast.core.messages import HELD_ENTRY, STORED_ENTRY, RetainedChange, RetainedChanges, RetainedMessage
from holdfast.core.units import date_of
from holdfast.wire.datatypes import encode_variable_byte_integer, read_variable_byte_integer
from holdfast.wire.properties import NO_PROPERTIES, Properties
from holdfast.wire.property_codec import decode_properties, encode_properties


class Row(NamedTuple):
    """One row of the table, in the order of its columns. A tombstone has the client that cleared, but no message."""

    topic: str
    revision: int
    levels: int
    qos: int
    size: int
    stored_at: int
    expires_at: int | None
    tombstone: int
    client_id: str | None
    username: str | None
    prefix3: bytes
    prefix5: bytes
    properties5: bytes
    properties_json: str | None
    payload: bytes


COLUMNS = Row._fields

#: The columns that :func:`message_of` takes.
MESSAGE_COLUMNS = (
    "topic", "payload", "qos", "properties5", "client_id", "username", "stored_at", "expires_at", "revision",
)  # fmt: skip


def unexpired(now: str) -> str:
    """Return the SQL that tells whether the message of a row has not expired at a time, which is SQL too."""
    return f"(expires_at IS NULL OR expires_at > {now})"


_PUBLISH_RETAINED = b"\x31"  # PUBLISH, DUP 0, QoS 0, RETAIN 1
_LONGEST_TOPIC = 65_535
_PROPERTY_NAMES = tuple(attribute.name for attribute in fields(Properties))


def row_of(change: RetainedChange) -> Row:
    """Return the row of a change; a clear becomes a tombstone.

    Raises ValueError (UnicodeEncodeError is one) if the message cannot be a PUBLISH packet.
    """
    topic = change.topic
    encoded = topic.encode()
    length = len(encoded)
    if length > _LONGEST_TOPIC:
        raise ValueError(f"a Topic Name has at most {_LONGEST_TOPIC} bytes, not {length}")
    levels = topic.count("/") + 1
    message = change.message
    if message is None:
        return Row(
            topic, change.revision, levels, 0, 0, change.changed_at, None, 1, change.client_id, change.username,
            b"", b"", b"", None, b"",
        )  # fmt: skip
    payload, properties = message.payload, message.properties
    size = len(payload)
    topic_length = length.to_bytes(2, "big")
    properties5 = b"\0"
    properties_json = None
    if properties is not NO_PROPERTIES:  # most messages have none: one comparison instead of an encoding
        properties5 = encode_properties(properties)
        if properties5 != b"\0":
            properties_json = json_of(properties)
    remaining = 2 + length + size
    return Row(
        topic, change.revision, levels, message.qos, size, message.stored_at, message.expires_at, 0,
        message.client_id, message.username,
        _PUBLISH_RETAINED + encode_variable_byte_integer(remaining) + topic_length,
        _PUBLISH_RETAINED + encode_variable_byte_integer(remaining + len(properties5)) + topic_length,
        properties5, properties_json, payload,
    )  # fmt: skip


def rows_of(changes: RetainedChanges) -> list[Row]:
    """Return the rows of changes, as :func:`row_of` makes them one by one."""
    qos, at, expires_at = changes.qos, changes.changed_at, changes.expires_at
    client_id, username = changes.client_id, changes.username
    #: most messages of a Client have few lengths
    headers: dict[int, tuple[bytes, bytes]] = {}
    rows = []
    for topic, payload, revision in zip(changes.topics, changes.payloads, changes.revisions, strict=True):
        length = len(topic) if topic.isascii() else len(topic.encode())
        size = len(payload)
        remaining = 2 + length + size
        key = remaining << 16 | length
        prefixes = headers.get(key)
        if prefixes is None:
            topic_length = length.to_bytes(2, "big")
            prefixes = headers[key] = (
                _PUBLISH_RETAINED + encode_variable_byte_integer(remaining) + topic_length,
                _PUBLISH_RETAINED + encode_variable_byte_integer(remaining + 1) + topic_length,
            )
        rows.append(
            Row(
                topic,
                revision,
                topic.count("/") + 1,
                qos,
                size,
                at,
                expires_at,
                0,
                client_id,
                username,
                *prefixes,
                b"\0",
                None,
                payload,
            )
        )
    return rows


def packet_of(row: Row, protocol_version: int) -> bytes:
    """Return the row's PUBLISH packet, as the database concatenates it."""
    topic = row.topic.encode()
    if protocol_version == 5:
        return row.prefix5 + topic + row.properties5 + row.payload
    return row.prefix3 + topic + row.payload


def longest_packet(row: Row) -> int:
    """Return the length in bytes of the row's longest packet, that of MQTT 5.0."""
    return len(row.prefix5) + len(row.topic.encode()) + len(row.properties5) + row.size


def stored_row_size(row: Row) -> int:
    """Return how many bytes a row counts for in totals and quotas; a tombstone counts for none."""
    return 0 if row.tombstone else STORED_ENTRY + len(row.topic.encode()) + len(row.properties5) + row.size


def held_row_size(row: Row) -> int:
    """Return how many bytes a row occupies in memory while it waits for its commit."""
    size = HELD_ENTRY + len(row.topic) + len(row.properties5) + row.size
    return size if row.properties_json is None else size + len(row.properties_json)


def message_of(columns: tuple[Any, ...]) -> RetainedMessage:
    """Return the message in these :data:`MESSAGE_COLUMNS`."""
    topic, payload, qos, properties5, client_id, username, stored_at, expires_at, revision = columns
    return RetainedMessage(
        topic, payload, qos, _decoded(properties5), client_id, username, stored_at, expires_at, revision
    )


def properties_of(row: Row) -> Properties:
    """Return the properties of a message's row."""
    return _decoded(row.properties5)


def _decoded(properties5: bytes) -> Properties:
    return NO_PROPERTIES if properties5 == b"\0" else decode_properties(properties5)


def json_of(properties: Properties) -> str:
    """Return the properties as a JSON object, for readers of the table.

    The keys are the standard's names. User Properties are a list of pairs, Binary Data is base64.
    """
    present: dict[str, Any] = {}
    for name in _PROPERTY_NAMES:
        value = getattr(properties, name)
        if value is not None and value != ():
            present[name] = b64encode(value).decode() if isinstance(value, bytes) else value
    return json.dumps(present, ensure_ascii=False, separators=(",", ":"))


# Facts about retained messages, in User Properties behind those of their packets.
#
# The store adds them to the packets that it reads. So they count in everything that is measured in bytes later: slices,
# windows, and the Maximum Packet Size of the Client.


#: the identifier of a User Property
_USER_PROPERTY = b"\x26"
#: the beginnings of the User Properties, up to their values
_NAMES = {
    fact: _USER_PROPERTY + len(PREFIX + fact).to_bytes(2, "big") + (PREFIX + fact).encode()
    for fact in (STORED_AT_FACT, REVISION_FACT, PUBLISHER_FACT)
}

#: when a message was stored (milliseconds since the epoch), its revision, and the Client Identifier of its publisher
Told = tuple[int, int, str | None]


def with_facts(joined: bytes, facts: Facts, told: Sequence[Told]) -> bytes:
    """Return the joined MQTT 5 packets with these facts, told of each message in the order of the packets.

    The packets are PUBLISH packets with QoS 0. A publisher that is no Client is not told.
    """
    pieces: list[bytes] = []
    start = 0
    for message in told:
        length, topic = read_variable_byte_integer(joined, start + 1)
        end = topic + length
        rest = topic + 2 + (joined[topic] << 8 | joined[topic + 1])
        own, properties = read_variable_byte_integer(joined, rest)
        added = encoded(facts, *message)
        lengthened = encode_variable_byte_integer(own + len(added))
        payload = properties + own
        remaining = rest - topic + len(lengthened) + own + len(added) + end - payload
        pieces += (
            joined[start : start + 1],
            encode_variable_byte_integer(remaining),
            joined[topic:rest],
            lengthened,
            joined[properties:payload],
            added,
            joined[payload:end],
        )
        start = end
    return b"".join(pieces)


def encoded(facts: Facts, stored_at: int, revision: int, publisher: str | None) -> bytes:
    """Return the encoded User Properties of one message."""
    values = {STORED_AT_FACT: date_of(stored_at), REVISION_FACT: str(revision), PUBLISHER_FACT: publisher}
    properties: list[bytes] = []
    for fact in facts:
        value = values[fact]
        if value is not None:
            text = value.encode()
            properties += (_NAMES[fact], len(text).to_bytes(2, "big"), text)
    return b"".join(properties)
