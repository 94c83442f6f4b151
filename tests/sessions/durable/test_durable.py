"""Session State outlives the process: what was acknowledged is there after a kill, and comes once with QoS 2."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve
from twisted.internet.defer import succeed

from holdfast.messages import ChangeOrigin, RetainedChange, RetainedMessage
from holdfast.retained.importing.merging import Merger
from holdfast.retained.importing.staging import FILE_INSERT, FILE_SCHEMA, StagedFiles
from holdfast.retained.importing.verdicts import Merge
from holdfast.retained.store.rows import row_of
from holdfast.retained.store.sql import SQLRetainedStore
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
    """Connect with a Session that outlives the connection."""
    properties = SESSION if version == 5 else Properties()
    return broker.client(client_id, version, clean=False, properties=properties, **connect)


def rows(broker: RestartableBroker) -> dict[str, int]:
    """Count the rows of the tables that have some."""
    counts = {table: broker.rows(table) for table in TABLES}
    return {table: count for table, count in counts.items() if count}


def everything(client: Client) -> list[str]:
    """Acknowledge all that a connecting Client is sent; return its topics in order."""
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
    """Return topic and payload of what is retained."""
    came = client.subscribe(topic_filter)
    return [(packet.topic, packet.payload) for packet in came if isinstance(packet, p.Publish) and packet.retain]


def published(client: Client) -> list[tuple[bytes, int, bool]]:
    """Return payload, QoS and DUP of what a connecting Client was sent."""
    return [(packet.payload, packet.qos, packet.dup) for packet in client.backlog if isinstance(packet, p.Publish)]


@VERSIONS
def test_a_session_with_its_subscriptions_outlives_a_kill(broker: RestartableBroker, version: int) -> None:
    """Session Present, and every option of the subscriptions as it was [MQTT5-4.1.0-1]."""
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
def test_what_was_acknowledged_to_its_publisher_reaches_a_session_after_a_kill(
    broker: RestartableBroker, version: int
) -> None:
    """Queued messages of both qualities of service, in their order, with their expiry counted down."""
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


def test_nothing_is_acknowledged_before_it_is_committed(tmp_path: Path) -> None:
    """PUBACK, PUBREC, SUBACK, UNSUBACK, CONNACK and PUBCOMP wait for the commit of what must outlive the process."""
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


def test_what_is_in_flight_is_sent_again_in_its_order_with_its_identifiers(broker: RestartableBroker) -> None:
    """After a kill: PUBLISH with DUP, or PUBREL where PUBREC had come, then what is new [MQTT5-4.4.0-1]."""
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
    """When everything is acknowledged, only the Session and its subscription are left."""
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
    """Enqueue and acknowledgement cancel out; the publisher is acknowledged all the same."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client = Client(broker)
    client.send(p.Connect("s", 4, False), p.Subscribe(1, (p.SubscriptionRequest("t", 1),)))
    broker.commit()
    client.packets()
    publisher = broker.client("p")
    publisher.publish("kept", b"1", retain=True)  # its commit runs meanwhile
    counters = broker.parts.writer.counters
    commits = counters.commits
    publisher.publish("t", b"1", qos=1)
    (publish,) = client.got(p.Publish)
    client.send(p.Puback(publish.packet_identifier))
    assert publisher.packets() == []
    broker.commit()
    assert publisher.packets() == [p.Puback(1)]
    assert (counters.commits, counters.cancelled) == (commits + 1, 2)


def test_one_payload_is_kept_once_for_many_sessions(broker: RestartableBroker) -> None:
    """Twenty Sessions that wait for a message share one copy, which goes with the last of them."""
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
def test_qos_2_arrives_exactly_once_however_the_broker_dies(tmp_path: Path, committed: bool) -> None:
    """Kill before or after the commit; the publisher repeats what was not answered [MQTT5-4.3.3-10]."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client, publisher = Client(broker), Client(broker)
    client.send(p.Connect("s", 4, False), p.Subscribe(1, (p.SubscriptionRequest("t", 2),)))
    publisher.send(p.Connect("p", 4, False))
    broker.commit()
    client.packets()
    publisher.packets()
    publisher.send(p.Publish("t", b"once", 2, False, False, 7))
    assert client.packets() == []  # nothing of it leaves with QoS 2 before the commit
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
    """A subscriber without a lasting Session gets it once, too; with QoS 1 and 0 nothing waits."""
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
    """A QoS 2 message that expires before its state is durable does not leave; else its interval is what is left."""
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
    """What had expired meanwhile as well is of no concern any more: neither to an ended Session nor to the next one."""
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
    """A Session that was left before the kill ends when it would have; one that was connected counts from now."""
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


def test_a_session_ended_while_the_broker_was_away_is_gone(broker: RestartableBroker) -> None:
    """Expired before the start: no Session Present, and no rows."""
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
    """Clean Start ends the old Session in the store too, whatever was being written for it."""
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
    """CONNACK waits for that commit, also where the new Session needs none: a kill does not bring the old one back."""
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
    """A Packet Identifier released and used anew is a new message, not a repeated one."""
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
    """After a kill and after SIGTERM alike: will_restart_grace, then the Will, retained too."""
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
    """max(Will Delay, mqtt.will_restart_grace); of a delay that was running, the rest."""
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
    """It began with the first one: a broker that restarts often publishes the Will all the same."""
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
    """Every Will, a clean Session's too, is committed before its Client hears that it is admitted."""
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
    """CONNACK 0x97 when there is no space, and nothing is left of the Session."""
    broker = RestartableBroker(fresh_file(tmp_path))
    fill(broker)
    client = persistent(broker, "s", 5)
    assert client.connack is not None
    assert client.connack.reason_code == ReasonCode.QUOTA_EXCEEDED
    assert broker.registry.session_count == 0
    empty(broker)
    broker.advance(2)
    assert rows(broker) == {}


