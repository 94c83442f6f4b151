"""Subscriptions to the retained messages of a time: what they bring, what is refused, and what they outlast."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from holdfast.changes.entries import NO_RULES
from holdfast.changes.history import HistoryLimits, RetainedHistory
from holdfast.changes.past import PastMessages
from holdfast.changes.recording import HistoryRecorder
from holdfast.core.tickets import CommitTicket
from holdfast.identity.bans import Ban, Bans, Exempt, Kind
from holdfast.retained.policies import Policies, Policy
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.sessions.limits import Limits
from holdfast.storage.database import Durability
from holdfast.storage.driver import Cursor
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.store import DurableStore
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.authorizers import Listed, Permissions
from tests.doubles import Client, MemoryBroker
from tests.sessions.places import place
from tests.sessions.replays.test_markers import KEPT, TAKES_PART, publishes, subscribe
from tests.sessions.replays.test_replay_info import told
from tests.sessions.restartable import RestartableBroker


class RememberingBroker(RestartableBroker):
    """A broker with a history."""

    rules = NO_RULES

    def make_store(self) -> IRetainedStore:
        url = self._place if isinstance(self._place, str) else f"sqlite:///{self._place}"
        self.durable = DurableStore(
            url, durability=Durability.PROCESS, flush_interval=1, max_pending=0, node=1,
            reactor=self.clock, now=self.now, executor=self.executor, reading_executor=SynchronousExecutor,
        )  # fmt: skip
        self.history = RetainedHistory(
            self.durable, flushed=self._flushed, clock=self.clock, now=self.now,
            limits=HistoryLimits(enable=True), rules=self.rules,
        )  # fmt: skip
        return SQLRetainedStore(self.durable, recorder=HistoryRecorder(self.durable.bulk))

    def restart(self, after: float = 0, manual: bool = False) -> RememberingBroker:
        self.kill()
        return type(self)(self._place, manual, self.clock.seconds() + after, **self._options)

    def _flushed(self) -> CommitTicket:
        ticket: CommitTicket = self.store.flushed()
        return ticket

    def open_store(self) -> None:
        super().open_store()
        self.history.startService()
        self.replays.past = PastMessages(self.history, self.store)


def filled(place: Path | str, **options: Any) -> RememberingBroker:
    """Return a broker in which, 60 seconds ago, t/0 to t/2 were "old"; t/1 is cleared and t/2 "new" since."""
    broker = RememberingBroker(place, **options)
    broker.advance(1)
    publisher = broker.client("publisher", 5)
    for number in range(3):
        publisher.publish(f"t/{number}", b"old", 1, True)
    broker.advance(60)
    publisher.publish("t/1", b"", 1, True)
    publisher.publish("t/2", b"new", 1, True)
    broker.advance(1)
    return broker


def state(client: Client, came: list[p.Publish]) -> dict[str, bytes]:
    """Acknowledge all that comes, and return the payloads by topic."""
    found: dict[str, bytes] = {}
    while came:
        found |= {packet.topic: packet.payload for packet in came}
        client.send(*(p.Puback(packet.packet_identifier) for packet in came if packet.qos))
        client.broker.advance(1)
        came = publishes(client.packets())
    return found


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("qos", [0, 1])
def test_messages_of_a_time(tmp_path: Path, version: int, qos: int) -> None:
    """The messages that were retained then come, on topics with the time as it was written; live ones do not."""
    broker = filled(tmp_path / "db")
    client = broker.client("c", version)
    suback, *came = subscribe(client, "$history/at/-30s/t/#", qos=qos)
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (qos,)
    prefix = "$history/at/-30s/t/"
    assert state(client, publishes(came)) == {f"{prefix}{number}": b"old" for number in range(3)}
    assert all(packet.retain for packet in publishes(came))
    broker.client("other").publish("t/3", b"live", 1, True)
    assert client.packets() == []


def test_the_past_of_now_has_the_messages_that_wait(tmp_path: Path) -> None:
    """They are written when the Client asks: not behind what others store while the history is looked into."""
    broker = filled(tmp_path / "db")
    broker.retained.change_policies(Policies([Policy(1, "w/#", write_interval=60.0)]))
    publisher = broker.client("publisher", 5)
    publisher.publish("w/a", b"waits", 0, True)
    publisher.publish("w/b", b"waits", 0, True)
    broker.advance(0.01)
    looks: list[Callable[[], object]] = []

    def held(work: Callable[[Cursor], Any]) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        looks.append(lambda: broker.history.read_apart(work).chainDeferred(answer))
        return answer

    broker.replays.past = PastMessages(cast("RetainedHistory", SimpleNamespace(
        read_apart=held, check_kept=broker.history.check_kept, now=broker.now, page_of=broker.history.page_of
    )), broker.store)  # fmt: skip
    client = broker.client("c", 5)
    assert subscribe(client, f"$history/at/{broker.now()}/w/#", qos=0) == []
    broker.advance(0.01)
    publisher.publish("t/0", b"stored meanwhile", 1, True)
    publisher.publish("w/b", b"newer", 1, True)
    while looks:  # a read that ends begins the next one
        looks.pop()()
        broker.advance(0.01)
    assert {packet.topic.rpartition("/w/")[2]: packet.payload for packet in publishes(client.packets())} == {
        "a": b"waits", "b": b"waits",
    }  # fmt: skip


def test_a_message_that_waits_is_of_the_past_from_its_write_on(tmp_path: Path) -> None:
    """The times of the history never decrease: a message that waited behind another change is not earlier than it."""
    broker = filled(tmp_path / "db")
    broker.retained.change_policies(Policies([Policy(1, "w/#", write_interval=60.0)]))
    publisher, client = broker.client("publisher", 5), broker.client("c", 5)
    publisher.publish("w/a", b"before", 1, True)
    publisher.publish("w/a", b"waits", 0, True)
    accepted = broker.now()
    broker.advance(1)
    publisher.publish("t/0", b"stored meanwhile", 1, True)
    broker.advance(1)
    for at, payload in (("-0s", b"waits"), (accepted, b"before"), (accepted + 1000, b"waits")):
        (_, *came) = subscribe(client, f"$history/at/{at}/w/#", qos=0)
        assert [packet.payload for packet in publishes(came)] == [payload], at


def test_time_may_be_written_in_three_ways(tmp_path: Path) -> None:
    """ISO 8601, milliseconds and how long ago mean the same time."""
    broker = filled(tmp_path / "db")
    client = broker.client("c", 5)
    at = broker.now() - 30_000
    for time in ("-30s", str(at), "2027-01-15T08:00:32Z"):
        (_, *came) = subscribe(client, f"$history/at/{time}/t/0")
        assert [packet.topic for packet in publishes(came)] == [f"$history/at/{time}/t/0"]


def test_refusals(tmp_path: Path) -> None:
    """What the history does not have is refused with 0x83, what is not understood with 0x8F, and the rest granted."""
    broker = filled(tmp_path / "db")
    for topic_filter, code, why in (
        ("$history/at/-3000d/t/#", 0x83, "the history does not go back to"),
        ("$history/at/2099-01-01T00:00:00Z/t/#", 0x83, "is still to come"),
        ("$history/at/yesterday/t/#", 0x8F, "a time is like"),
        ("$history/at/+/t", 0x8F, "a time is like"),
        ("$history/at/-1h", 0x8F, "are $history/at/TIME/FILTER"),
        ("$history/#", 0x8F, "are $history/at/TIME/FILTER or $history/changes/FROM/TO/FILTER"),
        ("$history/changes/-1m", 0x8F, "$history/changes/FROM/TO/FILTER"),
        ("$history/changes/-1m/-1s", 0x8F, "$history/changes/FROM/TO/FILTER"),
        ("$history/changes/-1s/-1m/t", 0x8F, "FROM is not later than TO"),
        ("$history/changes/-1m/now/t", 0x8F, "a time is like"),
        ("$history/changes/-3000d/-1s/t/#", 0x83, "the history does not go back to"),
        ("$history/changes/2099-01-01T00:00:00Z/2099-01-02T00:00:00Z/t/#", 0x83, "is still to come"),
        ("$share/g/$history/at/-1s/t/#", 0x8F, "are $history/at/TIME/FILTER"),
    ):
        (suback,) = subscribe(broker.client("c", 5), topic_filter, "live")
        assert isinstance(suback, p.Suback)
        assert suback.reason_codes == (code, 0), topic_filter
        text = suback.properties.reason_string or ""
        assert why in text
        assert "levels here" not in text, "it is not the reason"
        assert "cannot be read now" not in text, "it is not the reason"
        (suback,) = subscribe(broker.client("three", 4), topic_filter)
        assert isinstance(suback, p.Suback)
        assert suback.reason_codes == (0x80,)


def test_no_history_and_too_many_filters(tmp_path: Path) -> None:
    """Without a history the subscription is refused with 0x83; more than eight in one SUBSCRIBE with 0x97."""
    (suback,) = subscribe(MemoryBroker().client("c", 5), "$history/at/-1s/#", "$history/changes/-1h/-1s/#")
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (0x83, 0x83)
    assert "no history is kept" in (suback.properties.reason_string or "")
    broker = filled(tmp_path / "db")
    suback, *_ = subscribe(broker.client("c", 5), *(f"$history/at/-1s/{number}" for number in range(9)))
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (*8 * (0,), 0x97)


def test_nobody_publishes_there_and_wildcards_do_not_match(tmp_path: Path) -> None:
    """A client that publishes below $history is refused, and # brings the present only."""
    broker = filled(tmp_path / "db")
    client = broker.client("c", 5)
    client.publish("$history/at/-1s/t/0", b"lie", 1, True)
    (puback,) = client.packets()
    assert isinstance(puback, p.Puback)
    assert puback.reason_code == ReasonCode.NOT_AUTHORIZED
    assert {packet.topic for packet in publishes(subscribe(client, "#"))} == {"t/0", "t/2"}


