"""Changes by operators: they are announced on the change feed, and messages that clients publish later prevail."""

from __future__ import annotations

from typing import Any

from holdfast.core.messages import ChangeKind, ChangeOrigin, RetainedChange
from holdfast.retained.feed import Change
from holdfast.sessions.limits import Limits
from holdfast.wire.packets import SubscriptionRequest
from tests.admin.doubles import Desk
from tests.retained.store.delayed_store import DelayedStore
from tests.storage.doubles import result_of


def payload(desk: Desk, topic: str) -> bytes | None:
    """Return the retained payload of a topic."""
    found = result_of(desk.broker.store.get(topic))
    return None if found is None else bytes(found.payload)


def test_a_message_published_during_a_clear_stays() -> None:
    desk = Desk(store=DelayedStore)
    outcome: list[Any] = []
    desk.retain("t/1", b"1")
    desk.retain("t/2", b"1")
    desk.administration.clear("t/#").addBoth(outcome.append)
    desk.broker.store.commit()
    desk.retain("t/2", b"2")
    desk.broker.store.commit()
    assert outcome[0].count == 2
    assert payload(desk, "t/1") is None
    assert payload(desk, "t/2") == b"2"


def test_an_older_write_does_not_bring_back_a_cleared_message() -> None:
    """Such as a write that waited for an unavailable database."""
    desk = Desk()
    desk.retain("t", b"1")
    stored = result_of(desk.broker.store.get("t"))
    desk.ask("DELETE", "/messages", topic="t")
    desk.broker.store.put(RetainedChange("t", stored.revision, 0, stored))
    assert payload(desk, "t") is None


def test_every_change_is_announced_with_its_origin() -> None:
    desk = Desk()
    heard: list[Change] = []
    desk.broker.retained.feed.listen(heard.append)
    desk.ask("POST", "/messages", {"topic": "a", "payload": "1"})
    desk.ask("DELETE", "/messages", topic="#")
    desk.ask("POST", "/messages", {"topic": "b", "payload": "1", "quiet": True})
    desk.ask("DELETE", "/messages", topic="#", quiet="true")
    assert [(change.topic, change.kind, change.origin, change.live) for change in heard] == [
        ("a", ChangeKind.SET, ChangeOrigin.API, True),
        ("a", ChangeKind.CLEAR, ChangeOrigin.API, True),
        ("b", ChangeKind.SET, ChangeOrigin.API, False),
        ("b", ChangeKind.CLEAR, ChangeOrigin.API, False),
    ]


def test_a_message_that_comes_while_a_clear_waits_stays() -> None:
    """The clear waits for a subscriber; the message of the topic is newer than the clear."""
    desk = Desk()
    for number in range(4):
        desk.retain(f"t/{number}", b"old")
    slow = desk.broker.client("slow", 5)
    slow.subscribe("t/1")
    slow.messages()
    slow.network.blocked = True
    desk.broker.client("p").publish("t/1", bytes(70_000))
    clearing = desk.administration.clear("t/#")
    desk.broker.settle()
    assert payload(desk, "t/0") is None
    desk.retain("t/1", b"new")
    slow.network.blocked = False
    slow.connection.drained()
    desk.broker.advance(1)
    assert result_of(clearing).count == 3
    assert desk.topics() == ["t/1"]
    assert payload(desk, "t/1") == b"new"
    assert [data for topic, data, _, _ in slow.messages() if topic == "t/1"][-1] == b"new"


def test_a_part_of_a_clear_ends_before_its_caller_gives_up() -> None:
    """However slow the subscribers are. The next part goes on behind it."""
    desk = Desk(limits=Limits(max_inflight=1))
    for number in range(800):
        desk.retain(f"t/{number:03}", b"old")
    slow = desk.broker.client("slow", 5)
    slow.subscribe(SubscriptionRequest("t/#", 1, retain_handling=2))
    clearing = desk.administration.clear("t/#", rows=700)
    for _ in range(100):
        desk.broker.advance(0.5)
        if clearing.called:
            break
    part = result_of(clearing)
    assert 500 <= part.count < 700
    assert not part.done
    assert len(desk.topics(limit="1000")) == 800 - part.count
    slow.messages()
    rest = desk.administration.clear("t/#", part.after, rows=700)
    desk.broker.settle()
    assert result_of(rest).done
    assert desk.topics() == []
