"""One SUBSCRIBE or UNSUBSCRIBE, of any length: bounded work in each turn, a bounded number of subscriptions."""

from __future__ import annotations

import pytest

from holdfast.identity.interfaces import Grant, Principal, UnrestrictedAuthorizer
from holdfast.scheduling.long_work import STEPS_IN_PART
from holdfast.sessions.limits import Limits
from holdfast.wire import encode
from holdfast.wire import packets as p
from holdfast.wire.packets import LONG
from tests.doubles import Client, MemoryBroker

MANY = 1000


class Counting(UnrestrictedAuthorizer):
    """Allows everything, and counts questions."""

    asked = 0

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant:
        self.asked += 1
        return Grant.GRANTED


def subscribe_of(count: int, first: int = 0) -> p.Subscribe:
    return p.Subscribe(7, tuple(p.SubscriptionRequest(f"f/{first + number}") for number in range(count)))


def begin(client: Client, *packets: p.Packet) -> None:
    """Send packets without any turn of the reactor."""
    client.connection.receive(b"".join(encode(packet, client.version) for packet in packets))


def subscriptions(broker: MemoryBroker, client_id: str = "c") -> int:
    return len(next(session for session in broker.registry if session.client_id == client_id).subscriptions)


def test_a_turn_of_a_long_subscribe_stores_at_most_one_portion() -> None:
    broker = MemoryBroker()
    client = broker.client("c")
    begin(client, subscribe_of(MANY))
    before, turns = 0, 0
    while subscriptions(broker) < MANY:
        assert subscriptions(broker) - before <= STEPS_IN_PART
        before = subscriptions(broker)
        broker.clock.turn()
        turns += 1
    assert turns >= MANY / STEPS_IN_PART
    broker.settle()
    (suback,) = client.got(p.Suback)
    assert suback.reason_codes == (0,) * MANY


def test_no_filter_of_a_long_packet_is_decoded_before_its_portion() -> None:
    counting = Counting()
    broker = MemoryBroker(authorizer=counting)
    client = broker.client("c")
    begin(client, subscribe_of(MANY))
    first = counting.asked
    assert 0 < first < MANY / 2
    broker.clock.turn()
    assert first < counting.asked <= 2 * first


def test_the_packets_behind_a_long_subscribe_wait_for_it() -> None:
    broker = MemoryBroker()
    client = broker.client("c")
    begin(client, subscribe_of(MANY), p.Pingreq(), p.Unsubscribe(8, ("f/999",)))
    broker.settle()
    assert [type(packet) for packet in client.packets()] == [p.Suback, p.Pingresp, p.Unsuback]
    assert subscriptions(broker) == MANY - 1


def test_a_long_subscribe_of_one_client_delays_no_other_client() -> None:
    broker = MemoryBroker()
    client, other = broker.client("c"), broker.client("other")
    begin(client, subscribe_of(MANY))
    begin(other, subscribe_of(1), p.Pingreq())
    broker.clock.turn()
    assert [type(packet) for packet in other.packets()] == [p.Suback, p.Pingresp]
    assert subscriptions(broker) < MANY / 2


def test_many_short_subscribes_in_one_piece_are_bounded_like_one_long_one() -> None:
    broker = MemoryBroker()
    client = broker.client("c")
    begin(client, *(subscribe_of(1, number) for number in range(200)))
    assert subscriptions(broker) <= STEPS_IN_PART
    broker.settle()
    assert subscriptions(broker) == 200
    assert len(client.got(p.Suback)) == 200


def test_a_long_unsubscribe_is_bounded_too() -> None:
    broker = MemoryBroker()
    client = broker.client("c", 5)
    client.send(subscribe_of(MANY))
    client.packets()
    begin(client, p.Unsubscribe(8, tuple(f"f/{number}" for number in range(MANY + 1))))
    before = MANY
    while subscriptions(broker):
        assert before - subscriptions(broker) <= STEPS_IN_PART
        before = subscriptions(broker)
        broker.clock.turn()
    broker.settle()
    (unsuback,) = client.got(p.Unsuback)
    assert unsuback.reason_codes == (*[0x00] * MANY, 0x11)


