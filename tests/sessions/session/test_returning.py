"""A Client that comes back to many messages gets them in parts: some each turn, in order, and live ones last."""

from __future__ import annotations

import pytest

from holdfast.sessions.connection.outbox import LOW_WATER
from holdfast.sessions.delivery.session import _MESSAGES_OF_A_TURN
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker

STAYS = Properties(session_expiry_interval=1000)

#: what one turn may send: a part for what the Client has sent, and one because the connection has room
MOST = 2 * _MESSAGES_OF_A_TURN
MANY = 10 * _MESSAGES_OF_A_TURN


def away(limits: Limits, qos: int) -> MemoryBroker:
    """Return a broker with a Session ``c`` that has subscribed to ``t`` and whose Client is away."""
    broker = MemoryBroker(limits=limits)
    client = broker.client("c", 5, properties=STAYS)
    client.subscribe("t", qos=qos)
    client.drop()
    return broker


def publish(broker: MemoryBroker, count: int, qos: int, size: int = 0, expiry: int | None = None) -> None:
    publisher = broker.client("p", 5)
    for number in range(count):
        payload = str(number).encode().ljust(size)
        publisher.publish("t", payload, qos, properties=Properties(message_expiry_interval=expiry))
        publisher.packets()


def back(broker: MemoryBroker) -> Client:
    """Return the client after its CONNECT, before the next turn."""
    client = Client(broker, 5)
    client.connection.receive(encode(p.Connect("c", 5, False, properties=STAYS), 5))
    return client


def each_turn(client: Client, acknowledge: bool = False) -> list[list[p.Packet]]:
    """Run turns until nothing is due; return the packets of each, without CONNACK."""
    turns: list[list[p.Packet]] = []
    while True:
        came: list[p.Packet] = [packet for packet in client.packets() if not isinstance(packet, p.Connack)]
        turns.append(came)
        if acknowledge:
            answers = [
                p.Puback(packet.packet_identifier) for packet in came if isinstance(packet, p.Publish) and packet.qos
            ]
            if answers:
                client.connection.receive(b"".join(encode(answer, 5) for answer in answers))
        if not any(call.getTime() <= client.broker.clock.seconds() for call in client.broker.clock.getDelayedCalls()):
            return turns
        client.broker.clock.turn()


def numbers(turns: list[list[p.Packet]]) -> list[int]:
    return [int(packet.payload) for turn in turns for packet in turn if isinstance(packet, p.Publish)]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_long_queue_leaves_in_portions_and_in_order(qos: int) -> None:
    """Also with a window that has room for all of it."""
    broker = away(Limits(max_mqueue_len=None, mqueue_store_qos0=True, max_inflight=65535), qos)
    publish(broker, MANY, qos)
    turns = each_turn(back(broker))
    assert max(map(len, turns)) <= MOST
    assert numbers(turns) == list(range(MANY))


def test_acknowledgements_in_one_piece_send_no_more_than_a_portion() -> None:
    """Each of them makes room, so each could send as much as there is in the queue."""
    broker = away(Limits(max_mqueue_len=None, mqueue_store_qos0=True, max_inflight=_MESSAGES_OF_A_TURN), 1)
    publish(broker, _MESSAGES_OF_A_TURN, 1)
    publish(broker, MANY, 0)
    turns = each_turn(back(broker), acknowledge=True)
    assert max(map(len, turns)) <= MOST
    assert numbers(turns) == [*range(_MESSAGES_OF_A_TURN), *range(MANY)]


@pytest.mark.parametrize("qos", [0, 1])
def test_live_messages_come_after_those_that_were_queued(qos: int) -> None:
    broker = away(Limits(max_mqueue_len=None, mqueue_store_qos0=True, max_inflight=65535), qos)
    publish(broker, MANY, qos)
    publisher = broker.client("p", 5)
    client = back(broker)
    publisher.connection.receive(encode(p.Publish("t", b"%d" % MANY, qos, packet_identifier=qos), 5))
    assert numbers(each_turn(client)) == list(range(MANY + 1))
    publisher.publish("t", b"7", qos)
    assert numbers(each_turn(client)) == [7]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_long_queue_waits_until_the_connection_has_sent_its_bytes(qos: int) -> None:
    """So it costs the memory of 64 KiB and one message, not that of a second queue."""
    size = 10_000
    limits = Limits(max_mqueue_len=None, mqueue_store_qos0=True, max_inflight=65535, max_inflight_bytes=1 << 24)
    broker = away(limits, qos)
    publish(broker, 100, qos, size)
    client = Client(broker, 5)
    client.network.blocked = True
    client.send(p.Connect("c", 5, False, properties=STAYS))
    seen, drains = [], 0
    while client.connection.unsent:
        assert client.connection.unsent < LOW_WATER + size + 100
        seen += numbers([client.packets()])
        client.connection.drained()
        broker.settle()
        drains += 1
    assert seen == list(range(100))
    assert drains > 100 * size // (LOW_WATER + size)


