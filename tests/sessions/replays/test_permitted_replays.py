"""Replays under permissions: exactly what the subscriber may receive and the publisher may still retain, in order."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.logger import LogEvent, formatEvent

from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.core.topics import matches
from holdfast.identity.bans import Ban, Bans, Exempt, Kind
from holdfast.identity.interfaces import Grant, Principal
from holdfast.retained.limits import FlowSettings
from holdfast.retained.source_check import SourceCheck
from holdfast.retained.store.statements_sqlite import SQLiteStatements
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.authorizers import Listed
from tests.doubles import MemoryBroker
from tests.logs import logged
from tests.postgres import fresh_database
from tests.sessions.restartable import RestartableBroker

NAMES = ["a", "a/b", "a/c", "a/c/d", "b", "b/a", "b/c", "c/b/a", "d"]
FILTERS = ["#", "a/#", "+/b", "b/+", "c/b/a", "a", "+", "+/+/a", "d/#"]
filters = st.lists(st.sampled_from(FILTERS), max_size=3)
SMALL = FlowSettings(batch_read_number=3, batch_deliver_number=2)


def everything() -> Listed:
    return Listed({}, {})


def fill(broker: MemoryBroker, published: Mapping[str, str | None]) -> None:
    """Retain a message of each topic, published by this user."""
    clients: dict[str | None, Any] = {}
    for topic, username in published.items():
        if username not in clients:
            clients[username] = broker.client(f"of {username}", username=username)
        clients[username].publish(topic, topic.encode(), retain=True, qos=1)


def replayed(broker: MemoryBroker, client_id: str, topic_filter: str, qos: int = 0, version: int = 5) -> list[str]:
    client = broker.client(client_id, version)
    client.send(p.Subscribe(1, (p.SubscriptionRequest(topic_filter, qos),)))
    found = [topic for topic, _, _, _ in client.messages()]
    client.drop()
    return found


def check(broker: MemoryBroker, rules: Listed, published: dict[str, str | None], data: st.DataObject) -> None:
    """Compare replays with the plain list, before the survey, after it, and after another change of the rules."""
    fill(broker, published)
    for _ in range(2):
        rules.change({"c": data.draw(filters)}, {"u": data.draw(filters), "v": data.draw(filters)})
        rules.tells_filters = data.draw(st.booleans())
        topic_filter, qos = data.draw(st.sampled_from(FILTERS)), data.draw(st.integers(0, 2))
        expected = [
            topic
            for topic, username in sorted(published.items())
            if matches(topic_filter, topic)
            and rules.receives("c", topic)
            and (username is None or rules.keeps(username, topic))
        ]
        version = data.draw(st.sampled_from([4, 5]))
        if rules.receivable(Principal("c", None), topic_filter) is not Grant.REFUSED:
            for _ in range(2):
                assert replayed(broker, "c", topic_filter, qos, version) == expected
                broker.advance(data.draw(st.sampled_from([0, 1.0, 2.0])))


published_by = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["u", "v", None]))
some = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@some
@given(published_by, st.data())
def test_a_replay_has_what_is_permitted(published: dict[str, str | None], data: st.DataObject) -> None:
    rules = everything()
    broker = MemoryBroker(authorizer=rules, checks_sources=True, flow=SMALL, limits=Limits(max_inflight=3))
    check(broker, rules, published, data)


@settings(some, max_examples=15)
@given(published_by, st.data())
def test_a_replay_from_sqlite_has_what_is_permitted(published: dict[str, str | None], data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        rules = everything()
        place = Path(directory) / "db"
        broker = RestartableBroker(place, authorizer=rules, checks_sources=True, flow=SMALL)
        check(broker, rules, published, data)
        broker.kill()


def test_a_replay_from_postgres_has_what_is_permitted() -> None:
    rules = everything()
    broker = RestartableBroker(fresh_database(), authorizer=rules, checks_sources=True, flow=SMALL)
    fill(broker, dict.fromkeys(NAMES, "u") | {"b/c": "v"})
    rules.change({"c": ["a/#", "b/+"]}, {"u": ["a/#", "d"]})
    for _ in range(2):
        assert replayed(broker, "c", "#", 1) == ["a", "a/b", "a/c", "a/c/d", "b/c"]
        broker.advance(60)
    assert broker.retained.sources is not None
    assert broker.retained.sources.stored_withheld == 3
    broker.kill()


# --- costs


def filled(rows: int, rules: Listed, tmp_path: Path, **options: Any) -> RestartableBroker:
    broker = RestartableBroker(tmp_path / "db", authorizer=rules, checks_sources=True, **options)
    publisher = broker.client("p", username="u")
    for number in range(rows):
        publisher.publish(f"t/{number:05}", b"x", retain=True)
    return broker


def instructions(broker: RestartableBroker, client_id: str, topic_filter: str = "#") -> tuple[int, list[str]]:
    """Return how many hundreds of SQLite's instructions a replay takes, and its topics."""
    ticks = count()
    statements = broker.parts.readers.read

    def counted(work: Any) -> Any:
        def run(connection: Any) -> Any:
            connection.set_progress_handler(lambda: next(ticks) and False, 100)
            try:
                return work(connection)
            finally:
                connection.set_progress_handler(None, 0)

        return statements(run)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(broker.parts.readers, "read", counted)
        patched.setattr(SQLiteStatements, "interruptible", lambda *_: nullcontext())
        found = replayed(broker, client_id, topic_filter)
    return next(ticks), found


