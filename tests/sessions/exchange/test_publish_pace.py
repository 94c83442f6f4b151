"""A client that publishes faster than its rates is read later. Nothing is dropped, and nobody else waits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.units import Rate
from holdfast.sessions.limits import Limits
from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker


def arrivals(limits: Limits, sizes: list[int], retain: bool = False) -> tuple[MemoryBroker, list[tuple[float, int]]]:
    """Publish at once messages of these sizes. Return when each has reached a subscriber, and its size."""
    broker = MemoryBroker()
    watcher = broker.client("w", 5)
    watcher.subscribe("t")
    broker.limits = limits
    client = broker.client("c", 5)
    start = broker.clock.seconds()
    client.raw(b"".join(encode(p.Publish("t", b"x" * size, 0, retain), 5) for size in sizes))
    found: list[tuple[float, int]] = []
    for _ in range(10_000):
        found += [(broker.clock.seconds() - start, len(one.payload)) for one in watcher.got(p.Publish)]
        if len(found) == len(sizes):
            return broker, found
        broker.advance(0.01)
    raise AssertionError("messages are lost")


@pytest.mark.parametrize("retain", [False, True])
def test_a_burst_comes_at_once_and_the_rest_at_the_rate(retain: bool) -> None:
    _, found = arrivals(Limits(messages_rate=Rate(10, 1)), [1] * 40, retain)
    assert [at for at, _ in found[:10]] == [0] * 10
    assert found[-1][0] == pytest.approx(3, abs=0.3)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(1, 20), st.integers(50, 500))
@settings(max_examples=40, deadline=None)
def test_nothing_is_lost_and_no_rate_is_exceeded(sizes: list[int], messages: int, size: int) -> None:
    """In order; in any time at most the amount, the rate, and one message more."""
    _, found = arrivals(Limits(messages_rate=Rate(messages, 1), bytes_rate=Rate(size, 1)), sizes)
    assert [length for _, length in found] == sizes
    assert all(first[0] <= second[0] for first, second in pairwise(found))
    for first in range(len(found)):
        for last in range(first + 1, len(found)):
            elapsed = found[last][0] - found[first][0] + 0.02
            assert last - first <= messages * (1 + elapsed) + 1
            assert sum(length for _, length in found[first:last]) <= size * (1 + elapsed) + max(sizes)


def test_other_clients_do_not_wait() -> None:
    broker, _ = held()
    watcher = broker.client("w", 5)
    watcher.subscribe("u")
    broker.client("other", 5).publish("u", b"x")
    assert [one.topic for one in watcher.got(p.Publish)] == ["u"]
    assert broker.counters.publishers_delayed == 1


def test_a_client_that_goes_on_sending_is_not_read() -> None:
    _, client = held()
    client.raw(encode(p.Publish("t", b"x" * 70_000), 5))
    assert client.network.paused
    client.broker.advance(10)  # now it is acted on, and takes 70 seconds
    assert client.network.paused
    client.broker.advance(100)
    assert not client.network.paused


def test_a_held_client_is_not_read_so_that_its_end_comes_after_its_messages() -> None:
    broker = MemoryBroker(limits=Limits(messages_rate=Rate(10, 1)))
    client = broker.client("c", 5)
    client.raw(encode(p.Publish("t", b""), 5) * 30 + encode(p.Disconnect(), 5))
    for _ in range(100):
        if client.network.closed:
            break
        assert client.network.paused
        broker.advance(0.1)
    assert client.network.closed


def test_a_client_that_leaves_while_it_is_held_leaves_no_timer() -> None:
    broker, client = held()
    waiting = len(broker.clock.getDelayedCalls())
    client.drop()
    assert len(broker.clock.getDelayedCalls()) < waiting


def held() -> tuple[MemoryBroker, Client]:
    """Return a broker, and a client that has used up its rate."""
    broker = MemoryBroker(limits=Limits(bytes_rate=Rate(1000, 1)))
    client = broker.client("c", 5)
    client.publish("t", b"x" * 5000)
    return broker, client
