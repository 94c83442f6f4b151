"""Replays of only what changed since a token or a time: what comes, what the answers say, and what they outlast."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.changes.nodes import Epochs
from holdfast.changes.recording import (
    GATHERING_SECONDS,
    AppendingRecorder,
    GatheringRecorder,
    IChangesRecorder,
)
from holdfast.changes.since import ChangesSince
from holdfast.core.messages import RetainedChange
from holdfast.retained.policies import Policies, Policy
from holdfast.retained.store.interfaces import NO_RECORDER, IRetainedStore
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.database import Durability
from holdfast.storage.driver import Cursor
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.store import DurableStore
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.authorizers import Listed, Permissions
from tests.doubles import Client, MemoryBroker
from tests.sessions.places import place
from tests.sessions.replays.test_markers import TAKES_PART, publishes, subscribe, told
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file, result_of

DAY = 86_400
FOREVER = Properties(session_expiry_interval=0xFFFFFFFF, user_properties=(("holdfast", "?"),))


class RecordingBroker(RestartableBroker):
    """A broker that stores which topics change."""

    def make_store(self) -> IRetainedStore:
        url = self._place if isinstance(self._place, str) else f"sqlite:///{self._place}"
        self.durable = DurableStore(
            url, durability=Durability.PROCESS, flush_interval=1, max_pending=0, node=1,
            reactor=self.clock, now=self.now, executor=self.executor, reading_executor=SynchronousExecutor,
        )  # fmt: skip
        bulk = self.durable.bulk
        self.recorder: IChangesRecorder = (
            AppendingRecorder(NO_RECORDER) if self.durable.dialect != "sqlite" else GatheringRecorder(NO_RECORDER, bulk)
        )
        self.epochs = Epochs(self.durable, self.now, recorded=True)
        return SQLRetainedStore(self.durable, recorder=self.recorder)

    def open_store(self) -> None:
        super().open_store()
        assert isinstance(self.store, SQLRetainedStore)
        self.since = ChangesSince(
            self.store, self.epochs, self.recorder, clock=self.clock, now=self.now, keep=lambda: 1000 * DAY, most=1000
        )
        self.replays.since = self.since
        self.since.startService()

    def restart(self, after: float = 0, manual: bool = False) -> RecordingBroker:
        self.kill()
        return RecordingBroker(self._place, manual, self.clock.seconds() + after, **self._options)

    def restart_in_order(self, after: float = 0) -> RecordingBroker:
        """End as at a stop, and start another process."""
        self.since.stopService()
        self.commit()
        return self.restart(after)


@pytest.fixture(params=["sqlite", "postgresql"])
def spot(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A place for the data of a broker."""
    with place(request.param, tmp_path) as found:
        yield found


class Mirror:
    """A client that keeps a copy of the retained messages, and one string of state: the token of its last marker."""

    def __init__(self, topic_filter: str = "#", version: int = 5) -> None:
        self.filter = topic_filter
        self.state: dict[str, bytes] = {}
        self.token: str | None = None
        self.answer = ""
        self.came: list[str] = []

    def update(self, broker: MemoryBroker, token: str | None = None, qos: int = 0) -> dict[str, Any]:
        """Connect, take what has changed, and return what the marker tells."""
        client = broker.client("mirror", 5, properties=TAKES_PART)
        known = token or self.token
        asked = [("holdfast-replay-end", "my/end")] + ([("holdfast-replay-since", known)] if known else [])
        subscribe(client, "my/end")
        suback, *came = subscribe(client, self.filter, properties=Properties(user_properties=tuple(asked)), qos=qos)
        assert isinstance(suback, p.Suback)
        self.answer = dict(suback.properties.user_properties).get("holdfast-replay-since", "")
        *replayed, marker = _all(client, came)
        found = told(marker)
        assert dict(marker.properties.user_properties).get("holdfast-replay-since", "") == self.answer
        assert found.get("since", "") == self.answer
        if self.answer != "delta":
            self.state = {}
        assert all(packet.retain for packet in replayed)
        self.came = [packet.topic for packet in replayed]
        self.state |= {packet.topic: packet.payload for packet in replayed}
        self.state = {topic: payload for topic, payload in self.state.items() if payload}
        self.token = found["token"]
        client.send(p.Disconnect())
        return found


def _all(client: Client, came: list[p.Packet]) -> list[p.Publish]:
    """Acknowledge all that comes until the marker has come."""
    found: list[p.Publish] = []
    for _ in range(20):
        found += publishes(came)
        client.send(*(p.Puback(packet.packet_identifier) for packet in publishes(came) if packet.qos))
        if found and found[-1].topic == "my/end":
            return found
        client.broker.advance(1)
        came = client.packets()
    raise AssertionError(f"no marker after {[packet.topic for packet in found]}")


