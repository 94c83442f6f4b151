"""Session State outlives the process: acknowledged messages are there after a kill, and come once with QoS 2."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve
from twisted.internet.defer import succeed

from holdfast.core.messages import ApplicationMessage, ChangeOrigin, RetainedChange, RetainedMessage
from holdfast.retained.importing import ImportJob, Merger
from holdfast.retained.staging import FILE_INSERT, FILE_SCHEMA, StagedFiles
from holdfast.retained.store.rows import row_of
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.verdicts import Merge
from holdfast.sessions.limits import Limits, WhenFull
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from holdfast.wire.properties import NO_PROPERTIES
from tests.doubles import Client
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

SESSION = Properties(session_expiry_interval=1000)
VERSIONS = pytest.mark.parametrize("version", [3, 4, 5])
TABLES = ("sessions", "session_subscriptions", "session_messages", "session_deliveries", "session_received", "wills")


@pytest.fixture
def broker(tmp_path: Path) -> RestartableBroker:
    return RestartableBroker(fresh_file(tmp_path))


def persistent(broker: RestartableBroker, client_id: str, version: int = 4, **connect: object) -> Client:
    """Connect with a persistent Session."""
    properties = SESSION if version == 5 else Properties()
    return broker.client(client_id, version, clean=False, properties=properties, **connect)


def rows(broker: RestartableBroker) -> dict[str, int]:
    """Count the rows of each table that has any."""
    counts = {table: broker.rows(table) for table in TABLES}
    return {table: count for table, count in counts.items() if count}


def everything(client: Client) -> list[str]:
    """Acknowledge all messages sent to a connecting Client. Return its topics in order."""
    topics: list[str] = []
    pending = client.backlog
    answers: list[p.Packet] = []
    for packet in pending:
        if isinstance(packet, p.Publish):
            topics.append(packet.topic)
            answers.append(
                p.Puback(packet.packet_identifier) if packet.qos == 1 else p.Pubrec(packet.packet_identifier)
            )
        elif isinstance(packet, p.Pubrel):
            answers.append(p.Pubcomp(packet.packet_identifier))
    client.send(*answers)
    return topics + [topic for topic, _, _, _ in client.messages()]


def retained(client: Client, topic_filter: str) -> list[tuple[str, bytes]]:
    """Return topic and payload of all retained messages."""
    came = client.subscribe(topic_filter)
    return [(packet.topic, packet.payload) for packet in came if isinstance(packet, p.Publish) and packet.retain]


def published(client: Client) -> list[tuple[bytes, int, bool]]:
    """Return payload, QoS and DUP of the messages sent to a connecting Client."""
    return [(packet.payload, packet.qos, packet.dup) for packet in client.backlog if isinstance(packet, p.Publish)]


@VERSIONS
def test_a_session_with_its_subscriptions_outlives_a_kill(broker: RestartableBroker, version: int) -> None:
    """Session Present, and the subscriptions with all their options [MQTT5-4.1.0-1]."""
    client = persistent(broker, "s", version)
    client.subscribe("a/+", "$share/g/b", qos=1)
    client.subscribe(p.SubscriptionRequest("c", 2, no_local=True, retain_as_published=True, retain_handling=2))
    before = dict(broker.registry._sessions["s"].subscriptions)
    broker = broker.restart()
    assert broker.registry._sessions["s"].subscriptions == before
    client = persistent(broker, "s", version)
    assert client.connack is not None
    assert client.connack.session_present is (version != 3)
    broker.client("p").publish("a/x", b"1", qos=1)
    broker.client("q").publish("b", b"2", qos=1)
    assert client.messages() == [("a/x", b"1", 1, False), ("b", b"2", 1, False)]


@VERSIONS
def test_an_acknowledged_message_reaches_a_session_after_a_kill(broker: RestartableBroker, version: int) -> None:
    """Queued messages with QoS 1 and 2, in order, with the rest of their expiry intervals."""
    client = persistent(broker, "s", version)
    client.subscribe("t", qos=2)
    client.drop()
    publisher = broker.client("p", 5)
    publisher.publish("t", b"1", qos=1, properties=Properties(user_properties=(("a", "b"),)))
    publisher.publish("t", b"2", qos=2, properties=Properties(message_expiry_interval=100))
    publisher.publish("t", b"short", qos=1, properties=Properties(message_expiry_interval=10))
    assert [type(packet).__name__ for packet in publisher.packets()] == ["Puback", "Pubrec", "Puback"]
    broker = broker.restart(after=30)
    client = persistent(broker, "s", version)
    assert published(client) == [(b"1", 1, False), (b"2", 2, False)]
    if version == 5:
        first, second = (packet for packet in client.backlog if isinstance(packet, p.Publish))
        assert first.properties.user_properties == (("a", "b"),)
        assert second.properties.message_expiry_interval == 70


def test_no_packet_is_acknowledged_before_its_commit(tmp_path: Path) -> None:
    """PUBACK, PUBREC, SUBACK, UNSUBACK, CONNACK and PUBCOMP wait for the commit of durable state."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client = Client(broker)
    client.send(p.Connect("s", 4, False))
    assert client.packets() == []
    broker.commit()
    assert [type(packet) for packet in client.packets()] == [p.Connack]
    for packet, answer in (
        (p.Subscribe(1, (p.SubscriptionRequest("t", 1),)), p.Suback),
        (p.Publish("u", b"", 2, packet_identifier=2), p.Pubrec),
        (p.Pubrel(2), p.Pubcomp),
        (p.Unsubscribe(3, ("t",)), p.Unsuback),
    ):
        client.send(packet)
        assert client.packets() == []
        broker.commit()
        assert [type(packet) for packet in client.packets()] == [answer]
    client.subscribe("t", qos=1)
    broker.commit()
    client.drop()
    publisher = broker.client("p", clean=True)
    publisher.publish("t", b"1", qos=1)
    assert publisher.packets() == []
    broker.commit()
    assert publisher.packets() == [p.Puback(1)]


