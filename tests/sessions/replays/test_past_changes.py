"""Subscriptions to the changes between two times: their order, what each tells, and what they outlast."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.changes import past
from holdfast.changes.history import HistoryLimits
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.authorizers import Permissions
from tests.doubles import Client
from tests.sessions.replays.test_markers import KEPT, TAKES_PART, publishes, subscribe
from tests.sessions.replays.test_past import RememberingBroker, database, filled
from tests.sessions.replays.test_replay_info import told
from tests.test_closed_connections import cycles

__all__ = ["database"]

#: t/1 is cleared and t/2 "new" in this time; before it, t/0 to t/2 were "old"
SINCE = "$history/changes/-30s/-0s/"
CHANGED = [("t/1", b""), ("t/2", b"new")]


def log(client: Client, came: list[p.Packet], prefix: str = SINCE) -> list[tuple[str, bytes]]:
    """Acknowledge all that comes, and return topics and payloads in their order."""
    found: list[tuple[str, bytes]] = []
    packets = publishes(came)
    while packets:
        found += [(packet.topic.removeprefix(prefix), packet.payload) for packet in packets]
        client.send(*(p.Puback(packet.packet_identifier) for packet in packets if packet.qos == 1))
        client.send(*(p.Pubrec(packet.packet_identifier) for packet in packets if packet.qos == 2))
        client.send(*(p.Pubcomp(packet.packet_identifier) for packet in packets if packet.qos == 2))
        client.broker.advance(1)
        packets = publishes(client.packets())
    return found


def logged(place: Path | str, count: int = 30, **options: Any) -> tuple[RememberingBroker, list[tuple[str, bytes]]]:
    """Return a broker in which a few topics have changed often, and the changes of the last minutes."""
    broker = RememberingBroker(place, **options)
    broker.advance(1)
    publisher = broker.client("publisher", 5)
    publisher.publish("t/9", b"before", 1, True)
    broker.advance(60)
    expected: list[tuple[str, bytes]] = []
    for number in range(count):
        topic, payload = f"t/{-number % 3}", b"" if number % 5 == 4 else b"%d" % number
        publisher.publish(topic, payload, number % 2, True)
        expected.append((topic, payload))
        broker.advance(1)
    return broker, expected


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_changes_come_in_their_order(tmp_path: Path, version: int, qos: int) -> None:
    """Sets and clears come in the order of the changes, with RETAIN 1 and one QoS, and nothing live follows."""
    broker, expected = logged(tmp_path / "db")
    client = broker.client("c", version)
    prefix = "$history/changes/-40s/-0s/"
    suback, *came = subscribe(client, prefix + "t/#", qos=qos)
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (qos,)
    assert {(packet.retain, packet.qos) for packet in publishes(came)} == {(True, qos)}
    assert log(client, came, prefix) == expected
    broker.client("other").publish("t/3", b"live", 1, True)
    assert client.packets() == []


def test_the_first_time_is_excluded_and_the_last_one_included(tmp_path: Path) -> None:
    """So the messages of the first time, changed by these changes, are those of the second one."""
    broker, expected = logged(tmp_path / "db", 3)
    client = broker.client("c", 5)
    first = broker.now() - 3000  # the change was made then
    for since, until, chosen in ((first, first + 2000, expected[1:]), (first - 1, first + 1999, expected[:2])):
        prefix = f"$history/changes/{since}/{until}/"
        assert log(client, subscribe(client, prefix + "#"), prefix) == chosen


def test_times_may_be_written_in_three_ways_and_lie_in_the_future(tmp_path: Path) -> None:
    """Topics have the times as they were written. A last time in the future ends with the present."""
    broker = filled(tmp_path / "db")
    client = broker.client("c", 5)
    for times in (f"{broker.now() - 30_000}/-0s", "2027-01-15T08:00:32Z/2099-01-01T00:00:00Z"):
        prefix = f"$history/changes/{times}/"
        assert log(client, subscribe(client, prefix + "+/+"), prefix) == CHANGED


def test_expiry_is_an_empty_message(tmp_path: Path) -> None:
    """A message that expires is followed by an empty message, once the sweep has found it."""
    broker = RememberingBroker(tmp_path / "db")
    broker.retained.startService()
    broker.advance(1)
    publisher = broker.client("publisher", 5)
    publisher.publish("t", b"short", 1, True, Properties(message_expiry_interval=2))
    broker.advance(100)
    client = broker.client("c", 5)
    came = subscribe(client, "$history/changes/-101s/-0s/t", qos=2)
    assert log(client, came, "$history/changes/-101s/-0s/") == [("t", b"short"), ("t", b"")]
    broker.retained.stopService()


def test_permissions_are_those_of_the_topics_behind_the_times(tmp_path: Path) -> None:
    """Who may not subscribe to the filter is refused, and who may not receive a topic does not get its changes."""
    rules = Permissions()
    rules.deny("receive", "t/1")
    rules.deny("subscribe", "secret/#")
    broker = filled(tmp_path / "db", authorizer=rules)
    client = broker.client("c", 5)
    suback, *came = subscribe(client, SINCE + "t/#", SINCE + "secret/#")
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (0, 0x87)
    assert log(client, came) == CHANGED[1:]


def test_marker_and_facts_tell_of_changes(tmp_path: Path) -> None:
    """The marker counts the changes, and each change tells when it was made."""
    broker = filled(tmp_path / "db")
    client = broker.client("c", 5, properties=TAKES_PART)
    asked = (("holdfast-replay-end", "my/end"), ("holdfast-replay-info", "stored-at,revision"))
    came = publishes(subscribe(client, "my/end", SINCE + "t/#", properties=Properties(user_properties=asked)))
    changes = [told(packet) for packet in came if packet.topic.startswith(SINCE)]
    assert [change["holdfast-stored-at"] for change in changes] == 2 * ["2027-01-15T08:01:01.000Z"]
    assert int(changes[0]["holdfast-revision"]) < int(changes[1]["holdfast-revision"])
    markers = [json.loads(packet.payload) for packet in came if packet.topic == "my/end"]
    assert {(marker["filter"], marker["count"], marker["complete"]) for marker in markers} == {
        ("my/end", 0, True),
        (SINCE + "t/#", 2, True),
    }


def test_maximum_packet_size_and_no_local_hold(tmp_path: Path) -> None:
    """A change that is too large is left out, and with No Local so are the client's own."""
    broker = filled(tmp_path / "db")
    small = broker.client("c", 5, properties=Properties(maximum_packet_size=len(SINCE) + 9))
    assert log(small, subscribe(small, SINCE + "t/#")) == CHANGED[:1]
    publisher = broker.client("publisher", 5)
    assert publishes(subscribe(publisher, p.SubscriptionRequest(SINCE + "t/#", 0, no_local=True))) == []