def survey(broker: MemoryBroker) -> None:
    """Let the survey begin and end."""
    broker.advance(2)
    sources = broker.retained.sources
    assert sources is not None
    assert sources._survey is not None
    while sources._survey.stretches.surveyed is not None:
        broker.advance(0.01)


def test_a_subscriber_to_everything_costs_the_rows_that_it_may_receive(tmp_path: Path) -> None:
    """Not the thousands around them, if the authorizer tells Topic Filters."""
    rules = everything()
    broker = filled(3000, rules, tmp_path)
    rules.change({"c": ["t/01000", "t/02000/#", "t/02001"]}, {})
    broker.advance(60)
    cost, found = instructions(broker, "c")
    assert found == ["t/01000", "t/02000", "t/02001"]
    assert rules.asked_to_receive == 3
    whole, found = instructions(broker, "everyone")
    assert len(found) == 3000
    assert cost * 20 < whole
    broker.kill()


def test_withheld_messages_cost_their_own_replay_its_turns(tmp_path: Path) -> None:
    """Not more than the allowed ones: another client's replay goes on between."""
    rules = everything()
    broker = filled(3000, rules, tmp_path)
    rules.change({"c": ["z"]}, {})
    rules.tells_filters = False
    unlucky, other = broker.client("c"), broker.client("d")
    unlucky.connection.receive(b"\x82\x06\x00\x01\x00\x01#\x00")
    other.connection.receive(b"\x82\x06\x00\x01\x00\x01#\x00")
    most = before = 0
    turns = 0
    while before < 3000:
        turns += 1
        broker.clock.turn()
        most = max(most, rules.asked_to_receive - before)
        before = rules.asked_to_receive
    assert most <= 100
    assert turns >= 30
    assert len(other.messages()) == 3000
    assert unlucky.messages() == []
    assert broker.counters.replayed_not_authorized == 3000
    broker.kill()


