"""Rules say which topics the history records and for how long. It never tells a state that it does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.changes import history
from holdfast.changes.entries import (
    FOREVER,
    GENERAL,
    NO_RULES,
    NOT_RECORDED,
    HistoryEvent,
    LeftOut,
    Rule,
    Rules,
    rules_in,
)
from holdfast.changes.history import HistoryLimits
from holdfast.changes.moments import HistoryUnavailable, Span, check_span, find_span, page_of_events
from holdfast.changes.periods import begin
from holdfast.changes.recording import HistoryRecorder
from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.core.topics import EVERY_TOPIC, matches
from holdfast.storage.database import Durability
from holdfast.storage.driver import Cursor
from holdfast.storage.maintenance import database_at
from tests import strategies
from tests.changes.history.past import START, Model, Past, postgres, sqlite
from tests.retained.strategies import topic_filters
from tests.storage.doubles import Wall

Make = Callable[..., Past]
PUBLISH = ChangeOrigin.PUBLISH
WITHOUT_NOISE = Rules([Rule("noise/#", NOT_RECORDED)])


@pytest.fixture(params=[sqlite, postgres], ids=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    with request.param() as made:
        yield made


def topics_of(past: Past) -> Counter[str]:
    return Counter(event.topic for event in past.events("#"))


# --- which rule applies


@given(
    st.lists(st.tuples(topic_filters(), st.sampled_from([GENERAL, NOT_RECORDED, 5, FOREVER]))),
    strategies.topic_names(),
)
def test_the_first_matching_rule_applies(given_rules: list[tuple[str, int | None]], topic: str) -> None:
    """Also after a way through the database; without one, the general depth."""
    rules = Rules(Rule(*rule) for rule in given_rules)
    expected = next((depth for name, depth in given_rules if matches(name, topic)), GENERAL)
    assert rules.depth_of(topic) == rules_in(rules.text).depth_of(topic) == expected
    assert rules.records(topic) == (expected != NOT_RECORDED)
    assert rules_in(rules.text).digest == rules.digest


@given(
    st.lists(st.tuples(topic_filters(), st.sampled_from([GENERAL, NOT_RECORDED, 5]))),
    topic_filters() | st.just(EVERY_TOPIC),
    strategies.topic_names(),
    st.sets(st.sampled_from([GENERAL, NOT_RECORDED, 5])),
)
def test_no_topic_is_missing_from_what_is_left_out(
    given_rules: list[tuple[str, int | None]], topic_filter: str, topic: str, hidden: set[int | None]
) -> None:
    rules = Rules(Rule(*rule) for rule in given_rules)
    left_out = rules.left_out(topic_filter, hidden.__contains__)
    if topic_filter == EVERY_TOPIC or matches(topic_filter, topic):
        assert (rules.depth_of(topic) in hidden) <= bool(left_out.filters)
        assert (rules.depth_of(topic) not in hidden) <= (not left_out.everything)


def test_rules_that_change_nothing_are_no_rules() -> None:
    """Policies about other things begin no new period."""
    assert Rules([Rule("a/#", GENERAL)]) == NO_RULES
    assert (NO_RULES.text, NO_RULES.digest) == (None, None)
    assert Rules([Rule("a/b", GENERAL), Rule("a/#", 5), Rule("#", GENERAL)]) == Rules(
        [Rule("a/b", GENERAL), Rule("a/#", 5)]
    )
    assert Rules([Rule("a/b", GENERAL), Rule("a/#", NOT_RECORDED)]).left_out("a/b", (NOT_RECORDED,).__contains__) == (
        LeftOut()
    )


# --- recording


def test_excluded_topics_have_no_entries(make: Make) -> None:
    """Neither of a set, a clear, an expiry or a restored message, nor of the baseline."""
    past = make(limits=HistoryLimits(enable=False)).open()
    past.set("noise/old")
    past.set("plant/old")
    past.close()
    past = make(rules=WITHOUT_NOISE).open()
    for topic in ("noise/a", "plant/a", "noise"):
        past.set(topic, b"1", expires_at=START + 10)
        past.clear(topic)
        past.set(topic, b"2", expires_at=START + 10)
    past.wall.now += 20
    assert len(past.expire()) == 3
    assert topics_of(past) == {"plant/old": 1, "plant/a": 4}
    assert past.store.statistics().count == 2
    assert past.as_of(past.wall.now) == {"plant/old": b"x"}


def test_new_rules_begin_a_new_period_with_its_own_baseline(make: Make) -> None:
    """Before and after, each time has the topics that were recorded then."""
    past = make().open()
    past.set("noise/a", b"1")
    past.set("plant/a", b"1")
    past.wall.now = START + 10
    past.follow(("noise/#", NOT_RECORDED))
    past.set("noise/a", b"2")
    past.set("plant/a", b"2")
    past.wall.now = START + 20
    past.follow()
    past.set("noise/a", b"3")
    past.wall.now = START + 30
    assert past.as_of(START + 9) == {"noise/a": b"1", "plant/a": b"1"}
    assert past.as_of(START + 19) == {"plant/a": b"2"}
    assert past.as_of(START + 30) == {"noise/a": b"3", "plant/a": b"2"}
    assert past.finish(past.history.as_of("#", past.moment(START + 19))).left_out == ("noise/#",)
    with pytest.raises(HistoryUnavailable, match="no changes of noise/#, neither old nor new ones"):
        past.finish(past.history.moment(START + 19, "noise/+"))
    assert [event.payload for event in past.events("noise/a")] == [b"1", b"2", b"3"]
    assert past.events("noise/a")[1].origin is ChangeOrigin.BASELINE


def test_the_same_rules_begin_no_new_period(make: Make) -> None:
    past = make(rules=WITHOUT_NOISE).open()
    past.follow(("noise/#", NOT_RECORDED), ("other", GENERAL))
    past.close()
    past = make(rules=WITHOUT_NOISE).open()
    assert past.query("SELECT count(*) FROM retained_history_periods") == [(1,)]
    past.close()
    past = make().open()
    assert past.query("SELECT count(*) FROM retained_history_periods") == [(2,)]


def test_rules_that_a_failing_database_refuses_are_tried_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    past = make().open()
    monkeypatch.setattr(history, "begin", fails)
    past.follow(("noise/#", NOT_RECORDED))
    past.set("noise/a")
    assert topics_of(past) == {"noise/a": 1}
    monkeypatch.undo()
    past.tend()
    past.set("noise/a")
    assert topics_of(past) == {"noise/a": 1}


def fails(*_: object) -> None:
    raise StorageFailure(FailureKind.UNAVAILABLE, "the database is away")


def test_all_nodes_follow_new_rules_from_the_same_change_on() -> None:
    """Also a node that was not told: it reads the rules with its lock."""
    with postgres() as make:
        first, second = make(node=1).open(), make(node=2).open()
        second.set("noise/b", b"1")
        first.follow(("noise/#", NOT_RECORDED))
        second.set("noise/b", b"2")
        second.set("plant/b", b"2")
        first.follow()
        second.set("noise/b", b"3")
        told = [(event.topic, event.payload) for event in first.events() if event.origin is PUBLISH]
        assert told == [("noise/b", b"1"), ("plant/b", b"2"), ("noise/b", b"3")]
        baselines = [(event.topic, event.payload) for event in first.events() if event.origin is not PUBLISH]
        assert sorted(baselines) == [("noise/b", b"2"), ("plant/b", b"2")]


def test_a_change_that_waits_for_new_rules_follows_them() -> None:
    """A transaction of another node waits for the lock while the rules change, and reads them behind the commit."""
    with postgres() as make:
        past = make().open()
        others = database_at(past.url, Durability.PROCESS, 0, 5.0)
        with closing(others.connect()) as changing, closing(others.connect()) as waiting:
            (cursor, other) = (changing.cursor(), waiting.cursor())
            other.execute("SELECT pg_backend_pid()")
            ((pid,),) = other.fetchall()
            waiting.commit()
            cursor.execute("BEGIN")
            begin(cursor, past.wall.now, past.node, WITHOUT_NOISE)

            def record() -> None:
                other.execute("BEGIN")
                recorder = HistoryRecorder(past.durable.bulk, past.durable.shared)
                recorder.record_expired(other, ["noise/a", "plant/a"], past.wall.now, 5)
                waiting.commit()

            thread = Thread(target=record)
            thread.start()
            locks = f"SELECT count(*) FROM pg_locks WHERE pid = {pid} AND NOT granted"
            assert any(past.query(locks) == [(1,)] for _ in range(10_000))
            changing.commit()
            thread.join(60)
            assert not thread.is_alive()
        assert topics_of(past) == {"plant/a": 1}


class Counting:
    """A cursor that notes the statements it runs."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.statements: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, statement: str, *values: Any) -> Any:
        self.statements.append(statement.split()[0])
        return self._cursor.execute(statement, *values)


