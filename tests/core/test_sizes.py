"""What a message holds."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from holdfast.core.messages import (
    HELD_ENTRY,
    HELD_USER_PROPERTY,
    RetainedChange,
    RetainedMessage,
    held_size,
    stored_size,
)
from holdfast.retained.store.rows import held_row_size, row_of
from holdfast.sessions.limits import Limits
from holdfast.wire import NO_PROPERTIES, Properties, encode_properties
from holdfast.wire import packets as p
from tests.conformance.expect import lasting
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

PAIRS = tuple((f"name {number}", f"value {number}") for number in range(64))


def many(message: int) -> Properties:
    """Return 64 User Properties, other strings for each message, as a client's packets have."""
    return Properties(user_properties=tuple((f"{name} {message}", f"{value} {message}") for name, value in PAIRS))


def test_a_message_holds_topic_properties_payload_and_a_constant() -> None:
    """Without properties, a property block takes no memory and one byte in the database."""
    one = Properties(user_properties=(("k", "v"),))  # 7 bytes, and the Property Length
    assert held_size(3, NO_PROPERTIES, 10) == HELD_ENTRY + 13
    assert held_size(3, one, 10) == HELD_ENTRY + 13 + 8 + HELD_USER_PROPERTY
    assert stored_size("aé", one, 10) - stored_size("aé", NO_PROPERTIES, 10) == 7
    assert stored_size("aé", NO_PROPERTIES, 10) - stored_size("a", NO_PROPERTIES, 0) == 12


@pytest.mark.parametrize("properties", [False, True], ids=["plain", "64 User Properties"])
def test_the_measure_of_a_queued_message_is_what_it_takes(properties: bool) -> None:
    """The bytes of a queue are within a third of what Python allocates for it."""
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    client.subscribe("t/#", qos=1)
    client.drop()
    publisher = broker.client("p", 5)
    number = 100
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for message in range(number):
        publisher.publish(f"t/{message}", bytes(100), 1, properties=many(message) if properties else NO_PROPERTIES)
        publisher.network.take()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    (session,) = [session for session in broker.registry if session.client_id == "c"]
    assert len(session.queue) == number
    assert 0.75 * taken < session.queue.bytes < 1.33 * taken


def test_user_properties_count_against_the_queue() -> None:
    """``mqtt.max_mqueue_bytes``: 64 KB of messages with 64 User Properties each are a handful, not hundreds."""
    broker = MemoryBroker(limits=Limits(max_mqueue_bytes=64 << 10))
    client = lasting(broker, "c", 5)
    client.subscribe("t", qos=1)
    client.drop()
    publisher = broker.client("p", 5)
    for message in range(100):
        publisher.publish("t", b"x", 1, properties=many(message))
    size = held_size(1, many(99), 1)
    assert broker.counters.messages_dropped_queue_full == 100 - (64 << 10) // size
    client = lasting(broker, "c", 5)
    assert len([one for one in client.backlog if isinstance(one, p.Publish)]) == (64 << 10) // size


def test_the_row_of_a_message_that_waits_for_its_commit_counts_its_properties() -> None:
    """What waits for a commit: the row has them twice, encoded and as JSON."""
    for properties in (NO_PROPERTIES, many(1)):
        message = RetainedMessage("t/é", b"xyz", 1, properties, None, None, 1, None, 2)
        row = row_of(RetainedChange("t/é", 2, 1, message))
        texts = sum(len(part) for part in (row.topic, row.properties5, row.properties_json or "", row.payload))
        assert held_row_size(row) == HELD_ENTRY + texts


@pytest.mark.parametrize("properties", [NO_PROPERTIES, many(1)])
def test_messages_and_wills_of_stored_sessions_that_wait_for_their_commit_count_whole(
    tmp_path: Path, properties: Properties
) -> None:
    """What waits for a commit counts their topics and properties too."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    lasting(broker, "away", 5).subscribe("t/é", qos=1)
    broker.commit()
    writer = broker.parts.writer
    client = Client(broker, 5)
    before = writer.pending_bytes
    client.connect("c", will=p.Will("w/é", b"xyz", 0, False, properties))
    assert writer.pending_bytes - before >= held_size(4, properties, 3)
    broker.commit()
    before = writer.pending_bytes
    client.publish("t/é", b"xyz", 1, properties=properties)
    assert writer.pending_bytes - before >= held_size(4, properties, 3)


def test_properties_are_encoded_once_for_all_subscribers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the message expires, so that its interval is encoded for each of them."""
    encoded: list[Properties] = []

    def counting(properties: Properties) -> bytes:
        encoded.append(properties)
        return encode_properties(properties)

    monkeypatch.setattr("holdfast.sessions.delivery.outgoing.encode_properties", counting)
    broker = MemoryBroker()
    clients = [broker.client(f"c{number}", 5) for number in range(20)]
    for client in clients:
        client.subscribe("t", qos=1)
    properties = Properties(message_expiry_interval=60, user_properties=PAIRS)
    broker.client("p", 5).publish("t", b"x", 1, properties=properties)
    for client in clients:
        (publish,) = client.got(p.Publish)
        assert publish.properties == properties
    assert len(encoded) == 1
