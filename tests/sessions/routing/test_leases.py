"""Leases: when they end, what they clear, and that each ends once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from holdfast.core.extensions import ANSWER
from holdfast.retained.limits import RetainerLimits
from holdfast.sessions.limits import Limits, RetainMode
from holdfast.sessions.registry import owners_only
from holdfast.wire import NO_PROPERTIES, Properties
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.postgres import fresh_database
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

SESSION = ("holdfast-retain-while", "session")
CONNECTED = ("holdfast-retain-while", "connected")
ABSENT = ("holdfast-if-absent", "")


def participant(broker: MemoryBroker, client_id: str = "c", *, clean: bool = True, expiry: int = 600) -> Client:
    """Connect a client that takes part."""
    asked = Properties(user_properties=(("holdfast", "?"),), session_expiry_interval=expiry)
    return broker.client(client_id, 5, clean=clean, properties=asked)


def lend(
    client: Client, *asked: tuple[str, str], topic: str = "t", payload: bytes = b"on", qos: int = 1, retain: bool = True
) -> list[int]:
    """Retain a message; return the Reason Codes of the answers."""
    client.publish(topic, payload, qos, retain, Properties(user_properties=asked) if asked else NO_PROPERTIES)
    return [packet.reason_code for packet in client.packets() if isinstance(packet, p.Puback | p.Pubrec)]


def retained(broker: MemoryBroker, topic_filter: str = "#") -> list[tuple[str, bytes]]:
    """Return what a new subscriber gets."""
    late = broker.client("late")
    packets = late.subscribe(topic_filter)
    found = [(packet.topic, packet.payload) for packet in packets if isinstance(packet, p.Publish)]
    late.send(p.Disconnect())
    return found


def test_connack_offers_it() -> None:
    """Participants are told that the broker has it."""
    assert "retain-while" in ANSWER[1].split(" ")[1].split(",")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_lease_of_a_session(qos: int) -> None:
    """The loss of the connection changes nothing. The end of the Session clears the topic, and subscribers are told."""
    broker = MemoryBroker()
    reader = broker.client("r")
    reader.subscribe("t")
    client = participant(broker)
    lend(client, SESSION, qos=qos)
    client.drop()
    broker.advance(500)
    assert retained(broker) == [("t", b"on")]
    broker.advance(200)  # it expires while the client is away
    assert retained(broker) == []
    assert [payload for _, payload, _, _ in reader.messages()] == [b"on", b""]
    assert (broker.counters.leases_ended, len(broker.retained.leases)) == (1, 0)


def test_a_session_that_ends_with_its_connection() -> None:
    """A clean start ends the leases of the Session before; so does a DISCONNECT, and a kick."""
    broker = MemoryBroker()
    lend(participant(broker), SESSION, topic="a")
    client = participant(broker, expiry=0)
    assert retained(broker) == []
    lend(client, SESSION, topic="b")
    client.send(p.Disconnect())
    assert retained(broker) == []
    lend(participant(broker), SESSION, topic="c")
    broker.registry.kick("c")
    broker.settle()
    assert retained(broker) == []
    assert broker.counters.leases_ended == 3


def test_a_lease_of_a_connection() -> None:
    """It ends after the time of grace, unless the client connects before, with any Session; also after DISCONNECT."""
    broker = MemoryBroker()
    client = participant(broker)
    lend(client, CONNECTED)
    client.drop()
    broker.advance(29)
    client = participant(broker)
    broker.advance(100)
    assert retained(broker) == [("t", b"on")]
    client.send(p.Disconnect())
    broker.advance(29)
    assert retained(broker) == [("t", b"on")]
    broker.advance(2)
    assert retained(broker) == []


def test_a_take_over_keeps_it() -> None:
    """Another connection of the same client is a CONNECT in time."""
    broker = MemoryBroker()
    lend(participant(broker), CONNECTED)
    participant(broker, clean=False)
    broker.advance(100)
    assert retained(broker) == [("t", b"on")]


@pytest.mark.parametrize("payload", [b"newer", b""])
@pytest.mark.parametrize("asked", [(), (ABSENT, CONNECTED)])
def test_only_its_own_message_is_cleared(payload: bytes, asked: tuple[tuple[str, str], ...]) -> None:
    """The next change of the topic ends the lease, whoever makes it; a change that is refused does not."""
    broker = MemoryBroker()
    client, other = participant(broker), participant(broker, "o")
    lend(client, SESSION)
    if asked and payload:
        assert lend(other, *asked, payload=payload) == [0x83]
        broker.registry.kick("c")
        broker.settle()
        assert retained(broker) == []
        return
    lend(other, payload=payload)
    assert len(broker.retained.leases) == 0
    broker.registry.kick("c")
    broker.settle()
    assert retained(broker) == ([("t", payload)] if payload else [])
    assert broker.counters.leases_ended == 0


def test_with_a_condition() -> None:
    """The lease is for the revision that the condition has decided."""
    broker = MemoryBroker()
    client = participant(broker)
    assert lend(client, SESSION, ABSENT) == [0x10]
    assert lend(client, SESSION, ABSENT) == [0x83]
    assert len(broker.retained.leases) == 1
    broker.registry.kick("c")
    broker.settle()
    assert retained(broker) == []


def test_a_run_ends_leases() -> None:
    """Messages that are retained together replace leased ones like any others."""
    broker = MemoryBroker()
    client, other = participant(broker), broker.client("o")
    for number in range(8):
        lend(client, SESSION, topic=f"t/{number}")
    other.publish("first", retain=True)  # later ones may come in runs
    packets = [p.Publish(f"t/{number}", b"new", 1, True, False, number + 1) for number in range(8)]
    other.send(*packets)
    assert len(broker.retained.leases) == 0


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ((SESSION, SESSION), {}),
        ((("holdfast-retain-while", "ever"),), {}),
        ((SESSION,), {"retain": False}),
        ((SESSION,), {"payload": b""}),
    ],
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_bad_requests(asked: tuple[tuple[str, str], ...], fields: dict[str, bool | bytes], qos: int) -> None:
    """They are refused with 0x83, and stored and routed nowhere."""
    broker = MemoryBroker()
    reader = broker.client("r")
    reader.subscribe("t")
    client = participant(broker)
    assert lend(client, *asked, qos=qos, **fields) == ([0x83] if qos else [])  # type: ignore[arg-type]
    assert reader.packets() == []
    assert broker.counters.messages_rejected_properties == 1


@pytest.mark.parametrize("mode", [RetainMode.DROP, RetainMode.DOWNGRADE])
def test_where_nothing_is_retained(mode: RetainMode) -> None:
    """A lease would have no effect, so it is refused."""
    broker = MemoryBroker(limits=Limits(retained_messages_mode=mode))
    assert lend(participant(broker), SESSION) == [0x83]
    disabled = MemoryBroker(retainer=RetainerLimits(enable=False))
    assert lend(participant(disabled), SESSION) == [0x83]


def test_too_many_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is refused with 0x97, and stored nowhere. A known topic has room."""
    monkeypatch.setattr("holdfast.sessions.leases.MOST_PER_CLIENT", 2)
    broker = MemoryBroker()
    client = participant(broker)
    assert [lend(client, SESSION, topic=topic) for topic in ("a", "b", "c", "a")] == [[0x10], [0x10], [0x97], [0x10]]
    assert retained(broker) == [("a", b"on"), ("b", b"on")]
    assert broker.counters.leases_refused == 1


