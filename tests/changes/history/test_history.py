"""The history has the retained messages of every moment that it covers, in both databases."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast.changes import history, moments, restoring
from holdfast.changes.history import HistoryLimits, RetainedHistory
from holdfast.changes.moments import BaselineUnfinished, HistoryUnavailable, find_moment
from holdfast.core.messages import ApplicationMessage, ChangeKind, ChangeOrigin
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.core.topics import matches
from holdfast.core.units import date_of
from holdfast.retained.limits import Limit, RetainRefused
from holdfast.retained.store.values import Search
from holdfast.wire.properties import Properties
from tests import strategies
from tests.changes.history.past import START, Model, Past, postgres, sqlite
from tests.logs import logged
from tests.retained.strategies import topic_filters
from tests.storage.doubles import Wall

Make = Callable[..., Past]
KEPT = HistoryLimits(enable=True, keep=None)
OFF = HistoryLimits(enable=False)
FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=[sqlite, postgres], ids=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    with request.param() as made:
        yield made


@pytest.fixture
def past(make: Make) -> Past:
    return make().open()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every bound so tight that each work takes many transactions or pages."""
    small_bounds(monkeypatch)


def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_TOPICS", 2)
    monkeypatch.setattr(history, "_ENTRIES", 2)
    monkeypatch.setattr(moments, "_VISITED", 3)
    monkeypatch.setattr(history, "_BYTES", 3)
    monkeypatch.setattr(history, "_BASELINE_ROWS", 2)
    monkeypatch.setattr(history, "_PRUNED_ROWS", 2)
    monkeypatch.setattr(restoring, "_TOPICS", 2)
    monkeypatch.setattr(restoring, "_BYTES", 3)


def log_of(past: Past, topic_filter: str = "#", **options: Any) -> list[tuple[str, bytes, str]]:
    return [(one.topic, one.payload, one.kind.value) for one in past.events(topic_filter, **options)]


def test_an_event_has_every_field_of_a_change(past: Past) -> None:
    """Of a set and of a clear."""
    properties = Properties(content_type="text/é", user_properties=(("a", "b"),))
    past.retained.retain(
        ApplicationMessage("t", b"\0\xff", 1, True, "client", "user", properties, START + 9), ChangeOrigin.WILL
    )
    past.wall.now += 5
    past.retained.retain(ApplicationMessage("t", b"", 1, True, "other", None), ChangeOrigin.API)
    first, second = past.events()
    assert (first.kind, first.origin, first.topic, first.payload, first.qos, first.properties) == (
        ChangeKind.SET,
        ChangeOrigin.WILL,
        "t",
        b"\0\xff",
        1,
        properties,
    )
    assert (first.client_id, first.username, first.changed_at, first.expires_at) == ("client", "user", START, START + 9)
    assert first.revision >> 20 == START
    assert (second.kind, second.origin, second.payload, second.client_id, second.changed_at) == (
        ChangeKind.CLEAR,
        ChangeOrigin.API,
        b"",
        "other",
        START + 5,
    )
    assert second.seq > first.seq


def test_plain_sql_reads_the_events(past: Past) -> None:
    past.set("t", b"abc", client_id="c", username="u", properties=Properties(content_type="x"))
    past.clear("t")
    rows = past.query(
        "SELECT op, topic, payload, qos, client_id, username, origin, changed_at, expires_at, size, properties_json "
        "FROM retained_history_events ORDER BY seq"
    )
    assert rows[0][:10] == ("set", "t", b"abc", 0, "c", "u", "publish", START, None, 3)
    assert json.loads(rows[0][10]) == {"content_type": "x"}
    assert rows[1] == ("clear", "t", b"", 0, None, None, "publish", START, None, 0, None)


def test_a_group_of_changes_leaves_an_entry_for_each_change(make: Make) -> None:
    """The row of the topic is written once; the history has all changes, in their order."""
    past = make().open()
    past.executor.manual = True
    past.set("other", b"first")
    tickets = [past.set("t", b"%d" % number) for number in range(10)]
    tickets += [past.clear("t"), past.set("t", b"last"), past.set("u", b"1")]
    assert not any(ticket.settled for ticket in tickets)
    while past.executor.waiting:
        past.executor.step()
    assert all(ticket.settled and ticket.failure is None for ticket in tickets)
    assert [payload for _, payload, _ in log_of(past, "t")] == [*(b"%d" % n for n in range(10)), b"", b"last"]
    assert past.in_step()
    assert past.store.statistics().count == 3


def test_a_row_that_cannot_be_stored_leaves_no_entry(past: Past, monkeypatch: Any) -> None:
    """The other changes of its group are stored, with their entries."""
    past.executor.manual = True
    past.set("first")
    while past.executor.waiting:
        past.executor.step()
    tickets = {topic: past.set(topic) for topic in ("a", "b", "bad\udc80", "c", "d")}
    while past.executor.waiting:
        past.executor.step()
    assert [topic for topic, ticket in tickets.items() if ticket.failure] == ["bad\udc80"]
    assert [topic for topic, _, _ in log_of(past)] == ["first", "a", "b", "c", "d"]
    assert past.in_step()


