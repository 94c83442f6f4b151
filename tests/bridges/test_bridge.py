"""One bridge between a broker in memory and a remote one that the test plays, without sockets and with a fake clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.protocol import Factory
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from holdfast.bridges.bridge import Bridge, State, Surroundings
from holdfast.bridges.crossing import CANNOT_STORE
from holdfast.bridges.local import limits_for
from holdfast.bridges.remote import Login, Memory
from holdfast.config.sections.bridges import MQTT_3, BridgeConfig, BridgeTopicConfig, RemoteAddress
from holdfast.wire import PacketParser, Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker
from tests.logs import logged

T = TypeVar("T")

LINES = (
    BridgeTopicConfig(filter="up/#", direction="out", qos=2),
    BridgeTopicConfig(filter="down/#", direction="in", qos=2),
)


class Socket:
    """One connection to the remote broker, from its side."""

    def __init__(self, address: RemoteAddress, factory: Factory) -> None:
        self.address = address
        protocol: Any = factory.buildProtocol(None)
        self.protocol = protocol
        self.transport = StringTransport()
        self._parser = PacketParser(1 << 20)
        self.protocol.makeConnection(self.transport)

    def packets(self) -> list[p.Packet]:
        """Return the packets that the bridge has sent since the last call."""
        self._parser.receive_data(self.transport.value())
        self.transport.clear()
        found = []
        while (packet := self._parser.next_packet()) is not None:
            found.append(packet)
        return found

    def got(self, kind: type[T]) -> list[T]:
        """Return the packets of one kind, and drop the others."""
        return [packet for packet in self.packets() if isinstance(packet, kind)]


class World:
    """A broker, a bridge, and the sockets that it has opened. ``refusing`` has the hosts that refuse connections."""

    def __init__(self, **options: Any) -> None:
        self.broker = MemoryBroker()
        self.sockets: list[Socket] = []
        self.tried: list[str] = []
        self.refusing: set[str] = set()
        config = BridgeConfig(**{"addresses": ("one", "two"), "topics": LINES, **options})
        self.version = 5 if config.v5 else 4
        self.login = Login(name="b", config=config, client_id="me", password=None, max_packet_size=1 << 20)
        around = Surroundings(
            clock=self.broker.clock, connect=self.broker.session_parts.connect_bridge,
            session_of=self.broker.registry.session_of, own={"me"}, most_levels=100, jitter=lambda: 1.0,
        )  # fmt: skip
        self.bridge = Bridge(self.login, limits_for(config, self.broker.limits), self.reach, around, Memory())

    def reach(self, address: RemoteAddress, factory: Factory) -> Deferred[Any]:
        self.tried.append(address.host)
        if address.host in self.refusing:
            return fail(ConnectionRefusedError())
        self.sockets.append(Socket(address, factory))
        return succeed(None)

    @property
    def socket(self) -> Socket:
        return self.sockets[-1]

    def send(self, *packets: p.Packet) -> None:
        """Let the remote broker send packets."""
        self.socket.protocol.dataReceived(b"".join(encode(packet, self.version) for packet in packets))
        self.broker.settle()

    def accept(self, present: bool = False, **properties: Any) -> p.Connect:
        """Let the remote broker accept the CONNECT, which is returned, and all subscriptions."""
        socket = self.socket
        [connect] = socket.got(p.Connect)
        self.send(p.Connack(present, 0, Properties(**properties)))
        for subscribe in socket.got(p.Subscribe):
            self.send(p.Suback(subscribe.packet_identifier, (2,) * len(list(subscribe.subscriptions))))
        return connect

    def lose(self) -> None:
        """Lose the connection, and wait until the bridge tries again."""
        self.socket.protocol.connectionLost(Failure(ConnectionDone()))
        self.broker.advance(5)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.bridge.start()
    yield world
    world.bridge.stop()


def test_the_next_address_is_tried_at_once_and_all_of_them_later_and_later(world: World) -> None:
    world = World()
    world.refusing = {"one", "two"}
    world.bridge.start()
    world.broker.settle()
    assert world.tried == ["one", "two"]
    assert world.bridge.state is State.WAITING
    world.broker.advance(0.9)
    assert len(world.tried) == 2
    world.broker.advance(0.1)
    assert len(world.tried) == 4
    world.broker.advance(1.9)
    assert len(world.tried) == 4
    world.refusing = {"one"}
    world.broker.advance(0.1)
    world.accept()
    assert world.socket.address.host == "two"


def test_messages_cross_and_are_acknowledged_by_the_receiver_only(world: World) -> None:
    world.accept()
    publisher, subscriber = world.broker.client("p"), world.broker.client("s")
    subscriber.subscribe("down/#", qos=2)
    publisher.send(p.Publish("up/a", b"x", 1, packet_identifier=1))
    [sent] = world.socket.got(p.Publish)
    assert (sent.topic, sent.payload, sent.qos) == ("up/a", b"x", 1)
    session = world.bridge.session
    assert session is not None
    assert session.inflight.count == 1
    world.send(p.Puback(sent.packet_identifier))
    assert session.inflight.count == 0
    world.send(p.Publish("down/a", b"y", 2, packet_identifier=9))
    assert world.socket.got(p.Pubrec) == [p.Pubrec(9)]
    [came] = subscriber.got(p.Publish)
    assert (came.topic, came.payload) == ("down/a", b"y")


def test_what_is_published_while_the_bridge_is_down_waits(world: World) -> None:
    world.accept()
    world.socket.protocol.connectionLost(Failure(ConnectionDone()))
    assert world.bridge.state is State.WAITING
    world.broker.client("p").send(p.Publish("up/a", b"x", 1, packet_identifier=1))
    world.broker.advance(1)
    connect = world.accept(present=True)
    assert not connect.clean_start
    world.broker.settle()
    assert world.bridge.crossed.sent == 1


def test_a_session_at_another_address_begins_anew(world: World) -> None:
    """Its Packet Identifiers are those of another time: what it has noted would swallow new messages."""
    assert world.accept().clean_start
    world.lose()
    assert not world.accept(present=True).clean_start
    world.refusing = {"one"}
    world.lose()
    world.broker.settle()
    assert world.socket.address.host == "two"
    assert world.accept().clean_start


@pytest.mark.parametrize("present", [True, False])
def test_identifiers_count_as_long_as_the_remote_session(world: World, present: bool) -> None:
    """The same identifier is a repetition while the Session lasts, and a new message after the remote has lost it."""
    world.accept()
    subscriber = world.broker.client("s")
    subscriber.subscribe("down/#", qos=0)
    world.send(p.Publish("down/a", b"first", 2, packet_identifier=3))
    assert [packet.payload for packet in subscriber.got(p.Publish)] == [b"first"]
    world.lose()
    world.accept(present=present)
    world.send(p.Publish("down/a", b"second", 2, dup=present, packet_identifier=3))
    assert [packet.payload for packet in subscriber.got(p.Publish)] == ([] if present else [b"second"])
    world.send(p.Pubrel(3))
    assert world.socket.got(p.Pubcomp)[-1] == p.Pubcomp(3)


def test_mqtt_3_begins_a_new_session_with_two_connections() -> None:
    world = World(protocol_version=MQTT_3)
    world.bridge.start()
    assert world.accept().clean_start
    world.broker.settle()
    assert len(world.sockets) == 2
    connect = world.accept()
    assert (connect.clean_start, connect.bridge) == (False, True)
    assert world.bridge.state is State.CONNECTED
    world.lose()
    [connect] = world.socket.got(p.Connect)
    world.send(p.Connack(True, 0))
    assert world.socket.got(p.Subscribe) == []  # MQTT 3.1.1 would send all retained messages again
    world.bridge.stop()


@pytest.mark.parametrize("closes", [True, False])
def test_a_remote_broker_that_knows_no_bridges_is_asked_again_without_the_flag(closes: bool) -> None:
    world = World(protocol_version=MQTT_3)
    world.bridge.start()
    [connect] = world.socket.got(p.Connect)
    assert connect.bridge
    if closes:
        world.socket.protocol.connectionLost(Failure(ConnectionDone()))
    else:
        world.send(p.Connack(False, 1))
    world.broker.settle()
    assert not world.accept().bridge
    world.broker.settle()
    assert not world.accept().bridge
    assert world.bridge.state is State.CONNECTED
    world.bridge.stop()


def test_the_window_and_the_packet_size_are_those_of_the_remote_broker(world: World) -> None:
    world.accept(receive_maximum=2, maximum_packet_size=300)
    publisher = world.broker.client("p")
    publisher.send(p.Publish("up/a", bytes(400), 1, packet_identifier=1))
    for number in range(2, 6):
        publisher.send(p.Publish("up/a", b"%d" % number, 1, packet_identifier=number))
    first = world.socket.got(p.Publish)
    assert [packet.payload for packet in first] == [b"2", b"3"]
    world.send(*(p.Puback(packet.packet_identifier) for packet in first))
    assert [packet.payload for packet in world.socket.got(p.Publish)] == [b"4", b"5"]


def test_a_remote_broker_that_does_not_read_leaves_the_messages_in_the_session(world: World) -> None:
    world.accept()
    publisher = world.broker.client("p")
    world.socket.protocol.pauseProducing()
    for number in range(1, 60):
        publisher.send(p.Publish("up/a", b"x", 1, packet_identifier=number))
    assert world.socket.got(p.Publish) == []
    session = world.bridge.session
    assert session is not None
    assert (session.inflight.count, session.waiting) == (20, 39)
    world.socket.protocol.resumeProducing()
    world.broker.settle()
    assert len(world.socket.got(p.Publish)) == 20


def test_a_message_that_cannot_be_stored_there_is_sent_again_later(world: World) -> None:
    world.accept()
    world.broker.client("p").send(p.Publish("up/a", b"x", 1, packet_identifier=1))
    [sent] = world.socket.got(p.Publish)
    refusal = p.Puback(sent.packet_identifier, ReasonCode.QUOTA_EXCEEDED, Properties(reason_string=CANNOT_STORE))
    world.send(refusal)
    assert world.bridge.state is State.WAITING
    assert "takes nothing now" in world.bridge.problem
    world.broker.advance(1)
    [_] = world.socket.got(p.Connect)
    world.send(p.Connack(True, 0))
    [again] = world.socket.got(p.Publish)
    assert (again.payload, again.dup, again.packet_identifier) == (b"x", True, sent.packet_identifier)


def test_a_remote_broker_that_does_not_answer_is_left() -> None:
    world = World(addresses=("one",))
    world.bridge.start()
    world.broker.advance(19.9)
    assert world.bridge.state is State.CONNECTING
    world.broker.advance(0.1)
    assert world.bridge.problem == "the remote broker has not answered CONNECT within 20 s"


def test_a_remote_broker_that_falls_silent_is_left(world: World) -> None:
    world.accept()
    for _ in range(3):
        world.broker.advance(30)
    assert world.socket.got(p.Pingreq)
    world.broker.advance(30)
    assert world.bridge.state is State.WAITING
    assert "silent" in world.bridge.problem


def test_each_problem_is_told_once_with_its_remedy_until_the_bridge_is_connected(world: World) -> None:
    with logged(Bridge) as events:
        for _ in range(3):
            world.refusing = {"two"}
            world.send(p.Connack(False, ReasonCode.NOT_AUTHORIZED))
            world.refusing = set()
            world.broker.advance(30)
    told = [str(event["why"]) for event in events if "why" in event]
    assert len(told) == 2
    assert "check username and password" in told[0]
    assert "(one:1883)" in told[0]
    assert "(two:1883)" in told[1]


def test_no_client_can_take_the_session_of_a_bridge(world: World) -> None:
    world.accept()
    client = world.broker.client("$bridge/b", 5)
    assert client.connack is not None
    assert client.connack.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert world.bridge.state is State.CONNECTED


def test_a_paused_bridge_disconnects_and_queues_until_it_is_started(world: World) -> None:
    world.accept()
    world.bridge.pause()
    assert world.socket.got(p.Disconnect)
    world.broker.client("p").send(p.Publish("up/a", b"x", 1, packet_identifier=1))
    world.broker.advance(100)
    assert len(world.sockets) == 1
    session = world.bridge.session
    assert session is not None
    assert session.waiting == 1
    world.bridge.start()
    assert len(world.sockets) == 2
