"""Subscriptions to the past of topics that a policy leaves out of the history, or keeps for a time of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.changes.entries import NOT_RECORDED, Rule, Rules
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.sessions.replays.test_markers import KEPT, TAKES_PART, publishes, subscribe
from tests.sessions.replays.test_past import RememberingBroker, database
from tests.sessions.replays.test_past_changes import log

__all__ = ["database"]

MARKED = Properties(user_properties=(("holdfast-replay-end", "my/end"),))


class WithoutNoise(RememberingBroker):
    """A broker that does not record noise/#."""

    rules = Rules([Rule("noise/#", NOT_RECORDED)])


class ShortBroker(RememberingBroker):
    """A broker that keeps changes of short/# for 40 seconds."""

    rules = Rules([Rule("short/#", 40_000)])


def with_noise(place: Path | str) -> RememberingBroker:
    """Return a broker in which, 60 seconds ago, all topics were "1"; t/b and noise/a are "2" since."""
    broker = WithoutNoise(place)
    broker.advance(1)
    publisher = broker.client("publisher", 5)
    for topic in ("noise/a", "t/a", "t/b"):
        publisher.publish(topic, b"1", 1, True)
    broker.advance(60)
    publisher.publish("t/b", b"2", 1, True)
    publisher.publish("noise/a", b"2", 1, True)
    return broker


@pytest.mark.parametrize("prefix", ["$history/at/-30s/", "$history/changes/-30s/-0s/"])
def test_the_past_of_topics_without_a_history_is_refused_with_the_reason(tmp_path: Path, prefix: str) -> None:
    """Only if the Topic Filter matches no other topic. Without the reason, a client would take them for empty."""
    broker = with_noise(tmp_path / "db")
    client = broker.client("c", 5)
    (suback,) = subscribe(client, prefix + "noise/+")
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,)
    assert "the history has no changes of noise/#, neither old nor new ones: a policy" in (
        suback.properties.reason_string or ""
    )
    (refused,) = subscribe(broker.client("old", 4), prefix + "noise/a")
    assert isinstance(refused, p.Suback)
    assert refused.reason_codes == (0x80,)


@pytest.mark.parametrize("prefix", ["$history/at/-30s/", "$history/changes/-30s/-0s/"])
def test_the_marker_says_that_topics_are_left_out(tmp_path: Path, prefix: str) -> None:
    """And does not say so of a Topic Filter whose topics are all known."""
    broker = with_noise(tmp_path / "db")
    client = broker.client("c", 5, properties=TAKES_PART)
    client.subscribe("my/end")
    for topic_filter, complete in (("#", False), ("t/#", True)):
        came = publishes(subscribe(client, prefix + topic_filter, properties=MARKED))
        marker = json.loads(came.pop().payload)
        assert marker["complete"] is complete
        assert marker.get("why") == (None if complete else "no history")
        assert {packet.topic.removeprefix(prefix) for packet in came} == (
            {"t/a", "t/b"} if "at" in prefix.split("/") else {"t/b"}
        )


@pytest.mark.parametrize("killed", [False, True])
def test_an_interrupted_replay_of_changes_leaves_out_the_same_topics(database: Path | str, killed: bool) -> None:
    """Also after kill -9: what was left out at first does not end the replay later."""
    broker: RememberingBroker = ShortBroker(database, limits=Limits(max_inflight=1))
    broker.advance(1)
    publisher = broker.client("publisher", 5)
    for number in range(4):
        for topic in ("short/a", "long/a"):
            publisher.publish(topic, b"%d" % number, 1, True)
        broker.advance(30)
    broker.advance(60)  # a round of pruning
    client = broker.client("c", 5, clean=False, properties=KEPT)
    prefix = "$history/changes/-170s/-0s/"
    (first,) = publishes(subscribe(client, prefix + "#", qos=1))
    assert (first.topic, first.payload) == (prefix + "long/a", b"1")
    client.send(p.Puback(first.packet_identifier))
    broker.advance(1)
    (second,) = publishes(client.packets())
    assert (second.topic, second.payload) == (prefix + "long/a", b"2")
    broker.advance(10)  # the position is stored
    if killed:
        broker = broker.restart()
    else:
        client.drop()
    broker.advance(5)
    client = broker.client("c", 5, clean=False, properties=KEPT)
    broker.advance(1)
    came = log(client, [*client.backlog, *client.packets()], prefix)
    assert [one for one in came if one != ("long/a", b"2")] == [("long/a", b"3")]