def test_permissions_are_those_of_the_topics_behind_the_time(tmp_path: Path) -> None:
    """Who may not subscribe to the filter is refused, and who may not receive a topic does not get its past."""
    rules = Permissions()
    rules.deny("receive", "t/1")
    rules.deny("subscribe", "secret/#")
    broker = filled(tmp_path / "db", authorizer=rules)
    client = broker.client("c", 5)
    suback, *came = subscribe(client, "$history/at/-30s/t/#", "$history/at/-30s/secret/#")
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (0, 0x87)
    assert [packet.topic for packet in publishes(came)] == ["$history/at/-30s/t/0", "$history/at/-30s/t/2"]


def test_marker_and_facts_belong_to_the_past_too(tmp_path: Path) -> None:
    """The marker counts the messages of the time, and each tells when it was stored then."""
    broker = filled(tmp_path / "db")
    client = broker.client("c", 5, properties=TAKES_PART)
    asked = (("holdfast-replay-end", "my/end"), ("holdfast-replay-info", "stored-at"))
    found = subscribe(client, "my/end", "$history/at/-30s/t/#", properties=Properties(user_properties=asked))
    came = publishes(found)
    past = [packet for packet in came if packet.topic.startswith("$history")]
    assert [told(packet) for packet in past] == 3 * [{"holdfast-stored-at": "2027-01-15T08:00:01.000Z"}]
    assert {json.loads(packet.payload)["count"] for packet in came if packet.topic == "my/end"} == {0, 3}


