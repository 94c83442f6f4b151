"""Calls that read until something matches: one call reads only so far, and its cursor leads on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.admin.api import lists, messages
from holdfast.admin.api.lists import ReadLimit
from holdfast.changes import history
from tests.admin.doubles import Desk
from tests.changes.history.recorded import RecordedBroker
from tests.postgres import synchronous
from tests.storage.doubles import fresh_file

TOPICS = {f"t/{number:02}/{'rare' if number == 17 else 'often'}" for number in range(20)}
RARE = {"t/17/rare"}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A broker that records. Each call reads twice, and each read visits few entries."""
    monkeypatch.setattr(lists, "MOST_READS", 2)
    monkeypatch.setattr(history, "_ENTRIES", 2)
    monkeypatch.setattr(history, "_TOPICS", 2)
    monkeypatch.setattr(messages, "ROWS_IN_TURN", 2)
    url = f"sqlite:///{fresh_file(tmp_path)}"
    broker = RecordedBroker(lambda now: synchronous(url, now=now)[0])
    desk = Desk(broker, broker.history)
    client = broker.client("c", 5)
    for topic in sorted(TOPICS):
        client.publish(topic, b"x", 1, True)
    broker.advance(1)
    yield desk
    broker.close()


@pytest.mark.parametrize(
    ("path", "arguments", "expected", "is_split"),
    [
        ("/history", {"topic": "+/+/rare"}, RARE, True),
        ("/history", {"topic": "+/+/rare", "first": "newest"}, RARE, True),
        ("/history", {"topic": "t/19/often", "first": "newest"}, {"t/19/often"}, False),
        ("/history", {"topic": "+/+/none"}, set(), True),
        ("/history/topics", {"topic": "+/+/rare"}, RARE, True),
        ("/messages", {"limit": "1000"}, TOPICS, True),
        ("/messages", {"topic": "+/+/rare", "at": "0s"}, RARE, True),
    ],
)
def test_a_cursor_leads_to_what_one_call_does_not_reach(
    desk: Desk, path: str, arguments: dict[str, str], expected: set[str], is_split: bool
) -> None:
    """The first page is short or empty, and says that there is more. All pages together have each match once."""
    found: list[dict[str, Any]] = []
    calls, more = 0, True
    while more:
        page = desk.ask("GET", path, **arguments)
        more, arguments = page["meta"]["hasnext"], {**arguments, "cursor": page["meta"]["cursor"] or ""}
        found += page["data"]
        calls += 1
        assert calls < 30
    topics = [each["topic"] for each in found]
    assert (len(topics), set(topics)) == (len(expected), expected)
    assert (calls > 1) == is_split


def test_a_page_by_number_is_not_searched_for_without_bound(desk: Desk) -> None:
    """Its skipped messages cost reads, too. A cursor leads to any page."""
    assert len(desk.ask("GET", "/messages", page="2", limit="1")["data"]) == 1
    status, code, message = desk.refused("GET", "/messages", page="16", limit="1")
    assert (status, code) == (400, "BAD_REQUEST")
    assert message.startswith("page is a page among the first ")


def test_time_ends_a_call_too() -> None:
    """With a slow database, few reads take long."""
    now = 0
    limit = ReadLimit(lambda: now)
    assert not limit.is_reached()
    now = lists.MOST_TIME
    assert limit.is_reached()
