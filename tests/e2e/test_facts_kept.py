"""What clients are told of retained messages is the same before and after kill -9, by whichever way they ask."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

TAKES_PART = Properties(user_properties=(("holdfast", "?"),))
INFO = Properties(user_properties=(("holdfast-replay-info", "revision,stored-at"),))
END = "$replay/end"

#: by topic: the payload, the revision, and the time of storing
Facts = dict[str, tuple[bytes, str, str]]


def replayed(port: int) -> Facts:
    """Return what a replay tells."""
    client = RawClient.connected(port, p.Connect("replayed", 5, properties=TAKES_PART))
    requests = (p.SubscriptionRequest(END), p.SubscriptionRequest("f/#", 1))
    client.send(p.Subscribe(1, requests, INFO))
    found: Facts = {}
    for packet in client.packets():
        if isinstance(packet, p.Publish):
            if packet.topic == END:
                break
            told = dict(packet.properties.user_properties)
            found[packet.topic] = packet.payload, told["holdfast-revision"], told["holdfast-stored-at"]
            client.send(p.Puback(packet.packet_identifier))
    client.close()
    return found


def answered(port: int) -> Facts:
    """Return what the answers to questions tell, page by page."""
    client = RawClient(port, "answered", 5)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("answers"),)))
    found: Facts = {}
    question = {"filter": "f/#", "limit": 7}
    properties = Properties(response_topic="answers")
    client.send(p.Publish("$retained/get", json.dumps(question).encode(), 0, properties=properties))
    for packet in client.packets():
        if isinstance(packet, p.Publish):
            answer = json.loads(packet.payload)
            for one in answer["messages"]:
                found[one["topic"]] = base64.b64decode(one["payload"]), one["revision"], one["stored_at"]
            if answer["after"] is None:
                break
            again = json.dumps({**question, "after": answer["after"]}).encode()
            client.send(p.Publish("$retained/get", again, 0, properties=properties))
    client.close()
    return found


def past(port: int, at: int) -> dict[str, bytes]:
    """Return the messages of a time, in milliseconds since the epoch."""
    client = RawClient(port, "past")
    prefix = f"$history/at/{at}/"
    client.send(p.Subscribe(1, (p.SubscriptionRequest(END), p.SubscriptionRequest(prefix + "f/#"))))
    found = {}
    for packet in client.packets():
        if isinstance(packet, p.Publish):
            if packet.topic == END:
                assert json.loads(packet.payload)["complete"]
                break
            found[packet.topic.removeprefix(prefix)] = packet.payload
    client.close()
    return found


def retain(port: int, values: dict[str, bytes], acknowledged: int) -> None:
    """Retain messages at once, and wait for some of the acknowledgements."""
    client = RawClient(port, "publisher")
    client.send(*(p.Publish(topic, value, 1, True, False, n) for n, (topic, value) in enumerate(values.items(), 1)))
    for packet in client.packets():
        if isinstance(packet, p.Puback) and packet.packet_identifier >= acknowledged:
            break


def test_facts_are_the_same_after_a_kill(
    broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...], tmp_path: Path
) -> None:
    """Replays, answers and the past agree; only what was under way at the kill may have changed."""
    (tmp_path / "h.toml").write_text("[retainer.history]\nenable = true\n")
    broker = broker_in("--config", str(tmp_path / "h.toml"), *storage).start()
    first = {f"f/{number:02}": b"first %d" % number for number in range(30)}
    retain(broker.port, first, len(first))
    before, at = replayed(broker.port), round(1000 * time.time())
    assert {topic: payload for topic, (payload, _, _) in before.items()} == first
    assert answered(broker.port) == before
    time.sleep(0.002)  # a time of the history is in milliseconds
    second = dict.fromkeys(list(first)[:20], b"second")
    retain(broker.port, second, 5)
    broker.kill()
    broker.start()
    after = replayed(broker.port)
    assert answered(broker.port) == after
    for number, topic in enumerate(first):
        payload, revision, _ = after[topic]
        changed = payload == b"second"
        assert changed or number >= 5
        assert (after[topic] != before[topic]) is changed
        assert int(revision) >= int(before[topic][1])
    assert past(broker.port, at) == first
    assert broker.stop() == (0, "")
