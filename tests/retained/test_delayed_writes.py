"""QoS 0 messages that wait for the write interval of their policy: never stale, lost in crashes only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.retained.feed import Change
from holdfast.retained.policies import Policies, Policy
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker
from tests.postgres import drop, fresh_database
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

INTERVAL = 60.0


def with_policy(broker: MemoryBroker) -> MemoryBroker:
    """Let QoS 0 messages of the topics below "w" wait."""
    broker.retained.change_policies(Policies([Policy(1, "w/#", write_interval=INTERVAL)]))
    return broker


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(0, 2)),
        st.tuples(st.just("clear"), st.sampled_from("abc"), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.sampled_from([1, 30, 61]), st.just(0)),
        st.tuples(st.just("look"), st.just(""), st.just(0)),
    ),
    max_size=12,
)


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_a_new_subscriber_always_gets_the_newest(steps: list[tuple[str, object, int]]) -> None:
    """Whatever waits: a waiting message neither hides nor overtakes a newer one, and a clear clears it too."""
    broker = with_policy(MemoryBroker())
    client = broker.client("c", 5)
    expected: dict[str, bytes] = {}
    for number, (kind, what, qos) in enumerate([*steps, ("look", "", 0)]):
        topic = f"w/{what}"
        if kind == "set":
            expected[topic] = b"%d" % number
            client.publish(topic, expected[topic], qos, True)
        elif kind == "clear":
            expected.pop(topic, None)
            client.publish(topic, b"", qos, True)
        elif kind == "wait":
            assert isinstance(what, int)
            broker.advance(what)
        else:
            watcher = broker.client(f"look{number}", 5)
            found = [packet for packet in watcher.subscribe("w/#") if isinstance(packet, p.Publish)]
            assert {packet.topic: packet.payload for packet in found} == expected
            watcher.send(p.Disconnect())


def stored(broker: RestartableBroker, topic: str) -> bytes | None:
    """Return the payload of a topic as the database has it."""
    rows = broker.parts.database.connect_reader().cursor()
    rows.execute("SELECT payload FROM retained WHERE topic = ? AND tombstone = 0", (topic,))
    found = rows.fetchall()
    return bytes(found[0][0]) if found else None


@pytest.fixture
def broker(tmp_path: Path) -> RestartableBroker:
    """A broker around a database."""
    broker = RestartableBroker(fresh_file(tmp_path))
    with_policy(broker)
    return broker


def test_the_newest_is_written_once_in_an_interval(broker: RestartableBroker) -> None:
    """Until then the database has the older one. QoS 1 is written at once, and what waited is forgotten."""
    client = broker.client("c", 5)
    for number in range(5):
        client.publish("w/a", b"%d" % number, 0, True)
        broker.commit()
        assert stored(broker, "w/a") is None
    broker.advance(INTERVAL + 1)
    broker.commit()
    assert stored(broker, "w/a") == b"4"
    assert broker.retained.delayed.saved == 4
    client.publish("w/a", b"late", 0, True)
    client.publish("w/a", b"newest", 1, True)
    broker.commit()
    assert stored(broker, "w/a") == b"newest"
    broker.advance(INTERVAL + 1)
    broker.commit()
    assert stored(broker, "w/a") == b"newest"


def test_a_replay_from_the_database_brings_what_waits(broker: RestartableBroker) -> None:
    """It is written before the replay reads. While a reader listens to changes, nothing waits."""
    client = broker.client("c", 5)
    client.publish("w/a", b"1", 1, True)
    client.publish("w/a", b"2", 0, True)
    assert stored(broker, "w/a") == b"1"
    watcher = broker.client("watcher", 5)
    replayed = [packet.payload for packet in watcher.subscribe("w/#") if isinstance(packet, p.Publish)]
    assert replayed == [b"2"]


def test_a_reader_of_other_topics_causes_no_write(broker: RestartableBroker) -> None:
    """A replay, a list and a look-up have only those messages written that they may read."""
    client = broker.client("c", 5)
    watcher = broker.client("watcher", 5)
    client.publish("w/a", b"1", 0, True)
    client.publish("w/b", b"2", 0, True)
    watcher.subscribe("w/b", "other/#")
    broker.store.get("w/c")
    broker.commit()
    assert (stored(broker, "w/a"), stored(broker, "w/b")) == (None, b"2")


def test_messages_wait_also_while_a_replay_runs(broker: RestartableBroker) -> None:
    """The replay hears of the message, with a ticket that is settled by its commit, or by the newer message."""
    client = broker.client("c", 5)
    told: list[Change] = []
    listening = broker.retained.feed.listen(told.append)
    client.publish("w/a", b"1", 0, True)
    client.publish("w/a", b"2", 0, True)
    client.publish("w/b", b"3", 0, True)
    assert stored(broker, "w/a") is None
    assert [(change.topic, change.live, change.ticket.settled) for change in told] == [
        ("w/a", True, True), ("w/a", True, False), ("w/b", True, False),
    ]  # fmt: skip
    client.publish("w/b", b"4", 1, True)
    assert told[2].ticket.settled
    broker.advance(INTERVAL + 1)
    broker.commit()
    assert told[1].ticket.settled
    assert (stored(broker, "w/a"), stored(broker, "w/b")) == (b"2", b"4")
    broker.retained.feed.forget(listening)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    """A database of either kind."""
    if request.param == "sqlite":
        yield fresh_file(tmp_path)
        return
    url = fresh_database()
    yield url
    drop(url)


@pytest.mark.parametrize(("killed", "kept"), [(True, b"1"), (False, b"2")])
def test_a_clean_stop_writes_what_waits(place: Path | str, killed: bool, kept: bytes) -> None:
    """A kill loses it, and the topic keeps the message before: with its acknowledged state."""
    broker = RestartableBroker(place)
    with_policy(broker)
    client = broker.client("c", 5)
    client.publish("w/a", b"1", 1, True)
    broker.commit()
    client.publish("w/a", b"2", 0, True)
    broker.settle()
    after = broker.restart() if killed else broker.stop()
    assert replayed(after) == {"w/a": kept}
    after.kill()


def test_a_message_that_comes_after_the_stop_is_written(tmp_path: Path) -> None:
    """It has waited for a quota, for example. Nobody would write it later."""
    broker = RestartableBroker(fresh_file(tmp_path))
    with_policy(broker)
    client = broker.client("c")
    broker.retained.stopService()
    client.publish("w/a", b"late", 0, True)
    broker.commit()
    assert len(broker.retained.delayed) == 0
    assert replayed(broker.restart()) == {"w/a": b"late"}


def test_a_kill_after_an_interval_loses_what_came_later_only(place: Path | str) -> None:
    """Of a topic whose values wait, and of one with acknowledged messages between: nothing older comes back."""
    broker = RestartableBroker(place)
    with_policy(broker)
    client = broker.client("c", 5)
    for number in range(1, 4):
        client.publish("w/a", b"%d" % number, 0, True)
        client.publish("w/b", b"waiting %d" % number, 0, True)
        client.publish("w/b", b"%d" % number, 1, True)
        broker.commit()
        broker.advance(INTERVAL + 1)
        broker.commit()
    client.publish("w/a", b"lost", 0, True)
    client.publish("w/b", b"lost", 0, True)
    broker.settle()
    after = broker.restart()
    assert replayed(after) == {"w/a": b"3", "w/b": b"3"}
    after.kill()


def replayed(broker: RestartableBroker) -> dict[str, bytes]:
    """Return what a new subscriber gets."""
    watcher = broker.client("watcher", 5)
    answered = watcher.subscribe("#")
    broker.commit()
    return {each.topic: each.payload for each in [*answered, *watcher.packets()] if isinstance(each, p.Publish)}


def test_lists_and_jobs_of_the_writer_see_what_waits(broker: RestartableBroker) -> None:
    """One topic, a list, and the end of an expired message: its waiting successor survives the sweep."""
    client = broker.client("c", 5)
    client.publish("w/a", b"1", 0, True)
    got = broker.store.get("w/a")
    broker.commit()
    assert got.result.payload == b"1"
    client.publish("w/a", b"old", 1, True, Properties(message_expiry_interval=5))
    broker.commit()
    broker.clock.advance(3)
    client.publish("w/a", b"new", 0, True)
    broker.clock.advance(3)
    swept = broker.store.expire(broker.now(), 100)
    broker.commit()
    assert swept.result == []
    assert stored(broker, "w/a") == b"new"


def test_a_replay_remembers_a_bounded_number_of_waiting_messages(broker: RestartableBroker) -> None:
    """Beyond it they are written, so that the replay can forget them."""
    client = broker.client("c", 5)
    told: list[Change] = []
    listening = broker.retained.feed.listen(told.append)
    for number in range(1200):
        client.publish(f"w/{number}", b"x", 0, True)
        broker.commit()
    assert len(told) == 1200
    assert sum(not change.ticket.settled for change in told) <= 500
    broker.retained.feed.forget(listening)


def test_user_properties_count_in_the_memory_of_waiting_messages(
    broker: RestartableBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with short payloads and long properties does not fill the memory: what has no room is written."""
    monkeypatch.setattr("holdfast.retained.delayed_writes._MOST_BYTES", 100_000)
    client = broker.client("c", 5)
    long = Properties(user_properties=(("name", "x" * 30_000),))
    for number in range(5):
        client.publish(f"w/{number}", b"1", 0, True, long)
    broker.commit()
    assert len(broker.retained.delayed) == 3
    assert [number for number in range(5) if stored(broker, f"w/{number}")] == [3, 4]
    broker.retained.delayed.write()
    client.publish("w/9", b"1", 0, True, long)
    assert len(broker.retained.delayed) == 1  # what was written counts no more


def test_many_waiting_topics_are_written_in_parts(broker: RestartableBroker) -> None:
    """No turn writes more than a few hundred. Who waits for all of them waits for the last part."""
    client = broker.client("c", 5)
    client.send(*[p.Publish(f"w/{number}", b"x", 0, True) for number in range(1000)])
    assert len(broker.retained.delayed) == 1000
    flushed = broker.store.flushed()
    assert 0 < len(broker.retained.delayed) < 1000
    broker.commit()
    assert flushed.settled
    assert broker.rows("retained") == 1000


def test_nothing_waits_any_more_when_the_policies_change(broker: RestartableBroker) -> None:
    """What waited is written, and later messages are written at once."""
    client = broker.client("c", 5)
    client.publish("w/a", b"1", 0, True)
    broker.retained.change_policies(Policies())
    broker.commit()
    assert stored(broker, "w/a") == b"1"
    client.publish("w/a", b"2", 0, True)
    broker.commit()
    assert stored(broker, "w/a") == b"2"
