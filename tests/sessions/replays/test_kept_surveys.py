"""What a survey of publishers has found holds for the next start, and spares it the survey; but never a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.logger import formatEvent

from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.identity.bans import Ban, Bans, Exempt, Kind
from holdfast.identity.interfaces import Principal
from holdfast.retained.source_check import SourceCheck
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.wire import packets as p
from tests.authorizers import Listed
from tests.doubles import MemoryBroker
from tests.logs import logged
from tests.postgres import fresh_database, synchronous
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import result_of

TOPICS = ["a", "a/b", "a/c", "b", "b/a"]
filters = st.lists(st.sampled_from(["#", "a/#", "a/+", "b", "b/#", "a/b"]), max_size=2)


class Kept(Listed):
    """Rules with a fingerprint. With ``by_place``, clients are allowed to retain what they may not keep."""

    by_place = False

    @property
    def keeping(self) -> str:  # type: ignore[override]
        return repr(sorted(self.retain.items()))

    @property
    def keeps_the_published(self) -> bool:  # type: ignore[override]
        return not self.by_place

    def may_publish(self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False) -> bool:
        return self.by_place or super().may_publish(principal, topic, qos, retain, clears)


def fill(broker: MemoryBroker, published: Mapping[str, str | None]) -> None:
    """Retain a message of each topic, published by this user."""
    for topic, username in published.items():
        client = broker.client(f"of {username}", username=username)
        client.publish(topic, b"x", retain=True, qos=1)
        client.drop()


def replayed(broker: MemoryBroker) -> list[str]:
    client = broker.client("reader")
    client.send(p.Subscribe(1, (p.SubscriptionRequest("#", 0),)))
    found = [topic for topic, _, _, _ in client.messages()]
    client.drop()
    return found


def sources(broker: MemoryBroker) -> SourceCheck:
    assert broker.retained.sources is not None
    return broker.retained.sources


def clear_at_once(broker: MemoryBroker) -> bool:
    """Whether no replay looks at a publisher, before any time has passed."""
    return not sources(broker).stretch("").looked


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return tmp_path / "db" if request.param == "sqlite" else fresh_database()


@pytest.fixture
def rules() -> Kept:
    return Kept({}, {})


def start(place: Path | str, rules: Kept) -> RestartableBroker:
    return RestartableBroker(place, authorizer=rules, checks_sources=True)


# --- what a start spares


def test_a_start_by_the_same_rules_after_a_clean_stop_judges_nothing(place: Path | str, rules: Kept) -> None:
    """Also for the messages that clients have retained after the survey, and again at the start after that."""
    broker = start(place, rules)
    fill(broker, {"a": "u", "b": "v"})
    broker.advance(5)
    fill(broker, {"a/b": "u"})
    asked = rules.asked_to_keep
    for _ in range(2):
        broker = broker.stop()
        assert clear_at_once(broker)
        assert replayed(broker) == ["a", "a/b", "b"]
        broker.advance(5)
    assert rules.asked_to_keep == asked
    assert sources(broker).stored_withheld == 0
    broker.kill()


def test_a_start_after_a_crash_judges_only_newer_messages(place: Path | str, rules: Kept) -> None:
    broker = start(place, rules)
    fill(broker, {f"t/{number}": "u" for number in range(50)})
    broker.advance(5)
    fill(broker, {"a": "u", "t/7": "v", "z": None})
    asked = rules.asked_to_keep
    broker = broker.restart()
    assert not clear_at_once(broker)
    broker.advance(5)
    assert clear_at_once(broker)
    assert rules.asked_to_keep == asked + 2
    assert len(replayed(broker)) == 52
    broker = broker.stop()
    assert clear_at_once(broker)
    broker.kill()


def test_other_rules_let_the_start_judge_everything(place: Path | str, rules: Kept) -> None:
    broker = start(place, rules)
    fill(broker, {"a": "u", "b": "v"})
    broker.advance(5)
    rules.change({}, {"u": ["b"]})
    broker = broker.stop()
    assert replayed(broker) == ["b"]
    broker.advance(5)
    assert sources(broker).stored_withheld == 1
    broker = broker.stop()  # some are withheld: there is nothing to be kept
    assert not clear_at_once(broker)
    rules.change({}, {})
    broker = broker.stop()
    assert clear_at_once(broker)  # the first rules: what was found by them is still true
    assert replayed(broker) == ["a", "b"]
    broker.kill()


def test_messages_that_nobody_has_judged_are_judged_at_the_next_start(place: Path | str, rules: Kept) -> None:
    """Those of an operator's restore, if the broker ends before the survey that they begin."""
    rules.change({}, {"u": ["a"]})
    broker = start(place, rules)
    fill(broker, {"a": "u"})
    broker.advance(5)
    for clean in (True, False):
        broker.router.publish(ApplicationMessage("b", b"x", 0, True, None, "u"), ChangeOrigin.RESTORE)
        broker = broker.stop() if clean else broker.restart()
        assert replayed(broker) == ["a"]
        broker.advance(5)
        assert replayed(broker) == ["a"]
        broker.router.publish(ApplicationMessage("b", b"", 0, True), ChangeOrigin.API)
        broker.settle()
    broker.kill()


