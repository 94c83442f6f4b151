"""Messages without RETAIN are recorded as a policy says: in a table of their own, which is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.changes import telemetry, telemetry_table
from holdfast.changes.telemetry_table import TelemetryLimits, TelemetryMessage, TelemetryRow
from holdfast.commands import examination
from holdfast.config import default
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.retained.feed import Change
from holdfast.retained.limits import RetainerLimits
from holdfast.retained.policies import Policies, Policy
from holdfast.sessions.connection.packet_order import PACKETS_OF_A_TURN
from holdfast.storage.committer import Write
from holdfast.wire import packets as p
from holdfast.wire.encoding import encode
from holdfast.wire.properties import NO_PROPERTIES, Properties
from tests.authorizers import Permissions
from tests.doubles import Client
from tests.logs import logged
from tests.postgres import drop, fresh_database
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file, result_of

ALL = Policy(1, "t/#", records_all=True)
STORED = Policy(1, "t/#", records_all=True, waits_for_record=True)
Make = Callable[..., RestartableBroker]


@pytest.fixture(params=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Make]:
    """Makes brokers with these policies on one database."""
    place = fresh_file(tmp_path) if request.param == "sqlite" else fresh_database()

    def broker(*policies: Policy, manual: bool = False, **options: Any) -> RestartableBroker:
        retainer = RetainerLimits(policies=Policies(policies))
        return RestartableBroker(place, manual, retainer=retainer, **options)

    yield broker
    if isinstance(place, str):
        drop(place)


def recorded(broker: RestartableBroker, topic_filter: str = "#", **asked: Any) -> list[TelemetryMessage]:
    """Return the recorded messages, page by page."""
    found: list[TelemetryMessage] = []
    cursor, done = 0, False
    while not done:
        page = asking(broker, broker.telemetry.messages(topic_filter, cursor=cursor, **asked))
        found += page.messages
        cursor, done = page.cursor, page.done
    return found


def asking(broker: RestartableBroker, answer: Any) -> Any:
    broker.commit()
    return result_of(answer)


def brief(messages: list[TelemetryMessage]) -> list[tuple[str, bytes, int]]:
    return [(message.topic, message.payload, message.qos) for message in messages]


def texts(lines: list[Any]) -> list[str]:
    return [str(line.get("message")) for line in lines]


def rows(broker: RestartableBroker, statement: str) -> list[Any]:
    def work(connection: Any) -> list[Any]:
        cursor = connection.cursor()
        cursor.execute(statement)
        return list(cursor.fetchall()) if statement.startswith("SELECT") else []

    return list(asking(broker, broker.parts.writer.run(work)))


def test_messages_without_retain_are_recorded_whole(make: Make) -> None:
    """With QoS, publisher, properties, time and expiry; in the order of their arrival."""
    broker = make(ALL)
    client = broker.client("c", 5, username="anna")
    properties = Properties(content_type="text/plain", user_properties=(("unit", "°C"),))
    client.publish("t/a", b"\0\xff", 0)
    broker.advance(2)
    client.publish("t/ä", b"", 1)
    client.publish("t/b", b"21", 2, False, Properties(message_expiry_interval=60, **_fields(properties)))
    first, second, third = recorded(broker)
    at = broker.now()
    assert first == TelemetryMessage(1, "t/a", b"\0\xff", 0, NO_PROPERTIES, "c", "anna", at - 2000, None)
    assert second == TelemetryMessage(2, "t/ä", b"", 1, NO_PROPERTIES, "c", "anna", at, None)
    assert third == TelemetryMessage(3, "t/b", b"21", 2, properties, "c", "anna", at, at + 60_000)
    assert [found for (found,) in rows(broker, "SELECT properties_json FROM telemetry_messages ORDER BY seq")] == [
        None, None, '{"content_type":"text/plain","user_properties":[["unit","°C"]]}',
    ]  # fmt: skip


def _fields(properties: Properties) -> dict[str, Any]:
    return {"content_type": properties.content_type, "user_properties": properties.user_properties}


def test_nothing_is_recorded_without_a_policy_and_with_retain_1(make: Make) -> None:
    """Neither messages of other topics, nor those that the publisher wants retained, nor refused ones."""
    permissions = Permissions()
    permissions.deny("publish", "t/no")
    broker = make(ALL, authorizer=permissions)
    client = broker.client("c", 5)
    client.publish("other", b"1")
    client.publish("t/a", b"1", 1, True)
    client.publish("t/no", b"1", 1)
    assert recorded(broker) == []
    client.publish("t/a", b"2")
    assert brief(recorded(broker)) == [("t/a", b"2", 0)]


def test_a_broker_without_such_a_policy_asks_no_policy_about_a_message(make: Make) -> None:
    """So a message costs there what it has cost: the routes of runs have their own numbers, and nobody looks."""
    broker = make(Policy(1, "t/#", write_interval=60.0))
    broker.retained.admission.policies.of = None  # type: ignore[assignment, method-assign]  # a look would fail
    client = broker.client("c", 5)
    for _ in range(3):
        client.publish("t/a", b"1")
        client.send(*[p.Publish("t/a", b"%d" % number, 1, False, False, 1 + number) for number in range(3)])
    assert broker.telemetry.waiting_bytes == 0


def test_nobody_but_its_readers_sees_the_table(make: Make) -> None:
    """No retained message, no entry of the history, no changed topic, no quota and no announced change."""
    broker = make(evolve(STORED, max_retained_messages=1))
    changes: list[Change] = []
    broker.retained.feed.listen(changes.append)
    client = broker.client("c", 5)
    before = {table: rows(broker, f"SELECT * FROM {table}") for table in TABLES}
    for number in range(3):
        client.publish(f"t/{number}", b"1", 1)
    assert len(recorded(broker)) == 3
    assert {table: rows(broker, f"SELECT * FROM {table}") for table in TABLES} == before
    assert changes == []
    watcher = broker.client("w", 5)
    assert [packet for packet in watcher.subscribe("#") if isinstance(packet, p.Publish)] == []


TABLES = (
    "retained", "retained_usage", "retained_history", "retained_history_state", "retained_changes",
    "retained_history_periods",
)  # fmt: skip


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("policy", [ALL, STORED], ids=["received", "stored"])
def test_an_acknowledgement_waits_for_the_commit_where_the_policy_says_so(
    make: Make, qos: int, count: int, policy: Policy
) -> None:
    """Of a message by itself, and of one that comes in a run. Elsewhere they are acknowledged at once."""
    broker = make(policy, manual=True)
    client = connected(broker)
    kind: type[p.Puback | p.Pubrec] = p.Puback if qos == 1 else p.Pubrec
    client.publish("t/a", b"0", qos, identifier=100)
    broker.commit()
    assert len(client.got(kind)) == 1
    client.send(*[p.Publish("t/a", b"%d" % number, qos, False, False, 1 + number) for number in range(count)])
    early = len(client.got(kind))
    broker.commit()
    assert (early, len(client.got(kind))) == ((0, count) if policy is STORED else (count, 0))


def connected(broker: RestartableBroker) -> Client:
    client = Client(broker, 5)
    client.send(p.Connect("c", 5, True, 0))
    broker.commit()
    client.packets()
    return client


def test_a_message_that_cannot_be_stored_is_refused_where_it_should_be_stored(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher of MQTT 5 gets a Reason Code for each message of its run; the metric counts them."""
    broker = make(STORED)
    client = broker.client("c", 5)
    client.publish("t/a", b"0", 1)
    client.packets()

    def refuse(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(broker.telemetry._kind, "apply", refuse)
    monkeypatch.setattr(type(broker.parts.database), "failure", lambda *_: StorageFailure(FailureKind.FULL, "no room"))
    with logged() as lines:
        client.send(*[p.Publish("t/a", b"%d" % number, 1, False, False, 1 + number) for number in range(3)])
    assert [answer.reason_code for answer in client.got(p.Puback)] == [0x97] * 3
    assert broker.telemetry.dropped == 3
    assert any("not recorded, 3 by now: no room" in line for line in texts(lines))
    assert broker.telemetry.waiting_bytes == 0


def test_beyond_the_memory_messages_are_dropped_counted_and_told(make: Make) -> None:
    """No publisher is paused for them, they are delivered all the same, and recording goes on when there is room."""
    broker = make(ALL, manual=True)
    broker.telemetry.limits = TelemetryLimits(max_waiting_bytes=5000)
    watcher = connected(broker)
    watcher.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", 0),)))
    broker.commit()
    watcher.packets()
    client = Client(broker, 5)
    client.send(p.Connect("d", 5, True, 0))
    broker.commit()
    with logged() as lines:
        for number in range(20):
            client.publish("t/a", b"%d" % number)
    assert len(watcher.got(p.Publish)) == 20
    assert broker.telemetry.waiting_bytes <= 5000
    assert broker.telemetry.dropped > 0
    assert len([line for line in texts(lines) if "max_waiting_bytes is reached" in line]) == 1
    assert broker.parts.writer.pending_bytes == 0
    kept = recorded(broker)
    assert len(kept) == 20 - broker.telemetry.dropped == broker.telemetry.stored
    assert broker.telemetry.waiting_bytes == 0
    client.publish("t/a", b"again")
    assert brief(recorded(broker))[-1] == ("t/a", b"again", 0)


def test_a_publisher_leaves_room_for_others_while_the_database_is_slow(make: Make) -> None:
    """The first gets half of the room, the second a third of all at least; settled messages free their share."""
    broker = make(ALL, manual=True)
    broker.telemetry.limits = TelemetryLimits(max_waiting_bytes=100_000)
    clients = [Client(broker, 5) for _ in range(3)]
    for number, client in enumerate(clients):
        client.send(p.Connect(f"c{number}", 5, True, 0))
    broker.commit()
    with logged() as lines:
        for _ in range(200):
            clients[0].publish("t/a", b"x" * 100)
    first = broker.telemetry.waiting_bytes
    assert 45_000 < first <= 50_000
    assert any("the share of 'c0' in retainer.telemetry.max_waiting_bytes is reached" in line for line in texts(lines))
    dropped = broker.telemetry.dropped
    for client in clients[1:]:
        for _ in range(10):
            client.publish("t/a", b"x" * 100)
    assert broker.telemetry.dropped == dropped
    found = recorded(broker)
    assert [sum(message.client_id == f"c{number}" for message in found) for number in (1, 2)] == [10, 10]
    assert (broker.telemetry.waiting_bytes, broker.telemetry._unawaited_bytes, broker.telemetry._bytes_of) == (0, 0, {})
    clients[0].publish("t/a", b"again")
    assert recorded(broker)[-1].payload == b"again"


def test_a_topic_that_is_too_long_is_counted_apart(make: Make) -> None:
    """So that the alarm can leave it out: the database has room for it never."""
    broker = make(ALL)
    broker.client("c", 5).publish("t/" + "x" * telemetry.LONGEST_TOPIC, b"")
    assert (broker.telemetry.dropped, broker.telemetry.too_long) == (1, 1)
    assert recorded(broker) == []


def _wordy() -> Properties:
    return Properties(user_properties=tuple(("k", "x" * 1000) for _ in range(60)))


def test_a_page_is_bounded_by_its_properties_too(make: Make) -> None:
    """Messages without payloads may have 60 kB of properties each: about a million bytes are a page."""
    broker = make(ALL)
    client = broker.client("c", 5)
    for _ in range(40):
        client.publish("t/a", b"", properties=_wordy())
    page = asking(broker, broker.telemetry.messages("#", limit=1000))
    assert 15 <= len(page.messages) <= 18
    assert not page.done
    assert len(recorded(broker, limit=1000)) == 40


def test_max_bytes_counts_properties_in_both_of_their_forms(make: Make) -> None:
    """Binary and as JSON: the table has both. The state agrees with the rows when all are pruned."""
    broker = make(ALL)
    client = broker.client("c", 5)
    for _ in range(20):
        client.publish("t/a", b"", properties=_wordy())
    asking(broker, broker.telemetry.flushed())
    ((size,),) = rows(broker, "SELECT bytes FROM telemetry_state")
    ((stored,),) = rows(
        broker, "SELECT sum(size + length(properties5) + length(properties_json) + 3 + 200) FROM telemetry"
    )
    assert size == stored > 20 * 120_000
    broker.telemetry.limits = TelemetryLimits(max_bytes=1_300_000)
    broker.telemetry.startService()
    broker.commit()
    assert len(recorded(broker, limit=1000)) == 10
    broker.telemetry.limits = TelemetryLimits(max_messages=0)
    broker.advance(10)
    broker.commit()
    assert rows(broker, "SELECT bytes FROM telemetry_state") == [(0,)]


def test_a_first_page_does_not_wait_long_for_a_slow_database(make: Make) -> None:
    """It has the messages that are stored; the next question finds the others."""
    broker = make(ALL, manual=True)
    client = connected(broker)
    client.publish("t/a", b"1")
    asking(broker, broker.telemetry.flushed())
    client.publish("t/a", b"2")
    pages: list[Any] = []
    broker.telemetry.messages("#").addCallback(pages.append)
    broker.clock.advance(telemetry._PATIENCE - 0.1)
    assert pages == []
    broker.clock.advance(0.2)
    broker.settle()
    for _ in range(100):
        if pages:
            break
        broker.settle()
    assert [message.payload for message in pages[0].messages] == [b"1"]
    assert [message.payload for message in recorded(broker)] == [b"1", b"2"]


def test_gathered_messages_leave_after_a_second_or_when_they_are_many(make: Make) -> None:
    """And at the stop of the broker. All rows of a write are one statement."""
    broker = make(ALL)
    client = broker.client("c", 5)
    client.publish("t/a", b"1")
    assert rows(broker, "SELECT count(*) FROM telemetry") == [(0,)]
    broker.advance(telemetry.GATHERING_SECONDS)
    assert rows(broker, "SELECT count(*) FROM telemetry") == [(1,)]
    commits = broker.parts.writer.counters.commits
    client.send(*[p.Publish("t/a", b"2", 0, False, False, 0)] * telemetry.MOST_GATHERED)
    assert rows(broker, "SELECT count(*) FROM telemetry") == [(1 + telemetry.MOST_GATHERED,)]
    assert broker.parts.writer.counters.commits == commits + 1
    client.publish("t/a", b"3")
    broker = broker.stop()
    assert rows(broker, "SELECT count(*) FROM telemetry") == [(2 + telemetry.MOST_GATHERED,)]


def test_order_is_kept_between_those_who_wait_and_those_who_do_not(make: Make) -> None:
    """A stored message leaves behind those gathered before."""
    broker = make(evolve(ALL, topic_filter="t/free"), evolve(STORED, number=2))
    client = broker.client("c", 5)
    for number in range(6):
        client.publish("t/free" if number % 2 else "t/stored", b"%d" % number, 1)
    assert [message.payload for message in recorded(broker)] == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_policy_begins_and_ends_with_a_reload_also_for_topics_in_runs(make: Make, qos: int) -> None:
    """From the next message on."""
    broker = make()
    client = broker.client("c", 5)
    expected: list[bytes] = []
    for payload, policies in ((b"1", ()), (b"2", (ALL,)), (b"3", ()), (b"4", (STORED,)), (b"5", (ALL,))):
        broker.retained.change_policies(Policies(policies))
        client.send(*[p.Publish("t/a", payload, qos, False, False, qos * (1 + number)) for number in range(3)])
        expected += [payload] * 3 * bool(policies)
    assert [message.payload for message in recorded(broker)] == expected


def test_a_will_is_recorded(make: Make) -> None:
    """It is a message of its Client."""
    broker = make(ALL)
    client = broker.client("c", 5, will=p.Will("t/will", b"gone", 1, False, NO_PROPERTIES))
    client.connection.lost()
    broker.settle()
    (message,) = recorded(broker)
    assert (message.topic, message.payload, message.client_id) == ("t/will", b"gone", "c")


def test_a_message_with_qos_2_is_recorded_once(make: Make) -> None:
    """Also when its Client sends it again after the broker was killed: one commit has both, or none."""
    broker = make(STORED)
    client = broker.client("c", 5, clean=False, properties=Properties(session_expiry_interval=100))
    client.publish("t/a", b"1", 2, identifier=7)
    assert len(client.got(p.Pubrec)) == 1
    broker = broker.restart()
    client = broker.client("c", 5, clean=False, properties=Properties(session_expiry_interval=100))
    client.send(p.Publish("t/a", b"1", 2, False, True, 7))
    assert len(client.got(p.Pubrec)) == 1
    assert brief(recorded(broker)) == [("t/a", b"1", 2)]


def test_a_commit_that_is_repeated_writes_nothing_twice(make: Make) -> None:
    """Its outcome was unknown, and it had succeeded, or it had not."""
    broker = make(ALL)
    kind, writer = broker.telemetry._kind, broker.parts.writer
    row = TelemetryRow(0, "t/b", 0, 1, broker.now(), None, "c", None, b"\0", None, b"2")
    write = Write(kind, 900, [row], 0)
    asking(broker, writer.run(lambda connection: kind.apply(connection.cursor(), [write])))
    before = rows(broker, "SELECT * FROM telemetry ORDER BY seq")
    asking(broker, writer.run(lambda connection: kind.apply(connection.cursor(), [write])))
    assert rows(broker, "SELECT * FROM telemetry ORDER BY seq") == before
    other = Write(kind, 901, write.row, 0)

    def fails(connection: Any) -> None:
        kind.apply(connection.cursor(), [other])
        raise RuntimeError("rolled back")

    failing = writer.run(fails)
    broker.commit()
    failing.addErrback(lambda _: None)
    asking(broker, writer.run(lambda connection: kind.apply(connection.cursor(), [other])))
    assert len(rows(broker, "SELECT * FROM telemetry")) == len(before) + 1


def _applied(kind: Any, writes: list[Write], connection: Any) -> object:
    return kind.apply(connection.cursor(), writes)


def test_no_part_of_a_repeated_commit_is_written_twice(make: Make) -> None:
    """After an unknown outcome, a row that is refused has the others attempted in parts, with newer ones among them."""
    broker = make(ALL)
    kind, writer = broker.telemetry._kind, broker.parts.writer
    written = [
        Write(
            kind,
            900 + each,
            [TelemetryRow(0, "t/b", 0, 1, broker.now(), None, "c", None, b"\0", None, b"%d" % each)],
            0,
        )
        for each in range(4)
    ]
    for part in (written[:3], written[:1], written[1:]):
        asking(broker, writer.run(partial(_applied, kind, part)))
    assert [bytes(payload) for (payload,) in rows(broker, "SELECT payload FROM telemetry ORDER BY seq")] == [
        b"0", b"1", b"2", b"3",
    ]  # fmt: skip
    kind.failed(written, StorageFailure(FailureKind.REFUSED, "no room"))
    assert kind._attempted == {}


def test_messages_that_are_waited_for_take_no_room_of_the_others(make: Make) -> None:
    """The limit is for those that no acknowledgement waits for; and one of these always has room."""
    broker = make(STORED, manual=True)
    broker.telemetry.limits = TelemetryLimits(max_waiting_bytes=1000)
    client = Client(broker, 5)
    client.send(p.Connect("d", 5, True, 0))
    broker.commit()
    for number in range(10):
        client.publish("t/a", b"%d" % number, 1)
    client.publish("t/a", b"x" * 2000)
    assert broker.telemetry.dropped == 0
    client.publish("t/a", b"y")
    assert broker.telemetry.dropped == 1
    assert len(recorded(broker)) == 11


@pytest.mark.parametrize(("topics", "cost"), [(1, 1), (3000, 2)])
def test_few_messages_are_recorded_in_a_turn(make: Make, topics: int, cost: int) -> None:
    """Each takes the reactor some microseconds: those of a run, too, which is otherwise taken as one piece."""
    broker = make(ALL)
    client = broker.client("c", 5)
    client.publish("t/0", b"x")
    data = b"".join(encode(p.Publish(f"t/{number % topics}", b"x"), 5) for number in range(3000))
    received = broker.counters.messages_received
    client.connection.receive(data)
    assert broker.counters.messages_received - received <= PACKETS_OF_A_TURN // cost + 1
    for _ in range(3000):
        if broker.counters.messages_received - received == 3000:
            break
        broker.clock.turn()
    assert len(recorded(broker, limit=1000)) == 3001


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=3), st.integers(0, 1)), max_size=30),
    st.lists(st.integers(1, 40), max_size=10),
    st.booleans(),
)
def test_runs_are_recorded_like_messages_that_come_one_by_one(
    sent: list[tuple[str, bytes, int]], cuts: list[int], waits: bool
) -> None:
    """Whatever the pieces are in which the packets come."""
    with TemporaryDirectory() as folder:
        policies = Policies([STORED if waits else ALL])
        broker = RestartableBroker(fresh_file(Path(folder)), retainer=RetainerLimits(policies=policies))
        _check_runs(broker, sent, cuts)
        broker.kill()


