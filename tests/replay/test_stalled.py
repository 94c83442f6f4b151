"""Replays without room: a client that stopped reading costs little, and still gets every message once."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent

from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.replay.pace import REST_PATIENCE, StalledReplays
from holdfast.retained.limits import FlowSettings
from holdfast.retained.store.values import Selection
from holdfast.storage.revisions import RevisionClock
from tests.doubles import Client, MemoryBroker
from tests.retained.store.memory import MemoryRetainedStore


class Holding:
    """Counts how often it was asked to release its messages."""

    def __init__(self) -> None:
        self.requests = 0

    def release(self) -> bool:
        self.requests += 1
        return True


def test_a_replay_that_fails_keeps_no_other_from_being_asked(logged_failures: list[LogEvent]) -> None:
    """Neither now nor later."""

    class Failing:
        def release(self) -> bool:
            raise OSError

    clock = Clock()
    stalled_replays = StalledReplays(clock)
    stalled_replays.add(Failing())
    holders = [Holding(), Holding()]
    for holder in holders:
        stalled_replays.add(holder)
        clock.advance(REST_PATIENCE)
    assert [holder.requests for holder in holders] == [1, 1]
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_each_replay_is_asked_once_after_a_second_without_room() -> None:
    """A replay that was added again waits anew, a removed one is not asked, and no timer remains."""
    clock = Clock()
    stalled_replays = StalledReplays(clock)
    still, anew, gone = holders = [Holding(), Holding(), Holding()]
    for holder in holders:
        stalled_replays.add(holder)
    clock.advance(REST_PATIENCE / 2)
    stalled_replays.add(anew)
    stalled_replays.remove(gone)
    clock.advance(REST_PATIENCE / 2)
    assert [holder.requests for holder in holders] == [1, 0, 0]
    clock.advance(REST_PATIENCE)
    assert [holder.requests for holder in holders] == [1, 1, 0]
    assert clock.getDelayedCalls() == []
    stalled_replays.add(still)
    stalled_replays.remove(still)
    assert clock.getDelayedCalls() == []


class CountingStore(MemoryRetainedStore):
    """Notes the topic after which each read begins."""

    def __init__(self, *arguments: RevisionClock) -> None:
        super().__init__(*arguments)
        self.cursors: list[str] = []

    def read(self, selection: Selection, after: str, *rest: int) -> object:  # type: ignore[override]
        self.cursors.append(after)
        return super().read(selection, after, *rest)  # type: ignore[arg-type]


def stalled(qos: int = 0) -> tuple[MemoryBroker, Client]:
    """Return a broker with ten retained messages, and a client that has read only the first piece of them."""
    broker = MemoryBroker(lambda now: CountingStore(RevisionClock(1, 0, now)), flow=FlowSettings(10, 2))
    publisher = broker.client("filler")
    for number in range(10):
        publisher.publish(f"t/{number}", b"x" * 70_000, qos=1, retain=True)
    client = broker.client("c")
    client.network.blocked = True
    client.subscribe("t/#", qos=qos)
    return broker, client


def drain(broker: MemoryBroker, client: Client) -> list[str]:
    """Let the client read all messages, piece by piece. Return their topics in order."""
    for _ in range(20):
        client.connection.drained()
        broker.settle()
    return [topic for topic, _, _, _ in client.messages()]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_that_stopped_reading_holds_nothing_and_still_gets_every_message_once(qos: int) -> None:
    """Its held messages are given up, and read again when there is room."""
    broker, client = stalled(qos)
    store = broker.store
    assert store.cursors == [""]
    broker.advance(2 * REST_PATIENCE)
    assert store.cursors == [""]
    assert drain(broker, client) == [f"t/{number}" for number in range(10)]
    assert len(store.cursors) > 1
    assert store.cursors[1] != ""


def test_the_messages_of_a_slow_client_are_read_once() -> None:
    """It has room again before its held messages are given up."""
    broker, client = stalled()
    for _ in range(20):
        broker.advance(REST_PATIENCE * 0.4)
        client.connection.drained()
        broker.settle()
    assert len(client.messages()) == 10
    assert broker.store.cursors == [""]


def test_large_messages_are_delivered_in_portions() -> None:
    """However many messages a slice has, only so many bytes are delivered to a client that reads none of them."""
    _, client = stalled()
    assert client.connection.unsent < 2 * (128 << 10)


def test_a_client_that_disconnects_leaves_no_timer() -> None:
    """Even if its replay was at rest."""
    broker, client = stalled()
    timers = len(broker.clock.getDelayedCalls())
    client.connection.lost()
    broker.settle()
    assert len(broker.clock.getDelayedCalls()) < timers
    assert len(broker.retained.feed) == broker.replays.flow.waiting == 0


@pytest.mark.parametrize("origin", [ChangeOrigin.PUBLISH, ChangeOrigin.API])
def test_changes_while_a_replay_hears_none_are_neither_missed_nor_overtaken(origin: ChangeOrigin) -> None:
    """A live change comes once, an operator's change comes with the replay, and no older message comes after it."""
    broker, client = stalled(1)
    broker.advance(2 * REST_PATIENCE)
    assert len(broker.retained.feed) == 0
    for topic in ("t/3", "t/8", "u"):
        change = ApplicationMessage(topic, b"new", 1, True, "p")
        if origin is ChangeOrigin.PUBLISH:
            broker.router.publish(change, origin)
        else:
            broker.retained.retain(change, origin, live=False)
    broker.settle()
    for _ in range(20):
        client.connection.drained()
        broker.settle()
    came = [(topic, payload) for topic, payload, _, _ in client.messages()]
    for topic in ("t/3", "t/8"):
        assert [payload[:3] for name, payload in came if name == topic][-1] == b"new"
    assert {topic for topic, _ in came} == {f"t/{number}" for number in range(10)}
    assert len(came) == 10