def test_a_will_has_no_lease() -> None:
    """Its CONNECT is refused: the client would be gone already."""
    broker = MemoryBroker()
    client = Client(broker, 5)
    will = p.Will("t", b"off", 0, True, Properties(user_properties=(SESSION,)))
    connack = client.connect("c", will=will, properties=Properties(user_properties=(("holdfast", "?"),)))
    assert connack is not None
    assert connack.reason_code == 0x83


def test_many_leases_end_in_portions() -> None:
    """A client with many leases costs no turn of the reactor more than a part."""
    broker = MemoryBroker()
    client = participant(broker)
    for number in range(500):
        lend(client, SESSION, topic=f"t/{number}", qos=0)
    broker.registry.kick("c")
    counts = [len(broker.retained.leases)]
    while counts[-1]:
        broker.clock.turn()
        counts.append(len(broker.retained.leases))
    assert max(before - after for before, after in pairwise(counts)) <= 200
    assert retained(broker) == []


@pytest.mark.parametrize("make", ["sqlite", "postgres"])
def test_after_a_kill(tmp_path: Path, make: str) -> None:
    """Leases survive: a client that is not back in time loses them; a Session that was stored keeps them."""
    broker = RestartableBroker(fresh_file(tmp_path) if make == "sqlite" else fresh_database())
    lend(participant(broker, "away"), CONNECTED, topic="away")
    lend(participant(broker, "back"), CONNECTED, topic="back")
    lend(participant(broker, "stored"), SESSION, topic="stored")
    lend(participant(broker, "gone", expiry=0), SESSION, topic="gone")
    lend(participant(broker, "gone"), topic="plain")
    lend(participant(broker, "gone", expiry=0), SESSION, topic="gone")
    broker = broker.restart()
    assert [topic for topic, _ in retained(broker)] == ["away", "back", "gone", "plain", "stored"]
    participant(broker, "back", clean=False)
    participant(broker, "gone")  # another Session: the lease was for the one before
    broker.advance(65)
    assert [topic for topic, _ in retained(broker)] == ["back", "plain", "stored"]
    assert len(broker.retained.leases) == 2
    assert make == "postgres" or broker.rows("retained_leases") == 2
    broker.registry.kick("stored")
    broker.settle()
    assert [topic for topic, _ in retained(broker)] == ["back", "plain"]