def _check_runs(broker: RestartableBroker, sent: list[tuple[str, bytes, int]], cuts: list[int]) -> None:
    client = broker.client("c", 5)
    data = b"".join(
        encode(p.Publish(f"t/{topic}", payload, qos, False, False, qos and number), 5)
        for number, (topic, payload, qos) in enumerate(sent, 1)
    )
    for cut in cuts:
        client.raw(data[:cut])
        data = data[cut:]
    client.raw(data)
    assert brief(recorded(broker)) == [(f"t/{topic}", payload, qos) for topic, payload, qos in sent]
    assert len(client.got(p.Puback)) == sum(qos for *_, qos in sent)


def test_pages_have_every_message_of_a_filter_and_a_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """From either end, in small pages."""
    monkeypatch.setattr(telemetry_table, "_ENTRIES", 3)
    broker = make(ALL)
    client = broker.client("c", 5)
    for number in range(20):
        client.publish(f"t/{number % 2}", b"%d" % number)
        broker.advance(1)
    messages = recorded(broker, limit=2)
    assert [message.payload for message in messages] == [b"%d" % number for number in range(20)]
    assert recorded(broker, limit=4, newest_first=True) == messages[::-1]
    assert recorded(broker, "t/1") == messages[1::2]
    assert recorded(broker, "+/0", newest_first=True) == messages[18::-2]
    since, until = messages[5].received_at, messages[9].received_at
    assert recorded(broker, since=since, until=until) == messages[5:10]
    assert recorded(broker, "t/1", since=since, until=until, newest_first=True) == messages[9:4:-2]