def test_a_malformed_filter_at_the_end_of_a_long_packet_ends_the_connection_before_any_change() -> None:
    broker = MemoryBroker()
    client = broker.client("c", clean=False)
    many = tuple(p.SubscriptionRequest(f"f/{number}") for number in range(MANY))
    client.send(p.Subscribe(7, (*many, p.SubscriptionRequest("a/#/b"))))
    assert client.network.closed
    assert subscriptions(broker) == 0
    assert broker.counters.protocol_errors == 1


def test_wrong_options_at_the_end_of_a_long_packet_end_the_connection() -> None:
    broker = MemoryBroker()
    client = broker.client("c", clean=False)
    client.raw(encode(subscribe_of(MANY), 4)[:-1] + b"\x04")
    assert client.network.closed
    assert subscriptions(broker) == 0


def test_a_connection_that_ends_during_a_long_subscribe_leaves_nothing_behind() -> None:
    broker = MemoryBroker()
    client = broker.client("c")
    begin(client, subscribe_of(MANY))
    for _ in range(10):
        broker.clock.turn()
    client.drop()
    assert broker.registry.session_count == 0
    assert all(not broker.router.reach(f"f/{number}") for number in range(MANY))


def test_a_packet_that_is_short_enough_is_decoded_at_once() -> None:
    packet = subscribe_of(3)
    assert sum(len(request.topic_filter) + 3 for request in packet.subscriptions) < LONG
    broker = MemoryBroker()
    client = broker.client("c")
    begin(client, packet)
    broker.clock.turn()
    assert client.got(p.Suback) == [p.Suback(7, (0, 0, 0))]


# --- the number of subscriptions


def test_the_default_is_ten_thousand() -> None:
    assert Limits().max_subscriptions == 10_000


@pytest.mark.parametrize(("version", "refused"), [(4, 0x80), (5, 0x97)])
def test_filters_beyond_the_limit_are_refused_one_by_one(version: int, refused: int) -> None:
    broker = MemoryBroker(limits=Limits(max_subscriptions=3))
    client = broker.client("c", version)
    client.send(subscribe_of(2))
    client.packets()
    client.send(subscribe_of(4, 1))
    (suback,) = client.got(p.Suback)
    assert suback.reason_codes == (0, 0, refused, refused)
    assert subscriptions(broker) == 3


def test_a_filter_named_twice_counts_once_and_its_later_options_hold() -> None:
    broker = MemoryBroker(limits=Limits(max_subscriptions=1))
    client = broker.client("c", 5)
    client.send(p.Subscribe(7, tuple(p.SubscriptionRequest("a", qos) for qos in (0, 2, 1))))
    assert client.got(p.Suback) == [p.Suback(7, (0, 2, 1))]
    client.publish("a", qos=2)
    assert [(topic, qos) for topic, _, qos, _ in client.messages()] == [("a", 1)]


def test_a_subscription_can_be_replaced_at_the_limit() -> None:
    broker = MemoryBroker(limits=Limits(max_subscriptions=1))
    client = broker.client("c", 5)
    client.subscribe("a")
    assert client.subscribe("a", qos=1)[0] == p.Suback(2, (1,))


def test_mqtt_3_1_is_closed_since_its_suback_has_no_code_for_a_failure() -> None:
    broker = MemoryBroker(limits=Limits(max_subscriptions=2))
    client = broker.client("c", 3, clean=False)
    client.send(subscribe_of(3))
    assert client.network.closed
    assert client.got(p.Suback) == []
    assert subscriptions(broker) == 0


def test_the_filters_beyond_the_limit_cost_no_question_to_the_authorizer() -> None:
    counting = Counting()
    broker = MemoryBroker(limits=Limits(max_subscriptions=10), authorizer=counting)
    client = broker.client("c")
    client.send(subscribe_of(MANY))
    assert counting.asked == 10
