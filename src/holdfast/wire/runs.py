r"""Runs: consecutive PUBLISH packets that the broker takes, routes and sends as one.

How it works. A Client that publishes much sends many packets in one piece, often for the same few topics:

    30 08 | 00 03 a/b | 1.5    30 08 | 00 03 a/b | 1.6    30 07 | 00 03 a/c | 12    32 0a | 00 03 a/b | 00 01 | 1.7
    ----------------------------- one run of 3 packets -----------------------------  another first byte: another run

A run has packets of one Client, in one piece of received bytes, with the same first byte: no DUP, no RETAIN, QoS 0 or
1. They have no properties, and their topics have one *route*: a number by which the routing table finds the Sessions
that get these messages. The owner of a parser gives it the routes of the *known topics* (:class:`KnownTopics`): of
each, one PUBLISH with this first byte has passed all checks. A malformed packet is in no run: the parser decodes it by
itself, and its error comes at the right place. :meth:`Run.publishes` is the plain twin: the same packets, one by one.

Consecutive packets with the same topic and the same length form a *stripe*: they begin at equal distances. So a field
of all packets of a stripe is read or written at once, as ``data[start:end:size]``. For example, two such expressions
give the high and the low bytes of all Packet Identifiers.

Invariants: ``data`` is the whole received piece, so nobody keeps a run longer than a turn. Bytes that leave a run are
copies, or the whole piece where that is the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holdfast.wire import packets as p
from holdfast.wire.datatypes import encode_variable_byte_integer
from holdfast.wire.decoding import decode_publish
from holdfast.wire.encoding import HIGH, LOW

#: the most packets of a run: if it has to be taken apart, each packet costs 5 to 50 microseconds
LONGEST_RUN = 500

#: the first bytes of the packets that may form runs: PUBLISH without DUP and RETAIN, with QoS 0 and QoS 1
FIRST_BYTES = (0x30, 0x32)

#: Bytes that the known topics of one Client may always occupy, and of each unit that it gets from the pool.
_UNIT = 64 * 1024
#: units in the pool, and the most of them that one Client gets: to forget that many topics takes 0.05 ms
_IN_POOL = 256
_MOST_OF_ONE = 15
#: bytes that a known topic takes beside its name
_ENTRY = 150
#: the longest topic that is known, in bytes
_LONGEST_TOPIC = 512

#: the routes of topics, by topic in UTF-8
Routes = dict[bytes, int]

#: A stripe in some bytes: where it starts, the size of each packet, and the number of packets; then the positions in
#: each packet where the topic (with its length) starts, where it ends, and where the payload starts. A plain tuple:
#: many stripes have one packet, and an object would cost more than all other work for it.
Stripe = tuple[int, int, int, int, int, int]


class TopicPool:
    """Memory for the known topics of all Clients, 16 MiB in units of 64 KiB.

    A Client gets another unit only while more are free than it has: the first few Clients leave some for the next.
    Without units, a Client knows fewer topics, and its packets cost more.
    """

    __slots__ = ("free",)

    def __init__(self, units: int = _IN_POOL) -> None:
        self.free = units

    def take(self, has: int) -> bool:
        """Take a unit for a Client that has so many. Return False if it gets no more."""
        if has >= min(self.free, _MOST_OF_ONE):
            return False
        self.free -= 1
        return True

    def give_back(self, units: int) -> None:
        """Return the units of a Client."""
        self.free += units


class KnownTopics:
    """The routes of topics that one Client has published to, by the first byte of PUBLISH.

    They occupy 64 KiB at most, and more if the pool has it: at most 1 MiB, which is some 5000 topics.
    """

    __slots__ = ("_left", "_pool", "_units", "routes")

    def __init__(self, pool: TopicPool) -> None:
        self.routes: dict[int, Routes] = {first: {} for first in FIRST_BYTES}
        self._pool = pool
        self._units = 0  #: those from the pool
        self._left = _UNIT  #: bytes for further topics

    def add(self, qos: int, topic: bytes, route: int) -> None:
        """Note that packets of this topic and QoS may form runs. If too many topics are known, forget the others."""
        if len(topic) > _LONGEST_TOPIC:
            return
        routes = self.routes[0x30 | qos << 1]
        if topic not in routes:
            size = len(topic) + _ENTRY
            if size > self._left:
                if self._pool.take(self._units):
                    self._units += 1
                    self._left += _UNIT
                else:
                    self.clear()
            self._left -= size
        routes[topic] = route

    def has(self, qos: int, topic: bytes) -> bool:
        """Tell whether packets of this topic and QoS may form runs."""
        return topic in self.routes[0x30 | qos << 1]

    def __len__(self) -> int:
        return sum(map(len, self.routes.values()))

    def forget(self, topic: bytes) -> bool:
        """Forget a topic; return whether it was known."""
        forgotten = 0
        for routes in self.routes.values():
            forgotten += routes.pop(topic, None) is not None
        self._left += forgotten * (len(topic) + _ENTRY)
        if forgotten and not len(self):
            self.clear()
        return forgotten > 0

    def beginning_with(self, start: bytes) -> set[bytes]:
        """Return the known topics that begin so."""
        return {topic for routes in self.routes.values() for topic in routes if topic.startswith(start)}

    def clear(self) -> None:
        """Forget all topics, and give back the memory from the pool."""
        for routes in self.routes.values():
            routes.clear()
        self._pool.give_back(self._units)
        self._units = 0
        self._left = _UNIT


class Run:
    """Consecutive PUBLISH packets in ``data``, from ``start`` to ``end``, of a Client with MQTT 5 or 3.

    ``qos`` and ``route`` are those of all ``count`` packets.
    """

    __slots__ = (
        "_forms",
        "_numbered",
        "_plain",
        "_stripes",
        "count",
        "data",
        "end",
        "qos",
        "route",
        "start",
        "taken_apart",
        "v5",
    )

    def __init__(
        self, data: bytes, start: int, end: int, count: int, stripes: list[Stripe], qos: int, v5: bool, route: int
    ) -> None:
        self.data = data
        self.start = start
        self.end = end
        self.count = count
        self.qos = qos
        self.v5 = v5
        self.route = route
        self.taken_apart = False  #: whether its packets have been taken one by one
        self._stripes = stripes
        self._forms: dict[tuple[bool, int], tuple[bytes, list[Stripe]]] = {}
        self._plain: list[bytes | None] = [None, None]  # with QoS 0, for MQTT 3 and 5
        self._numbered: dict[tuple[bool, int], bytes] = {}

    @property
    def stripes(self) -> int:
        """The number of stripes: the steps in which the run is encoded."""
        return len(self._stripes)

    @property
    def longest(self) -> int:
        """The most bytes that a packet of :meth:`packets` may have."""
        # Two bytes more than received: a property length, and one more byte of Remaining Length.
        return max(stripe[1] for stripe in self._stripes) + 2

    def packets(self, v5: bool, qos: int, first_identifier: int = 0) -> bytes:
        """Return the packets as a Client with MQTT 5 or 3 gets them, joined. ``qos`` is at most that of the run.

        With QoS 1 they have consecutive Packet Identifiers from the first one on, none above 65535. Each form is made
        once: all receivers share it.
        """
        if not qos:
            packets = self._plain[v5]
            if packets is None:
                packets = self._plain[v5] = self._form(v5, 0)[0]
            return packets
        numbered = self._numbered.get((v5, first_identifier))
        if numbered is None:
            packets, stripes = self._form(v5, 1)
            numbered = self._numbered[v5, first_identifier] = _numbered(packets, stripes, first_identifier)
        return numbered

    def acknowledgements(self, reason_code: int = 0) -> bytes:
        """Return the PUBACK packets for a run with QoS 1, joined, all with this Reason Code (0 in MQTT 3)."""
        one = b"\x40\x03\0\0%c" % reason_code if reason_code else b"\x40\x02\0\0"
        answers = bytearray(one * self.count)
        step = len(one)
        place = 0
        for start, size, count, _, topic_end, _ in self._stripes:
            following = place + step * count
            end = start + size * count
            answers[place + 2 : following : step] = self.data[start + topic_end : end : size]
            answers[place + 3 : following : step] = self.data[start + topic_end + 1 : end : size]
            place = following
        return bytes(answers)

    def kept(self, v5: bool) -> KeptRun:
        """Return copies of the packets, with QoS 1, that may stay longer than this turn."""
        return KeptRun(*self._form(v5, 1))

    def publishes(self) -> list[p.Publish]:
        """Return the packets one by one, as the parser would return them."""
        data, version = self.data, 5 if self.v5 else 4
        self.taken_apart = True
        publishes = []
        for first, size, count, topic, _, _ in self._stripes:
            for start in range(first, first + size * count, size):
                publish = decode_publish(data[start], data, start + topic, start + size, version)
                assert isinstance(publish, p.Publish)
                publishes.append(publish)
        return publishes

    def messages(self) -> list[tuple[str, bytes]]:
        """Return the Topic Name and the payload of each packet."""
        self.taken_apart = True
        data = self.data
        found: list[tuple[str, bytes]] = []
        for first, size, count, topic, topic_end, payload in self._stripes:
            name = data[first + topic + 2 : first + topic_end].decode()
            starts = range(first, first + size * count, size)
            found += [(name, data[start + payload : start + size]) for start in starts]
        return found

    def _form(self, v5: bool, qos: int) -> tuple[bytes, list[Stripe]]:
        """Return the packets for this protocol version and QoS, and their stripes. Packet Identifiers are arbitrary."""
        form = self._forms.get((v5, qos))
        if form is None:
            form = self._forms[v5, qos] = self._same() if v5 == self.v5 and qos == self.qos else self._other(v5, qos)
        return form

    def _same(self) -> tuple[bytes, list[Stripe]]:
        # Only packets with Packet Identifiers need their stripes.
        stripes = [(stripe[0] - self.start, *stripe[1:]) for stripe in self._stripes] if self.qos else []
        return self.data[self.start : self.end], stripes

    def _other(self, v5: bool, qos: int) -> tuple[bytes, list[Stripe]]:
        data = self.data
        stripes: list[Stripe] = []
        parts: list[bytes] = []
        between = (b"\0\0" if qos else b"") + (b"\0" if v5 else b"")
        place = 0
        for start, size, count, topic_start, topic_end, payload in self._stripes:
            topic = data[start + topic_start : start + topic_end]
            length = len(topic) + len(between) + size - payload
            fixed = bytes((0x30 | qos << 1,)) + encode_variable_byte_integer(length)
            head = fixed + topic + between
            # The stripe begins with a head; join() puts the others between the payloads.
            ends = range(start + size, start + size * count + 1, size)
            parts += head, head.join([data[end - size + payload : end] for end in ends])
            stripes.append((place, len(fixed) + length, count, len(fixed), len(fixed) + len(topic), len(head)))
            place += (len(fixed) + length) * count
        return b"".join(parts), stripes


class KeptRun:
    """The packets of a run, with QoS 1, that wait for a receiver of one protocol version. They leave at the front."""

    __slots__ = ("_packets", "_start", "_stripes", "content", "count", "longest")

    def __init__(self, packets: bytes, stripes: list[Stripe]) -> None:
        self._packets = packets
        self._stripes = stripes
        self._start = 0  # of the first packet that has not left
        self.count = sum(stripe[2] for stripe in stripes)
        #: the bytes of the longest packet
        self.longest = max(stripe[1] for stripe in stripes)
        #: the bytes of the topics and payloads of the packets that have not left
        self.content = sum(stripe[2] * _content(stripe) for stripe in stripes)

    def first(self, count: int, first_identifier: int) -> bytes:
        """Return the first packets, joined, with consecutive Packet Identifiers from this one on. None leaves."""
        taken: list[Stripe] = []
        end = self._start
        for start, size, packets, topic, topic_end, payload in self._stripes:
            packets = min(packets, count)
            taken.append((start - self._start, size, packets, topic, topic_end, payload))
            end = start + size * packets
            count -= packets
            if not count:
                break
        return _numbered(self._packets[self._start : end], taken, first_identifier)

    def drop(self, count: int) -> None:
        """Let the first packets leave."""
        self.count -= count
        stripes = self._stripes
        gone = 0
        while gone < len(stripes) and count >= stripes[gone][2]:
            count -= stripes[gone][2]
            self.content -= stripes[gone][2] * _content(stripes[gone])
            gone += 1
        self._stripes = stripes = stripes[gone:]
        if not stripes:
            self._start = len(self._packets)
            return
        self.content -= count * _content(stripes[0])
        start, size, packets, topic, topic_end, payload = stripes[0]
        self._start = start = start + count * size
        stripes[0] = (start, size, packets - count, topic, topic_end, payload)

    def messages(self) -> Iterator[tuple[str, bytes]]:
        """Yield the Topic Name and the payload of each packet that has not left."""
        data = self._packets
        for first, size, packets, topic, topic_end, payload in self._stripes:
            name = data[first + topic + 2 : first + topic_end].decode()
            for start in range(first, first + size * packets, size):
                yield name, data[start + payload : start + size]


def _content(stripe: Stripe) -> int:
    """Return the bytes of the topic and the payload of each packet."""
    _, size, _, topic, topic_end, payload = stripe
    return topic_end - topic - 2 + size - payload


class Single:
    """A run of one packet, which is all that the Client has sent by now: its messages come one by one.

    Fleets send such messages all day, so it is made with little: the packet is found by its topic alone, and goes out
    as the same bytes where the receiver takes it as it came. ``topic``, ``topic_end`` and ``payload`` are positions in
    ``data``, as in a :data:`Stripe`.
    """

    __slots__ = ("_identified", "_identifier", "_other", "_parts", "data", "end", "qos", "route", "v5")

    start = 0
    count = 1
    stripes = 1
    taken_apart = False

    def __init__(self, data: bytes, parts: tuple[int, int, int], qos: int, v5: bool, route: int) -> None:
        self.data = data
        self.end = len(data)
        self.qos = qos
        self.v5 = v5
        self.route = route
        self._parts = parts
        self._other: Run | None = None
        self._identifier = 0
        self._identified = b""

    @property
    def longest(self) -> int:
        """As :attr:`Run.longest`."""
        return self.end + 2

    def packets(self, v5: bool, qos: int, first_identifier: int = 0) -> bytes:
        """As :meth:`Run.packets`."""
        if v5 is not self.v5 or qos != self.qos:
            return self._as_run().packets(v5, qos, first_identifier)
        if not qos:
            return self.data
        if first_identifier != self._identifier:
            place = self._parts[1]
            data = self.data
            self._identifier = first_identifier
            self._identified = data[:place] + first_identifier.to_bytes(2, "big") + data[place + 2 :]
        return self._identified

    def acknowledgements(self, reason_code: int = 0) -> bytes:
        """As :meth:`Run.acknowledgements`."""
        place = self._parts[1]
        identifier = self.data[place : place + 2]
        return b"\x40\x03%b%c" % (identifier, reason_code) if reason_code else b"\x40\x02" + identifier

    def kept(self, v5: bool) -> KeptRun:
        """As :meth:`Run.kept`."""
        return self._as_run().kept(v5)

    def publishes(self) -> list[p.Publish]:
        """As :meth:`Run.publishes`."""
        return self._as_run().publishes()

    def messages(self) -> list[tuple[str, bytes]]:
        """As :meth:`Run.messages`."""
        topic, topic_end, payload = self._parts
        return [(self.data[topic + 2 : topic_end].decode(), self.data[payload:])]

    def _as_run(self) -> Run:
        if self._other is None:
            stripe = (0, self.end, 1, *self._parts)
            self._other = Run(self.data, 0, self.end, 1, [stripe], self.qos, self.v5, self.route)
        return self._other


def find_single(data: bytes, known: dict[int, Routes], v5: bool, max_packet_size: int) -> Single | None:
    """Return the packet that is all of ``data``, None if it cannot be in a run. ``known`` are routes by first byte."""
    size = len(data)
    if size < 4 or size > max_packet_size:
        return None
    routes = known.get(data[0])
    if not routes:
        return None
    length = data[1]
    topic = 2
    if length > 127:
        more = data[2]
        if more > 127 or not more:
            return None
        length += (more << 7) - 128
        topic = 3
    if topic + length != size or length < 2:
        return None
    topic_end = topic + 2 + (data[topic] << 8 | data[topic + 1])
    route = routes.get(data[topic + 2 : topic_end])
    if route is None:
        return None
    qos = data[0] >> 1 & 1
    payload = topic_end + 2 * qos + v5
    if payload > size or (v5 and data[payload - 1]) or (qos and not (data[topic_end] or data[topic_end + 1])):
        return None
    return Single(data, (topic, topic_end, payload), qos, v5, route)


def _numbered(packets: bytes, stripes: list[Stripe], identifier: int) -> bytes:
    """Return the packets with consecutive Packet Identifiers from this one on."""
    numbered = bytearray(packets)
    for start, size, count, _, topic_end, _ in stripes:
        following = identifier + count
        end = start + size * count
        numbered[start + topic_end : end : size] = HIGH[identifier:following]
        numbered[start + topic_end + 1 : end : size] = LOW[identifier:following]
        identifier = following
    return bytes(numbered)


def find_run(data: bytes, position: int, routes: Routes, v5: bool, max_packet_size: int) -> Run | None:
    """Return the run that begins at this position, None if its first packet cannot be in a run.

    ``routes`` are those for the byte at this position, which is one of :data:`FIRST_BYTES`. A packet with QoS 1 alone
    is no run: it costs less alone.
    """
    first = data[position]
    qos = first >> 1 & 1
    size = len(data)
    stripes: list[Stripe] = []
    route = -1
    left = LONGEST_RUN
    begin = position
    # Nothing is an error here: the parser decodes the packet that ends the run.
    while left and position + 4 <= size and data[position] == first:
        start = position
        topic = start + 2
        length = data[start + 1]
        if length > 127:
            more = data[topic]
            if more > 127 or not more:
                break
            length += (more << 7) - 128
            topic += 1
        following = topic + length
        if following >= size and (following > size or (qos and not stripes)):
            break
        if length < 2 or following - start > max_packet_size:
            break
        topic_end = topic + 2 + (data[topic] << 8 | data[topic + 1])
        payload = topic_end + 2 * qos + v5
        if payload > following:
            break
        found = routes.get(data[topic + 2 : topic_end])
        if found is None or (found != route and stripes):
            break
        packet_size = following - start
        position = following
        # Packets that begin with the same bytes up to the end of the topic have the same topic and the same length.
        same = data[start:topic_end]
        if data.startswith(same, position):
            last = min(size, start + left * packet_size) - packet_size
            while position <= last and data.startswith(same, position):
                position += packet_size
        count = (position - start) // packet_size
        if qos:
            count = _before_zero(data[topic_end:position:packet_size], data[topic_end + 1 : position : packet_size])
        if v5:
            lengths = data[payload - 1 : start + count * packet_size : packet_size]
            count = len(lengths) - len(lengths.lstrip(b"\0"))
        if not count:
            break
        route = found
        stripes.append((start, packet_size, count, topic - start, topic_end - start, payload - start))
        left -= count
        if start + count * packet_size != position:
            break
    count = LONGEST_RUN - left
    if count <= qos:
        return None
    return Run(data, begin, stripes[-1][0] + stripes[-1][1] * stripes[-1][2], count, stripes, qos, v5, route)


def _before_zero(high: bytes, low: bytes) -> int:
    """Return how many Packet Identifiers come before the first 0."""
    place = low.find(0)
    while place >= 0 and high[place]:
        place = low.find(0, place + 1)
    return len(low) if place < 0 else place


# Retained runs: consecutive PUBLISH packets with RETAIN 1 that the broker retains together.
#
# How it works. Sensors behind one gateway have many topics, so the packets of a :class:`~holdfast.wire.runs.Run` would
# seldom follow each other. A retained run has packets of any topics. It saves the work around each message: one ticket,
# one block of revisions and one entry of acknowledgements for all of them.
#
#     33 0a | 00 03 a/b | 00 01 | 1.5    33 0a | 00 03 a/c | 00 02 | 7.5    33 08 | 00 03 a/d | 00 03 | 9    32 ...
#     ------------------------- one retained run of 3 packets -------------------------------------------    no RETAIN
#
# All packets have the same first byte: RETAIN 1, no DUP, QoS 0 or 1. They have no properties and at least one byte of
# payload, since an empty one clears the topic. The :class:`RunTaker` says which topics it takes. It takes no topic with
# a subscriber, so nothing has to be sent, and the messages can be retained one after the other.
#
# Whatever does not fit ends the run, also a wrong packet: the parser judges it by itself, so its error comes at the
# right place. The plain twin is :meth:`PacketParser.next_packet` for the same bytes.


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
    size = len(data)
    # Most packets are alone. That is seen by two bytes, before the taker is asked.
    length = data[position + 1] if position + 4 <= size else 0
    if length < 128 and (position + 2 + length >= size or data[position + 2 + length] != first):
        return None
    most = min(most, taker.most(qos))
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