def test_an_expired_message_is_recorded_when_the_sweep_removes_it(past: Past) -> None:
    past.set("a", b"1", expires_at=START + 10)
    past.set("b", b"2", expires_at=START + 10)
    past.wall.now += 20
    assert sorted(past.expire()) == ["a", "b"]
    assert sorted(log_of(past)[2:]) == [("a", b"", "expire"), ("b", b"", "expire")]
    assert {one.origin for one in past.events()[2:]} == {ChangeOrigin.EXPIRY}
    assert past.as_of(START + 9) == {"a": b"1", "b": b"2"}
    assert past.as_of(START + 10) == past.as_of(START + 20) == {}


def test_events_are_read_from_a_time_on_in_pages(past: Past) -> None:
    for number in range(5):
        past.wall.now = START + 10 * number
        past.set(f"t/{number % 2}", b"%d" % number)
    assert [payload for _, payload, _ in log_of(past, since=START + 20)] == [b"2", b"3", b"4"]
    assert [payload for _, payload, _ in log_of(past, since=START + 21)] == [b"3", b"4"]
    assert [payload for _, payload, _ in log_of(past, "t/1", since=START + 11)] == [b"3"]
    page = past.finish(past.history.events("t/+", limit=2))
    assert ([one.payload for one in page.events], page.done) == ([b"0", b"1"], False)
    page = past.finish(past.history.events("t/+", limit=2, cursor=page.cursor))
    assert [one.payload for one in page.events] == [b"2", b"3"]
    assert log_of(past, "none/#") == []