def test_in_flight_messages_are_sent_again_in_order_with_their_identifiers(broker: RestartableBroker) -> None:
    """After a kill: PUBLISH with DUP, or PUBREL if PUBREC had come, then new messages [MQTT5-4.4.0-1]."""
    client = persistent(broker, "s")
    client.subscribe("t", qos=2)
    publisher = broker.client("p")
    for number, qos in enumerate((1, 2, 2, 1, 2)):
        publisher.publish("t", b"%d" % number, qos=qos)
    sent = client.got(p.Publish)
    client.send(p.Pubrec(sent[1].packet_identifier))
    client.send(p.Puback(sent[3].packet_identifier))
    broker = broker.restart()
    broker.client("p").publish("t", b"new", qos=1)
    client = persistent(broker, "s")
    shown = [
        (type(packet).__name__, packet.packet_identifier, getattr(packet, "dup", None))
        for packet in client.backlog
        if isinstance(packet, (p.Publish, p.Pubrel))
    ]
    identifiers = [packet.packet_identifier for packet in sent]
    assert shown[:-1] == [
        ("Publish", identifiers[0], True),
        ("Pubrel", identifiers[1], None),
        ("Publish", identifiers[2], True),
        ("Publish", identifiers[4], True),
    ]
    assert shown[-1][1] not in [*identifiers[:3], identifiers[4]]
    assert published(client)[-1] == (b"new", 1, False)


def test_an_acknowledged_message_leaves_nothing_behind(broker: RestartableBroker) -> None:
    """When all are acknowledged, only the Session and its subscription are left."""
    client = persistent(broker, "s")
    client.subscribe("t", qos=2)
    publisher = persistent(broker, "p")
    for number in range(20):
        publisher.publish("t", b"%d" % number, qos=number % 3, identifier=number + 1)
        if number % 3 == 2:
            publisher.send(p.Pubrel(number + 1))
    assert len(client.messages()) == 20
    assert rows(broker) == {"sessions": 2, "session_subscriptions": 1}


def test_a_message_acknowledged_within_the_commit_never_reaches_the_disk(tmp_path: Path) -> None:
    """Its insert and its delete cancel out. The publisher is still acknowledged."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client = Client(broker)
    client.send(p.Connect("s", 4, False), p.Subscribe(1, (p.SubscriptionRequest("t", 1),)))
    broker.commit()
    client.packets()
    publisher = broker.client("p")
    publisher.publish("kept", b"1", retain=True)  # its commit is in progress
    counters = broker.parts.writer.counters
    commits = counters.commits
    publisher.publish("t", b"1", qos=1)
    (publish,) = client.got(p.Publish)
    client.send(p.Puback(publish.packet_identifier))
    assert publisher.packets() == []
    broker.commit()
    assert publisher.packets() == [p.Puback(1)]
    assert (counters.commits, counters.cancelled) == (commits + 1, 2)


def test_many_sessions_share_one_stored_payload(broker: RestartableBroker) -> None:
    """Twenty Sessions that wait for a message share one copy. It is deleted with the last of them."""
    for number in range(20):
        client = persistent(broker, f"s{number}")
        client.subscribe("t", qos=1)
        client.drop()
    broker.client("p").publish("t", b"x" * 1000, qos=1)
    assert rows(broker)["session_messages"] == 1
    assert rows(broker)["session_deliveries"] == 20
    broker = broker.restart()
    for number in range(20):
        assert persistent(broker, f"s{number}").messages() == []
    for number in range(20):
        broker.client(f"s{number}", clean=True)
    assert "session_messages" not in rows(broker)
    assert "session_deliveries" not in rows(broker)


@pytest.mark.parametrize("committed", [False, True])
def test_qos_2_arrives_exactly_once_whenever_the_broker_is_killed(tmp_path: Path, committed: bool) -> None:
    """Before or after the commit; the publisher repeats packets that were not answered [MQTT5-4.3.3-10]."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client, publisher = Client(broker), Client(broker)
    client.send(p.Connect("s", 4, False), p.Subscribe(1, (p.SubscriptionRequest("t", 2),)))
    publisher.send(p.Connect("p", 4, False))
    broker.commit()
    client.packets()
    publisher.packets()
    publisher.send(p.Publish("t", b"once", 2, False, False, 7))
    assert client.packets() == []  # with QoS 2 no message leaves before the commit
    if committed:
        broker.commit()
        assert [packet.payload for packet in client.got(p.Publish)] == [b"once"]
    broker = broker.restart()
    publisher = persistent(broker, "p")
    publisher.send(p.Publish("t", b"once", 2, False, True, 7))
    assert publisher.packets() == [p.Pubrec(7)]
    publisher.send(p.Pubrel(7))
    assert publisher.packets() == [p.Pubcomp(7)]
    client = persistent(broker, "s")
    assert published(client) == [(b"once", 2, committed)]


