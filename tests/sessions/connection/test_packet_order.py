"""Packets of one Client are handled one after the other, and wait during a hold."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.python.failure import Failure

from holdfast.sessions.connection.link import Actions
from holdfast.sessions.connection.outbox import FlushSchedule
from holdfast.sessions.connection.packet_order import PACKETS_OF_A_TURN, READ_AHEAD, PacketOrder
from holdfast.sessions.counters import Counters
from holdfast.sessions.limits import Limits
from holdfast.wire import ProtocolError, ReasonCode, WireError, encode
from holdfast.wire import packets as p
from holdfast.wire.encoding import pubacks
from tests.doubles import Network, TurnClock

CONNECT = encode(p.Connect("c", 4), 4)


class Order:
    """A packet order that notes the packets it has handled."""

    def __init__(self) -> None:
        self.clock = TurnClock()
        self.network = Network()
        self.counters = Counters()
        self.handled: list[p.Packet] = []
        self.errors: list[WireError] = []
        self.order = PacketOrder(
            actions=Actions({p.Connect: lambda _: None, p.Pingreq: self.handled.append, p.Publish: self.hold}),
            max_packet_size=1 << 20,
            reception=Limits().reception,
            network=self.network,
            clock=self.clock,
            flushes=FlushSchedule(self.clock),
            counters=self.counters,
            refuse=self.refuse,
            fail=Failure.raiseException,
        )
        self.order.receive(CONNECT)

    def hold(self, packet: Any) -> None:
        self.handled.append(packet)
        self.order.hold()

    def refuse(self, error: WireError) -> None:
        self.errors.append(error)
        self.order.close()

    def receive(self, *packets: p.Packet) -> None:
        self.order.receive(b"".join(encode(packet, 4) for packet in packets))


@pytest.fixture
def order() -> Order:
    return Order()


HOLDS = p.Publish("t", b"")


def test_later_packets_wait_until_as_many_releases_as_holds(order: Order) -> None:
    order.receive(HOLDS, p.Pingreq())
    order.order.hold()
    assert order.handled == [HOLDS]
    order.order.release()
    assert order.handled == [HOLDS]
    order.order.release()
    assert order.handled == [HOLDS, p.Pingreq()]


def test_a_release_within_an_action_is_noticed_by_the_running_loop(order: Order) -> None:
    def hold_and_release(packet: Any) -> None:
        order.order.hold()
        order.order.release()
        order.handled.append(packet)

    order.order.actions[p.Publish] = hold_and_release
    order.receive(HOLDS, p.Pingreq())
    assert order.handled == [HOLDS, p.Pingreq()]


def test_the_transport_is_paused_when_too_much_is_read_ahead(order: Order) -> None:
    order.receive(HOLDS)
    order.receive(p.Publish("t", bytes(READ_AHEAD - 100)))
    assert not order.network.paused
    order.receive(p.Publish("t", bytes(100)))
    assert order.network.paused
    order.order.actions[p.Publish] = lambda _: None
    order.order.release()
    assert not order.network.paused


def test_a_paused_client_is_not_silent(order: Order) -> None:
    """Its Keep Alive begins anew when it can be heard again."""
    order.receive(HOLDS, p.Publish("t", bytes(READ_AHEAD)))
    order.clock.advance(100)
    assert order.order.silence() == 0
    order.order.actions[p.Publish] = lambda _: None
    order.order.release()
    order.clock.advance(7)
    assert order.order.silence() == 7


def test_a_packet_that_is_not_due_is_refused_and_ends_the_order(order: Order) -> None:
    order.receive(p.Subscribe(1, (p.SubscriptionRequest("t"),)), p.Pingreq())
    (error,) = order.errors
    assert isinstance(error, ProtocolError)
    assert error.reason is ReasonCode.PROTOCOL_ERROR
    assert order.handled == []
    order.order.hold()
    order.order.release()
    assert order.handled == []


@pytest.mark.parametrize(("steps", "most"), [(500, PACKETS_OF_A_TURN), (50, 10 * PACKETS_OF_A_TURN), (1, 3000)])
def test_a_stretch_counts_as_the_work_that_it_was(order: Order, steps: int, most: int) -> None:
    """The acknowledgements of one block cost no more than one packet, others as many as they are."""
    taken = [0]

    def take(packet: p.Pubacks) -> None:
        taken[-1] += packet.count
        packet.steps = steps * packet.count // 500

    order.order.actions[p.Pubacks] = take
    order.order.receive(pubacks(1, 3000) + encode(p.Pingreq(), 4))
    while not order.handled:
        taken.append(0)
        order.clock.turn()
    assert max(taken) == min(most, 3000)
    assert sum(taken) == 3000
    assert order.counters.packets_received == 3002


def test_packets_are_counted_also_when_one_is_refused(order: Order) -> None:
    order.receive(p.Pingreq(), p.Pingreq(), p.Disconnect())
    assert order.counters.packets_received == 4


def test_a_client_that_sends_many_packets_at_once_has_a_portion_in_each_turn(order: Order) -> None:
    """Others have their turn in between. Until the last packet the transport is not read, so no end is noticed."""
    order.receive(*[p.Pingreq()] * (3 * PACKETS_OF_A_TURN + 1))
    handled = []
    while order.network.paused:
        handled.append(len(order.handled))
        order.clock.turn()
    assert handled == [PACKETS_OF_A_TURN, 2 * PACKETS_OF_A_TURN, 3 * PACKETS_OF_A_TURN]
    assert len(order.handled) == 3 * PACKETS_OF_A_TURN + 1
    assert not order.clock.getDelayedCalls()


def test_a_hold_between_two_portions_goes_on_when_it_is_released(order: Order) -> None:
    """Each packet is handled once, in order."""
    order.receive(*[p.Pingreq()] * (PACKETS_OF_A_TURN - 1), HOLDS, *[p.Pingreq()] * PACKETS_OF_A_TURN)
    order.clock.turn()
    assert len(order.handled) == PACKETS_OF_A_TURN
    order.order.release()
    order.clock.turn()
    assert len(order.handled) == 2 * PACKETS_OF_A_TURN
    assert not order.network.paused


def test_a_client_that_is_closed_between_two_portions_is_not_handled_further(order: Order) -> None:
    """Its remaining packets are dropped."""
    order.receive(*[p.Pingreq()] * (2 * PACKETS_OF_A_TURN))
    order.order.close()
    order.clock.turn()
    assert len(order.handled) == PACKETS_OF_A_TURN