def statements_of(past: Past, recorder: HistoryRecorder, topic: str) -> list[str]:
    """Return the kinds of statements that the recording of an expiry takes."""

    def work(connection: Any) -> list[str]:
        cursor = Counting(connection.cursor())
        recorder.record_expired(cursor, [topic], past.wall.now, 5)
        return cursor.statements

    assert past.durable.parts is not None
    found: list[str] = past.finish(past.durable.parts.writer.run(work))
    return found


def test_rules_add_no_statement_to_a_recorded_change(make: Make) -> None:
    """They are read once. In a database of one node, an excluded change writes nothing."""
    past = make().open()
    recorder = HistoryRecorder(past.durable.bulk, past.durable.shared)
    plain = statements_of(past, recorder, "plant/a")
    assert "SELECT" not in plain
    past.follow(("noise/#", NOT_RECORDED))
    assert statements_of(past, recorder, "plant/a") == [plain[0], "SELECT", *plain[1:]]
    assert statements_of(past, recorder, "plant/a") == plain
    assert statements_of(past, recorder, "noise/a") == (["UPDATE"] if past.durable.shared else ["SELECT"])


# --- depth


def test_topics_are_pruned_at_their_own_depth(make: Make) -> None:
    """Sooner and later than the general one. A time before it leaves these topics out, and does not call them empty."""
    rules = Rules([Rule("short/#", 100), Rule("long/#", FOREVER)])
    past = make(limits=HistoryLimits(enable=True, keep=1), rules=rules).open()
    for number in range(20):
        past.wall.now = START + 100 * number
        for topic in ("short/a", "plain/a", "long/a"):
            past.set(topic, b"%d" % number)
    past.tend()
    assert topics_of(past) == {"short/a": 2, "plain/a": 11, "long/a": 20}
    everything = {"short/a": b"18", "plain/a": b"18", "long/a": b"18"}
    assert past.as_of(START + 1800) == everything
    assert past.as_of(START + 1799) == {"plain/a": b"17", "long/a": b"17"}
    assert past.as_of(START + 899) == {"long/a": b"8"}
    page = past.finish(past.history.as_of("#", past.moment(START + 899)))
    assert page.left_out == ("short/#", "#")
    with pytest.raises(HistoryUnavailable, match=r"of short/# does not go back to .*; the earliest") as refused:
        past.finish(past.history.moment(START + 1799, "short/+"))
    assert refused.value.earliest == START + 1800
    with pytest.raises(HistoryUnavailable, match="of # does not go back"):
        past.finish(past.history.moment(START + 899, "plain/a"))