def test_qos_2_to_a_clean_subscriber_waits_for_the_publishers_commit(tmp_path: Path) -> None:
    """So a subscriber with a clean Session gets it once, too. QoS 0 and 1 do not wait."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    subscribers = [broker.client(name, 5) for name in "abc"]
    for qos, subscriber in enumerate(subscribers):
        subscriber.subscribe("t", qos=qos)
    publisher = Client(broker)
    publisher.send(p.Connect("p", 4, False))
    broker.commit()
    publisher.send(p.Publish("t", b"1", 2, packet_identifier=1))
    assert [len(subscriber.got(p.Publish)) for subscriber in subscribers] == [1, 1, 0]
    broker.commit()
    assert len(subscribers[2].got(p.Publish)) == 1


@pytest.mark.parametrize(("seconds", "sent"), [(0, [10]), (4, [6]), (10, [])])
def test_the_message_expiry_counts_while_a_commit_is_awaited(tmp_path: Path, seconds: int, sent: list[int]) -> None:
    """A QoS 2 message that expires before its state is durable is not sent; else its remaining interval is sent."""
    broker = RestartableBroker(fresh_file(tmp_path))
    client = persistent(broker, "s", 5)
    client.subscribe("t", qos=2)
    publisher = persistent(broker, "p", 5)
    broker.executor.manual = True
    publisher.publish("t", b"1", qos=2, properties=Properties(message_expiry_interval=10))
    broker.advance(seconds)
    broker.commit()
    assert [packet.properties.message_expiry_interval for packet in client.got(p.Publish)] == sent
    assert len(publisher.got(p.Pubrec)) == 1
    assert broker.rows("session_messages") == len(sent)


@pytest.mark.parametrize("clean", [False, True])
def test_a_session_can_end_while_a_commit_is_awaited(tmp_path: Path, clean: bool) -> None:
    """A message that expires meanwhile affects neither the ended Session nor the next one."""
    broker = RestartableBroker(fresh_file(tmp_path))
    client = persistent(broker, "s", 5)
    client.subscribe("t", qos=2)
    publisher = persistent(broker, "p", 5)
    broker.executor.manual = True
    publisher.publish("t", b"1", qos=2, properties=Properties(message_expiry_interval=10))
    if clean:
        client = Client(broker, 5)
        client.send(p.Connect("s", 5, True))
    else:
        client.send(p.Disconnect(properties=Properties(session_expiry_interval=0)))
    broker.advance(10)
    broker.commit()
    assert len(publisher.got(p.Pubrec)) == 1
    assert client.got(p.Publish) == []
    assert broker.rows("session_messages") == 0


def test_session_expiry_goes_on_counting(broker: RestartableBroker) -> None:
    """A Session that was offline before the kill ends at its time. For a connected one the interval begins now."""
    early = broker.client("early", 5, clean=False, properties=Properties(session_expiry_interval=100))
    early.subscribe("t", qos=1)
    early.drop()
    broker.client("late", 5, clean=False, properties=Properties(session_expiry_interval=100))
    broker.client("never", 5, clean=False, properties=Properties(session_expiry_interval=0xFFFFFFFF))
    broker.client("p").publish("t", b"1", qos=1)
    broker = broker.restart(after=60)
    assert broker.registry.session_count == 3
    broker.advance(41)
    assert set(broker.registry._sessions) == {"late", "never"}
    broker = broker.restart(after=1)
    assert set(broker.registry._sessions) == {"late", "never"}
    broker.advance(7200)
    assert set(broker.registry._sessions) == set()
    assert rows(broker) == {}


def test_a_session_that_expired_while_the_broker_was_stopped_is_gone(broker: RestartableBroker) -> None:
    """No Session Present, and no rows."""
    client = broker.client("s", 5, clean=False, properties=Properties(session_expiry_interval=10))
    client.subscribe("t", qos=1)
    client.drop()
    broker = broker.restart(after=60)
    broker.settle()
    assert rows(broker) == {}
    client = persistent(broker, "s", 5)
    assert client.connack is not None
    assert not client.connack.session_present


def test_a_clean_start_removes_every_row(broker: RestartableBroker) -> None:
    """Clean Start ends the old Session in the store, too, with all its pending writes."""
    client = persistent(broker, "s")
    client.subscribe("t", "u", qos=2)
    client.drop()
    publisher = broker.client("p")
    for number in range(5):
        publisher.publish("t", b"%d" % number, qos=number % 2 + 1)
    client = persistent(broker, "s")
    client.send(p.Publish("x", b"", 2, packet_identifier=4))
    assert set(rows(broker)) == {
        "sessions", "session_subscriptions", "session_messages", "session_deliveries", "session_received",
    }  # fmt: skip
    broker.client("s", clean=True)
    assert rows(broker) == {}


@VERSIONS
def test_a_clean_start_is_answered_when_the_old_session_is_gone_for_good(tmp_path: Path, version: int) -> None:
    """CONNACK waits for that commit even if the new Session needs none: a kill does not bring the old one back."""
    broker = RestartableBroker(fresh_file(tmp_path))
    persistent(broker, "s", version).drop()
    broker.executor.manual = True
    client = Client(broker, version)
    client.send(p.Connect("s", version, True))
    assert client.packets() == []
    broker.commit()
    assert [type(packet) for packet in client.packets()] == [p.Connack]
    broker = broker.restart()
    client = persistent(broker, "s", version)
    assert client.connack is not None
    assert not client.connack.session_present


def test_received_identifiers_are_free_after_a_kill_once_released(broker: RestartableBroker) -> None:
    """A message with a Packet Identifier that was released is a new one."""
    client = persistent(broker, "s")
    client.subscribe("t", qos=2)
    publisher = persistent(broker, "p")
    publisher.publish("t", b"1", qos=2, identifier=3)
    publisher.send(p.Pubrel(3))
    publisher.publish("t", b"2", qos=2, identifier=3)
    broker = broker.restart()
    publisher = persistent(broker, "p")
    publisher.send(p.Publish("t", b"2", 2, False, True, 3), p.Pubrel(3), p.Publish("t", b"3", 2, False, False, 3))
    client = persistent(broker, "s")
    assert [payload for payload, _, _ in published(client)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("stopped", [False, True])
@VERSIONS
def test_a_will_is_published_after_a_restart_unless_its_client_is_back(
    broker: RestartableBroker, version: int, stopped: bool
) -> None:
    """After a kill and after SIGTERM: will_restart_grace, then the Will, also with RETAIN 1."""
    for name in ("dead", "back"):
        broker.client(name, version, will=p.Will(f"state/{name}", b"offline", 1, True))
        broker.client("other").publish(f"state/{name}", b"online", retain=True)
    broker = broker.stop() if stopped else broker.restart()
    broker.client("back", version, will=p.Will("state/back", b"offline", 1, True))
    broker.advance(59)
    watcher = broker.client("w")
    assert retained(watcher, "state/#") == [("state/back", b"online"), ("state/dead", b"online")]
    broker.advance(2)
    assert watcher.messages() == [("state/dead", b"offline", 0, False)]
    broker = broker.restart()
    broker.advance(61)
    watcher = broker.client("w")
    assert retained(watcher, "state/#") == [("state/back", b"offline"), ("state/dead", b"offline")]
    assert "wills" not in rows(broker)


def test_a_will_delay_longer_than_the_grace_counts(broker: RestartableBroker) -> None:
    """max(Will Delay, mqtt.will_restart_grace). Of a delay that was running, the rest counts."""
    delayed = Properties(will_delay_interval=300)
    running = persistent(broker, "running", 5, will=p.Will("w/running", b"", 0, False, delayed))
    running.drop()
    persistent(broker, "lost", 5, will=p.Will("w/lost", b"", 0, False, delayed))
    broker.advance(100)
    broker = broker.restart()
    watcher = broker.client("w")
    watcher.subscribe("w/#")
    broker.advance(199)
    assert watcher.messages() == []
    broker.advance(2)
    assert watcher.messages() == [("w/running", b"", 0, False)]
    broker.advance(100)
    assert watcher.messages() == [("w/lost", b"", 0, False)]


def test_a_will_delay_does_not_begin_anew_with_every_restart(broker: RestartableBroker) -> None:
    """A broker that restarts often still publishes the Will."""
    delayed = Properties(will_delay_interval=300)
    persistent(broker, "lost", 5, will=p.Will("w", b"", 0, False, delayed))
    for _ in range(2):
        broker = broker.restart(after=10)
        broker.advance(100)
    broker = broker.restart()
    watcher = broker.client("w")
    watcher.subscribe("w")
    broker.advance(89)
    assert watcher.messages() == []
    broker.advance(2)
    assert watcher.messages() == [("w", b"", 0, False)]


def test_a_will_is_durable_before_connack_and_gone_with_disconnect(tmp_path: Path) -> None:
    """Every Will is committed before its Client is admitted, also with a clean Session."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client = Client(broker)
    client.send(p.Connect("c", 4, True, will=p.Will("w", b"x")))
    assert client.packets() == []
    broker.commit()
    assert [type(packet) for packet in client.packets()] == [p.Connack]
    assert broker.rows("wills") == 1
    client.send(p.Disconnect())
    broker.commit()
    assert broker.rows("wills") == 0


