"""Finding the packets inside a slice, and cutting slices, without decoding the packets.

All packets are PUBLISH packets with QoS 0 [MQTT5-3.3]: up to the topic, they are the same in every protocol version.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import islice, takewhile

from attrs import evolve

from holdfast.retained.store.values import Slice
from holdfast.wire import encode
from holdfast.wire.datatypes import read_variable_byte_integer
from holdfast.wire.packets import Publish

#: the QoS of an empty message, which the Subscription may lower: its clear may have had any
CLEAR_QOS = 2


def packets_of(
    messages: Slice,
    protocol_version: int,  # noqa: ARG001 - callers need not know that all versions are alike here
) -> Iterator[tuple[int, int, str]]:
    """Yield the start, the end and the topic of each packet of the slice."""
    data = messages.packets
    start, size = 0, len(data)
    while start < size:
        length = data[start + 1]
        position = start + 2
        if length > 127:  # the loop runs once a message: a short length costs no call
            length, position = read_variable_byte_integer(data, start + 1)
        end = position + length
        topic_start = position + 2
        topic_end = topic_start + (data[position] << 8 | data[position + 1])
        yield start, end, data[topic_start:topic_end].decode()
        start = end


def divide(messages: Slice, count: int, protocol_version: int) -> list[Slice]:
    """Divide into slices of ``count`` messages; the last one has the rest. Only topics at the cuts are decoded.

    The first one tells how many messages were left out.
    """
    data = messages.packets
    qos, expires_at, publishers = messages.qos, messages.expires_at, messages.publishers
    cursors = messages.cursors
    divided: list[Slice] = []
    start = begun = 0
    for number in range(count, messages.count, count):
        end = start
        for _ in range(count):
            before = end
            end = _end_of(data, before)
        if cursors:
            last = cursors[number - 1]
        else:
            (_, _, last) = next(packets_of(Slice("", 1, data[before:end]), protocol_version))
        divided.append(
            Slice(
                last,
                count,
                data[start:end],
                qos[begun:number],
                expires_at[begun:number],
                messages.soonest_expiry,
                0 if divided else messages.left_out,
                publishers[begun:number],
                cursors[begun:number],
            )
        )
        start, begun = end, number
    rest = messages.count - begun
    left_out = 0 if divided else messages.left_out
    divided.append(
        Slice(
            messages.last,
            rest,
            data[start:],
            qos[begun:],
            expires_at[begun:],
            messages.soonest_expiry,
            left_out,
            publishers[begun:],
            cursors[begun:],
        )
    )
    return divided


def short_slices(messages: Slice, most: int, protocol_version: int) -> list[Slice]:
    """Divide into slices of at most ``most`` bytes of packets. A longer message is a slice of its own."""
    divided: list[Slice] = []
    # Each turn cuts off the longest fitting beginning, so few cuts are needed and few topics are decoded.
    while len(messages.packets) > most and messages.count > 1:
        fitting = takewhile(lambda packet: packet[1] <= most, packets_of(messages, protocol_version))
        first, messages = cut(messages, max(1, sum(1 for _ in fitting)), protocol_version)
        divided.append(first)
    return [*divided, messages]


def _end_of(data: bytes, start: int) -> int:
    """Return the end of the packet that begins at ``start``."""
    length, position = read_variable_byte_integer(data, start + 1)
    return position + length


def without(messages: Slice, topics: Container[str], protocol_version: int) -> Slice:
    """Return the slice without the messages of these topics. ``last`` stays: the cursor has passed it."""
    packets = enumerate(packets_of(messages, protocol_version))
    return only(messages, [number for number, (_, _, topic) in packets if topic not in topics], protocol_version)


def only(messages: Slice, numbers: Sequence[int], protocol_version: int) -> Slice:
    """Return the slice with the messages of these numbers (ascending, from 0) only. ``last`` stays."""
    if len(numbers) == messages.count:
        return messages
    data, packets = messages.packets, list(packets_of(messages, protocol_version)) if numbers else []
    qos, expires_at, publishers = messages.qos, messages.expires_at, messages.publishers
    return Slice(
        messages.last,
        len(numbers),
        b"".join([data[packets[number][0] : packets[number][1]] for number in numbers]),
        bytes([qos[number] for number in numbers]) if qos else b"",
        tuple([expires_at[number] for number in numbers]) if expires_at else (),
        messages.soonest_expiry,
        messages.left_out,
        [publishers[number] for number in numbers] if publishers else (),
        [messages.cursors[number] for number in numbers] if messages.cursors else (),
    )


def emptied(messages: Slice, numbers: Container[int], protocol_version: int) -> Slice:
    """Return the slice with an empty message in place of each message of these numbers (from 0)."""
    data, packets = messages.packets, list(packets_of(messages, protocol_version))
    return evolve(
        messages,
        packets=b"".join(
            empty_packet(topic, protocol_version) if number in numbers else data[start:end]
            for number, (start, end, topic) in enumerate(packets)
        ),
        qos=bytes(CLEAR_QOS if number in numbers else qos for number, qos in enumerate(messages.qos)),
        expires_at=tuple(0 if number in numbers else at for number, at in enumerate(messages.expires_at)),
    )


def empty_packet(topic: str, protocol_version: int) -> bytes:
    """Return the packet that tells a subscriber that nothing is retained any more."""
    return encode(Publish(topic, b"", retain=True), protocol_version)


def cut(messages: Slice, count: int, protocol_version: int) -> tuple[Slice, Slice]:
    """Cut after the first ``count`` messages. Raises ValueError unless both parts have a message."""
    if not 0 < count < messages.count:
        raise ValueError(f"a slice of {messages.count} cannot be cut after {count}")
    _, end, topic = next(islice(packets_of(messages, protocol_version), count - 1, None))
    data, qos, expires_at, publishers = messages.packets, messages.qos, messages.expires_at, messages.publishers
    return (
        Slice(
            messages.cursors[count - 1] if messages.cursors else topic,
            count,
            data[:end],
            qos[:count],
            expires_at[:count],
            messages.soonest_expiry,
            messages.left_out,
            publishers[:count],
            messages.cursors[:count],
        ),
        Slice(
            messages.last,
            messages.count - count,
            data[end:],
            qos[count:],
            expires_at[count:],
            messages.soonest_expiry,
            publishers=publishers[count:],
            cursors=messages.cursors[count:],
        ),
    )