def test_rules_by_place_let_the_next_start_judge_what_came_later(place: Path | str, rules: Kept) -> None:
    """A client was allowed to retain it at its listener. The listener is not stored, so nobody knows that later."""
    rules.by_place = True
    rules.change({}, {"u": ["a"]})
    broker = start(place, rules)
    fill(broker, {"a": "u"})
    broker.advance(5)
    fill(broker, {"b": "u"})
    asked = rules.asked_to_keep
    broker = broker.stop()
    broker.advance(5)
    assert replayed(broker) == ["a"]
    assert sources(broker).stored_withheld == 1
    assert rules.asked_to_keep <= asked + 3  # b, by the survey and by the replay
    broker.kill()


def test_the_check_of_guests_is_another_one(place: Path | str, rules: Kept) -> None:
    rules.change({}, {"": []})
    broker = RestartableBroker(place, authorizer=Kept({}, {}), checks_sources=True)
    fill(broker, {"a": None})
    broker.advance(5)
    broker.stop().kill()
    broker = RestartableBroker(place, authorizer=rules, checks_sources=True)
    broker.advance(5)
    broker.stop().kill()
    broker = RestartableBroker(place, authorizer=rules, checks_sources=True, judges_guests=True)
    assert replayed(broker) == []
    broker.kill()


def test_rules_without_a_fingerprint_keep_nothing(place: Path | str) -> None:
    broker = RestartableBroker(place, authorizer=Listed({}, {}), checks_sources=True)
    fill(broker, {"a": "u"})
    broker.advance(5)
    broker = broker.stop()
    assert not clear_at_once(broker)
    broker.kill()


def test_messages_from_another_node_let_each_start_judge_everything(rules: Kept) -> None:
    """Its rules may be others, and it may commit a message with a lower revision later."""
    url = fresh_database()
    broker = start(url, rules)
    fill(broker, {"a": "u"})
    broker.advance(5)
    durable, executor = synchronous(url, 2)
    other = SQLRetainedStore(durable)
    durable.open()
    fill_store = MemoryBroker(store=lambda _: other)
    fill(fill_store, {"b": "u"})
    executor.manual = False
    result_of(durable.close())
    for _ in range(2):
        asked = rules.asked_to_keep
        broker = broker.stop()
        assert not clear_at_once(broker)
        broker.advance(5)
        assert rules.asked_to_keep == asked + 2
    broker.kill()


def test_a_result_that_cannot_be_written_is_told_and_costs_the_next_start_a_survey(
    tmp_path: Path, rules: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start(tmp_path / "db", rules)
    fill(broker, {"a": "u"})

    def failing(*_arguments: object) -> None:
        raise StorageFailure(FailureKind.FULL, "the disk is full")

    with logged(SourceCheck) as events, monkeypatch.context() as patched:
        patched.setattr("holdfast.retained.store.sql.keep_record", failing)
        broker.advance(5)
        assert replayed(broker) == ["a"]
        broker = broker.stop()
    assert not clear_at_once(broker)
    warnings = [formatEvent(event) for event in events if event["log_level"].name == "warn"]
    assert warnings
    assert all("the next start judges all publishers: the disk is full" in str(line) for line in warnings)
    broker.kill()


# --- any history


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_replay_after_any_history_is_that_of_a_broker_that_judges_each_message(data: st.DataObject) -> None:
    """Messages, restores, changes of the rules with and without a broker, crashes, stops, and time for the survey."""
    with TemporaryDirectory() as directory:
        rules = Kept({}, {})
        broker = start(Path(directory) / "db", rules)
        published: dict[str, str | None] = {}
        steps = st.sampled_from(["publish", "publish", "restore", "change", "wait", "stop", "crash"])
        for step in data.draw(st.lists(steps, min_size=3, max_size=12)):
            topic = data.draw(st.sampled_from(TOPICS))
            username = data.draw(st.sampled_from(["u", "v", None]))
            if step == "publish" and rules.keeps(username, topic):
                fill(broker, {topic: username})
                published[topic] = username
            elif step == "restore":
                broker.router.publish(ApplicationMessage(topic, b"x", 1, True, None, username), ChangeOrigin.RESTORE)
                broker.commit()
                published[topic] = username
            elif step == "change":
                rules.change({}, data.draw(st.sampled_from([{}, {"u": ["a/#"]}, {"u": ["a/#"], "v": ["b"]}])))
            elif step == "wait":
                broker.advance(5)
            elif step in ("stop", "crash"):
                broker = broker.stop() if step == "stop" else broker.restart()
            if data.draw(st.booleans()):
                expected = [name for name, user in sorted(published.items()) if user is None or rules.keeps(user, name)]
                assert replayed(broker) == expected
        broker.kill()


def test_a_survey_under_bans_is_kept_for_the_same_bans_only(place: Path | str) -> None:
    """The next process judges all messages again once another user is banned."""
    bans = Bans(now=lambda: 0, exempt=Exempt())
    broker = RestartableBroker(place, authorizer=Kept({}, {}), checks_sources=True, bans=bans)
    fill(broker, {"a": "u", "b": "v"})
    bans.add(Ban(kind=Kind.USERNAME, who="nobody"))
    sources(broker).follow_rules()
    broker.advance(2)
    broker = broker.stop()
    assert clear_at_once(broker)
    broker = broker.stop()
    bans.add(Ban(kind=Kind.USERNAME, who="u"))
    broker = broker.restart()
    assert not clear_at_once(broker)
    assert replayed(broker) == ["b"]
    broker.advance(2)
    assert replayed(broker) == ["b"]
    bans.remove(Kind.USERNAME, "u")
    broker = broker.stop()
    assert replayed(broker) == ["a", "b"]
