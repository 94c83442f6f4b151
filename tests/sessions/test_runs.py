"""Runs of PUBLISH packets: for all Clients they are the same as one packet at a time, and in the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.identity.interfaces import UnrestrictedAuthorizer
from holdfast.sessions.limits import Limits
from holdfast.wire import NO_PROPERTIES, Properties, encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.sessions.side_by_side import RETAINER, TABLES
from tests.storage.doubles import fresh_file
from tests.strategies import fragments

NAMES = ["a", "b", "c"]
TOPICS = ["t", "t/1", "t/2", "u"]
FILTERS = ["t", "t/+", "#", "u", "$share/g/t/1"]


class Unsteady(UnrestrictedAuthorizer):
    """Allows everything, but does not promise to do so again: no packets form runs."""

    epoch = None


class Side:
    """One broker with its clients, and what they have received."""

    def __init__(self, broker: MemoryBroker, versions: dict[str, int]) -> None:
        self.broker = broker
        self.versions = versions
        self.clients: dict[str, Client] = {}
        #: for each client, the numbers of the deliveries under way, by Packet Identifier
        self._numbers: dict[str, dict[int, int]] = {}
        self._answers: dict[str, list[p.Packet]] = {}
        self._deliveries = 0

    def connect(self, name: str, clean: bool, maximum_packet_size: int | None, aliases: int) -> None:
        self.leave(name)
        version = self.versions[name]
        properties = NO_PROPERTIES
        if version == 5:
            properties = Properties(
                session_expiry_interval=0 if clean else 1000,
                maximum_packet_size=maximum_packet_size,
                topic_alias_maximum=aliases,
            )
        client = self.clients[name] = Client(self.broker, version)
        self._numbers[name] = {}
        self._answers[name] = []
        client.connection.receive(encode(p.Connect(name, version, clean, properties=properties), version))
        self.broker.settle()

    def leave(self, name: str) -> None:
        client = self.clients.pop(name, None)
        if client is not None:
            client.drop()

    def write(self, name: str, pieces: list[bytes]) -> None:
        client = self.clients.get(name)
        for piece in pieces:
            if client is not None and not client.network.closed:
                client.raw(piece)

    def block(self, name: str, blocked: bool) -> None:
        client = self.clients.get(name)
        if client is not None and not client.network.closed:
            client.network.blocked = blocked
            if not blocked:
                client.connection.drained()
                self.broker.settle()

    def answer(self, name: str, number: int) -> None:
        """Send some of the answers that the client owes."""
        answers = self._answers.get(name, [])
        due, answers[:] = answers[:number], answers[number:]
        self.write(name, [b"".join(encode(packet, self.versions[name]) for packet in due)])

    def commit(self) -> None:
        if isinstance(self.broker, RestartableBroker):
            self.broker.commit()

    def close(self) -> None:
        if isinstance(self.broker, RestartableBroker):
            self.broker.commit()
            self.broker.kill()

    def received(self) -> dict[str, list[Any]]:
        """Return the packets that each client has got since the last look. Packet Identifiers are renamed."""
        return {name: [self._seen(name, packet) for packet in self.clients[name].packets()] for name in self.clients}

    def _seen(self, name: str, packet: p.Packet) -> Any:
        numbers = self._numbers[name]
        if isinstance(packet, p.Publish) and packet.qos:
            if not packet.dup:
                assert packet.packet_identifier not in numbers
            self._deliveries += 1
            number = numbers.setdefault(packet.packet_identifier, self._deliveries)
            answer: Any = p.Puback if packet.qos == 1 else p.Pubrec
            self._answers[name].append(answer(packet.packet_identifier))
            if packet.qos == 1:
                del numbers[packet.packet_identifier]
            return number, packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.properties
        if isinstance(packet, p.Pubrel):
            self._answers[name].append(p.Pubcomp(packet.packet_identifier))
            return "PUBREL", numbers.pop(packet.packet_identifier, None), packet.reason_code
        return packet


def publishes(version: int) -> st.SearchStrategy[p.Publish]:
    """PUBLISH packets, most of them alike, so that many of them form runs."""
    properties = st.just(NO_PROPERTIES)
    if version == 5:
        properties |= st.sampled_from([Properties(topic_alias=1), Properties(message_expiry_interval=9)])
    qos = st.sampled_from([0, 0, 0, 1, 1, 1, 2])

    def publish(qos: int) -> st.SearchStrategy[p.Publish]:
        return st.builds(
            p.Publish,
            st.sampled_from(TOPICS),
            st.sampled_from([b"", b"1", b"2", b"12345678"]),
            st.just(qos),
            st.integers(0, 9).map(lambda number: number == 9),
            st.just(False) if not qos else st.integers(0, 9).map(lambda number: number == 9),
            st.integers(1, 5) if qos else st.just(0),
            properties,
        )

    return qos.flatmap(publish)


def retained_runs(version: int) -> st.SearchStrategy[bytes]:
    """PUBLISH packets with RETAIN 1, of more topics, few of which are subscribed to."""
    topics = st.sampled_from([*TOPICS, "v/1", "v/2", "w", "é", "$SYS/x"])
    payload = st.sampled_from([b"1", b"2", b"12", b"12", b"x" * 130, b""])

    def run(qos: int) -> st.SearchStrategy[bytes]:
        publish = st.builds(
            p.Publish, topics, payload, st.just(qos), st.just(True), packet_identifier=st.integers(qos, 5 * qos)
        )
        return st.lists(publish.map(lambda one: encode(one, version)), min_size=2, max_size=12).map(b"".join)

    return st.sampled_from([0, 1, 1]).flatmap(run)


@st.composite
def streams(draw: st.DrawFn, version: int) -> list[bytes]:
    """Pieces of bytes from a client: mostly PUBLISH, in the middle subscriptions, sometimes a wrong byte."""
    subscribe: st.SearchStrategy[p.Packet] = st.builds(
        p.Subscribe,
        st.just(9),
        st.builds(
            p.SubscriptionRequest,
            st.sampled_from(FILTERS),
            st.integers(0, 2),
            st.booleans() if version == 5 else st.just(False),
            st.booleans() if version == 5 else st.just(False),
        ).map(lambda request: (request,)),
        st.just(NO_PROPERTIES)
        if version < 5
        else st.sampled_from([NO_PROPERTIES, Properties(subscription_identifiers=(7,))]),
    )
    unsubscribe: st.SearchStrategy[p.Packet] = st.builds(
        p.Unsubscribe, st.just(8), st.sampled_from(FILTERS).map(lambda topic_filter: (topic_filter,))
    )
    packet: st.SearchStrategy[p.Packet] = st.one_of(
        publishes(version), publishes(version), publishes(version), subscribe, unsubscribe, st.just(p.Pingreq())
    )
    part = st.tuples(packet, st.sampled_from([1, 2, 3, 12])).map(lambda one: encode(one[0], version) * one[1])
    stream = b"".join(draw(st.lists(part | retained_runs(version), min_size=1, max_size=8)))
    if draw(st.integers(0, 9)) == 9:
        place = draw(st.integers(0, len(stream) - 1))
        stream = stream[:place] + bytes((draw(st.sampled_from([0, 1, 0x30, 0x32, 0x80, 0xFF])),)) + stream[place + 1 :]
    return fragments(stream, draw(st.lists(st.integers(0, 500), max_size=3)))


LIMITS = st.builds(
    Limits,
    max_inflight=st.sampled_from([2, 20]),
    max_awaiting_rel=st.sampled_from([4, 100]),
    max_mqueue_len=st.sampled_from([3, 100]),
    upgrade_qos=st.integers(0, 4).map(lambda number: number == 4),
    mqueue_store_qos0=st.booleans(),
    max_qos_allowed=st.sampled_from([1, 2, 2, 2]),
    max_buffered_messages=st.sampled_from([0, 0, 0, 8, 40]),
    max_buffered_bytes=st.sampled_from([0, 0, 0, 100, 1000]),
)


@given(st.data())
def test_runs_are_the_same_as_one_packet_at_a_time(data: st.DataObject) -> None:
    """Any bytes, cut anywhere: each client receives the same packets, and everything is counted alike."""

    def broker(runs: bool, limits: Limits) -> MemoryBroker:
        return MemoryBroker(limits=limits, authorizer=UnrestrictedAuthorizer() if runs else Unsteady())

    compare(data, broker)


@given(st.data())
def test_runs_leave_the_same_rows_as_one_packet_at_a_time(data: st.DataObject) -> None:
    """The same with persistent Sessions in a database, while commits are under way."""
    with TemporaryDirectory(prefix="holdfast-runs-") as directory:
        files = {runs: fresh_file(Path(directory), f"{runs}.db") for runs in (True, False)}

        def broker(runs: bool, limits: Limits) -> MemoryBroker:
            authorizer = UnrestrictedAuthorizer() if runs else Unsteady()
            return RestartableBroker(files[runs], True, limits=limits, authorizer=authorizer, retainer=RETAINER)

        for side in compare(data, broker):
            side.close()
        assert rows(files[True]) == rows(files[False])


def rows(file: Path) -> dict[str, list[Any]]:
    """Return all rows about Sessions and messages in a database."""
    connection = sqlite3.connect(file)
    found = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in (*TABLES, "retained")}
    connection.close()
    return found


def compare(
    data: st.DataObject,
    broker: Callable[[bool, Limits], MemoryBroker],
    disturb: Callable[[st.DataObject, MemoryBroker], None] = lambda _data, _broker: None,
) -> tuple[Side, Side]:
    """Let two brokers do the same, with runs and without. Compare what they send and count.

    ``disturb`` does something to the first broker between the steps that must make no difference.
    """
    limits = data.draw(LIMITS)
    versions = {name: data.draw(st.sampled_from([4, 5]), label=f"version of {name}") for name in NAMES}
    sides = Side(broker(True, limits), versions), Side(broker(False, limits), versions)

    def both(method: str, *arguments: Any) -> None:
        for side in sides:
            getattr(side, method)(*arguments)
        runs, plain = (side.received() for side in sides)
        assert runs == plain
        assert sides[0].broker.counters == sides[1].broker.counters

    for name in NAMES:
        both("connect", name, data.draw(st.booleans()), None, 0)
    for name in "bc":  # so that most runs find their way to a Client
        topic_filter, qos = data.draw(st.sampled_from(FILTERS[:4])), data.draw(st.sampled_from([0, 0, 0, 1, 2]))
        subscribe = p.Subscribe(9, (p.SubscriptionRequest(topic_filter, qos),))
        both("write", name, [encode(subscribe, versions[name])])
    for _ in range(data.draw(st.integers(1, 8))):
        disturb(data, sides[0].broker)
        name = data.draw(st.sampled_from("aaabc"))
        match data.draw(
            st.sampled_from(["write", "write", "write", "block", "block", "answer", "connect", "leave", "commit"])
        ):
            case "write":
                both("write", name, data.draw(streams(versions[name])))
            case "block":
                both("block", name, data.draw(st.booleans()))
            case "answer":
                both("answer", name, data.draw(st.integers(1, 30)))
            case "connect":
                both(
                    "connect",
                    name,
                    data.draw(st.booleans()),
                    data.draw(st.sampled_from([None, 9])),
                    data.draw(st.integers(0, 1)),
                )
            case "leave" | "commit" as action:
                both(action, *([name] if action == "leave" else []))
    for name in NAMES:
        both("block", name, False)
        for _ in range(3):
            both("answer", name, 1000)
            both("commit")
    return sides