def put(broker: MemoryBroker, topic: str, payload: bytes, **fields: Any) -> None:
    """Retain a message, or clear its topic."""
    broker.client("publisher", 5).publish(topic, payload, 1, True, Properties(**fields))
    broker.advance(0)


def test_only_what_was_set_or_cleared_or_has_expired_comes(spot: Path | str) -> None:
    """Clears are empty messages with RETAIN 1; nothing else comes, and what does not match does not either."""
    broker = RecordingBroker(spot)
    for number in range(4):
        put(broker, f"t/{number}", b"old")
    put(broker, "t/expires", b"old", message_expiry_interval=5)
    mirror = Mirror("t/#")
    assert mirror.update(broker)["complete"]
    assert (mirror.answer, len(mirror.state)) == ("", 5)
    put(broker, "t/1", b"new")
    put(broker, "t/2", b"")
    put(broker, "t/4", b"more")
    put(broker, "other", b"x")
    broker.advance(6)
    found = mirror.update(broker)
    assert (mirror.answer, mirror.came) == ("delta", ["t/1", "t/2", "t/4", "t/expires"])
    assert (found["count"], found["complete"]) == (4, True)
    assert mirror.state == {"t/0": b"old", "t/1": b"new", "t/3": b"old", "t/4": b"more"}
    assert result_of(broker.store.expire(broker.now(), 10)) == ["t/expires"]
    mirror.update(broker)
    assert set(mirror.came) <= {"t/expires"}
    mirror.update(broker)
    assert (mirror.answer, mirror.came) == ("delta", [])


@pytest.mark.parametrize("qos", [0, 1])
def test_a_stopped_broker_has_forgotten_no_change(spot: Path | str, qos: int) -> None:
    """Tokens from before the stop are good, also for changes that were only gathered."""
    broker = RecordingBroker(spot)
    put(broker, "t/1", b"old")
    mirror = Mirror()
    mirror.update(broker, qos=qos)
    put(broker, "t/1", b"new")
    put(broker, "t/2", b"new")
    put(broker, "t/2", b"")
    broker = broker.restart_in_order()
    mirror.update(broker, qos=qos)
    assert (mirror.answer, mirror.state) == ("delta", {"t/1": b"new"})
    put(broker, "t/3", b"x")
    broker = broker.restart_in_order()
    mirror.update(broker, qos=qos)
    assert (mirror.answer, mirror.came) == ("delta", ["t/3"])
    broker.kill()


def test_after_a_kill_everything_comes(spot: Path | str) -> None:
    """The broker may have sent messages live that it had not committed: a client can be ahead of the store."""
    broker = RecordingBroker(spot)
    put(broker, "t/1", b"old")
    mirror = Mirror()
    mirror.update(broker)
    put(broker, "t/1", b"new")
    mirror.state["t/2"] = b"never committed"
    for _ in range(2):
        broker = broker.restart()
        broker.advance(1)
        mirror.update(broker)
        assert (mirror.answer, mirror.state) == ("full", {"t/1": b"new"})
        put(broker, "t/3", b"x")
        mirror.update(broker)
        assert (mirror.answer, mirror.came) == ("delta", ["t/3"])
        put(broker, "t/3", b"")
        mirror.update(broker)
    broker.kill()


def test_what_changes_between_the_token_and_the_subscription_comes(spot: Path | str) -> None:
    """It is committed after the token was made, and not sent live: the subscription was not there yet."""
    broker = RecordingBroker(spot)
    put(broker, "t/1", b"old")
    mirror = Mirror("t/#")
    mirror.update(broker)
    token = broker.since.token

    def late() -> Any:
        made = token()
        put(broker, "t/2", b"late")
        return made

    broker.since.token = late  # type: ignore[method-assign]
    mirror.update(broker)
    assert mirror.state == {"t/1": b"old", "t/2": b"late"}


def test_other_tokens_bring_everything(spot: Path | str, tmp_path: Path) -> None:
    """A token of another database, one from ahead of this one, and a time before what is kept."""
    broker = RecordingBroker(spot)
    put(broker, "t/1", b"x")
    mirror = Mirror()
    mirror.update(broker)
    with place("sqlite", tmp_path / "..") as another:
        assert another is not None
        other = RecordingBroker(another)
        put(other, "o", b"x")
        stranger = Mirror()
        stranger.update(other)
        other.kill()
    for token in (stranger.token, f"-{DAY}s", "2020-01-01T00:00:00Z"):
        mirror.update(broker, token)
        assert (mirror.answer, mirror.came) == ("full", ["t/1"])
    broker.kill()


