"""The time limits of a connection: one timer, for the admission and then for the Keep Alive."""

from __future__ import annotations

from holdfast.wire import packets as p
from tests.doubles import MemoryBroker


def test_packets_set_no_timer() -> None:
    """A timer for each packet would cost more than the packet. ``test_connection`` tests when the Keep Alive ends."""
    broker = MemoryBroker()
    client = broker.client("c", keep_alive=10)
    times = [timer.getTime() for timer in broker.clock.getDelayedCalls()]
    broker.advance(1)
    client.send(p.Pingreq())
    assert [timer.getTime() for timer in broker.clock.getDelayedCalls()] == times


def test_without_a_keep_alive_silence_may_last() -> None:
    broker = MemoryBroker()
    client = broker.client("c")
    broker.clock.advance(1_000_000)
    assert not client.network.closed
