"""Answers that a Client does not read are bounded, and so is the life of its connection."""

from __future__ import annotations

import pytest

from holdfast.sessions.connection.packet_order import MOST_ANSWERS, READ_AHEAD
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from holdfast.wire.encoding import pubacks
from tests.doubles import Client, MemoryBroker

PINGREQ = b"\xc0\x00"
UNKNOWN_PUBREC = b"\x50\x02\x00\x4d"

#: Packets that are answered at once, each with the longest answer, and the version of the client. SUBSCRIBE takes long.
FLOODS = [
    *((packet, version) for packet in (PINGREQ, UNKNOWN_PUBREC) for version in (3, 4, 5)),
    (encode(p.Subscribe(1, (p.SubscriptionRequest("t", 1),)), 5), 5),
]


def held(client: Client) -> int:
    """Return the bytes that the broker holds for a client: those to be sent, and those received and not acted on."""
    return client.connection.unsent + client.connection._order._parser.buffered


def flood(client: Client, packet: bytes, total: int) -> int:
    """Send packets until the broker stops reading, or until ``total`` bytes are sent; return the bytes sent."""
    piece = packet * (4096 // len(packet))
    sent = 0
    while sent < total and not client.network.paused and not client.network.closed:
        client.raw(piece)
        sent += len(piece)
    return sent


def read_all(client: Client) -> None:
    """Read what the broker has sent, as fast as it comes."""
    client.network.blocked = False
    client.connection.drained()
    client.broker.settle()


@pytest.mark.parametrize(("packet", "version"), FLOODS)
def test_a_client_that_does_not_read_its_answers_is_not_read(packet: bytes, version: int) -> None:
    client = MemoryBroker().client("c", version)
    client.network.blocked = True
    sent = flood(client, packet, 8 << 20)
    assert client.network.paused
    assert sent < 8 << 20
    assert 64 * 1024 < client.connection._outbox.answers <= 64 * 1024 + 1000
    assert held(client) <= MOST_ANSWERS + 2 * READ_AHEAD + 1000
    read_all(client)
    assert not client.network.paused
    assert client.connection.unsent == 0
    client.packets()
    client.raw(PINGREQ)
    assert client.packets() == [p.Pingresp()]


def test_answers_count_also_after_they_are_written() -> None:
    """The piece that the transport has, and has not sent, is unread too."""
    client = MemoryBroker().client("c")
    client.network.blocked = True
    count = MOST_ANSWERS // 2
    client.raw(PINGREQ * count)  # the first part is written at once
    assert client.connection._outbox.answers == MOST_ANSWERS
    client.raw(PINGREQ)
    assert client.connection._outbox.answers == MOST_ANSWERS + 2
    count -= len(client.got(p.Pingresp))
    client.connection.drained()  # the rest is written
    client.raw(PINGREQ)  # not acted on
    assert len(client.got(p.Pingresp)) == count + 1
    client.connection.drained()
    assert client.got(p.Pingresp) == [p.Pingresp()]


def test_answers_that_wait_behind_a_piece_still_count_when_it_has_left() -> None:
    """Only the answers in the piece are read."""
    client = MemoryBroker().client("c")
    client.network.blocked = True
    client.raw(PINGREQ * 400)  # the piece
    client.raw(PINGREQ * 300)
    client.connection.drained()
    assert client.connection._outbox.answers == client.connection.unsent == 300 * len(PINGREQ)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_fan_out_does_not_stop_the_reading(qos: int) -> None:
    """Otherwise the acknowledgements that make room for it would not be read."""
    broker = MemoryBroker(limits=Limits(max_inflight_bytes=10 << 20))
    client = broker.client("c")
    client.subscribe("t", qos=qos)
    client.network.blocked = True
    publisher = broker.client("p")
    for _ in range(100):
        publisher.publish("t", bytes(10_000), qos=qos)
    assert client.connection.unsent > 10 * MOST_ANSWERS
    in_flight = broker.registry._sessions["c"].inflight
    assert in_flight.count == 100 * qos
    identifiers = [identifier for identifier in range(65536) if identifier in in_flight.blocks]
    client.raw(b"".join(pubacks(identifier, 1) for identifier in identifiers) + PINGREQ)
    assert not client.network.paused
    assert in_flight.count == 0
    read_all(client)
    assert len(client.got(p.Pingresp)) == 1


@pytest.mark.parametrize(("keep_alive", "patience"), [(0, 30), (10, 15), (19, 28.5), (100, 30)])
def test_a_client_that_takes_none_of_its_answers_is_closed(keep_alive: int, patience: float) -> None:
    """After 30 seconds, or one and a half times a shorter Keep Alive."""
    broker = MemoryBroker()
    timers = len(broker.clock.getDelayedCalls())
    client = broker.client("c", 5, keep_alive=keep_alive)
    client.network.blocked = True
    flood(client, PINGREQ, 1 << 20)
    broker.advance(patience - 1)
    assert not client.network.closed
    broker.advance(2)
    assert client.network.closed
    assert client.got(p.Disconnect)[0].reason_code in (ReasonCode.QUOTA_EXCEEDED, ReasonCode.KEEP_ALIVE_TIMEOUT)
    assert broker.registry.connection_count == 0
    assert len(broker.clock.getDelayedCalls()) == timers


def test_a_client_that_takes_some_of_its_answers_stays() -> None:
    """However slowly it reads: what it costs is bounded."""
    broker = MemoryBroker()
    client = broker.client("c", keep_alive=10)
    client.network.blocked = True
    flood(client, PINGREQ, 1 << 20)
    for _ in range(20):
        client.network.left += 1
        broker.advance(14)
    assert not client.network.closed
    assert held(client) <= MOST_ANSWERS + 2 * READ_AHEAD + 1000
    broker.advance(31)
    assert client.network.closed


@pytest.mark.parametrize("left", [False, True])
def test_a_pause_of_the_brokers_own_making_ends_with_a_client_that_takes_nothing(left: bool) -> None:
    """The broker does not hear a Client that it does not read. If sent bytes leave, the Client is not to blame."""
    broker = MemoryBroker()
    client = broker.client("c", keep_alive=10)
    client.subscribe("t")
    client.network.blocked = True
    broker.client("p").publish("t", bytes(1000))
    client.connection.hold()  # as for an answer of the authorizer, or of the store
    client.raw(PINGREQ * READ_AHEAD)
    assert client.network.paused
    for _ in range(10):
        broker.advance(16)
        client.network.left += left
    assert client.network.closed is not left


def test_a_paused_client_without_unsent_bytes_stays() -> None:
    """It may be alive, and the broker does not listen."""
    broker = MemoryBroker()
    client = broker.client("c", keep_alive=10)
    client.connection.hold()
    client.raw(PINGREQ * READ_AHEAD)
    assert client.network.paused
    for _ in range(10):  # its drain is looked at again and again
        broker.advance(16)
    assert not client.network.closed
    client.connection.release()
    broker.settle()
    broker.advance(16)
    assert client.network.closed


def replayed(broker: MemoryBroker, client: Client) -> None:
    broker.client("p").publish("r", bytes(3000), retain=True)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("r"),)))