def test_upgraded_qos_is_that_of_the_subscription(tmp_path: Path) -> None:
    """With ``mqtt.upgrade_qos`` too, a change comes with the QoS of the Subscription."""
    broker, _ = logged(tmp_path / "db", 3, limits=Limits(upgrade_qos=True))
    came = publishes(subscribe(broker.client("c", 5), "$history/changes/-40s/-0s/t/#", qos=1))
    assert [packet.qos for packet in came] == [1, 1, 1]


def test_lost_permission_counts_for_the_rest(tmp_path: Path) -> None:
    """A topic that may not be received any more brings no more changes, and the others go on in their order."""
    rules = Permissions()
    broker, expected = logged(tmp_path / "db", limits=Limits(max_inflight=2), authorizer=rules)
    client = broker.client("c", 5)
    prefix = "$history/changes/-40s/-0s/"
    came = publishes(subscribe(client, prefix + "t/#", qos=1))
    sent = len(came)
    assert 0 < sent < 5
    rules.deny("receive", "t/1")
    found = log(client, list(came), prefix)
    assert found == expected[:sent] + [change for change in expected[sent:] if change[0] != "t/1"]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("killed", [False, True])
def test_interrupted_replay_goes_on_in_its_order(database: Path | str, killed: bool, qos: int) -> None:
    """A replay that is interrupted, also by kill -9, brings the rest in its order, and no change made since."""
    broker, expected = logged(database, limits=Limits(max_inflight=3))
    client = broker.client("c", 5, clean=False, properties=KEPT)
    prefix = "$history/changes/-40s/2099-01-01T00:00:00Z/"
    came = publishes(subscribe(client, prefix + "t/#", qos=qos))
    assert came
    answers: list[p.Packet] = [p.Puback(came[0].packet_identifier)]
    if came[0].qos == 2:
        answers = [p.Pubrec(came[0].packet_identifier), p.Pubcomp(came[0].packet_identifier)]
    client.send(*answers)
    broker.advance(2)  # the position is stored each second
    received = [(packet.topic.removeprefix(prefix), packet.payload) for packet in [*came, *publishes(client.packets())]]
    assert len(received) < len(expected)
    broker.client("publisher", 5).publish("t/0", b"later", 1, True)
    broker.commit()
    if killed:
        broker = broker.restart()
    else:
        client.drop()
    broker.advance(40)
    client = broker.client("c", 5, clean=False, properties=KEPT)
    broker.advance(1)
    rest = log(client, [*client.backlog, *client.packets()], prefix)
    assert received == expected[: len(received)]
    assert rest == expected[-len(rest) :]
    assert len(received) + len(rest) >= len(expected)