def test_maximum_packet_size_and_no_local_hold(tmp_path: Path) -> None:
    """A message that is too large with its longer topic is left out, and with No Local so are the client's own."""
    broker = filled(tmp_path / "db")
    small = broker.client("c", 5, properties=Properties(maximum_packet_size=27))
    assert publishes(subscribe(small, "$history/at/-30s/t/#")) == []
    publisher = broker.client("publisher", 5)
    assert publishes(subscribe(publisher, p.SubscriptionRequest("$history/at/-30s/t/#", 0, no_local=True))) == []


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    """An empty database of each make."""
    with place(request.param, tmp_path) as found:
        assert found is not None
        yield found


@pytest.mark.parametrize("killed", [False, True])
def test_interrupted_replay_goes_on_with_the_same_time(database: Path | str, killed: bool) -> None:
    """A replay that is interrupted, also by kill -9, ends with the messages of the time that was meant at first."""
    broker = filled(database, limits=Limits(max_inflight=1))
    client = broker.client("c", 5, clean=False, properties=KEPT)
    (first,) = publishes(subscribe(client, "$history/at/-30s/t/#", qos=1))
    assert first.topic == "$history/at/-30s/t/0"
    broker.commit()
    if killed:
        broker = broker.restart()
    else:
        client.drop()
    broker.advance(40)
    client = broker.client("c", 5, clean=False, properties=KEPT)
    broker.advance(1)
    found = state(client, publishes([*client.backlog, *client.packets()]))
    assert {f"$history/at/-30s/t/{number}": b"old" for number in (1, 2)}.items() <= found.items()