@pytest.mark.parametrize(
    "limits",
    [
        TelemetryLimits(keep=8.5, max_messages=None, max_bytes=None),
        TelemetryLimits(keep=None, max_messages=8, max_bytes=None),
        TelemetryLimits(keep=None, max_messages=None, max_bytes=8 * 205),
    ],
    ids=["keep", "max_messages", "max_bytes"],
)
def test_the_oldest_are_pruned_beyond_each_limit(
    make: Make, limits: TelemetryLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In slices, and the state agrees with the rows afterwards. New messages go on with the next number."""
    monkeypatch.setattr(telemetry_table, "_PRUNED_ROWS", 3)
    broker = make(ALL)
    client = broker.client("c", 5)
    for number in range(20):
        client.publish("t/a", b"%d" % (number % 10))
        broker.advance(1)
    asking(broker, broker.telemetry.flushed())
    broker.telemetry.limits = limits
    broker.telemetry.startService()
    broker.commit()
    kept = recorded(broker)
    assert [message.seq for message in kept] == list(range(13, 21))
    assert rows(broker, "SELECT last_seq, bytes FROM telemetry_state") == [(20, 8 * 205)]
    client.publish("t/a", b"0")
    assert recorded(broker)[-1].seq == 21
    broker.telemetry.limits = TelemetryLimits(max_messages=0)
    broker.advance(10)
    broker.commit()
    assert recorded(broker) == []
    assert rows(broker, "SELECT last_seq, bytes FROM telemetry_state") == [(21, 0)]


def test_doctor_finds_messages_that_are_missing_among_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --deep. Pruned messages are not missing."""
    path = fresh_file(tmp_path)
    broker = RestartableBroker(path, retainer=RetainerLimits(policies=Policies([STORED])))
    client = broker.client("c", 5)
    for number in range(6):
        client.publish("t/a", b"%d" % number, 1)
    config = default(tmp_path).override([], str(tmp_path), f"sqlite:///{path}", allow_anonymous=True, cwd=tmp_path)
    rows(broker, "DELETE FROM telemetry WHERE seq < 3")
    assert list(examination.telemetry_is_whole(config)) == []
    rows(broker, "DELETE FROM telemetry WHERE seq = 4")
    rows(broker, "UPDATE telemetry_state SET last_seq = 5")
    (finding,) = examination.telemetry_is_whole(config)
    assert "1 are missing among the others, and 1 are not known" in finding.message
    broker.kill()


def test_a_topic_that_is_too_long_for_an_index_is_dropped_and_told(make: Make) -> None:
    """It is delivered all the same, and harms no other message."""
    broker = make(ALL)
    client = broker.client("c", 5)
    with logged() as lines:
        client.publish("t/" + "x" * telemetry.LONGEST_TOPIC, b"1", 1)
        client.publish("t/a", b"2", 1)
    assert [answer.reason_code < 0x80 for answer in client.got(p.Puback)] == [True, True]
    assert brief(recorded(broker)) == [("t/a", b"2", 1)]
    assert broker.telemetry.dropped == 1
    assert any("more than 2600 bytes" in line for line in texts(lines))