def test_a_client_that_comes_and_goes_after_a_kill(tmp_path: Path) -> None:
    """What it set in the Session that has ended with the process goes in time; its connections postpone nothing."""
    broker = RestartableBroker(fresh_file(tmp_path))
    client = participant(broker, expiry=0)
    lend(client, SESSION, topic="session")
    lend(client, CONNECTED, topic="connected")
    broker = broker.restart()
    for _ in range(5):
        broker.advance(13)
        participant(broker, clean=False).drop()
    assert retained(broker) == [("connected", b"on")]
    broker.advance(31)
    assert retained(broker) == []
    assert broker.rows("retained_leases") == 0


@pytest.mark.parametrize("steps", range(6))
def test_a_kill_while_a_lease_ends(tmp_path: Path, steps: int) -> None:
    """Killed after any commit: the topic is clear, an absent subscriber gets one empty message, the row is gone."""
    broker = RestartableBroker(fresh_file(tmp_path))
    reader = broker.client("r", 5, clean=False, properties=Properties(session_expiry_interval=9000))
    reader.subscribe("t", qos=1)
    client = participant(broker)
    lend(client, SESSION)
    reader.messages()
    reader.drop()
    client.drop()
    broker.executor.manual = True
    broker.registry.kick("c")
    broker.settle()
    for _ in range(steps):
        if broker.executor.waiting:
            broker.executor.step()
            broker.settle()
    broker = broker.restart()
    broker.advance(700)
    assert broker.rows("retained_leases") == 0
    assert retained(broker, "t") == []
    reader = Client(broker, 5)
    reader.connect("r", clean=False, properties=Properties(session_expiry_interval=9000))
    assert [packet.payload for packet in reader.backlog if isinstance(packet, p.Publish)] == [b""]


def test_a_newer_message_while_a_lease_ends(tmp_path: Path) -> None:
    """It wins in every order, and no subscriber gets the empty message after it."""
    broker = RestartableBroker(fresh_file(tmp_path))
    reader = broker.client("r")
    reader.subscribe("t")
    client, other = participant(broker), broker.client("o")
    lend(client, SESSION)
    broker.executor.manual = True
    broker.registry.kick("c")
    other.publish("t", b"newer", retain=True)
    broker.commit()
    broker.executor.manual = False
    assert [payload for _, payload, _, _ in reader.messages()][-1] == b"newer"
    assert retained(broker) == [("t", b"newer")]
    assert broker.rows("retained_leases") == 0


