"""Facts about retained messages, in User Properties behind those of their packets.

The store adds them to the packets that it reads. So they count in everything that is measured in bytes later: slices,
windows, and the Maximum Packet Size of the Client.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.extensions.names import PREFIX
from holdfast.extensions.replay_info import PUBLISHER_FACT, REVISION_FACT, STORED_AT_FACT, Facts
from holdfast.retained.dates import date_of
from holdfast.wire.datatypes import encode_variable_byte_integer, read_variable_byte_integer

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