def test_a_time_is_as_good_as_a_token(spot: Path | str) -> None:
    broker = RecordingBroker(spot)
    put(broker, "t/1", b"x")
    broker.advance(60)
    put(broker, "t/2", b"x")
    broker.advance(1)
    mirror = Mirror()
    mirror.update(broker, "-30s")
    assert (mirror.answer, mirror.came) == ("delta", ["t/2"])
    mirror.update(broker, str(broker.now()))
    assert (mirror.answer, mirror.came) == ("delta", [])


@pytest.mark.parametrize("killed", [False, True])
def test_a_stored_replay_keeps_the_changes_that_it_needs(spot: Path | str, killed: bool) -> None:
    """It pins them while its client is away, however long. After a kill it brings everything, as its marker says."""
    broker = RecordingBroker(spot)
    for number in range(3):
        put(broker, f"t/{number}", b"old")
    mirror = Mirror("t/#")
    mirror.update(broker)
    old = mirror.token
    assert old is not None
    for number in range(3):
        put(broker, f"t/{number}", b"new")
    client = broker.client("kept", 5, clean=False, properties=FOREVER)
    subscribe(client, "my/end", qos=1)
    asked = Properties(user_properties=(("holdfast-replay-end", "my/end"), ("holdfast-replay-since", old)))
    client.send(p.Subscribe(client.identifier(), (p.SubscriptionRequest("t/#", 1),), asked))
    client.packets()  # nothing is acknowledged
    broker.advance(1.1)
    broker = broker.restart(1001 * DAY) if killed else broker.restart_in_order(1001 * DAY)
    broker.advance(61)
    client = Client(broker, 5)
    client.send(p.Connect("kept", 5, False, 0, properties=FOREVER))
    *replayed, marker = _all(client, client.packets())
    assert {packet.topic: packet.payload for packet in replayed} == {f"t/{number}": b"new" for number in range(3)}
    assert (told(marker)["complete"], told(marker)["since"]) == (True, "full" if killed else "delta")
    broker.kill()


def test_changes_that_are_too_many_or_too_old_are_pruned(spot: Path | str) -> None:
    broker = RecordingBroker(spot)
    put(broker, "t/1", b"old")
    mirror = Mirror()
    mirror.update(broker)
    old = mirror.token
    put(broker, "t/1", b"new")
    put(broker, "t/2", b"new")
    mirror.update(broker)
    broker.advance(1001 * DAY)
    broker.advance(61)
    newest = mirror.token
    mirror.update(broker, old)
    assert (mirror.answer, mirror.came) == ("full", ["t/1", "t/2"])
    mirror.update(broker, newest)
    assert mirror.answer == "delta"
    broker.kill()


def test_a_lower_number_of_changes_holds_from_the_next_pruning_on(spot: Path | str) -> None:
    broker = RecordingBroker(spot)
    mirror = Mirror()
    mirror.update(broker)
    old = mirror.token
    for number in range(3):
        put(broker, f"t/{number}", b"x")
    mirror.update(broker)
    broker.since.most = 1
    mirror.update(broker, old)
    assert mirror.answer == "delta"
    broker.advance(61)
    mirror.update(broker, old)
    assert mirror.answer == "full"
    broker.kill()


def test_a_topic_that_may_not_be_received_is_left_out(spot: Path | str) -> None:
    rules = Permissions()
    rules.deny("receive", "t/secret")
    broker = RecordingBroker(spot, authorizer=rules)
    mirror = Mirror("t/#")
    put(broker, "t/allowed", b"old")
    put(broker, "t/secret", b"old")
    mirror.update(broker)
    put(broker, "t/allowed", b"new")
    put(broker, "t/secret", b"")
    mirror.update(broker)
    assert mirror.came == ["t/allowed"]
    broker.kill()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_is_withheld_is_cleared(tmp_path: Path, qos: int) -> None:
    """A full replay would not bring it, and the client may have an older message. A clear stays a clear."""
    rules = Listed({}, {})
    broker = RecordingBroker(tmp_path / "db", authorizer=rules, checks_sources=True)
    allowed, withheld = (broker.client(f"of {name}", username=name) for name in "uv")

    def publish(client: Client, **payloads: bytes) -> None:
        for name, payload in payloads.items():
            client.publish(f"t/{name}", payload, 1, True)
        broker.advance(0)

    publish(allowed, a=b"old", b=b"old", c=b"old", d=b"old")
    mirror = Mirror("t/#")
    mirror.update(broker)
    publish(withheld, a=b"new", c=b"")
    publish(allowed, b=b"new")
    rules.change({}, {"u": ["#"], "v": []})
    mirror.update(broker, qos=qos)
    assert (mirror.answer, mirror.came) == ("delta", ["t/a", "t/b", "t/c"])
    everything = Mirror("t/#")
    everything.update(broker)
    assert mirror.state == everything.state == {"t/b": b"new", "t/d": b"old"}
    assert broker.retained.sources is not None
    assert broker.retained.sources.withheld == 2  # by each of the two replays; the clear is not withheld
    broker.kill()