def replayed_with_qos_1(broker: MemoryBroker, client: Client) -> None:
    broker.client("p").publish("r", bytes(3000), qos=1, retain=True)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("r", 1),)))


def live(broker: MemoryBroker, client: Client) -> None:
    client.subscribe("r")
    broker.client("p").publish("r", bytes(3000))


def answers(broker: MemoryBroker, client: Client) -> None:
    client.raw(PINGREQ * 1500)


def broker_topics(broker: MemoryBroker, client: Client) -> None:
    client.send(p.Subscribe(1, (p.SubscriptionRequest("$SYS/#"),)))
    for _ in range(3):
        broker.advance(10)


@pytest.mark.parametrize("send", [replayed, replayed_with_qos_1, live, answers, broker_topics])
def test_every_unsent_byte_counts_for_force_shutdown(send: object) -> None:
    """Whichever packet type, also messages of a replay and of the broker itself."""
    assert callable(send)
    broker = MemoryBroker(limits=Limits(max_buffered_bytes=2000), sys_msg_interval=10)
    client = broker.client("c", 5, properties=Properties(request_problem_information=0))
    client.network.blocked = True
    client.connection._outbox._writing = True  # the transport still has an earlier piece
    send(broker, client)
    client.connection.drained()
    broker.settle()
    assert client.network.closed
    assert client.got(p.Disconnect)[0].reason_code == ReasonCode.QUOTA_EXCEEDED
    assert broker.counters.connections_shut_down == 1


def test_replayed_messages_count_for_force_shutdown() -> None:
    broker = MemoryBroker(limits=Limits(max_buffered_messages=10))
    publisher = broker.client("p")
    for number in range(20):
        publisher.publish(f"r/{number}", retain=True)
    client = broker.client("c")
    client.send(p.Subscribe(1, (p.SubscriptionRequest("r/#"),)))
    assert len(client.got(p.Publish)) == 20  # all have left
    client.network.blocked = True
    client.send(p.Subscribe(1, (p.SubscriptionRequest("r/#"),)))
    assert client.network.closed


def test_messages_stay_queued_when_their_connection_is_shut_down() -> None:
    """The connection may end while its Session sends queued messages: the rest waits for the next connection."""
    limits = Limits(mqueue_store_qos0=True, max_buffered_messages=5)
    broker = MemoryBroker(limits=limits)
    client = broker.client("c", clean=False)
    client.subscribe("t")
    client.drop()
    publisher = broker.client("p")
    for number in range(20):
        publisher.publish("t", b"%d" % number)
    seen = []
    for _ in range(4):
        client = broker.client("c", clean=False)
        seen += [packet.payload for packet in client.backlog if isinstance(packet, p.Publish)]
    assert seen == [b"%d" % number for number in range(20)]
