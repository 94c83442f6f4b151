"""Clients that follow the standard to the letter."""

from __future__ import annotations

from collections import Counter, deque

from attrs import define, frozen

from holdfast.wire import NO_PROPERTIES, Properties
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.sessions.model import Model
from tests.sessions.state import LONGEST, TOPICS, Message, Session, Will

NEVER = 0xFFFFFFFF

#: retained messages, each by filter and topic, with its fact and its payload
Expected = dict[tuple[str, str], tuple[int, bytes]]


@frozen
class Way:
    """The options of one CONNECT. ``expiry`` and ``receive_maximum`` are for MQTT 5."""

    version: int
    clean: bool
    expiry: int
    receive_maximum: int | None
    will: p.Will | None

    @property
    def granted(self) -> int:
        """The granted Session Expiry Interval."""
        if self.version == 4:
            return 0 if self.clean else LONGEST
        return min(self.expiry, LONGEST)


@define(eq=False)
class Outgoing:
    """A message from this Client that the broker has not acknowledged in full."""

    packet: p.Publish
    fact: int | None
    released: bool = False


class Peer:
    """One Client, from connection to connection. It sends packets when told to, and answers one packet at a time.

    It keeps its own Session State until it asks for a Clean Start or comes to another Session.
    """

    def __init__(self, name: str, model: Model) -> None:
        self.name = name
        self.model = model
        self.number = 0  #: of the connection
        self.client: Client | None = None
        self.deaf = False  #: packets to it stay on the way, and are lost with the connection
        self.must_be_clean = False  #: the broker had a Session that this Client does not know [MQTT5-3.2.2-4]
        self.forget()
        self._reset()

    def forget(self) -> None:
        """Discard the Session State."""
        self.belongs_to = 0  #: the number of the Session
        self.outgoing: dict[int, Outgoing] = {}
        self.incoming: dict[int, bytes] = {}  #: QoS 2 messages handed on and not released
        self.handed_on: Counter[bytes] = Counter()
        self.replayed: Counter[bytes] = Counter()
        self.subscribes: Counter[str] = Counter()
        self.expected: Expected = {}  #: retained messages promised

    def _reset(self) -> None:
        """Begin or end a connection."""
        self.established = False
        self.answers: deque[p.Packet] = deque()
        self.resends: deque[p.Packet] = deque()
        self.waiting: dict[tuple[type[p.Packet], int], int | None] = {}  #: answers to come, and the fact of each
        self.unacknowledged: set[int] = set()  #: PUBLISH packets of this connection that count for Receive Maximum
        self.fleeting: list[bytes] = []
        self.requests: dict[int, Expected] = {}  #: the same, for each SUBSCRIBE without an answer

    # --- connections

    def connect(self, broker: MemoryBroker, way: Way) -> None:
        """Send CONNECT."""
        self._reset()
        self.deaf = False
        self.number += 1
        self.way = way
        if way.clean:
            self.forget()
            self.must_be_clean = False
        will = None
        if way.will is not None:
            will = Will(
                Message(self.name, way.will.topic, way.will.payload, way.will.qos, way.will.retain),
                way.will.properties.message_expiry_interval,
                way.will.properties.will_delay_interval or 0,
            )
        self.present, fact = self.model.connect(self.name, way.clean, way.granted, will)
        self.waiting[p.Connack, 0] = fact
        self.client = Client(broker, way.version)
        properties = NO_PROPERTIES
        if way.version == 5:
            properties = Properties(session_expiry_interval=way.expiry or None, receive_maximum=way.receive_maximum)
        self.client.send(p.Connect(self.name, way.version, way.clean, will=way.will, properties=properties))

    def drop(self) -> None:
        """Lose the connection."""
        assert self.client is not None
        self.model.leave(self.name)
        self.client.drop()
        self.gone()

    def disconnect(self, packet: p.Disconnect) -> None:
        """Send DISCONNECT."""
        assert self.client is not None
        expiry = packet.properties.session_expiry_interval
        self.model.leave(self.name, packet.reason_code == 0, None if expiry is None else min(expiry, LONGEST))
        self.client.send(packet)
        self.gone()

    def gone(self) -> None:
        """Note that the connection is over and packets under way are lost."""
        self.client = None
        self._reset()

    @property
    def session(self) -> Session:
        """The Session that the broker must have for this Client."""
        return self.model.live.sessions[self.name]

    # --- sending

    def send(self, packet: p.Packet) -> None:
        """Send a packet, and note its effects in the model."""
        assert self.client is not None
        model, name = self.model, self.name
        match packet:
            case p.Publish():
                identifier = packet.packet_identifier
                fact = model.publish(name, identifier, _message_of(name, packet, model.now))
                if packet.qos:
                    self.outgoing[identifier] = Outgoing(packet, fact)
                    self.waiting[p.Puback if packet.qos == 1 else p.Pubrec, identifier] = fact
            case p.Pubrel():
                self.waiting[p.Pubcomp, packet.packet_identifier] = model.release(name, packet.packet_identifier)
            case p.Puback() | p.Pubcomp():
                model.acknowledged(name, packet.packet_identifier)
                self.unacknowledged.discard(packet.packet_identifier)
            case p.Pubrec():
                model.received(name, packet.packet_identifier)
            case p.Subscribe():
                self._subscribe(packet)
            case p.Unsubscribe():
                (topic_filter,) = packet.topic_filters
                fact = model.unsubscribe(name, topic_filter)
                self.waiting[p.Unsuback, packet.packet_identifier] = fact
                self._expect_nothing(topic_filter)
        self.client.send(packet)

    def next_answer(self) -> p.Packet:
        """Return the next packet to send; repeated packets come first."""
        return (self.resends or self.answers).popleft()

    def __repr__(self) -> str:
        return self.name

    def identifier(self) -> int:
        """Return the lowest free Packet Identifier, so that identifiers are reused soon."""
        used = {*self.outgoing, *(identifier for _, identifier in self.waiting)}
        return next(identifier for identifier in range(1, 65536) if identifier not in used)

    def _subscribe(self, packet: p.Subscribe) -> None:
        (request,) = packet.subscriptions
        topic_filter, qos = request.topic_filter, request.qos
        identifier = next(iter(packet.properties.subscription_identifiers), None)
        fact = self.model.subscribe(self.name, topic_filter, qos, identifier)
        self.waiting[p.Suback, packet.packet_identifier] = fact
        self.subscribes[topic_filter] += 1
        self._expect_nothing(topic_filter)
        retained = self.model.live.retained
        self.requests[packet.packet_identifier] = {
            (topic_filter, topic): (fact, message.payload)
            for topic, (fact, message) in retained.items()
            if qos and message.qos and topic_filter in TOPICS[topic]
        }

    def _expect_nothing(self, topic_filter: str) -> None:
        """Expect no further messages of a replay that this Client has cut off."""
        self.expected = {key: one for key, one in self.expected.items() if key[0] != topic_filter}
        for expected in self.requests.values():
            for key in [key for key in expected if key[0] == topic_filter]:
                del expected[key]


def _message_of(publisher: str, packet: p.Publish, now: int) -> Message:
    lifetime = packet.properties.message_expiry_interval
    expires_at = None if lifetime is None else now + lifetime
    return Message(publisher, packet.topic, packet.payload, packet.qos, packet.retain, expires_at)