class Nodes:
    """Two nodes with one database. Their time is the same."""

    def __init__(self) -> None:
        url = fresh_database()
        self.one, self.two = RestartableBroker(url), RestartableBroker(url, node=2)

    def advance(self, seconds: float) -> None:
        for node in (self.one, self.two):
            node.advance(seconds)

    @property
    def rows(self) -> list[tuple[int, str]]:
        """The nodes and topics of the stored leases."""
        with psycopg.connect(str(self.one._place).replace("+psycopg", "")) as connection:
            return connection.execute("SELECT node, topic FROM retained_leases ORDER BY node, topic").fetchall()


def test_a_node_ends_only_its_own_leases() -> None:
    """The kill of a node, and the start of another one, end no lease of a living client."""
    nodes = Nodes()
    lend(participant(nodes.one), CONNECTED, topic="one")
    lend(participant(nodes.two, "d"), CONNECTED, topic="two")
    nodes.two = nodes.two.restart()
    nodes.advance(65)
    assert retained(nodes.one) == retained(nodes.two) == [("one", b"on")]
    assert nodes.rows == [(1, "one")]


@pytest.mark.parametrize("payload", [b"newer", b""])
@pytest.mark.parametrize("asked", [(), (SESSION,)])
def test_a_change_by_another_node_ends_a_lease(payload: bytes, asked: tuple[tuple[str, str], ...]) -> None:
    """Only the message that has the lease is cleared. The other node's message may have a lease of its own."""
    nodes = Nodes()
    lend(participant(nodes.one), CONNECTED)
    publisher = participant(nodes.two, "d")
    lend(publisher, *(asked if payload else ()), payload=payload)
    nodes.one.registry.kick("c")
    nodes.advance(65)
    assert retained(nodes.one) == retained(nodes.two) == ([("t", payload)] if payload else [])
    assert nodes.one.counters.leases_ended == 0
    assert nodes.rows == ([(2, "t")] if asked and payload else [])
    nodes.two.registry.kick("d")
    nodes.two.settle()
    assert retained(nodes.one) == ([("t", payload)] if payload and not asked else [])


def test_a_client_that_moves_to_another_node_and_sends_its_message_again_keeps_it() -> None:
    """The lease of the first node is over: it is that of the older message."""
    nodes = Nodes()
    client = participant(nodes.one, expiry=0)
    lend(client, CONNECTED)
    client.drop()
    lend(participant(nodes.two, expiry=0), CONNECTED)
    nodes.advance(65)
    assert retained(nodes.one) == [("t", b"on")]
    assert nodes.rows == [(2, "t")]
    assert len(nodes.one.retained.leases) == 0


@pytest.mark.parametrize("expiry", [0, 600])
def test_another_user_with_the_freed_client_identifier_keeps_no_lease_alive(expiry: int) -> None:
    """It ends when the other one connects. The client of the same user keeps it, also without a name."""
    broker = MemoryBroker(ownership=owners_only)

    def connect(username: str | None) -> Client:
        asked = Properties(user_properties=(("holdfast", "?"),), session_expiry_interval=expiry)
        return broker.client("c", 5, clean=False, properties=asked, username=username)

    for username in (None, "alice"):
        client = connect(username)
        lend(client, CONNECTED)
        client.drop()
        connect(username).drop()
        broker.advance(20)
        connect(username)
        broker.advance(40)
        assert retained(broker) == [("t", b"on")]
        broker.registry.kick("c")
        broker.advance(1)
        assert retained(broker) == [("t", b"on")]
        connect("bob")
        broker.settle()
        assert retained(broker) == []
        assert len(broker.retained.leases) == 0
        broker.registry.kick("c")
        broker.advance(60)