def test_a_message_is_judged_once_while_the_rules_stay(tmp_path: Path) -> None:
    """By the survey. Replays then ask about withheld stretches only, and about nothing if there are none."""
    rules = everything()
    broker = filled(2000, rules, tmp_path)
    survey(broker)
    asked = rules.asked_to_keep
    clear, found = instructions(broker, "c")
    assert (len(found), rules.asked_to_keep) == (2000, asked)
    rules.change({}, {"u": [f"t/{number:05}" for number in range(1000, 2000)]})
    assert len(replayed(broker, "c", "#")) == 1000
    assert rules.asked_to_keep == asked + 2000  # this replay was faster than the survey
    survey(broker)
    asked = rules.asked_to_keep
    assert replayed(broker, "c", "t/01500") == ["t/01500"]
    assert rules.asked_to_keep == asked
    assert len(replayed(broker, "c", "#")) == 1000
    assert rules.asked_to_keep == asked + 1000
    rules.change({}, {})
    replayed(broker, "d", "t/00000")
    survey(broker)
    asked = rules.asked_to_keep
    again, found = instructions(broker, "c")
    assert (len(found), rules.asked_to_keep) == (2000, asked)
    assert again <= clear * 1.02
    broker.kill()


def test_a_survey_is_done_in_small_steps(tmp_path: Path) -> None:
    """Live messages wait for some hundred verdicts at most."""
    rules = everything()
    broker = filled(3000, rules, tmp_path)
    most = before = 0
    for _ in range(5000):
        broker.clock.advance(0.001)
        most = max(most, rules.asked_to_keep - before)
        before = rules.asked_to_keep
    assert before == 3000
    assert most <= 1000
    broker.kill()


# --- changes


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_rest_of_a_replay_follows_new_rules(qos: int) -> None:
    """For the subscriber and for the publisher, also the messages that were read before the change."""
    rules = everything()
    flow = FlowSettings(batch_read_number=1000, batch_deliver_number=2)
    broker = MemoryBroker(authorizer=rules, checks_sources=True, flow=flow, limits=Limits(max_inflight=2))
    fill(broker, {f"t/{number}": "u" for number in range(8)})
    survey(broker)
    client = broker.client("c")
    client.network.blocked = not qos
    client.connection.receive(b"\x82\x06\x00\x01\x00\x01#" + bytes((qos,)))
    broker.clock.turn()
    broker.clock.turn()
    rules.change({"c": ["t/1", "t/3", "t/4", "t/5", "t/6"]}, {"u": ["t/0", "t/1", "t/2", "t/3", "t/6", "t/7"]})
    client.network.blocked = False
    client.connection.drained()
    broker.settle()
    found = [topic for topic, _, _, _ in client.messages()]
    assert found == sorted(found)
    sent = len(found) - len([topic for topic in found if topic in ("t/3", "t/6")])
    assert sent <= 4
    assert [topic for topic in found if topic > "t/3"] == ["t/6"]


def test_a_new_message_of_a_withheld_topic_is_replayed() -> None:
    """It was judged when it was published, by the same rules."""
    rules = everything()
    broker = MemoryBroker(authorizer=rules, checks_sources=True)
    fill(broker, {"a": "u", "b": "u", "c": "u"})
    rules.change({}, {"u": []})
    survey(broker)
    assert replayed(broker, "c", "#") == []
    survey(broker)
    fill(broker, {"b": "v", "z": "v"})
    assert replayed(broker, "c", "#") == ["b", "z"]
    fill(broker, {"a": "u"})  # refused
    assert replayed(broker, "c", "#") == ["b", "z"]


def test_messages_that_operators_put_back_are_judged_again() -> None:
    """A restored message has the User Name of its publisher; one that an operator sets has none, and passes."""
    rules = everything()
    broker = MemoryBroker(authorizer=rules, checks_sources=True)
    rules.change({}, {"u": []})
    survey(broker)
    for topic, username in (("a", "u"), ("b", None)):
        message = ApplicationMessage(topic, b"x", 0, True, None, username)
        broker.router.publish(message, ChangeOrigin.RESTORE)
    for _ in range(2):
        assert replayed(broker, "c", "#") == ["b"]
        survey(broker)


def test_guests_are_judged_if_asked_for() -> None:
    rules = everything()
    broker = MemoryBroker(authorizer=rules, checks_sources=True, judges_guests=True)
    fill(broker, {"a": None, "b": "u"})
    rules.change({}, {"": []})
    for _ in range(2):
        assert replayed(broker, "c", "#") == ["b"]
        survey(broker)