def test_a_session_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    """CONNACK 0x97 when the disk is full. Nothing is left of the Session."""
    broker = RestartableBroker(fresh_file(tmp_path))
    fill(broker)
    client = persistent(broker, "s", 5)
    assert client.connack is not None
    assert client.connack.reason_code == ReasonCode.QUOTA_EXCEEDED
    assert broker.registry.session_count == 0
    empty(broker)
    broker.advance(2)
    assert rows(broker) == {}


def test_with_a_full_disk_messages_are_refused_and_failed_writes_repeated_later(tmp_path: Path) -> None:
    """PUBACK 0x97, not queued. Acknowledgements that could not be stored are stored once there is space."""
    broker = RestartableBroker(fresh_file(tmp_path))
    away, here = persistent(broker, "away", 5), persistent(broker, "here", 5)
    for client in (away, here):
        client.subscribe("t", qos=1)
    away.drop()
    publisher = broker.client("p", 5)
    publisher.publish("t", b"1", qos=1)
    publisher.packets()
    (publish,) = here.got(p.Publish)
    fill(broker)
    publisher.publish("t", b"2", qos=1)
    assert [packet.reason_code for packet in publisher.got(p.Puback)] == [ReasonCode.QUOTA_EXCEEDED]
    here.send(p.Puback(publish.packet_identifier))
    empty(broker)
    broker.advance(3)
    publisher.publish("t", b"3", qos=1)
    assert [packet.reason_code for packet in publisher.got(p.Puback)] == [0]
    broker = broker.restart()
    assert [payload for payload, _, _ in published(persistent(broker, "away", 5))] == [b"1", b"3"]
    assert b"1" not in [payload for payload, _, _ in published(persistent(broker, "here", 5))]