def test_what_could_not_be_stored_is_refused_and_caught_up_with_later(tmp_path: Path) -> None:
    """Disk full: PUBACK 0x97 and not queued; acknowledgements that could not be noted are noted once there is space."""
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
    """Let there be no space left."""

    def full(_work: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    vars(broker.parts.writer._committer)["transact"] = full


def empty(broker: RestartableBroker) -> None:
    """There is space again."""
    del vars(broker.parts.writer._committer)["transact"]


def test_replays_go_on_where_they_were_acknowledged_after_a_kill(broker: RestartableBroker) -> None:
    """QoS 1: from the last acknowledged message on; nothing is left out, and none is older than that."""
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
    broker.advance(2)  # the position is noted once a second
    broker = broker.restart()
    client = persistent(broker, "s", 5)
    again = everything(client)
    assert again == [f"r/{number:03}" for number in range(len(acknowledged), 100)]


def test_a_replay_acknowledged_to_its_end_is_not_repeated(broker: RestartableBroker) -> None:
    """After its last acknowledgement, a restart replays nothing."""
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


def test_a_replay_of_which_nothing_was_acknowledged_is_repeated_whole(broker: RestartableBroker) -> None:
    """Killed right after SUBACK: the Session gets its retained messages when it comes back."""
    broker.client("p").publish("r", b"1", qos=1, retain=True)
    client = persistent(broker, "s")
    client.subscribe("r", qos=1)
    broker = broker.restart()
    client = persistent(broker, "s")
    assert published(client) == [(b"1", 1, False)]


def test_a_qos_2_replay_is_exactly_once_over_a_kill(broker: RestartableBroker) -> None:
    """Each message of a QoS 2 replay is noted before it leaves."""
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
def test_a_qos_2_replay_is_noted_together_with_its_messages(tmp_path: Path, commits: int) -> None:
    """Killed after any commit: no message is lost, and none of QoS 2 comes twice, mixed with QoS 1 or not."""
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


def test_a_replay_that_is_over_is_noted_at_once(broker: RestartableBroker) -> None:
    """What comes after the SUBSCRIBE comes once, not again as retained after a kill."""
    client = persistent(broker, "s")
    client.subscribe("r", qos=2)
    broker.client("p").publish("r", b"1", qos=2, retain=True)
    assert client.messages() == [("r", b"1", 2, False)]
    broker = broker.restart()
    client = persistent(broker, "s")
    assert published(client) == []


@pytest.mark.parametrize("policy", list(WhenFull))
@VERSIONS
def test_a_full_queue_is_dealt_with_by_policy(tmp_path: Path, policy: WhenFull, version: int) -> None:
    """mqtt.mqueue_full: drop_oldest, drop_newest, or reject with 0x97; counted, and the same after a restart."""
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
    assert broker.retained.statistics().count == (0 if rejects else 1)
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
    """What a replay has sent with QoS 2 waits for a commit; a newer live value, or a clear, takes its place."""
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
    """QoS 0 is not queued for a Client that is away: what its replay had on the way still comes."""
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
    assert [(packet.payload, packet.dup) for packet in client.got(p.Publish)] == [(b"old", True)]


def test_a_replay_follows_what_was_queued_with_qos_2_before_it(tmp_path: Path) -> None:
    """Also what has left the queue and waits for its commit: else an older live value followed a newer replayed one."""
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


def test_a_replay_overtakes_no_qos_2_message_of_another_where_nodes_share_a_database(tmp_path: Path) -> None:
    """What it brings may be another node's newer value, which nobody here was told of."""
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
def test_what_a_tool_replaces_does_not_leave_with_qos_2_when_that_is_known(
    tmp_path: Path, way: str, payload: bytes
) -> None:
    """A replayed message waits for its commit, which is behind the tool's: it would come after the tool is answered."""
    if way == "merge" and not payload:
        payload = b"also new"  # what is imported is never a clear
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
    assert broker.retained.replays.running == {}


def _changed(broker: RestartableBroker, folder: Path, way: str, payload: bytes) -> Callable[[], bool]:
    """Have a tool change the topic r, and return what tells whether it is done."""
    stamp = broker.store.next_revision()
    message = RetainedMessage("r", payload, 2, NO_PROPERTIES, None, None, broker.now() + 1, None, stamp)
    change = RetainedChange("r", stamp, broker.now() + 1, message if payload else None)
    if way != "merge":
        ticket = broker.retained.store(change, ChangeOrigin.API)
        if way == "changes":  # all of a command's have the same stamp
            ticket = broker.retained.store(evolve(change, topic="s", message=None), ChangeOrigin.API)
        return lambda: ticket.settled
    with closing(sqlite3.connect(folder / "staged.db")) as connection, connection:
        connection.execute(FILE_SCHEMA)
        connection.execute(FILE_INSERT, row_of(change))
    assert isinstance(broker.store, SQLRetainedStore)
    merger = Merger(broker.retained, broker.store, now=broker.now, pause=lambda: succeed(None))
    merged = merger.step("job", StagedFiles([str(folder / "staged.db")]), Merge.NEWER)
    return lambda: bool(merged.called)
