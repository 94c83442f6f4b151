"""Compare-and-set with real clients: the page's examples, and each change decided once through kill -9."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from paho.mqtt import publish

from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.docs.pages import ROOT, blocks
from tests.e2e.makes import needs_mqttjs
from tests.e2e.raw import RawClient
from tests.processes import PATIENCE, BrokerProcess, lasting_port

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "extensions" / "compare-and-set.md"
TOPIC = "chain"


def snippet(language: str) -> str:
    """Return the snippet of the page in a language."""
    (found,) = [block.text for block in blocks(PAGE) if block.language == language]
    return found


def payload_of(port: int, topic: str) -> bytes:
    """Return the payload of a retained message."""
    client = RawClient(port)
    client.send(p.Subscribe(1, (p.SubscriptionRequest(topic),)))
    payload = next(packet.payload for packet in client.packets() if isinstance(packet, p.Publish))
    client.close()
    return payload


@pytest.fixture
def run() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start programs from snippets. They are ended after the test, or when their time is up."""
    started: list[subprocess.Popen[str]] = []
    timers: list[threading.Timer] = []

    def begin(program: str, *command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent
        )
        started.append(process)
        timers.append(threading.Timer(PATIENCE, process.kill))
        timers[-1].start()
        assert process.stdin is not None
        process.stdin.write(program)
        process.stdin.close()
        return process

    yield begin
    for timer in timers:
        timer.cancel()
    for process in started:
        process.kill()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line that a program prints."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@pytest.mark.crash
def test_leader_election_through_a_kill(
    broker_in: Callable[..., BrokerProcess], run: Callable[..., subprocess.Popen[str]]
) -> None:
    """One station leads and renews its lease, also after kill -9 of the broker; the other one follows."""
    port = lasting_port()
    broker = broker_in("--listen", f"tcp:{port}:interface=127.0.0.1", listen=False).start()
    program = snippet("python").replace("LEASE = 10", "LEASE = 30").replace("LEASE / 3", "0.5")
    leader = run(program, sys.executable, "-", str(port), "station-1")
    assert line_of(leader) == "station-1 leads"
    follower = run(program, sys.executable, "-", str(port), "station-2")
    assert line_of(follower) == "station-2 follows"
    broker.kill()
    broker.start()
    assert [line_of(leader) for _ in range(4)] == ["station-1 leads"] * 4
    assert [line_of(follower) for _ in range(2)] == ["station-2 follows"] * 2
    assert payload_of(port, "plant/leader") == b"station-1"


@pytest.mark.crash
@needs_mqttjs
def test_configuration_hand_over_through_a_kill(
    broker_in: Callable[..., BrokerProcess], run: Callable[..., subprocess.Popen[str]]
) -> None:
    """Three editors change the same message at once, and the broker is killed: none of their changes is lost."""
    broker = broker_in("--listen", f"tcp:{lasting_port()}:interface=127.0.0.1", listen=False).start()
    publish.single("plant/config", '{"editors": []}', 1, True, "127.0.0.1", broker.port)
    port = str(broker.port)
    editors = [run(snippet("js"), "node", "-", port, f"editor-{number}") for number in range(3)]
    first = line_of(editors[0])
    broker.kill()
    broker.start()
    for editor in editors:
        assert editor.stdout is not None
        told = editor.stdout.read() + (first if editor is editors[0] else "")
        assert told.count("has changed it") == 1
    config = payload_of(broker.port, "plant/config")
    for number in range(3):
        assert config.count(b"editor-%d" % number) == 1


