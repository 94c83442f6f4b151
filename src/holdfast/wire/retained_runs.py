r"""Retained runs: consecutive PUBLISH packets with RETAIN 1 that the broker retains together.

How it works. Sensors behind one gateway have many topics, so the packets of a :class:`~holdfast.wire.runs.Run` would
seldom follow each other. A retained run has packets of any topics. It saves the work around each message: one ticket,
one block of revisions and one entry of acknowledgements for all of them.

    33 0a | 00 03 a/b | 00 01 | 1.5    33 0a | 00 03 a/c | 00 02 | 7.5    33 08 | 00 03 a/d | 00 03 | 9    32 ...
    ------------------------- one retained run of 3 packets -------------------------------------------    no RETAIN

All packets have the same first byte: RETAIN 1, no DUP, QoS 0 or 1. They have no properties and at least one byte of
payload, since an empty one clears the topic. The :class:`RunTaker` says which topics it takes. It takes no topic with
a subscriber, so nothing has to be sent, and the messages can be retained one after the other.

Whatever does not fit ends the run, also a wrong packet: the parser judges it by itself, so its error comes at the right
place. The plain twin is :meth:`PacketParser.next_packet` for the same bytes.
"""

from __future__ import annotations

from typing import Protocol

#: the first bytes of the packets that may form retained runs: PUBLISH with RETAIN, without DUP, with QoS 0 and QoS 1
RETAINED_FIRST_BYTES = (0x31, 0x33)

_DOLLAR = 0x24


class RunTaker(Protocol):
    """The one who takes the retained runs of a Client."""

    def most(self, qos: int) -> int:
        """Return how many packets with this QoS the next run may have. Less than 2: there is none."""

    def takes(self, topic: str, qos: int) -> bool:
        """Tell whether messages of this topic and QoS may be in a retained run."""


class RetainedRun:
    """Consecutive PUBLISH packets with RETAIN 1 in ``data``, from ``start`` to ``end``.

    ``qos`` is that of all ``count`` packets. ``identifiers`` are the bytes of their Packet Identifiers, empty with
    QoS 0. Everything is copied out of the received bytes.
    """

    __slots__ = ("end", "identifiers", "payloads", "qos", "start", "topics", "v5")

    def __init__(
        self,
        start: int,
        end: int,
        topics: list[str],
        payloads: list[bytes],
        identifiers: list[bytes],
        qos: int,
        v5: bool,
    ) -> None:
        self.start = start
        self.end = end
        self.topics = topics
        self.payloads = payloads
        self.identifiers = identifiers
        self.qos = qos
        self.v5 = v5

    @property
    def count(self) -> int:
        """The number of packets."""
        return len(self.topics)

    def acknowledgements(self) -> bytes:
        """Return the PUBACK packets of messages without subscribers, joined."""
        if self.v5:  # No matching subscribers (0x10)
            return b"\x40\x03" + b"\x10\x40\x03".join(self.identifiers) + b"\x10"
        return b"\x40\x02" + b"\x40\x02".join(self.identifiers)


def find_retained_run(
    data: bytes, position: int, most: int, v5: bool, max_packet_size: int, taker: RunTaker
) -> RetainedRun | None:
    """Return the retained run of at most so many packets that begins at this position, None if none does.

    The byte at this position is one of :data:`RETAINED_FIRST_BYTES`.
    """
    first = data[position]
    qos = first >> 1 & 1
    most = min(most, taker.most(qos))
    size = len(data)
    start = position
    topics: list[str] = []
    payloads: list[bytes] = []
    identifiers: list[bytes] = []
    takes = taker.takes
    while len(topics) < most and position + 4 <= size and data[position] == first:
        topic_start = position + 4
        length = data[position + 1]
        if length > 127:
            more = data[position + 2]
            if more > 127 or not more:
                break
            length += (more << 7) - 128
            topic_start += 1
        following = topic_start - 2 + length
        if following > size or following - position > max_packet_size:
            break
        if not topics and (following == size or data[following] != first):
            break  # alone
        topic_end = topic_start + (data[topic_start - 2] << 8 | data[topic_start - 1])
        payload = topic_end + 2 * qos + v5
        if payload >= following or (v5 and data[payload - 1]):
            break
        if topic_start == topic_end or data[topic_start] == _DOLLAR:
            break
        identifier = data[topic_end : topic_end + 2]
        if qos and identifier == b"\0\0":
            break
        try:
            topic = data[topic_start:topic_end].decode()
        except UnicodeDecodeError:
            break
        if not topic.isprintable() or "+" in topic or "#" in topic or not takes(topic, qos):
            break
        topics.append(topic)
        payloads.append(data[payload:following])
        if qos:
            identifiers.append(identifier)
        position = following
    if len(topics) < 2:
        return None
    return RetainedRun(start, position, topics, payloads, identifiers, qos, v5)
