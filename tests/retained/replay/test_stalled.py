"""Replays without room: what a client that has stopped reading costs, and that it still gets everything once."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from holdfast.retained.replay.flow_settings import FlowSettings
from holdfast.retained.replay.stalled import PATIENCE, StalledReplays
from holdfast.retained.store.memory import MemoryRetainedStore
from holdfast.retained.store.values import Selection
from holdfast.storage.revisions import RevisionClock
from tests.doubles import Client, MemoryBroker


class Guest:
    """Notes how often it was asked to release what it holds."""

    def __init__(self) -> None:
        self.asked = 0

    def release(self) -> bool:
        self.asked += 1
        return True


def test_each_is_asked_once_when_it_has_rested_long_enough() -> None:
    """Not those that have begun to rest anew, or hold nothing any more; no timer is left behind."""
    clock = Clock()
    stalled_replays = StalledReplays(clock)
    still, anew, gone = guests = [Guest(), Guest(), Guest()]
    for guest in guests:
        stalled_replays.add(guest)
    clock.advance(PATIENCE / 2)
    stalled_replays.add(anew)
    stalled_replays.remove(gone)
    clock.advance(PATIENCE / 2)
    assert [guest.asked for guest in guests] == [1, 0, 0]
    clock.advance(PATIENCE)
    assert [guest.asked for guest in guests] == [1, 1, 0]
    assert clock.getDelayedCalls() == []
    stalled_replays.add(still)
    stalled_replays.remove(still)
    assert clock.getDelayedCalls() == []


class CountingStore(MemoryRetainedStore):
    """Notes what is read after which topic."""

    def __init__(self, *arguments: RevisionClock) -> None:
        super().__init__(*arguments)
        self.cursors: list[str] = []

    def read(self, selection: Selection, after: str, *rest: int) -> object:  # type: ignore[override]
        self.cursors.append(after)
        return super().read(selection, after, *rest)  # type: ignore[arg-type]


def stalled(qos: int = 0) -> tuple[MemoryBroker, Client]:
    """Return a broker with ten retained messages, and a client that has taken but the first piece of them."""
    broker = MemoryBroker(lambda now: CountingStore(RevisionClock(1, 0, now)), flow=FlowSettings(10, 2))
    publisher = broker.client("filler")
    for number in range(10):
        publisher.publish(f"t/{number}", b"x" * 70_000, qos=1, retain=True)
    client = broker.client("c")
    client.network.blocked = True
    client.subscribe("t/#", qos=qos)
    return broker, client


def drain(broker: MemoryBroker, client: Client) -> list[str]:
    """Let the client take everything, piece by piece; return the topics in order."""
    for _ in range(20):
        client.connection.drained()
        broker.settle()
    return [topic for topic, _, _, _ in client.messages()]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_that_has_stopped_reading_holds_nothing_and_still_gets_everything_once(qos: int) -> None:
    """What was read for it is given up, and read again from where it is when it has room."""
    broker, client = stalled(qos)
    store = broker.store
    assert store.cursors == [""]
    broker.advance(2 * PATIENCE)
    assert store.cursors == [""]
    assert drain(broker, client) == [f"t/{number}" for number in range(10)]
    assert len(store.cursors) > 1
    assert store.cursors[1] != ""


def test_a_client_that_is_merely_slow_is_read_for_once() -> None:
    """It has room again before what is held for it is given up."""
    broker, client = stalled()
    for _ in range(20):
        broker.advance(PATIENCE * 0.4)
        client.connection.drained()
        broker.settle()
    assert len(client.messages()) == 10
    assert broker.store.cursors == [""]


def test_large_messages_are_delivered_in_portions() -> None:
    """A slice of any number of messages leaves no more than so many bytes with a client that takes none of them."""
    _, client = stalled()
    assert client.connection.unsent < 2 * (128 << 10)


def test_a_client_that_leaves_leaves_no_timer() -> None:
    """Nothing of a replay that rested stays behind."""
    broker, client = stalled()
    timers = len(broker.clock.getDelayedCalls())
    client.connection.lost()
    assert len(broker.clock.getDelayedCalls()) < timers
    assert len(broker.retained.feed) == broker.retained.replays.flow.waiting == 0
