"""What operators change: told on the change feed, never in the way of what clients publish meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from holdfast.messages import ChangeKind, ChangeOrigin, RetainedChange, RetainedMessage
from holdfast.retained.importing.verdicts import Merge, Verdict
from holdfast.retained.replay.change_feed import Change
from holdfast.sessions.limits import Limits
from holdfast.tickets import FailureKind, StorageFailure
from holdfast.wire import packets as p
from tests.admin.doubles import Desk
from tests.retained.replay.test_replay import SMALL
from tests.retained.store.contract import message
from tests.retained.store.late import LateStore
from tests.storage.doubles import result_of


def verdicts(desk: Desk, merge: Merge, *messages: RetainedMessage) -> list[Verdict | Exception]:
    """Import messages; return what became of each."""
    found: list[Verdict | Exception] = result_of(desk.administration.merge(messages, merge))
    return found


def payload(desk: Desk, topic: str) -> bytes | None:
    """Return what is retained."""
    found = result_of(desk.broker.store.get(topic))
    return None if found is None else bytes(found.payload)


@pytest.mark.parametrize(
    ("merge", "older", "same_time", "newer"),
    [
        (Merge.NEWER, Verdict.KEPT, Verdict.KEPT, Verdict.IMPORTED),
        (Merge.REPLACE, Verdict.IMPORTED, Verdict.IMPORTED, Verdict.IMPORTED),
        (Merge.KEEP, Verdict.KEPT, Verdict.KEPT, Verdict.KEPT),
    ],
)
def test_who_prevails(merge: Merge, older: Verdict, same_time: Verdict, newer: Verdict) -> None:
    """Between what is retained and what is imported; of the same time, the higher revision."""
    for offset, expected in ((-1, older), (0, same_time), (1, newer)):
        desk = Desk()
        desk.retain("t", b"retained")
        imported = message("t", b"imported", 1, stored_at=desk.broker.now() + offset)
        assert verdicts(desk, merge, imported) == [expected]
        assert payload(desk, "t") == (b"imported" if expected is Verdict.IMPORTED else b"retained")


@pytest.mark.parametrize(
    ("merge", "before", "after"),
    [
        (Merge.NEWER, Verdict.CLEARED, Verdict.IMPORTED),
        (Merge.REPLACE, Verdict.IMPORTED, Verdict.IMPORTED),
        (Merge.KEEP, Verdict.IMPORTED, Verdict.IMPORTED),
    ],
)
def test_a_clear_is_a_change_too(merge: Merge, before: Verdict, after: Verdict) -> None:
    for offset, expected in ((-1, before), (1, after)):
        desk = Desk()
        desk.retain("t")
        desk.retain("t", b"")
        assert verdicts(desk, merge, message("t", stored_at=desk.broker.now() + offset)) == [expected]


def test_what_has_expired_is_not_imported_and_does_not_prevail() -> None:
    desk = Desk()
    now = desk.broker.now()
    expired = message("t", b"old", stored_at=now + 9, expires_at=now)
    assert verdicts(desk, Merge.REPLACE, expired) == [Verdict.EXPIRED]
    verdicts(desk, Merge.REPLACE, evolve(expired, expires_at=now + 1))
    desk.broker.clock.rightNow += 1
    assert verdicts(desk, Merge.KEEP, message("t", b"new")) == [Verdict.IMPORTED]


@pytest.mark.parametrize("merge", list(Merge))
def test_the_same_topic_twice_in_one_import(merge: Merge) -> None:
    """Each is judged by what the ones before it left."""
    desk = Desk()
    first, second = message("t", b"1", stored_at=2), message("t", b"2", stored_at=1)
    expected = Verdict.IMPORTED if merge is Merge.REPLACE else Verdict.KEPT
    assert verdicts(desk, merge, first, second, second) == [
        Verdict.IMPORTED, expected, Verdict.UNCHANGED if merge is Merge.REPLACE else Verdict.KEPT,
    ]  # fmt: skip
    assert payload(desk, "t") == (b"2" if merge is Merge.REPLACE else b"1")


def test_what_is_published_while_an_import_looks_prevails() -> None:
    """Even when the import replaces: it was asked for before."""
    desk = Desk(store=LateStore)
    outcome: list[Any] = []
    desk.retain("before", b"1")
    desk.administration.merge([message("t", b"imported")], Merge.REPLACE).addBoth(outcome.append)
    desk.retain("t", b"published")
    desk.broker.store.commit()
    desk.broker.store.commit()
    assert outcome == [[Verdict.IMPORTED]]
    assert payload(desk, "t") == b"published"


def test_what_is_published_while_a_filter_is_cleared_stays() -> None:
    desk = Desk(store=LateStore)
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


def test_an_older_write_does_not_bring_back_what_was_cleared() -> None:
    """Written late, by a database that was away, say."""
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
    verdicts(desk, Merge.NEWER, message("b"))
    desk.ask("DELETE", "/messages", topic="#")
    assert [(change.topic, change.kind, change.origin, change.live) for change in heard] == [
        ("a", ChangeKind.SET, ChangeOrigin.API, False),
        ("b", ChangeKind.SET, ChangeOrigin.IMPORT, False),
        ("a", ChangeKind.CLEAR, ChangeOrigin.API, False),
        ("b", ChangeKind.CLEAR, ChangeOrigin.API, False),
    ]


def test_a_running_replay_sees_what_the_api_changes() -> None:
    """What was read before is read again: never a value from before the change."""
    desk = Desk(flow=SMALL, limits=Limits(max_inflight=2))
    for number in range(8):
        desk.retain(f"t/{number}", b"old", qos=1)
    client = desk.broker.client("c", 5)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", 1),)))
    desk.ask("POST", "/messages", {"topic": "t/3", "payload": "new"})
    desk.ask("POST", "/messages", {"topic": "t/33", "payload": "new"})
    desk.ask("DELETE", "/messages", topic="t/5")
    verdicts(desk, Merge.REPLACE, message("t/7", b"new"))
    assert {topic: data for topic, data, _, _ in client.messages()} == {
        "t/0": b"old", "t/1": b"old", "t/2": b"old", "t/3": b"new", "t/33": b"new", "t/4": b"old", "t/6": b"old",
        "t/7": b"new",
    }  # fmt: skip
    assert len(desk.broker.retained.feed) == 0


def test_messages_that_could_not_be_stored_are_told_one_by_one() -> None:
    desk = Desk(store=LateStore)
    outcome: list[Any] = []
    desk.administration.merge([message("a"), message("b")], Merge.NEWER).addBoth(outcome.append)
    failure = StorageFailure(FailureKind.FULL, "no space left")
    desk.broker.store.commit(failure)
    assert outcome == [[failure, failure]]
    assert desk.administration.counts["imported"] == 0