def test_a_span_leaves_out_topics_whose_first_state_is_unknown(make: Make) -> None:
    """Also their later changes that are known. If pruning passes further topics later, the span ends."""
    past = make(rules=Rules([Rule("short/#", 100), Rule("longer/#", 1000)])).open()
    for number in range(4):
        past.wall.now = START + 100 * number
        for topic in ("short/a", "longer/a", "plain/a"):
            past.set(topic, b"%d" % number)
    past.tend()
    span = past.finish(past.history.read(lambda cursor: find_span(cursor, START + 100, START + 300, past.wall.now)))
    assert [(event.topic, event.payload) for event in events_of(past, span)] == [
        (topic, payload) for payload in (b"2", b"3") for topic in ("longer/a", "plain/a")
    ]
    past.wall.now += 2000
    past.tend()
    with pytest.raises(HistoryUnavailable, match="the history was pruned meanwhile"):
        events_of(past, span)


def test_a_read_fails_if_topics_are_pruned_between_its_pages(make: Make) -> None:
    past = make(rules=Rules([Rule("short/#", 100)])).open()
    past.set("short/a", b"1")
    past.wall.now += 10
    past.set("short/a", b"2")
    moment = past.moment(START)
    past.wall.now += 1000
    past.tend()
    with pytest.raises(HistoryUnavailable, match="the history of some topics was pruned meanwhile"):
        past.finish(past.history.as_of("#", moment))


