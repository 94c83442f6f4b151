"""The change feed: a change costs the listeners that it concerns, and no others."""

from __future__ import annotations

import pytest

from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast.core.tickets import COMMITTED
from holdfast.replay.pace import REST_PATIENCE
from holdfast.retained.feed import Change, ChangeFeed
from holdfast.sessions.limits import Limits
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker


def change(topic: str) -> Change:
    return Change(topic, 1, ChangeKind.SET, ChangeOrigin.PUBLISH, True, COMMITTED)


def test_listeners_hear_of_the_topics_of_their_filter() -> None:
    feed = ChangeFeed()
    heard: list[tuple[str, str]] = []
    for topic_filter in ("a/+", "a/#", "b", "#"):
        feed.listen(lambda change, mine=topic_filter: heard.append((mine, change.topic)), topic_filter)  # type: ignore[misc]
    feed.listen(lambda change: heard.append(("all", change.topic)))
    feed.announce(change("a/x"))
    feed.announce(change("$own"))
    assert sorted(heard) == [("#", "a/x"), ("a/#", "a/x"), ("a/+", "a/x"), ("all", "$own"), ("all", "a/x")]


def test_a_forgotten_listener_hears_nothing_and_leaves_nothing() -> None:
    feed = ChangeFeed()
    heard: list[Change] = []
    keys = [feed.listen(heard.append, topic_filter) for topic_filter in ("a/+", "a/+", "#", "")]
    assert len(feed) == 4
    for key in (*keys, *keys):
        feed.forget(key)
    feed.announce(change("a/x"))
    assert (heard, len(feed)) == ([], 0)
    assert not feed._by_filter


class Counted(ChangeFeed):
    """Counts the calls of listeners."""

    calls = 0

    def listen(self, listener, topic_filter=""):  # type: ignore[no-untyped-def]
        def counting(change: Change) -> None:
            self.calls += 1
            listener(change)

        return super().listen(counting, topic_filter)


def resting(filters: list[str], clients: int) -> tuple[MemoryBroker, Counted, Client]:
    """Return a broker whose clients have a replay at rest for each filter, its feed, and a publisher."""
    broker = MemoryBroker(limits=Limits(max_inflight=1))
    feed = Counted()
    broker.retained.feed = broker.replays._feed = feed
    publisher = broker.client("publisher")
    for number in range(4):
        publisher.publish(f"t/{number}", b"x" * 10, 1, True)
    for number in range(clients):
        reader = broker.client(f"reader {number}")
        reader.send(p.Subscribe(1, tuple(p.SubscriptionRequest(one, 1) for one in filters)))
    feed.calls = 0
    return broker, feed, publisher


@pytest.mark.parametrize("topic", ["elsewhere/a/b/c", "t"])
def test_replays_of_other_topics_cost_a_change_nothing(topic: str) -> None:
    broker, feed, publisher = resting([f"t/{number}/#" for number in range(16)], 20)
    publisher.publish(topic, b"new", 1, True)
    assert feed.calls == 0
    assert len(broker.replays)


def test_replays_at_rest_for_a_second_cost_a_change_nothing_even_if_it_concerns_them() -> None:
    broker, feed, publisher = resting(["#", "t/#", "t/+"], 20)
    publisher.publish("t/9", b"new", 1, True)
    before = feed.calls
    assert 0 < before <= 60
    broker.advance(2 * REST_PATIENCE)
    publisher.publish("t/8", b"new", 1, True)
    assert feed.calls == before
    assert len(broker.replays) == 60
