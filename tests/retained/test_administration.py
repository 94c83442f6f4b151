"""Changes by operators: they are announced on the change feed, and messages that clients publish later prevail."""

from __future__ import annotations

from typing import Any

from holdfast.messages import ChangeKind, ChangeOrigin, RetainedChange
from holdfast.retained.replay.change_feed import Change
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
    assert [(change.topic, change.kind, change.origin, change.live) for change in heard] == [
        ("a", ChangeKind.SET, ChangeOrigin.API, False),
        ("a", ChangeKind.CLEAR, ChangeOrigin.API, False),
    ]