def test_waiting_values_are_written_first(spot: Path | str) -> None:
    """A message that a policy lets wait in memory is in the replay since a token from before it."""
    broker = RecordingBroker(spot)
    broker.retained.change_policies(Policies([Policy(1, "#", write_interval=60)]))
    put(broker, "t/1", b"old")
    mirror = Mirror("t/#")
    mirror.update(broker)
    broker.client("publisher", 5).publish("t/1", b"waits", 0, True)
    mirror.update(broker)
    assert (mirror.answer, mirror.state) == ("delta", {"t/1": b"waits"})
    broker.kill()


@pytest.mark.parametrize("value", ["", "x", "A" * 23, "A" * 24, "2026-13-01T00:00:00Z", "-1w"])
def test_what_is_neither_a_token_nor_a_time_is_refused(value: str) -> None:
    """For every Topic Filter, and the Reason String says what is allowed; also where no changes are stored."""
    client = MemoryBroker().client("c", 5, properties=TAKES_PART)
    asked = Properties(user_properties=(("holdfast-replay-since", value),))
    (suback,) = subscribe(client, "a", "b", properties=asked)
    assert isinstance(suback, p.Suback)
    assert set(suback.reason_codes) == {ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR}
    assert (suback.properties.reason_string or "").startswith("User Property holdfast-replay-since: ")


def test_the_answer_needs_properties_of_suback() -> None:
    """With Request Problem Information 0 the request is refused [MQTT-3.1.2-29]."""
    wishes = Properties(user_properties=(("holdfast", "?"),), request_problem_information=0)
    client = MemoryBroker().client("c", 5, properties=wishes)
    (suback,) = subscribe(client, "a", properties=Properties(user_properties=(("holdfast-replay-since", "-1h"),)))
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,)


def test_without_stored_changes_everything_comes() -> None:
    """Where ``retainer.changes.enable`` is false; the marker has no token."""
    broker = MemoryBroker()
    put(broker, "t/1", b"x")
    mirror = Mirror("t/#")
    assert mirror.update(broker, "-1s")["token"] is None
    assert (mirror.answer, mirror.came) == ("full", ["t/1"])


def test_tokens_that_are_asked_for_together_need_one_more_transaction(tmp_path: Path) -> None:
    """Those who ask while one is made share the next one."""
    with place("sqlite", tmp_path) as spot:
        assert spot is not None
        broker = RecordingBroker(spot, manual=True)
        broker.commit()
        made = broker.epochs
        asked = [broker.since.token() for _ in range(50)]
        steps = 0
        while not all(each.called for each in asked):
            broker.executor.step()
            broker.settle()
            steps += 1
        assert steps <= 4
        assert made.epoch
        broker.kill()


def test_while_nothing_changes_tokens_need_no_transaction(tmp_path: Path) -> None:
    """For a second, after which other nodes may have changed something."""
    broker = RecordingBroker(fresh_file(tmp_path), manual=True)

    def token(at_once: bool) -> str | None:
        asked = broker.since.token()
        assert asked.called == at_once
        broker.commit()
        broker.settle()
        found: str | None = result_of(asked)
        return found

    broker.commit()
    first = token(at_once=False)
    assert token(at_once=True) == first
    put(broker, "t/1", b"1")
    broker.commit()
    second = token(at_once=False)
    assert second != first
    assert token(at_once=True) == second
    broker.advance(1)
    assert token(at_once=False) == second
    broker.kill()


def test_operators_changes_are_in_the_store(spot: Path | str) -> None:
    """A change that was not sent live, since nobody was subscribed, is in the next replay."""
    broker = RecordingBroker(spot)
    mirror = Mirror("t/#")
    mirror.update(broker)
    change = RetainedChange("t/9", broker.store.next_revision(), broker.now(), None, None, None)
    broker.store.put(change)
    broker.advance(0)
    mirror.update(broker)
    assert (mirror.answer, mirror.came) == ("delta", ["t/9"])
    broker.kill()


def test_gathered_changes_are_stored_soon_without_a_client_that_asks(tmp_path: Path) -> None:
    """For other processes, which read the table. Without changes nothing is written."""
    broker = RecordingBroker(fresh_file(tmp_path))
    put(broker, "t/1", b"1")
    assert result_of(broker.store.scan(_stored)) == []
    broker.advance(GATHERING_SECONDS)
    assert result_of(broker.store.scan(_stored)) == ["t/1"]
    broker.advance(GATHERING_SECONDS)
    assert not broker.recorder.has_gathered


def _stored(cursor: Cursor) -> list[str]:
    cursor.execute("SELECT topic FROM retained_changes ORDER BY turn")
    return [topic for (topic,) in cursor.fetchall()]