def test_a_history_above_its_limit_loses_entries_of_all_depths(make: Make) -> None:
    limits = HistoryLimits(enable=True, keep=None, max_bytes=2000)
    past = make(limits=limits, rules=Rules([Rule("long/#", FOREVER), Rule("short/#", 60_000)])).open()
    for number in range(20):
        past.wall.now += 1
        for topic in ("long/a", "short/a", "plain/a"):
            past.set(topic, b"%d" % number)
    past.tend()
    assert past.query("SELECT bytes FROM retained_history_state")[0][0] <= 2000
    assert past.in_step()


def test_new_rules_at_the_limit_of_bytes_cost_the_oldest_entries_only(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline of the new period takes space. The end of the period before is still known."""
    monkeypatch.setattr(history, "_PRUNED_ROWS", 2)
    past = make(limits=HistoryLimits(enable=True, keep=None, max_bytes=3000)).open()
    model = Model()
    for number in range(14):
        past.wall.now += 1
        past.set(f"{number % 2}", b"%d" % number)
        model.change(past.wall.now, f"{number % 2}", b"%d" % number)
    assert past.as_of(START + 1) == model.as_of(START + 1)
    past.wall.now += 1
    past.follow(("noise", NOT_RECORDED))
    assert past.query("SELECT bytes FROM retained_history_state")[0][0] <= 3000
    with pytest.raises(HistoryUnavailable) as refused:
        past.as_of(START + 1)
    assert refused.value.earliest is not None
    assert START + 1 < refused.value.earliest < START + 14
    for moment in range(refused.value.earliest, past.wall.now + 1):
        assert past.as_of(moment) == model.as_of(moment)


def test_an_ended_period_is_dropped_when_no_depth_needs_it(make: Make) -> None:
    past = make(limits=HistoryLimits(enable=True, keep=0.1), rules=Rules([Rule("long/#", 1000)])).open()
    past.set("long/a", b"1")
    past.set("plain/a", b"1")
    past.follow()
    past.wall.now += 500
    past.tend()
    assert past.query("SELECT count(*) FROM retained_history_periods") == [(2,)]
    past.wall.now += 1000
    past.tend()
    assert past.query("SELECT count(*) FROM retained_history_periods") == [(1,)]
    assert past.as_of(past.wall.now) == {"long/a": b"1", "plain/a": b"1"}


# --- restoring


def test_a_restore_leaves_unknown_topics_alone(make: Make) -> None:
    """With clear, too: that the history has no message of a topic does not mean that it had none."""
    past = make().open()
    past.set("noise/a", b"1")
    past.set("plant/a", b"1")
    past.wall.now = START + 10
    past.follow(("noise/#", NOT_RECORDED))
    past.wall.now = START + 20
    past.set("noise/a", b"2")
    past.set("plant/a", b"2")
    past.set("plant/b", b"2")
    report = past.restore(START + 5, clear=True)
    assert (report.restored, report.cleared, report.left_out) == (1, 1, ("noise/#",))
    past.wall.now = START + 30
    past.follow()
    past.set("noise/a", b"3")
    report = past.restore(START + 25, clear=True)
    assert (report.topics, report.unchanged, report.left_out) == (0, 1, ("noise/#",))
    assert past.as_of(past.wall.now) == {"noise/a": b"3", "plant/a": b"1"}


# --- the model

TOPICS = ("a", "a/b", "b")
DEPTHS = (GENERAL, NOT_RECORDED, 4, 30)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(TOPICS), st.sampled_from([b"", b"1", b"2"])),
        st.tuples(st.just("wait"), st.integers(1, 6)),
        st.tuples(
            st.just("rules"),
            st.lists(st.tuples(st.sampled_from(["a", "a/#", "+", "#", "b"]), st.sampled_from(DEPTHS)), max_size=3),
        ),
        st.tuples(st.just("restart")),
        st.tuples(st.just("prune")),
    ),
    max_size=25,
)


@given(steps=STEPS, keep=st.sampled_from([None, 0.002, 0.01]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_every_answer_is_the_state_of_the_topics_that_were_recorded(
    monkeypatch: pytest.MonkeyPatch, steps: list[Any], keep: float | None
) -> None:
    """With rules that change, restarts and pruning.

    Topics within their depth are never left out. The messages of a time, changed by the changes since, are the present
    ones.
    """
    limits = HistoryLimits(enable=True, keep=keep)
    with monkeypatch.context() as small, sqlite() as make:
        small.setattr(history, "_PRUNED_ROWS", 2)
        small.setattr(history, "_BASELINE_ROWS", 2)
        past = make(limits=limits).open()
        model = Model()
        rules = [(START, NO_RULES)]
        for step, *values in steps:
            match step:
                case "set":
                    topic, payload = values
                    past.set(topic, payload)
                    model.change(past.wall.now, topic, payload or None)
                case "wait":
                    past.wall.now += values[0]
                case "rules":
                    past.follow(*values[0])
                    rules.append((past.wall.now, Rules(Rule(*rule) for rule in values[0])))
                case "restart":
                    past.close()
                    past = make(limits=limits, rules=rules[-1][1], wall=Wall(past.wall.now)).open()
                case "prune":
                    past.tend()
        for at in range(START, past.wall.now + 1):
            then = next(each for begun, each in reversed(rules) if begun <= at)
            check_answer(past, model, then, at, keep)


def check_answer(past: Past, model: Model, rules: Rules, at: int, keep: float | None) -> None:
    """Compare the answer of a time with the model. ``rules`` held then."""
    expected = {topic: payload for topic, payload in model.as_of(at).items() if rules.records(topic)}
    needed = [
        topic
        for topic in TOPICS
        if (
            depth := (None if keep is None else keep * 1000) if rules.depth_of(topic) is None else rules.depth_of(topic)
        )
        is None
        or (depth and at >= past.wall.now - depth)
    ]
    try:
        found = past.as_of(at)
    except HistoryUnavailable:
        assert not needed
        return
    hidden = past.moment(at).hidden
    assert found == {topic: payload for topic, payload in expected.items() if rules.depth_of(topic) not in hidden}
    assert all(rules.depth_of(topic) not in hidden for topic in needed)
    try:
        span: Span = past.finish(past.history.read(lambda cursor: find_span(cursor, at, past.wall.now, past.wall.now)))
    except HistoryUnavailable:
        return  # other rules held later
    state = dict(found)
    for event in events_of(past, span):
        assert at < event.changed_at
        if event.kind is ChangeKind.SET:
            state[event.topic] = event.payload
        else:
            state.pop(event.topic, None)
    present = model.as_of(past.wall.now).items()
    assert state == {topic: payload for topic, payload in present if rules.depth_of(topic) not in hidden}


def events_of(past: Past, span: Span) -> list[HistoryEvent]:
    """Read the events that a span shows."""

    def work(cursor: Cursor) -> list[HistoryEvent]:
        page = page_of_events(cursor, "#", span.after, span.upto, 1000, 1000, 1 << 20)
        shows = span.shows(check_span(cursor, span))
        assert page.done
        return [event for event in page.events if shows(event.topic)]

    found: list[HistoryEvent] = past.finish(past.history.read(work))
    return found