def test_a_retained_will_has_the_user_name_of_its_owner() -> None:
    rules = everything()
    broker = MemoryBroker(authorizer=rules, checks_sources=True)
    broker.client("w", username="u", will=p.Will("a", b"x", 0, True)).drop()
    assert replayed(broker, "c", "#") == ["a"]
    rules.change({}, {"u": []})
    assert replayed(broker, "c", "#") == []


def test_a_rule_without_an_epoch_is_asked_each_time() -> None:
    rules = everything()
    rules.epoch = None
    broker = MemoryBroker(authorizer=rules, checks_sources=True)
    fill(broker, {"a": "u", "b": "u"})
    broker.advance(2)
    rules.retain = {"u": ["b"]}
    assert replayed(broker, "c", "#") == ["b"]


def test_a_rule_that_fails_withholds_and_is_logged_once(logged_failures: list[LogEvent]) -> None:
    rules = everything()
    broker = MemoryBroker(authorizer=rules, checks_sources=True)
    fill(broker, {"a": "u", "b": "u", "c": None})

    def broken(username: str | None, client_id: str | None, topic: str) -> bool:
        raise ZeroDivisionError

    rules.may_keep = broken  # type: ignore[method-assign]
    assert replayed(broker, "c", "#") == ["c"]
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_the_log_and_the_figures_tell_what_is_withheld() -> None:
    """Once for each state of the rules; the first survey tells too that nothing is withheld."""
    rules = everything()
    broker = MemoryBroker(authorizer=rules, checks_sources=True)
    fill(broker, {"a": "u", "b": "u", "c": None})
    with logged(SourceCheck) as events:
        survey(broker)
        rules.change({}, {"u": ["a"]})
        assert replayed(broker, "c", "#") == ["a", "c"]
        survey(broker)
        replayed(broker, "c", "#")
    told = [str(formatEvent(event)) for event in events]
    assert len(told) == 2
    assert "the publishers of all 2 retained messages may retain them" in told[0]
    assert "1 of 2 retained messages are withheld from replays" in told[1]
    assert broker.retained.sources is not None
    assert broker.retained.sources.withheld == 2


@pytest.mark.parametrize("restarted", [False, True])
def test_a_resumed_replay_follows_the_rules_of_its_new_connection(tmp_path: Path, restarted: bool) -> None:
    """Of the broker's next process too: the position is stored, and permissions are asked anew."""
    rules = everything()
    options: dict[str, Any] = {"authorizer": rules, "checks_sources": True, "flow": SMALL}
    broker = RestartableBroker(tmp_path / "db", limits=Limits(max_inflight=2), **options)
    fill(broker, {f"t/{number}": "u" for number in range(8)})
    client = broker.client("c", clean=False)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", 1),)))
    assert [one.topic for one in client.got(p.Publish)] == ["t/0", "t/1"]
    client.drop()
    rules.change({"c": ["t/0", "t/1", "t/3", "t/4", "t/5"]}, {"u": ["t/0", "t/1", "t/2", "t/5", "t/6"]})
    if restarted:
        broker.commit()
        broker = broker.restart()
    client = broker.client("c", clean=False)
    again = [one for one in client.backlog if isinstance(one, p.Publish)]
    assert [one.topic for one in again] == ["t/0", "t/1"]
    client.send(*(p.Puback(one.packet_identifier) for one in again))
    assert [topic for topic, _, _, _ in client.messages()] == ["t/5"]
    broker.kill()


# --- banned users


def banned(bans: Bans, kind: Kind = Kind.USERNAME, who: str = "u", until: int | None = None) -> Ban:
    """Ban, as an operator does."""
    ban = Ban(kind=kind, who=who, until=until)
    bans.add(ban)
    return ban