def fill(broker: RestartableBroker) -> None:
    """Fill the disk."""

    def full(_work: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    vars(broker.parts.writer._committer)["transact"] = full


def empty(broker: RestartableBroker) -> None:
    """Free the disk."""
    del vars(broker.parts.writer._committer)["transact"]


def test_replays_resume_after_the_last_acknowledged_message_after_a_kill(broker: RestartableBroker) -> None:
    """QoS 1: no message is left out, and none is older than the last acknowledged one."""
    publisher = broker.client("p")
    for number in range(100):
        publisher.publish(f"r/{number:03}", b"%d" % number, qos=1, retain=True)
    client = broker.client("s", 5, clean=False, properties=Properties(session_expiry_interval=100, receive_maximum=10))
    batch = [packet for packet in client.subscribe("r/#", qos=1) if isinstance(packet, p.Publish)]
    acknowledged: list[str] = []
    for _ in range(3):
        acknowledged += [packet.topic for packet in batch]
        client.send(*(p.Puback(packet.packet_identifier) for packet in batch))
        batch = client.got(p.Publish)
    broker.advance(2)  # the position is stored once a second
    broker = broker.restart()
    client = persistent(broker, "s", 5)
    again = everything(client)
    assert again == [f"r/{number:03}" for number in range(len(acknowledged), 100)]


def test_a_replay_acknowledged_to_its_end_is_not_repeated(broker: RestartableBroker) -> None:
    """A restart after its last acknowledgement replays no message."""
    broker.client("p").publish("r", b"1", qos=1, retain=True)
    client = persistent(broker, "s")
    _, publish = client.subscribe("r", qos=1)
    assert isinstance(publish, p.Publish)
    client.send(p.Puback(publish.packet_identifier))
    broker.advance(2)
    broker = broker.restart()
    client = persistent(broker, "s")
    assert client.messages() == []
    assert published(client) == []


def test_a_replay_without_acknowledgements_is_repeated_whole(broker: RestartableBroker) -> None:
    """After a kill right after SUBACK, the Session gets its retained messages when it comes back."""
    broker.client("p").publish("r", b"1", qos=1, retain=True)
    client = persistent(broker, "s")
    client.subscribe("r", qos=1)
    broker = broker.restart()
    client = persistent(broker, "s")
    assert published(client) == [(b"1", 1, False)]


def test_a_qos_2_replay_is_exactly_once_over_a_kill(broker: RestartableBroker) -> None:
    """Each message of a QoS 2 replay is stored before it is sent."""
    for number in range(30):
        broker.client("p").publish(f"r/{number:02}", b"%d" % number, qos=2, retain=True)
    client = broker.client("s", 5, clean=False, properties=Properties(session_expiry_interval=100, receive_maximum=8))
    first = [packet for packet in client.subscribe("r/#", qos=2) if isinstance(packet, p.Publish)]
    assert len(first) == 8
    client.send(*(p.Pubrec(packet.packet_identifier) for packet in first[:4]))
    broker.advance(2)
    broker = broker.restart()
    client = broker.client("s", 5, clean=False, properties=Properties(session_expiry_interval=100, receive_maximum=8))
    pending = [packet for packet in client.backlog if isinstance(packet, (p.Publish, p.Pubrel))]
    assert [type(packet).__name__ for packet in pending[:8]] == ["Pubrel"] * 4 + ["Publish"] * 4
    handed_on = [packet.topic for packet in first[:4]] + everything(client)
    assert handed_on == [f"r/{number:02}" for number in range(30)]


@pytest.mark.parametrize("commits", [1, 2])
def test_the_position_of_a_qos_2_replay_is_committed_with_its_messages(tmp_path: Path, commits: int) -> None:
    """After a kill at any commit no message is lost, and no QoS 2 message comes twice, mixed with QoS 1 or not."""
    broker = RestartableBroker(fresh_file(tmp_path))
    for number in range(6):
        broker.client("p").publish(f"r/{number}", b"%d" % number, qos=1 + number % 2, retain=True)
    session = Properties(session_expiry_interval=100, receive_maximum=4)
    client = broker.client("s", 5, clean=False, properties=session)
    broker.executor.manual = True
    client.send(p.Subscribe(1, (p.SubscriptionRequest("r/#", 2),)))
    for _ in range(commits):
        broker.executor.step()
        broker.settle()
    handed_on = [packet.topic for packet in client.got(p.Publish) if packet.qos == 2]
    broker = broker.restart()
    client = broker.client("s", 5, clean=False, properties=session)
    again = [packet.topic for packet in client.backlog if isinstance(packet, p.Publish) and packet.dup]
    came = handed_on + everything(client)
    assert set(came) == {f"r/{number}" for number in range(6)}
    for topic in ("r/1", "r/3", "r/5"):
        assert came.count(topic) == (2 if topic in again and topic in handed_on else 1)


def test_the_end_of_a_replay_is_stored_at_once(broker: RestartableBroker) -> None:
    """A message published after the SUBSCRIBE comes once, not again as a retained one after a kill."""
    client = persistent(broker, "s")
    client.subscribe("r", qos=2)
    broker.client("p").publish("r", b"1", qos=2, retain=True)
    assert client.messages() == [("r", b"1", 2, False)]
    broker = broker.restart()
    client = persistent(broker, "s")
    assert published(client) == []


@pytest.mark.parametrize("policy", list(WhenFull))
@VERSIONS
def test_the_policies_for_a_full_queue(tmp_path: Path, policy: WhenFull, version: int) -> None:
    """mqtt.mqueue_full: drop_oldest, drop_newest, or reject with 0x97. They are counted, and hold after a restart."""
    broker = RestartableBroker(fresh_file(tmp_path), limits=Limits(max_mqueue_len=2, mqueue_full=policy))
    client = persistent(broker, "s")
    client.subscribe("t", qos=1)
    client.drop()
    live = broker.client("live")
    live.subscribe("t")
    publisher = broker.client("p", version)
    for number in range(4):
        publisher.publish("t", b"%d" % number, qos=1, retain=number == 3)
    codes = [packet.reason_code for packet in publisher.got(p.Puback)]
    rejects = policy is WhenFull.REJECT and version == 5
    assert codes == ([0, 0, 0x97, 0x97] if rejects else [0] * 4)
    assert len(live.messages()) == (2 if rejects else 4)
    assert broker.retained.totals.refreshed().count == (0 if rejects else 1)
    counted = broker.counters.messages_rejected_queue_full if rejects else broker.counters.messages_dropped_queue_full
    assert counted == 2
    broker = broker.restart()
    kept = [payload for payload, _, _ in published(persistent(broker, "s"))]
    assert kept == ([b"2", b"3"] if policy is WhenFull.DROP_OLDEST else [b"0", b"1"])


@pytest.mark.parametrize(("qos", "resumed"), [(0, False), (1, False), (1, True), (2, False), (2, True)])
@pytest.mark.parametrize("payload", [b"new", b""])
def test_a_qos_2_replay_is_not_stale_when_its_commit_comes(
    tmp_path: Path, qos: int, payload: bytes, resumed: bool
) -> None:
    """A message that a replay sent with QoS 2 waits for a commit. A newer live message, or a clear, replaces it."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    publisher = Client(broker)
    publisher.send(p.Connect("p", 4), *(p.Publish(f"r/{number}", b"old", 2, True, False, number) for number in (1, 2)))
    client = Client(broker)
    client.send(p.Connect("s", 4, False))
    broker.commit()
    client.send(p.Subscribe(1, (p.SubscriptionRequest("r/#", 2),)))
    broker.settle()
    while not broker.registry._sessions["s"].inflight.entries:  # until the messages of the replay wait for their commit
        broker.executor.step()
        broker.settle()
    assert client.got(p.Publish) == []
    if resumed:
        client.drop()
        client = Client(broker)
        client.send(p.Connect("s", 4, False))
    publisher.send(p.Publish("r/1", payload, qos, True, False, 3 if qos else 0))
    seen = [(packet.topic, packet.payload, packet.retain) for packet in client.got(p.Publish)]
    broker.commit()
    seen += [(packet.topic, packet.payload, packet.retain) for packet in client.got(p.Publish)]
    assert sorted(seen) == [("r/1", payload, False), ("r/2", b"old", True)]
    client.drop()
    client = Client(broker)
    client.send(p.Connect("s", 4, False))
    broker.commit()
    assert ("r/1", b"old") not in [(packet.topic, packet.payload) for packet in client.got(p.Publish)]


def test_a_qos_2_replay_loses_nothing_to_a_live_message_that_is_not_sent(tmp_path: Path) -> None:
    """QoS 0 is not queued for an offline Client: the older message of its replay still comes."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    publisher = Client(broker)
    publisher.send(p.Connect("p", 4), p.Publish("r", b"old", 2, True, False, 1))
    client = Client(broker)
    client.send(p.Connect("s", 4, False))
    broker.commit()
    client.send(p.Subscribe(1, (p.SubscriptionRequest("r", 2),)))
    broker.settle()
    while not broker.registry._sessions["s"].inflight.entries:
        broker.executor.step()
        broker.settle()
    client.drop()
    publisher.send(p.Publish("r", b"new", 0, True))
    client = Client(broker)
    client.send(p.Connect("s", 4, False))
    broker.commit()
    assert [(packet.payload, packet.dup) for packet in client.got(p.Publish)] == [(b"old", False)]


def _given_an_identifier(broker: RestartableBroker, replayed: bool) -> Client:
    """Return a Client with a QoS 2 message in flight that awaits its commit."""
    publisher, client = Client(broker), Client(broker)
    publisher.send(p.Connect("p", 4, False))
    client.send(p.Connect("s", 4, False))
    if replayed:
        publisher.send(p.Publish("t", b"1", 2, True, False, 1))
        broker.commit()
        client.send(p.Subscribe(1, (p.SubscriptionRequest("t", 2),)))
    else:
        client.send(p.Subscribe(1, (p.SubscriptionRequest("t", 2),)))
        broker.commit()
        publisher.send(p.Publish("t", b"1", 2, False, False, 1))
    while not broker.registry._sessions["s"].inflight.entries:
        broker.executor.step()
        broker.settle()
    assert client.got(p.Publish) == []
    return client


@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("end", ["stays", "stops", "killed"])
def test_a_message_that_never_left_is_first_sent_with_dup_0(
    tmp_path: Path, end: str, committed: bool, version: int, replayed: bool
) -> None:
    """Its connection ended while its commit was awaited. What was sent is repeated with DUP 1 [MQTT5-3.3.1-1]."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client = _given_an_identifier(broker, replayed)
    client.drop()
    if committed or end == "killed":
        broker.commit()
    if end == "stops":
        broker = broker.stop(manual=True)
    elif end == "killed":
        broker = broker.restart(manual=True)
    for dup in (False, True):
        client = Client(broker, version)
        client.send(p.Connect("s", version, False, properties=SESSION if version == 5 else NO_PROPERTIES))
        broker.commit()
        assert [(packet.payload, packet.dup) for packet in client.got(p.Publish)] == [(b"1", dup)]
        client.drop()
    broker = broker.restart()
    assert published(persistent(broker, "s", version)) == [(b"1", 2, True)]


def test_a_message_that_never_left_is_first_sent_with_all_its_properties(tmp_path: Path) -> None:
    """Also if the connection that it was given an identifier for was one of MQTT 3."""
    broker = RestartableBroker(fresh_file(tmp_path))
    persistent(broker, "s", 5).subscribe("t", qos=2, identifier=42)
    client = persistent(broker, "s", 4)
    publisher = persistent(broker, "p", 5)
    broker.executor.manual = True
    publisher.publish("t", b"1", qos=2, properties=Properties(content_type="text"))
    client.drop()
    broker.commit()
    client = Client(broker, 5)
    client.send(p.Connect("s", 5, False, properties=SESSION))
    broker.commit()
    (packet,) = client.got(p.Publish)
    assert (packet.dup, packet.properties.content_type) == (False, "text")
    assert packet.properties.subscription_identifiers == (42,)


def test_a_message_that_expires_before_it_left_is_dropped(tmp_path: Path) -> None:
    """The Client knows nothing of it, so its exchange need not be completed [MQTT5-3.3.2-5]."""
    broker = RestartableBroker(fresh_file(tmp_path))
    client = persistent(broker, "s", 5)
    client.subscribe("t", qos=2)
    publisher = persistent(broker, "p", 5)
    broker.executor.manual = True
    publisher.publish("t", b"1", qos=2, properties=Properties(message_expiry_interval=10))
    client.drop()
    broker.commit()
    broker.advance(10)
    client = Client(broker, 5)
    client.send(p.Connect("s", 5, False, properties=SESSION))
    broker.commit()
    assert client.got(p.Publish) == []
    assert broker.counters.messages_dropped_expired == 1
    assert broker.rows("session_deliveries") == broker.rows("session_messages") == 0


def test_an_acknowledgement_of_a_message_that_never_left_is_ignored(tmp_path: Path) -> None:
    """Its identifier is unknown to the Client, so nothing can be out of place."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client = _given_an_identifier(broker, False)
    (identifier,) = broker.registry._sessions["s"].inflight.entries
    client.send(p.Puback(identifier), p.Pubcomp(identifier), p.Pubrec(identifier))
    assert client.got(p.Pubrel) == [p.Pubrel(identifier)]
    broker.commit()
    assert [packet.packet_identifier for packet in client.got(p.Publish)] == [identifier]
    assert not client.network.closed


def test_a_replay_follows_qos_2_messages_queued_before_it(tmp_path: Path) -> None:
    """Also messages that left the queue and wait for a commit: no older live message follows a newer replayed one."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True, limits=Limits(max_inflight=2))
    publisher, client = Client(broker), Client(broker)
    publisher.send(p.Connect("p", 4))
    client.send(p.Connect("s", 4, False), p.Subscribe(1, (p.SubscriptionRequest("#", 2),)))
    broker.commit()
    publisher.send(*(p.Publish("first", b"x", 2, False, False, number) for number in (1, 2)))
    publisher.send(p.Publish("t", b"1", 2, True, False, 3), p.Publish("t", b"2", 0, True))
    broker.commit()
    first = [packet.packet_identifier for packet in client.got(p.Publish) if packet.qos]
    client.send(p.Subscribe(2, (p.SubscriptionRequest("t", 2),)))
    client.send(*map(p.Pubrec, first))
    broker.commit()
    client.send(*map(p.Pubcomp, first))
    seen = client.got(p.Publish)
    broker.commit()
    seen += client.got(p.Publish)
    assert [(packet.payload, packet.retain) for packet in seen] == [(b"1", False), (b"2", True)]


def test_on_a_shared_database_a_replay_overtakes_no_qos_2_message_of_another_replay(tmp_path: Path) -> None:
    """Its message may be another node's newer one, whose change was not announced here."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    broker.store.shared = True
    publisher, client = Client(broker), Client(broker)
    publisher.send(p.Connect("p", 4), p.Publish("r", b"old", 2, True, False, 1))
    client.send(p.Connect("s", 4, False))
    broker.commit()
    client.send(p.Subscribe(1, (p.SubscriptionRequest("r", 2), p.SubscriptionRequest("+", 0))))
    broker.settle()
    while not broker.registry._sessions["s"].inflight.entries:
        broker.executor.step()
        broker.settle()
    assert client.got(p.Publish) == []
    broker.commit()
    assert [packet.qos for packet in client.got(p.Publish)] == [2, 0]


@pytest.mark.parametrize("payload", [b"", b"new"])
@pytest.mark.parametrize("way", ["change", "changes", "merge"])
def test_a_message_that_an_operator_replaces_does_not_leave_with_qos_2_later(
    tmp_path: Path, way: str, payload: bytes
) -> None:
    """A replayed message would wait for a commit after the operator's, and leave after the operator's answer."""
    if way == "merge" and not payload:
        payload = b"also new"  # an import never clears
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    publisher, client = Client(broker), Client(broker)
    publisher.send(p.Connect("p", 4), p.Publish("r", b"old", 2, True, False, 1))
    client.send(p.Connect("s", 4, False))
    broker.commit()
    client.send(p.Subscribe(1, (p.SubscriptionRequest("#", 2),)))
    broker.settle()
    changed = _changed(broker, tmp_path, way, payload)
    before = []
    while not changed():
        broker.executor.step()
        broker.settle()
        before += client.got(p.Publish)
    assert before == []
    broker.commit()
    assert [(packet.payload, packet.qos) for packet in client.got(p.Publish)] == ([(payload, 2)] if payload else [])
    assert broker.replays.running == {}


def _changed(broker: RestartableBroker, folder: Path, way: str, payload: bytes) -> Callable[[], bool]:
    """Change the topic r as an operator. Return a function that tells whether the change is done."""
    if way != "merge":
        change = ApplicationMessage("r", payload, 2, True)
        ticket = broker.retained.retain(change, ChangeOrigin.API, live=False)
        if way == "changes":
            clear = evolve(change, topic="s", payload=b"")
            ticket = broker.retained.retain(clear, ChangeOrigin.API, live=False)
        return lambda: ticket.settled
    stamp = broker.store.next_revision()
    message = RetainedMessage("r", payload, 2, NO_PROPERTIES, None, None, broker.now() + 1, None, stamp)
    with closing(sqlite3.connect(folder / "staged.db")) as connection, connection:
        connection.execute(FILE_SCHEMA)
        connection.execute(FILE_INSERT, row_of(RetainedChange("r", stamp, broker.now() + 1, message)))
    assert isinstance(broker.store, SQLRetainedStore)
    merger = Merger(broker.retained, broker.store, now=broker.now, pause=lambda: succeed(None))
    merged = merger.step(ImportJob("job", StagedFiles([str(folder / "staged.db")]), Merge.NEWER))
    return lambda: bool(merged.called)
