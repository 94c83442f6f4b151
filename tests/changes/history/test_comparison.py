"""The retained messages and the history are compared topic by topic, in slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from holdfast.changes.comparison import Disagreement, compare
from holdfast.changes.entries import NOT_RECORDED, Rule, Rules
from holdfast.changes.history import HistoryLimits
from holdfast.changes.moments import HistoryUnavailable
from holdfast.commands import examination
from holdfast.config import default
from holdfast.storage.database import Durability
from holdfast.storage.maintenance import database_at
from tests.changes.history.past import Past, postgres, sqlite

Make = Callable[..., Past]


@pytest.fixture(params=[sqlite, postgres], ids=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    with request.param() as made:
        yield made


@pytest.fixture
def past(make: Make) -> Past:
    """A broker with nine retained topics, one cleared and one expired, and two that it does not record."""
    opened = make(rules=Rules([Rule("noise/#", NOT_RECORDED)])).open()
    for number in range(10):
        opened.set(f"t/{number}", b"%d" % number)
    opened.clear("t/9")
    opened.set("gone", expires_at=opened.wall.now + 1000)
    for number in range(2):
        opened.set(f"noise/{number}")
    opened.wall.now += 5000
    return opened


def change_by_hand(past: Past) -> None:
    """Change rows as no broker does: of a topic without entry, of another payload, and of topics without message."""
    with closing(database_at(past.url, Durability.FULL, 0, 5.0).connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("DELETE FROM retained_history WHERE topic = 't/2'")
        cursor.execute("UPDATE retained SET client_id = 'other' WHERE topic = 't/4'")
        cursor.execute("DELETE FROM retained WHERE topic IN ('t/0', 't/1', 't/8')")
        connection.commit()


def compared(past: Past, topics: int) -> tuple[list[Disagreement], Counter[str]]:
    """Compare all topics in slices."""
    found: list[Disagreement] = []
    counts = Counter[str]()
    after: str | None = ""
    with closing(database_at(past.url, Durability.FULL, 0, 5.0).connect_reader()) as connection:
        while after is not None:
            part = compare(connection.cursor(), after, topics, past.wall.now)
            found += part.found
            counts += part.counts
            after = part.after
    return found, counts


@pytest.mark.parametrize("topics", [1, 2, 3, 100])
def test_both_agree_after_any_changes(past: Past, topics: int) -> None:
    """Whatever the size of a slice; topics that are not recorded are not compared."""
    assert compared(past, topics) == ([], Counter(same=9, unknown=2))


@pytest.mark.parametrize("topics", [1, 2, 3, 100])
def test_each_difference_is_found_once(past: Past, topics: int) -> None:
    """A message without entry, another publisher, and entries without message, also at the end and in a row."""
    change_by_hand(past)
    found, counts = compared(past, topics)
    assert sorted((one.topic, one.verdict) for one in found) == [
        ("t/0", "only"), ("t/1", "only"), ("t/2", "missing"), ("t/4", "different"), ("t/8", "only"),
    ]  # fmt: skip
    assert counts == Counter(same=4, only=3, different=1, missing=1, unknown=2)


def test_the_examination_tells_the_differences(past: Past, tmp_path: Path) -> None:
    """With their number and some of the topics; without a difference it is silent."""
    config = default(tmp_path).override([], str(tmp_path), past.url, allow_anonymous=True, cwd=tmp_path)
    history = evolve(config.retainer.history, enable=True)
    config = evolve(config, retainer=evolve(config.retainer, history=history))
    assert list(examination.history_agrees(config)) == []
    change_by_hand(past)
    (finding,) = examination.history_agrees(config)
    assert finding.message.startswith("5 topics of 11 differ between the retained messages and the history: t/")
    assert "t/4 (another message there)" in finding.message


def test_without_a_history_there_is_nothing_to_compare(make: Make) -> None:
    past = make(limits=HistoryLimits(enable=False)).open(started=False)
    past.set("a")
    with pytest.raises(HistoryUnavailable, match="there is no history"):
        compared(past, 10)