def test_changes_that_are_lost_meanwhile_end_the_replay(tmp_path: Path) -> None:
    """Where pruning passes the replay, the marker tells it, and the client stays connected."""
    broker, expected = logged(tmp_path / "db", limits=Limits(max_inflight=1))
    client = broker.client("c", 5, clean=False, properties=KEPT)
    subscribe(client, p.SubscriptionRequest("my/end", 1))
    prefix = "$history/changes/-40s/-0s/"
    asked = Properties(user_properties=(("holdfast-replay-end", "my/end"),))
    (first,) = publishes(subscribe(client, prefix + "t/#", properties=asked, qos=1))
    assert (first.topic.removeprefix(prefix), first.payload) == expected[0]
    client.drop()
    broker.history.limits = HistoryLimits(enable=True, keep=0)
    broker.advance(70)
    assert broker.history.prunings
    client = broker.client("c", 5, clean=False, properties=KEPT)
    found = dict(log(client, [*client.backlog], prefix))
    assert json.loads(found["my/end"])["why"] == "no history"


def test_a_history_with_few_matches_takes_many_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read visits a bounded number of entries, and the replay goes on behind them."""
    monkeypatch.setattr(past, "_ENTRIES", 2)
    broker, expected = logged(tmp_path / "db")
    client = broker.client("c", 5)
    prefix = "$history/changes/-40s/-0s/"
    found = log(client, subscribe(client, prefix + "t/1", qos=1), prefix)
    assert found == [change for change in expected if change[0] == "t/1"]


def test_a_filter_named_twice_has_one_replay(tmp_path: Path) -> None:
    """Both are granted, and the changes come once."""
    broker = filled(tmp_path / "db")
    client = broker.client("c", 5)
    suback, *came = subscribe(client, SINCE + "t/#", SINCE + "t/#")
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (0, 0)
    assert log(client, came) == CHANGED


@pytest.mark.parametrize(
    "topic_filter",
    ["$history/at/-1s/#", "$history/changes/-40s/-0s/#", "$history/at/-3000d/#", "$history/changes/-3000d/-0s/#"],
)
def test_client_that_leaves_is_freed_at_once(tmp_path: Path, topic_filter: str) -> None:
    """Neither a replay in its midst nor a refusal leaves a cycle of objects, as in ``test_closed_connections.py``."""
    broker, _ = logged(tmp_path / "db", limits=Limits(max_inflight=3))

    def live() -> None:
        client = broker.client("c", 5)
        subscribe(client, topic_filter, qos=1)
        client.drop()
        broker.advance(5)

    live()  # what is made once only does not count
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        live()
        assert cycles() == []
    finally:
        gc.enable()