@pytest.fixture
def bans() -> Bans:
    return Bans(now=lambda: 0, exempt=Exempt())


@pytest.mark.parametrize("judges", [True, False])
def test_retained_messages_of_a_banned_user_are_withheld_as_long_as_the_ban_lasts(bans: Bans, judges: bool) -> None:
    """Nothing is deleted. Without check_retain_source too; then nobody else is judged."""
    rules = everything()
    broker = MemoryBroker(authorizer=rules, checks_sources=True, bans=bans)
    sources = broker.retained.sources
    assert sources is not None
    sources.change(enabled=judges, guests=False)
    fill(broker, {"a": "u", "b": "v", "c": None, "d": "u"})
    broker.advance(2)
    rules.change({}, {"v": []})
    others = ["c"] if judges else ["b", "c"]
    assert replayed(broker, "c", "#") == sorted({"a", "d", *others})
    banned(bans)
    assert replayed(broker, "c", "#") == others  # before the survey of the bans
    survey(broker)
    assert sources.stored_withheld == 4 - len(others)
    assert replayed(broker, "c", "#", 1, 4) == others
    asked = rules.asked_to_keep
    assert bans.remove(Kind.USERNAME, "u") is not None
    assert replayed(broker, "c", "#") == sorted({"a", "d", *others})
    broker.advance(2)
    assert sources.stored_withheld == (1 if judges else None)
    assert judges or rules.asked_to_keep == asked == 0


def test_a_ban_that_is_over_withholds_nothing(bans: Bans) -> None:
    """It is not forgotten at once."""
    broker = MemoryBroker(authorizer=everything(), checks_sources=True, bans=bans)
    fill(broker, {"a": "u"})
    bans.load([Ban(kind=Kind.USERNAME, who="u", until=0)])
    survey(broker)
    assert replayed(broker, "c", "#") == ["a"]


def test_a_ban_of_a_client_identifier_or_an_address_withholds_nothing(bans: Bans) -> None:
    """Neither proves who has published a message."""
    broker = MemoryBroker(authorizer=everything(), checks_sources=True, bans=bans)
    fill(broker, {"a": "u"})
    banned(bans, Kind.CLIENT_ID, "of u")
    banned(bans, Kind.CLIENT_ID, "u")
    banned(bans, Kind.NETWORK, "198.51.100.0/24")
    survey(broker)
    assert replayed(broker, "c", "#") == ["a"]


def test_messages_that_a_banned_user_leaves_behind_are_withheld(bans: Bans) -> None:
    """Its Will is published when the ban ends the connection, or later: perhaps behind the survey."""
    broker = MemoryBroker(authorizer=everything(), checks_sources=True, bans=bans)
    delay, lasting = Properties(will_delay_interval=100), Properties(session_expiry_interval=1000)
    for name in ("u", "v"):
        broker.client(name, 5, username=name, will=p.Will(name, b"x", 0, True, delay), properties=lasting).drop()
    banned(bans)
    survey(broker)
    broker.advance(101)
    assert replayed(broker, "c", "#") == ["v"]
    survey(broker)
    assert replayed(broker, "c", "#") == ["v"]


def test_the_rest_of_a_replay_follows_a_ban(bans: Bans) -> None:
    """Also the messages that were read before the ban."""
    flow = FlowSettings(batch_read_number=1000, batch_deliver_number=2)
    broker = MemoryBroker(
        authorizer=everything(), checks_sources=True, flow=flow, limits=Limits(max_inflight=2), bans=bans
    )
    fill(broker, {f"t/{number}": "uv"[number % 2] for number in range(8)})
    survey(broker)
    client = broker.client("c")
    client.connection.receive(b"\x82\x06\x00\x01\x00\x01#\x01")
    broker.clock.turn()
    broker.clock.turn()
    banned(bans)
    broker.settle()
    found = [topic for topic, _, _, _ in client.messages()]
    assert [topic for topic in found if topic > "t/3"] == ["t/5", "t/7"]