def test_messages_in_flight_are_repeated_in_portions_before_all_others() -> None:
    broker = away(Limits(max_mqueue_len=None, max_inflight=65535), 1)
    publish(broker, MANY, 1)
    client = back(broker)
    each_turn(client)
    client.drop()
    publish(broker, 1, 1)
    publisher = broker.client("p", 5)
    client = back(broker)
    publisher.connection.receive(encode(p.Publish("t", b"1", 1, packet_identifier=1), 5))
    turns = each_turn(client)
    assert max(map(len, turns)) <= MOST
    assert numbers(turns) == [*range(MANY), 0, 1]
    dup = [packet.dup for turn in turns for packet in turn if isinstance(packet, p.Publish)]
    assert dup == [True] * MANY + [False] * 2


@pytest.mark.parametrize("receive_maximum", [None, 1])
def test_every_pubrel_is_repeated_in_portions(receive_maximum: int | None) -> None:
    """Those behind a full window too: they do not count against it."""
    broker = away(Limits(max_mqueue_len=None, max_inflight=65535), 2)
    publish(broker, MANY + 2, 2)
    client = back(broker)
    sent = [packet for turn in each_turn(client) for packet in turn if isinstance(packet, p.Publish)]
    identifiers = [packet.packet_identifier for packet in sent]
    client.send(*[p.Pubrec(identifier) for identifier in identifiers[2:]])
    client.drop()
    client = Client(broker, 5)
    properties = Properties(session_expiry_interval=1000, receive_maximum=receive_maximum)
    client.connection.receive(encode(p.Connect("c", 5, False, properties=properties), 5))
    turns = each_turn(client)
    assert max(map(len, turns)) <= MOST
    released = [packet.packet_identifier for turn in turns for packet in turn if isinstance(packet, p.Pubrel)]
    assert released == identifiers[2:]
    assert len(numbers(turns)) == (2 if receive_maximum is None else 1)


def test_a_queue_of_expired_messages_holds_up_none_behind_it() -> None:
    """They are dropped in parts too, though nothing is sent."""
    broker = away(Limits(max_mqueue_len=None, mqueue_store_qos0=True), 0)
    publish(broker, MANY, 0, expiry=1)
    publish(broker, 1, 0)
    broker.advance(10)
    client = back(broker)
    assert broker.counters.messages_dropped_expired <= MOST
    assert numbers(each_turn(client)) == [0]
    assert broker.counters.messages_dropped_expired == MANY


def test_a_connection_that_ends_between_two_portions_leaves_the_rest_in_the_queue() -> None:
    """Only the part that was on its way is lost, as QoS 0 may be."""
    broker = away(Limits(max_mqueue_len=None, mqueue_store_qos0=True), 0)
    publish(broker, MANY, 0)
    client = back(broker)
    seen = numbers([client.packets()])
    client.drop()
    client = back(broker)
    assert seen == list(range(_MESSAGES_OF_A_TURN))
    assert numbers(each_turn(client)) == list(range(2 * _MESSAGES_OF_A_TURN, MANY))


def test_a_replay_waits_until_messages_in_flight_are_repeated() -> None:
    """They may be older than the retained messages."""
    broker = away(Limits(max_mqueue_len=None, max_inflight=65535), 1)
    publish(broker, MANY, 1)
    client = back(broker)
    each_turn(client)
    client.drop()
    broker.client("r").publish("r", b"-1", retain=True)
    client = back(broker)
    client.connection.receive(encode(p.Subscribe(1, (p.SubscriptionRequest("r", 0),)), 5))
    assert numbers(each_turn(client)) == [*range(MANY), -1]