def test_time_that_is_lost_meanwhile_ends_the_replay(tmp_path: Path) -> None:
    """Where the history loses the time during a replay, the marker tells it, and the client stays connected."""
    broker = filled(tmp_path / "db", limits=Limits(max_inflight=1))
    client = broker.client("c", 5, clean=False, properties=KEPT)
    subscribe(client, p.SubscriptionRequest("my/end", 1))
    asked = Properties(user_properties=(("holdfast-replay-end", "my/end"),))
    (first,) = publishes(subscribe(client, "$history/at/-30s/t/#", properties=asked, qos=1))
    assert first.topic.endswith("t/0")
    client.drop()
    broker.history.limits = HistoryLimits(enable=False)
    client = broker.client("c", 5, clean=False, properties=KEPT)
    found = state(client, publishes(client.backlog))
    assert json.loads(found["my/end"])["why"] == "no history"


def test_messages_of_publishers_that_may_not_retain_them_any_more_are_withheld_from_the_past_too(
    tmp_path: Path,
) -> None:
    """As from all other subscribers, and so are those of banned users. A change that clears a topic comes."""
    rules, bans = Listed({}, {}), Bans(now=lambda: 0, exempt=Exempt())
    broker = RememberingBroker(tmp_path / "db", authorizer=rules, checks_sources=True, bans=bans)
    broker.advance(1)
    begun = broker.now()
    broker.advance(1)
    for name in ("bob", "eve"):
        publisher = broker.client(name, username=name)
        publisher.publish(f"t/{name}", b"first", 1, True)
        publisher.publish(f"u/{name}", b"second", 1, True)
        publisher.publish(f"t/{name}", b"", 1, True)
        broker.advance(1)

    def past(filters: str, version: int = 5) -> list[tuple[str, bytes]]:
        _, *came = subscribe(broker.client("reader", version), filters, qos=0)
        return [(packet.topic.split("/", 3)[3], packet.payload) for packet in publishes(came)]

    now, everything = "$history/at/-0s/#", f"$history/changes/{begun}/-0s/#"
    assert broker.retained.sources is not None
    rules.change({}, {"bob": ["t/#"], "eve": []})
    for version in (4, 5):
        broker.retained.sources.withheld = 0
        assert past(now, version) == []
        assert past(everything, version) == [("-0s/t/bob", b"first"), ("-0s/t/bob", b""), ("-0s/t/eve", b"")]
        assert broker.retained.sources.withheld == 2 + 3
    broker.retained.sources.change(enabled=False, guests=False)
    assert past(now) == [("u/bob", b"second"), ("u/eve", b"second")]
    assert len(past(everything)) == 6
    bans.add(Ban(kind=Kind.USERNAME, who="bob"))
    assert past(now) == [("u/eve", b"second")]
    assert len(past(everything)) == 4