class Setter(threading.Thread):
    """Sets one topic again and again, each time under the condition that the revision is the one it was told last.

    Its payloads name the client, the number of the change, and the condition. What is not acknowledged when the
    connection ends is repeated with DUP 1 on the next one.
    """

    def __init__(self, name: str, qos: int) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.qos = qos
        self.port = 0
        self.known = 0  #: the present revision, as it was told last
        self.count = 0
        self.open: p.Publish | None = None
        self.released = True
        self.stored: dict[bytes, int] = {}  #: the revisions of the acknowledged changes
        self.refused: set[bytes] = set()
        self.enough = threading.Event()

    def again(self, port: int) -> Setter:
        """Return a thread that goes on with the same Session."""
        other = Setter(self.name, self.qos)
        other.known, other.count, other.stored, other.refused = self.known, self.count, self.stored, self.refused
        if self.open is not None:
            packet = self.open
            other.open = p.Publish(
                packet.topic, packet.payload, packet.qos, True, True, packet.packet_identifier, packet.properties
            )
        other.port = port
        return other

    def run(self) -> None:
        try:
            wishes = Properties(user_properties=(("holdfast", "?"),), session_expiry_interval=600)
            client = RawClient.connected(self.port, p.Connect(self.name, 5, False, properties=wishes))
            self._go_on(client)
        except OSError:
            return

    def _go_on(self, client: RawClient) -> None:
        done = 0
        self._send(client)
        for packet in client.packets():
            if isinstance(packet, p.Puback | p.Pubrec):
                self._answered(packet)
                if isinstance(packet, p.Pubrec) and packet.reason_code < 0x80:
                    client.send(p.Pubrel(packet.packet_identifier))
                    continue
            done += 1
            if done > 15:
                self.enough.set()
            self._send(client)

    def _answered(self, packet: p.Puback | p.Pubrec) -> None:
        assert self.open is not None
        told = dict(packet.properties.user_properties)
        payload = self.open.payload
        self.open = None
        if packet.reason_code < 0x80:
            self.stored[payload] = int(told.get("holdfast-revision", 0))
        else:
            assert packet.reason_code == 0x83
            self.refused.add(payload)
        self.known = int(told.get("holdfast-revision", self.known))

    def _send(self, client: RawClient) -> None:
        if self.open is None:
            self.count += 1
            condition = (("holdfast-if-revision", str(self.known)),)
            payload = f"{self.name} {self.count} {self.known}".encode()
            self.open = p.Publish(
                TOPIC, payload, self.qos, True, False, self.count % 60_000 + 1, Properties(user_properties=condition)
            )
        client.send(self.open)


def changes_of(broker: BrokerProcess, storage: tuple[str, ...]) -> list[tuple[bytes, int]]:
    """Return the payloads and revisions of all changes of the topic, in the order of the history."""
    query = f"SELECT payload, revision FROM retained_history WHERE topic = '{TOPIC}' ORDER BY seq"
    connection: Any
    if storage:
        connection = psycopg.connect(storage[1].replace("+psycopg", ""))
    else:
        connection = sqlite3.connect(f"file:{broker.directory}/data/holdfast.db?mode=ro", uri=True)
    try:
        return [(bytes(payload), revision) for payload, revision in connection.execute(query).fetchall()]
    finally:
        connection.close()


def kill_often(broker: BrokerProcess, storage: tuple[str, ...], kills: int) -> None:
    """Kill the broker at random moments while three clients set one topic, and compare the history with the answers."""
    setters = [Setter(f"s{number}", 1 + number % 2) for number in range(3)]
    for _ in range(kills):
        broker.start()
        setters = [setter.again(broker.port) for setter in setters]
        for setter in setters:
            setter.start()
        for setter in setters:
            assert setter.enough.wait(PATIENCE)
        time.sleep(random.random() / 50)
        broker.kill()
        for setter in setters:
            setter.join(PATIENCE)
    history = changes_of(broker, storage)
    revisions = dict(history)
    assert len(revisions) == len(history)  # no change was stored twice
    before = 0
    for payload, revision in history:  # each was stored on the revision that its condition names
        assert int(payload.split()[2]) == before, payload
        before = revision
    # A client with QoS 2 may lose each race against two with QoS 1.
    assert sum(len(setter.stored) for setter in setters) > kills
    for setter in setters:
        for payload, told in setter.stored.items():
            assert told in (revisions[payload], 0)


@pytest.mark.crash
def test_each_change_is_decided_once(
    broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...], tmp_path: Path
) -> None:
    """After kill -9, acknowledged changes are there, none is there twice, and no condition was passed over."""
    configuration = tmp_path / "history.toml"
    configuration.write_text("[retainer.history]\nenable = true\n")
    kill_often(broker_in("--config", str(configuration), *storage), storage, 2)


@pytest.mark.crash
@pytest.mark.nightly
def test_each_change_is_decided_once_through_many_kills(
    broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...], tmp_path: Path
) -> None:
    """The same with many kills."""
    configuration = tmp_path / "history.toml"
    configuration.write_text("[retainer.history]\nenable = true\n")
    kill_often(broker_in("--config", str(configuration), *storage), storage, 40)