def test_few_changes_among_many_are_found_in_both_orders(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reads pass over changes of other topics, and over positions without a change, and skip none that matches."""
    monkeypatch.setattr(moments, "_VISITED", 3)
    for number in range(30):
        past.set("a_/b/x" if number % 7 == 2 else f"other/{number}", b"%d" % number)
    expected = [b"2", b"9", b"16", b"23"]
    for topic_filter in ("a_/#", "a_/+/x", "+/b/x", "+/+/x", "a_/b/#"):
        assert [payload for _, payload, _ in log_of(past, topic_filter)] == expected
        newest: list[bytes] = []
        cursor, done = 0, False
        while not done:
            page = past.finish(past.history.events(topic_filter, limit=1, cursor=cursor, newest_first=True))
            newest += [one.payload for one in page.events]
            cursor, done = page.cursor, page.done
        assert newest == expected[::-1]


@given(strategies.topic_filters(), strategies.topic_names())
@example("!a/+/#", "!a/b/c")
@example("a/#", "a")
def test_the_pattern_of_a_filter_leaves_out_no_topic_that_matches(topic_filter: str, topic: str) -> None:
    """The database may leave out others: it compares texts, and a few of them wrongly."""
    pattern = moments.like_pattern(topic_filter)
    if pattern is not None and matches(topic_filter, topic):
        with closing(sqlite3.connect(":memory:")) as connection:
            assert connection.execute("SELECT ? LIKE ? ESCAPE '!'", (topic, pattern)).fetchone() == (1,)


def test_the_query_of_the_operators_guide_gives_the_same_answer(make: Make) -> None:
    """The query stands in docs/operator/history.md."""
    guide = (Path(__file__).parents[3] / "docs" / "operator" / "history.md").read_text()
    (query,) = [part for part in re.findall(r"```sql\n(.*?);\n```", guide, re.DOTALL) if ":at" in part]
    past = make().open()
    past.set("gone", b"1")
    past.set("a", b"1", expires_at=START + 50)
    past.wall.now += 10
    past.set("b", b"1")
    past.clear("gone")
    past.close()
    past = make(limits=OFF, wall=Wall(START + 100)).open()
    past.clear("b")
    past.close()
    past = make(wall=Wall(START + 200)).open()
    past.set("a", b"2")
    for moment in (0, 9, 10, 49, 50, 99, 200):
        rows = past.query(query.replace(":at", str(START + moment)))
        assert rows == list(past.as_of(START + moment).items())
    assert past.query(query.replace(":at", str(START + 150))) == []


@pytest.mark.usefixtures("small")
def test_small_pages_give_the_same_answer(past: Past) -> None:
    expected = Model()
    for number in range(30):
        past.wall.now += 1
        topic, payload = f"{number % 7}/x", b"%d" % number
        past.set(topic, payload)
        expected.change(past.wall.now, topic, payload)
    assert [payload for _, payload, _ in log_of(past)] == [payload for _, _, payload, _ in expected.changes]
    assert [payload for _, payload, _ in log_of(past, "3/x")] == [b"3", b"10", b"17", b"24"]
    for moment in range(START, past.wall.now + 1):
        assert past.as_of(moment) == expected.as_of(moment)


def test_a_topic_with_many_changes_costs_no_more_than_another(past: Past) -> None:
    """The walk goes from topic to topic, and one index search finds the entry."""
    past.executor.manual = True
    for number in range(3000):
        past.wall.now += 1
        past.set("hot", b"%d" % number)
    past.set("zero")
    while past.executor.waiting:
        past.executor.step()
    past.executor.manual = False
    assert past.as_of(START + 1234) == {"hot": b"1233"}
    assert past.as_of(START + 3000, "+") == {"hot": b"2999", "zero": b"x"}


@pytest.mark.usefixtures("small")
def test_the_baseline_has_the_messages_retained_before(make: Make) -> None:
    """They are part of every answer, with their publishers."""
    past = make(limits=OFF).open()
    for topic in ("a", "b/c", "b/d", "e", "é"):
        past.set(topic, topic.encode() * 3, client_id="c", username="u")
    past.set("gone")
    past.clear("gone")
    past.close()
    past = make(wall=Wall(START + 1000)).open()
    assert past.as_of(START + 1000) == {topic: topic.encode() * 3 for topic in ("a", "b/c", "b/d", "e", "é")}
    assert {(one.origin, one.client_id, one.username, one.changed_at) for one in past.events()} == {
        (ChangeOrigin.BASELINE, "c", "u", START + 1000)
    }
    assert {one.revision >> 20 for one in past.events()} == {START}
    with pytest.raises(HistoryUnavailable, match=f"earliest possible time is {date_of(START + 1000)}") as refused:
        past.as_of(START + 999)
    assert refused.value.earliest == START + 1000


@pytest.mark.usefixtures("small")
def test_the_baseline_agrees_with_changes_during_its_writing(make: Make) -> None:
    """Topics are set, cleared and created, and expire, while it is written."""
    past = make(limits=OFF).open()
    for number in range(8):
        past.set(f"t/{number}", b"old")
    past.set("x", b"x", expires_at=START + 1)
    past.close()
    past = make().open(started=False)
    past.history.running = True
    past.wall.now += 10
    writing = past.history.tend()
    past.set("t/0", b"new")  # behind the slice that has been written
    past.set("t/7", b"new")  # ahead of it
    past.clear("t/1")
    past.clear("t/6")
    past.set("t/9", b"new")
    past.clear("t/9")
    past.set("new", b"new")
    assert past.expire() == ["x"]
    with pytest.raises(HistoryUnavailable, match="still being written"):
        past.as_of(past.wall.now)
    past.finish(writing)
    assert past.as_of(past.wall.now) == {
        "new": b"new", "t/0": b"new", "t/2": b"old", "t/3": b"old", "t/4": b"old", "t/5": b"old", "t/7": b"new",
    }  # fmt: skip
    assert past.in_step()
    assert len({(one.topic, one.revision) for one in past.events()}) == len(past.events())


@pytest.mark.usefixtures("small")
def test_an_interrupted_baseline_continues_after_the_restart(make: Make) -> None:
    past = make(limits=OFF).open()
    for number in range(9):
        past.set(f"t/{number}")
    past.close()
    past = make().open(started=False)
    past.history.running = True
    past.executor.manual = True
    past.history.tend()
    past.executor.step()
    past.history.running = False
    past.close()
    written = 2
    past = make().open(started=False)
    assert past.query("SELECT count(*) FROM retained_history") == [(written,)]
    past.history.running = True
    past.tend()
    assert list(past.as_of(START)) == [f"t/{number}" for number in range(9)]
    assert len(past.events()) == 9


def test_a_time_without_recording_has_no_answer(make: Make) -> None:
    """Moments before and after it have answers."""
    past = make().open()
    past.set("a", b"1")
    past.set("b", b"1")
    past.close()
    past = make(limits=OFF, wall=Wall(START + 100)).open()
    past.set("a", b"2")
    past.clear("b")
    with pytest.raises(HistoryUnavailable, match=r"retainer\.history\.enable"):
        past.moment(START)
    past.close()
    past = make(wall=Wall(START + 200)).open()
    past.wall.now = START + 300
    assert past.as_of(START) == past.as_of(START + 99) == {"a": b"1", "b": b"1"}
    assert past.as_of(START + 200) == {"a": b"2"}
    for moment in (START + 100, START + 199):
        with pytest.raises(HistoryUnavailable) as refused:
            past.as_of(moment)
        assert f"not from {date_of(START + 100)} until {date_of(START + 200)}" in str(refused.value)
        assert refused.value.earliest == START


def test_a_restart_makes_no_gap(make: Make) -> None:
    past = make().open()
    past.set("a", b"1")
    past.close()
    past = make(wall=Wall(START + 50)).open()
    past.set("a", b"2")
    assert past.as_of(START + 49) == {"a": b"1"}
    assert past.as_of(START + 50) == {"a": b"2"}
    assert len(past.events()) == 2


def test_recording_may_be_turned_off_and_on_without_a_change(make: Make) -> None:
    for limits in (KEPT, OFF, KEPT, OFF, OFF, KEPT):
        past = make(limits=limits).open()
        past.close()
    past = make().open()
    past.set("a")
    assert past.as_of(START) == {"a": b"x"}


def test_a_future_moment_is_refused(past: Past) -> None:
    with pytest.raises(HistoryUnavailable, match="still to come"):
        past.moment(START + 1)


def test_the_times_of_entries_never_decrease_when_the_clock_does(past: Past) -> None:
    past.set("a", b"1")
    past.wall.now -= 5000
    past.set("a", b"2")
    assert [one.changed_at for one in past.events()] == [START, START]
    assert past.as_of(START) == {"a": b"2"}


def test_pruning_keeps_the_messages_of_the_horizon(make: Make) -> None:
    """It keeps the newest entry of each topic before the horizon, and all later entries."""
    past = make(limits=HistoryLimits(enable=True, keep=0.1)).open()
    model = Model()
    for topic, payload in (("a", b"1"), ("b", b"1"), ("c", b"1"), ("a", b"2"), ("b", b""), ("a", b"3"), ("c", b"2")):
        past.wall.now += 50
        past.set(topic, payload)
        model.change(past.wall.now, topic, payload or None)
    past.tend()
    horizon = past.wall.now - 100
    for moment in range(horizon, past.wall.now + 1):
        assert past.as_of(moment) == model.as_of(moment)
    assert log_of(past) == [("c", b"1", "set"), ("a", b"2", "set"), ("a", b"3", "set"), ("c", b"2", "set")]
    with pytest.raises(HistoryUnavailable, match=f"earliest possible time is {date_of(horizon)}"):
        past.as_of(horizon - 1)
    past.wall.now += 10_000
    past.tend()
    assert log_of(past) == [("a", b"3", "set"), ("c", b"2", "set")]
    assert past.as_of(past.wall.now) == {"a": b"3", "c": b"2"}
    assert past.in_step()


def test_a_read_that_pruning_overtakes_fails(make: Make) -> None:
    """A page with holes would be wrong."""
    past = make(limits=HistoryLimits(enable=True, keep=0.1)).open()
    past.set("a", b"1")
    moment = past.moment(START)
    past.wall.now += 10
    past.set("a", b"2")
    past.wall.now += 1000
    past.tend()
    with pytest.raises(HistoryUnavailable, match="earliest possible time"):
        past.finish(past.history.as_of("#", moment))


def test_old_entries_are_pruned_while_recording_is_off(make: Make) -> None:
    past = make(limits=HistoryLimits(enable=True, keep=0.1)).open()
    past.set("a", b"1")
    past.close()
    past = make(limits=HistoryLimits(enable=False, keep=0.1), wall=Wall(START + 50)).open()
    assert past.query("SELECT count(*) FROM retained_history") == [(1,)]
    past.wall.now += 1000
    past.tend()
    assert past.query("SELECT count(*) FROM retained_history") == [(0,)]
    assert past.query("SELECT count(*) FROM retained_history_periods") == [(0,)]
    assert past.query("SELECT bytes FROM retained_history_state") == [(0,)]


def test_a_history_above_its_limit_loses_the_oldest_entries(make: Make) -> None:
    """Even if they are young. The entries of the present messages stay, and are not pruned again and again."""
    past = make(limits=HistoryLimits(enable=True, keep=None, max_bytes=2000)).open()
    model = Model()
    for number in range(20):
        past.wall.now += 1
        past.set(f"{number % 3}", b"%03d" % number)
        model.change(past.wall.now, f"{number % 3}", b"%03d" % number)
    assert past.query("SELECT bytes FROM retained_history_state") == [(20 * (3 + 1 + 1 + 200),)]
    past.tend()
    assert past.query("SELECT bytes FROM retained_history_state")[0][0] <= 2000
    with pytest.raises(HistoryUnavailable, match="earliest possible time") as refused:
        past.as_of(START + 1)
    assert refused.value.earliest is not None
    for moment in range(refused.value.earliest, past.wall.now + 1):
        assert past.as_of(moment) == model.as_of(moment)


def test_an_entry_counts_its_topic_its_properties_and_its_payload(make: Make) -> None:
    past = make(limits=HistoryLimits(enable=True)).open()
    counted = []
    for topic, payload, properties in (
        ("a", b"1", Properties()),
        ("a" * 50, b"1", Properties()),
        ("a", b"1" * 50, Properties()),
        ("a", b"1", Properties(content_type="x" * 46)),  # its identifier and its length take three bytes
    ):
        before = past.query("SELECT bytes FROM retained_history_state")[0][0]
        past.set(topic, payload, properties=properties)
        counted.append(past.query("SELECT bytes FROM retained_history_state")[0][0] - before)
    assert counted[0] >= 202
    assert [count - counted[0] for count in counted] == [0, 49, 49, 49]


def test_entries_are_not_pruned_before_an_archive_has_them(make: Make) -> None:
    past = make(limits=HistoryLimits(enable=True, keep=0.1)).open()
    for number in range(5):
        past.set("a", b"%d" % number)
    past.finish(past.history.archived(0))
    past.wall.now += 1000
    past.tend()
    assert len(past.events()) == 5
    past.finish(past.history.archived(past.events()[2].seq))
    past.finish(past.history.archived(0))  # it never goes back
    past.tend()
    assert [payload for _, payload, _ in log_of(past)] == [b"2", b"3", b"4"]


def test_a_restore_publishes_the_messages_of_the_moment(past: Past) -> None:
    """As new changes with new revisions. Topics without a message then are left, or cleared on request."""
    past.set("same", b"1", client_id="c")
    past.set("changed", b"1", client_id="c", username="u", qos=1, properties=Properties(content_type="t"))
    past.set("cleared", b"1")
    past.wall.now += 10
    past.set("changed", b"2")
    past.clear("cleared")
    past.set("new", b"1")
    past.set("same", b"1", client_id="d")
    past.wall.now += 10
    expected = {"restored": 2, "cleared": 0, "unchanged": 1, "kept": 1, "expired": 0, "refused": 0}
    for dry_run in (True, False):
        report = past.restore(START, dry_run=dry_run)
        assert {name: getattr(report, name) for name in expected} == expected
        assert len(past.routed) == (0 if dry_run else 2)
    assert past.as_of(past.wall.now) == {"changed": b"1", "cleared": b"1", "new": b"1", "same": b"1"}
    (event,) = past.events("changed", since=past.wall.now)
    assert (event.origin, event.client_id, event.username, event.qos) == (ChangeOrigin.RESTORE, "c", "u", 1)
    assert event.properties == Properties(content_type="t")
    assert past.restore(START, clear=True, dry_run=True).cleared == 1
    assert past.restore(START, clear=True).cleared == 1
    assert past.as_of(past.wall.now) == {"changed": b"1", "cleared": b"1", "same": b"1"}
    assert past.restore(START, clear=True).unchanged == 3
    assert past.in_step()


def test_a_restore_changes_only_matching_topics(past: Past) -> None:
    past.set("a/1", b"1")
    past.set("b/1", b"1")
    past.wall.now += 10
    past.clear("a/1")
    past.clear("b/1")
    assert past.restore(START, "a/+").restored == 1
    assert past.as_of(past.wall.now) == {"a/1": b"1"}


def test_a_restore_with_conditions_takes_the_topics_of_the_search(past: Past) -> None:
    """The present message of a topic decides: other topics, and those without one, stay and are not counted."""
    for topic in ("a", "b", "c", "gone"):
        past.set(topic, b"1", client_id="one")
    past.wall.now += 10
    past.set("a", b"2", client_id="one")
    past.set("b", b"2", client_id="two")
    past.set("new", b"2", client_id="one")
    past.clear("gone")
    search = Search("#", past.wall.now, client_id="one")
    report = past.restore(START, search=search, clear=True, dry_run=True)
    assert (report.restored, report.cleared, report.unchanged) == (1, 1, 1)
    assert past.restore(START, search=search, clear=True).topics == 2
    assert past.as_of(past.wall.now) == {"a": b"1", "b": b"2", "c": b"1"}
    past.set("c", b"22")
    assert past.restore(START, search=Search("#", past.wall.now, least_size=2)).topics == 1
    assert past.as_of(past.wall.now) == {"a": b"1", "b": b"2", "c": b"1"}


def test_a_restore_leaves_out_expired_messages(past: Past) -> None:
    past.set("a", b"1", expires_at=START + 5)
    past.wall.now += 10
    past.set("a", b"2")
    report = past.restore(START)
    assert (report.expired, report.restored, report.cleared) == (1, 0, 0)
    assert past.as_of(past.wall.now) == {"a": b"2"}
    report = past.restore(START, clear=True)
    assert (report.expired, report.cleared) == (1, 1)
    assert past.as_of(past.wall.now) == {}


def test_a_restore_counts_the_messages_that_a_limit_refuses(past: Past) -> None:
    past.set("a", b"1")
    past.set("b", b"1")
    past.wall.now += 10
    past.clear("a")
    past.clear("b")

    def publish(message: ApplicationMessage, origin: ChangeOrigin) -> Any:
        if message.topic == "a":
            raise RetainRefused(Limit.BYTES, "too much")
        return past.publish(message, origin)

    report = past.restore(START, publish=publish)
    assert (report.restored, report.refused, report.reason) == (1, 1, "too much")


def test_a_restore_that_cannot_be_stored_fails(past: Past) -> None:
    past.set("a", b"1")
    past.wall.now += 10
    past.clear("a")

    def publish(message: ApplicationMessage, origin: ChangeOrigin) -> Any:
        ticket = past.publish(message, origin)
        ticket.failure = StorageFailure(FailureKind.FULL, "disk full")
        return ticket

    with pytest.raises(StorageFailure, match="disk full"):
        past.restore(START, publish=publish)


def test_a_restore_across_a_gap(make: Make) -> None:
    past = make().open()
    past.set("a", b"1")
    past.close()
    past = make(limits=OFF, wall=Wall(START + 100)).open()
    past.set("a", b"2")
    past.set("b", b"2")
    past.close()
    past = make(wall=Wall(START + 200)).open()
    assert past.restore(START, clear=True).restored == 1
    assert past.as_of(past.wall.now) == {"a": b"1"}


# --- turning it on and off in a running broker


def running(past: Past) -> Past:
    """Open a store, and start its history. From then on, each transaction waits for a step."""
    past.open(started=False)
    past.executor.manual = True
    past.history.startService()
    past.pass_turns()
    return past


@pytest.mark.usefixtures("small")
def test_a_history_that_is_turned_on_beside_changes_answers_once_its_baseline_is_complete(make: Make) -> None:
    """Other writes come between the transactions of the baseline."""
    past = running(make(limits=OFF))
    for number in range(8):
        past.set(f"t/{number}", b"old")
    past.pass_turns()
    with pytest.raises(HistoryUnavailable, match=r"retainer\.history\.enable"):
        past.moment(past.wall.now)
    past.wall.now += 10
    past.reload(True)
    waited = 0
    with pytest.raises(BaselineUnfinished, match="has not begun yet"):
        past.history.check_kept()
    past.clock.advance(0)
    while past.executor.waiting:
        waited += 1
        ticket = past.set("hot", b"%d" % waited)
        past.executor.step()
        past.executor.step()
        assert ticket.settled
        found = past.query("SELECT complete_since FROM retained_history_periods")
        if found == [(None,)]:
            with pytest.raises(BaselineUnfinished, match="still being written"):
                past.finish(past.history.read(lambda cursor: find_moment(cursor, past.wall.now, past.wall.now)))
        past.clock.advance(0)
    assert waited > 4
    past.executor.manual = False
    wanted = {"hot": b"%d" % waited} | {f"t/{number}": b"old" for number in range(8)}
    assert past.as_of(past.wall.now) == wanted
    assert [payload for _, payload, _ in log_of(past, "hot")] == [b"%d" % number for number in range(1, waited + 1)]
    assert past.in_step()


def test_each_change_behind_the_reload_has_an_entry(make: Make) -> None:
    """Also of changes that wait for their commit while the period begins."""
    past = running(make(limits=OFF))
    past.reload(True)
    past.clock.advance(0)  # the transaction that begins the period waits
    past.set("t", b"1")
    past.set("t", b"2")
    past.pass_turns()
    past.executor.manual = False
    assert log_of(past) == [("t", b"1", "set"), ("t", b"2", "set")]


def test_a_history_that_is_turned_off_ends_as_at_a_restart(make: Make) -> None:
    """Its end has all changes before it. Later changes have no entries."""
    past = running(make())
    past.reload(False)
    past.set("a", b"1")
    past.pass_turns()
    past.wall.now += 10
    past.set("a", b"2")
    past.set("a", b"3")
    past.pass_turns()
    past.executor.manual = False
    with pytest.raises(HistoryUnavailable, match="no history is kept"):
        past.moment(START)
    assert past.query("SELECT payload FROM retained_history") == [(b"1",)]
    assert past.query("SELECT ended_at FROM retained_history_periods") == [(START,)]
    past.reload(True)
    past.pass_turns()
    assert past.as_of(past.wall.now) == {"a": b"3"}


def test_a_database_that_refuses_a_reloaded_history_is_asked_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise StorageFailure(FailureKind.UNAVAILABLE, "the database is away")

    past = running(make(limits=OFF))
    past.set("a", b"1")
    monkeypatch.setattr(history, "begin", fails)
    past.reload(True)
    past.pass_turns()
    monkeypatch.undo()
    with pytest.raises(BaselineUnfinished):
        past.history.check_kept()
    past.clock.advance(60)
    past.pass_turns()
    past.executor.manual = False
    assert past.as_of(past.wall.now) == {"a": b"1"}
    past.executor.manual = True
    monkeypatch.setattr(history, "end", fails)
    past.reload(False)
    past.pass_turns()
    past.set("a", b"2")
    past.pass_turns()
    past.executor.manual = False
    assert past.query("SELECT count(*) FROM retained_history") == [(2,)]  # the period has not ended
    monkeypatch.undo()
    past.clock.advance(60)
    past.pass_turns()
    past.set("a", b"3")
    assert past.query("SELECT count(*) FROM retained_history") == [(2,)]
    assert past.query("SELECT count(*) FROM retained_history_periods WHERE ended_at IS NULL") == [(0,)]


SLICE = [("turn",), ("step",)]
turned = st.one_of(
    st.tuples(st.just("set"), st.sampled_from("abcdef"), st.sampled_from([b"1", b"22"])),
    st.tuples(st.just("clear"), st.sampled_from("abcdef")),
    st.tuples(st.just("pass"), st.integers(1, 3)),
    st.tuples(st.just("turn")),
    st.tuples(st.just("step")),
    st.tuples(st.just("reload"), st.booleans()),
    st.tuples(st.just("kill")),
)


def check_turned(make: Make, actions: list[Any]) -> None:
    """Run the actions on a running broker and on a model of the committed changes; compare every moment."""
    past, wanted, model = running(make(limits=OFF)), False, Model()
    parts = past.durable.parts

    def change(topic: str, payload: bytes | None) -> None:
        at = past.wall.now

        def settled(failure: StorageFailure | None) -> None:
            assert failure is None
            model.change(at, topic, payload)

        past.set(topic, payload or b"").when_settled(settled)

    for topic in "abcde":
        change(topic, b"old")
    past.pass_turns()
    for action in actions:
        match action:
            case ("set", topic, payload):
                change(topic, payload)
            case ("clear", topic):
                change(topic, None)
            case ("pass", duration):  # the time of a change is that of its commit
                while parts is not None and parts.writer.pending_changes:
                    past.executor.step()
                past.wall.now += duration
            case ("turn",):
                past.clock.advance(0)
            case ("step",) if past.executor.waiting:
                past.executor.step()
            case ("reload", wanted):
                past.reload(wanted)
            case ("kill",):
                past.kill()
                past = make(limits=HistoryLimits(enable=wanted, keep=None), wall=past.wall)
                past.open(started=False)
                past.executor.manual = True
                past.history.startService()
                parts = past.durable.parts
    past.pass_turns()
    past.wall.now += 1
    past.reload(True)
    past.pass_turns()
    past.executor.manual = False
    periods = past.query("SELECT complete_since, ended_at FROM retained_history_periods")
    kept = [(since, ended or past.wall.now + 1) for since, ended in periods if since is not None]
    for moment in range(START, past.wall.now + 1):
        if any(since <= moment < ended for since, ended in kept):
            assert past.as_of(moment) == model.as_of(moment), moment - START
        else:
            with pytest.raises(HistoryUnavailable):
                past.as_of(moment)
    assert kept[-1][1] > past.wall.now
    assert past.in_step()


@FEW
@example(
    [
        ("reload", True),
        *SLICE * 2,
        ("turn",),
        ("set", "a", b"1"),
        ("set", "f", b"1"),
        ("clear", "e"),
        *[("step",)] * 2,
        ("kill",),
    ]
)
@example([("reload", True), *SLICE * 6, ("reload", False), ("set", "a", b"1"), ("pass", 3), *SLICE])
@given(st.lists(turned, max_size=40))
def test_a_history_turned_on_and_off_beside_changes_and_kills_equals_a_model(actions: list[Any]) -> None:
    """Whatever comes between the transactions: each moment that a period says it has is exact."""
    with sqlite() as make, pytest.MonkeyPatch.context() as monkeypatch:
        small_bounds(monkeypatch)
        check_turned(make, actions)


@settings(FEW, max_examples=8)
@given(st.lists(turned, max_size=30))
def test_a_history_turned_on_and_off_equals_a_model_in_postgres(actions: list[Any]) -> None:
    """The same property with the other database."""
    with postgres() as make, pytest.MonkeyPatch.context() as monkeypatch:
        small_bounds(monkeypatch)
        check_turned(make, actions)


class TestSeveralNodes:
    """Two nodes of one Postgres database."""

    @pytest.fixture
    def make(self) -> Iterator[Make]:
        with postgres() as made:
            yield made

    def test_places_are_in_the_order_of_commits(self, make: Make) -> None:
        """With any clocks, the newest entry equals the retained message."""
        one, two = make(node=1).open(), make(node=2, wall=Wall(START - 10_000)).open()
        for number in range(4):
            one.set("t", b"one %d" % number)
            two.set("t", b"two %d" % number)
        events = one.events()
        assert [event.payload for event in events] == [
            payload for number in range(4) for payload in (b"one %d" % number, b"two %d" % number)
        ]
        assert [event.seq for event in events] == sorted(event.seq for event in events)
        assert two.as_of(START) == {"t": b"two 3"}
        assert one.in_step()

    def test_there_is_a_gap_while_a_node_does_not_record(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        """It begins when a node opens without history, and ends when all record again."""
        one = make(node=1).open()
        one.set("a", b"1")
        two = make(node=2, limits=OFF, wall=Wall(START + 100)).open()
        one.wall.now = START + 200
        one.set("a", b"2")
        two.set("b", b"2")
        assert one.as_of(START + 99) == {"a": b"1"}
        with pytest.raises(HistoryUnavailable, match=f"not from {date_of(START + 100)} since then"):
            one.as_of(START + 200)
        one.close()
        one = make(node=1, wall=Wall(START + 300)).open()
        one.set("c", b"3")
        with pytest.raises(HistoryUnavailable, match="since then"):
            one.as_of(START + 300)
        with pytest.raises(HistoryUnavailable, match="some nodes"):
            one.restore(START)
        two.close()
        two = make(node=2, wall=Wall(START + 400)).open()
        assert two.as_of(START + 400) == {"a": b"2", "b": b"2", "c": b"3"}

    def test_the_last_node_that_is_reloaded_begins_the_period(self, make: Make) -> None:
        """Its changes would be missing before; the others record from then on without a further reload."""
        one, two = make(node=1, limits=OFF).open(), make(node=2, limits=OFF).open()
        one.set("a", b"1")
        with logged(RetainedHistory) as events:
            one.reload(True)
            one.tend()
        assert [event["nodes"] for event in events if "nodes" in event] == ["2"]
        with pytest.raises(HistoryUnavailable):
            one.as_of(START)
        two.wall.now = one.wall.now = START + 10
        two.reload(True)
        two.tend()
        one.set("b", b"2")
        assert one.as_of(START + 10) == two.as_of(START + 10) == {"a": b"1", "b": b"2"}
        two.wall.now = one.wall.now = START + 20
        two.reload(False)
        two.tend()
        two.set("b", b"3")
        assert one.as_of(START + 19) == {"a": b"1", "b": b"2"}
        with pytest.raises(HistoryUnavailable, match=f"not from {date_of(START + 20)} since then"):
            one.as_of(START + 20)

    def test_changes_recorded_before_all_nodes_record_are_forgotten(self, make: Make) -> None:
        two = make(node=2, limits=OFF).open()
        one = make(node=1).open()
        one.set("a", b"1")
        two.close()
        two = make(node=2).open()
        two.tend()
        assert log_of(two) == [("a", b"1", "set")]
        assert {event.origin for event in two.events()} == {ChangeOrigin.BASELINE}

    def test_they_write_one_baseline_together(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        small_bounds(monkeypatch)
        past = make(limits=OFF).open()
        for number in range(9):
            past.set(f"{number}")
        past.close()
        one, two = make(node=1).open(started=False), make(node=2).open(started=False)
        one.history.running = two.history.running = True
        writing = one.history.tend()
        two.tend()
        one.finish(writing)
        assert len(one.events()) == 9
        assert len(two.as_of(START)) == 9

    def test_a_commit_whose_outcome_was_unknown_is_recorded_once(self, make: Make) -> None:
        """The same writes come again, perhaps with newer ones: each change has one entry."""
        past = make().open()
        assert past.durable.parts is not None
        revisions = [past.store.next_revision() for _ in range(3)]
        past.put("a", b"1", revisions[0])
        past.put("b", b"1", revisions[1])
        past.put("a", b"1", revisions[0])
        past.put("b", b"1", revisions[1])
        past.put("c", b"1", revisions[2])
        assert log_of(past) == [("a", b"1", "set"), ("b", b"1", "set"), ("c", b"1", "set")]


topics = st.sampled_from(["a", "a/b", "b", "c/d", "$x"])
steps = st.one_of(
    st.tuples(st.just("set"), topics, st.sampled_from([b"1", b"22", b"333"]), st.sampled_from([None, 3, 40])),
    st.tuples(st.just("clear"), topics),
    st.tuples(st.just("pass"), st.sampled_from([1, 2, 9, 10, 20, 30])),
    st.tuples(st.just("step")),
    st.tuples(st.just("expire")),
    st.tuples(st.just("tend")),
    st.tuples(st.just("restart"), st.booleans()),
    st.tuples(st.just("back"), st.integers(1, 20)),
)


def check(make: Make, actions: list[Any], keep: float | None, topic_filter: str) -> None:
    """Run the actions on a store and a model, and compare every moment that has an answer."""
    past = make(limits=HistoryLimits(enable=True, keep=keep)).open()
    live: dict[str, tuple[bytes | None, int | None]] = {}
    periods = [Model(last_at=START)]
    latest = START  # entries that were pruned by a fast clock do not come back

    def change(topic: str, payload: bytes | None, expires_at: int | None = None) -> None:
        live[topic] = payload, expires_at
        if past.history.limits.enable:
            periods[-1].change(past.wall.now, topic, payload, expires_at)

    def drain() -> None:
        while past.executor.waiting:
            past.executor.step()

    def restart(enable: bool) -> Past:
        enabled, wall, period = past.history.limits.enable, past.wall, periods[-1]
        past.close()
        if enabled is not enable:
            period.last_at = max(period.last_at, wall.now)
        if enabled and not enable:
            period.ended_at = period.last_at
        if enable and not enabled:
            periods.append(Model(last_at=period.last_at))
            for topic, (payload, expires_at) in [("", (None, None)), *live.items()]:
                periods[-1].change(wall.now, topic, payload, expires_at)
        return make(limits=HistoryLimits(enable=enable, keep=keep), wall=wall).open()

    change("", None)  # every period begins with something
    for action in actions:
        past.executor.manual = True
        match action:
            case ("set", topic, payload, lifetime):
                expires_at = None if lifetime is None else past.wall.now + lifetime
                past.set(topic, payload, expires_at=expires_at)
                change(topic, payload, expires_at)
            case ("clear", topic):
                past.clear(topic)
                change(topic, None)
            case ("pass", duration):
                past.wall.now += duration
                latest = max(latest, past.wall.now)
            case ("back", duration):
                past.wall.now -= duration
            case ("step",):
                drain()
            case ("expire",):
                drain()
                for topic in past.expire():
                    change(topic, None)
            case ("tend",):
                drain()
                past.tend()
            case ("restart", enable):
                past = restart(enable)
    if not past.history.limits.enable:
        past = restart(True)
    past.executor.manual = False
    drain()
    past.tend()
    horizon = 0 if keep is None else latest - round(keep * 1000)
    for period in periods:
        end = max(past.wall.now, period.last_at) + 1 if period.ended_at is None else period.ended_at
        for moment in range(max(period.since, horizon), end):
            wanted = {topic: value for topic, value in period.as_of(moment).items() if matches(topic_filter, topic)}
            assert past.as_of(moment, topic_filter) == wanted, moment - START
    assert past.in_step()


@FEW
@example([("set", "a", b"1", None), ("pass", 5), ("clear", "a"), ("pass", 17)], 0.02, "#")  # cleared after the horizon
@example([("set", "a", b"1", None), ("pass", 1), ("set", "a", b"22", None), ("pass", 19)], 0.02, "#")  # set just after
@given(st.lists(steps, max_size=25), st.sampled_from([None, 0.02, 0.1]), st.just("#") | topic_filters())
def test_every_moment_has_the_answer_of_a_model(actions: list[Any], keep: float | None, topic_filter: str) -> None:
    """After any interleaving of sets, clears, expiries, commits, prunings, and turning history on and off."""
    with sqlite() as make, pytest.MonkeyPatch.context() as monkeypatch:
        small_bounds(monkeypatch)
        check(make, actions, keep, topic_filter)


@settings(FEW, max_examples=8)
@given(st.lists(steps, max_size=15), st.sampled_from([None, 0.02]), st.just("#"))
def test_every_moment_has_the_answer_of_a_model_in_postgres(
    actions: list[Any], keep: float | None, topic_filter: str
) -> None:
    """The same property with the other database."""
    with postgres() as make:
        check(make, actions, keep, topic_filter)
