"""Sparkplug Aware MQTT Server (Sparkplug 3.0, 10.1.4): birth certificates that are retained, and the time of NDEATH.

How it works. Edge Nodes publish their births without RETAIN, so a host that comes later knows no metric, and has to ask
each node to be born again. The broker therefore retains a copy of each birth, under a topic of its own. It is stored in
the commit of the birth, and sent to subscribers like any message::

    spBv1.0/plant/NBIRTH/press        $sparkplug/certificates/spBv1.0/plant/NBIRTH/press
    spBv1.0/plant/DBIRTH/press/arm    $sparkplug/certificates/spBv1.0/plant/DBIRTH/press/arm

A copy is the broker's: it has no publisher, and clients cannot publish there. An empty payload is no birth.

An NDEATH is usually a Will, made when its node connected. Its timestamp is replaced by the time at which it is sent.
The payload is a Protocol Buffer, whose field 1 is the timestamp::

    08 E8 07  12 ...      timestamp 1000, a metric
    08 F4 ..  12 ...      timestamp of now, the same metric

What cannot be read so, or only with very many steps, stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from holdfast.core.messages import ApplicationMessage

#: the topics of the copies
CERTIFICATES = "$sparkplug/certificates/"

_NAMESPACE = "spBv1.0"
_START = f"{_NAMESPACE}/"
#: the levels of the topics of each type
_LEVELS = {"NBIRTH": 4, "DBIRTH": 5, "NDEATH": 4}
_DEATH = "NDEATH"
#: the fields of a payload that are looked at: an NDEATH has a few, and each costs a microsecond
_MOST_FIELDS = 1000
_TIMESTAMP = 0x08  #: field 1, a varint


class SparkplugAware:
    """Makes the copies of births, and dates deaths. ``now`` returns milliseconds since the epoch."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now

    def concerns(self, topic: str) -> bool:
        """Tell whether messages of a topic are births or deaths."""
        return topic.startswith(_START) and _type_of(topic) is not None

    def certificate(self, message: ApplicationMessage) -> ApplicationMessage | None:
        """Return the copy of a birth that is retained, None for any other message."""
        topic = message.topic
        if not topic.startswith(_START) or not message.payload or _type_of(topic) in (None, _DEATH):
            return None
        return evolve(message, topic=CERTIFICATES + topic, retain=True, client_id=None, username=None, listener=None)

    def dated(self, message: ApplicationMessage) -> ApplicationMessage:
        """Return an NDEATH with the present time, and any other message as it is."""
        topic = message.topic
        if not topic.startswith(_START) or _type_of(topic) != _DEATH:
            return message
        payload = with_timestamp(message.payload, self._now())
        return message if payload is None else evolve(message, payload=payload)


def is_certificate(topic: str) -> bool:
    """Tell whether a Topic Name is that of a copy: only the broker publishes there."""
    return topic.startswith(CERTIFICATES)


def _type_of(topic: str) -> str | None:
    """Return the type of a message of this topic, None if it is no birth and no NDEATH."""
    levels = topic.split("/", 5)
    kind = levels[2] if len(levels) > 2 else ""
    return kind if len(levels) == _LEVELS.get(kind) and all(levels) else None


def with_timestamp(payload: bytes, timestamp: int) -> bytes | None:
    """Return a Sparkplug payload with this timestamp; None if it cannot be read."""
    kept, position, begin = [b"\x08" + _varint(timestamp)], 0, 0
    for _ in range(_MOST_FIELDS):
        if position == len(payload):
            kept.append(payload[begin:])
            return b"".join(kept)
        end = _end_of_field(payload, position)
        if end is None:
            return None
        if payload[position] == _TIMESTAMP:
            kept.append(payload[begin:position])
            begin = end
        position = end
    return None


def _end_of_field(payload: bytes, position: int) -> int | None:
    """Return the end of a field, None if there is no whole one."""
    key, position = _number_at(payload, position)
    if position < 0 or key < 8:
        return None
    length = 0
    match key & 7:
        case 0:
            _, position = _number_at(payload, position)
        case 1:
            length = 8
        case 2:
            length, position = _number_at(payload, position)
        case 5:
            length = 4
        case _:
            return None
    return None if position < 0 or position + length > len(payload) else position + length


def _number_at(payload: bytes, position: int) -> tuple[int, int]:
    """Return a varint and the position behind it; -1 if there is none."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(payload):
            return 0, -1
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 0, -1


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
