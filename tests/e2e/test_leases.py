"""Leases with real clients: the page's snippets, and each lease ended once through kill -9."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.docs.pages import ROOT, blocks
from tests.e2e.makes import needs_mqttjs
from tests.e2e.raw import RawClient
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "extensions" / "leases.md"
TOPICS = 30


def snippet(language: str) -> str:
    """Return the snippet of the page in a language."""
    (found,) = [block.text for block in blocks(PAGE) if block.language == language]
    return found


def announced(port: int, program: str, *command: str) -> list[bytes]:
    """Run a snippet, and return the payloads that a subscriber gets until the topic is cleared."""
    reader = RawClient(port)
    reader.send(p.Subscribe(1, (p.SubscriptionRequest("home/+/config"),)))
    assert isinstance(next(reader.packets()), p.Suback)
    told = subprocess.run(
        (*command, str(port)), input=program, check=True, capture_output=True, text=True, timeout=PATIENCE,
        cwd=Path(__file__).parent,
    ).stdout  # fmt: skip
    assert told == "announced\n"
    found: list[bytes] = []
    for packet in reader.packets():
        assert isinstance(packet, p.Publish)
        found.append(packet.payload)
        if not packet.payload:
            break
    reader.close()
    return found


def test_the_snippet_in_python(broker: BrokerProcess) -> None:
    """It announces a sensor, and the end of its Session clears the topic."""
    assert announced(broker.port, snippet("python"), sys.executable, "-") == [b"{}", b""]


@needs_mqttjs
def test_the_snippet_in_javascript(broker: BrokerProcess) -> None:
    """The same with MQTT.js."""
    assert announced(broker.port, snippet("js"), "node", "-") == [b"{}", b""]


def ends_of(broker: BrokerProcess, storage: tuple[str, ...]) -> list[str]:
    """Return the topics that leases have cleared, in the order of the history."""
    query = "SELECT topic FROM retained_history WHERE op = 'clear' AND origin = 'lease' ORDER BY seq"
    connection: Any
    if storage:
        connection = psycopg.connect(storage[1].replace("+psycopg", ""))
    else:
        connection = sqlite3.connect(f"file:{broker.directory}/data/holdfast.db?mode=ro", uri=True)
    try:
        return [topic for (topic,) in connection.execute(query).fetchall()]
    finally:
        connection.close()


def lend(port: int, round_: int) -> RawClient:
    """Retain messages with leases of both kinds, and return the client once all are acknowledged."""
    asked = Properties(user_properties=(("holdfast", "?"),))
    client = RawClient.connected(port, p.Connect("lender", 5, properties=asked))
    for number in range(TOPICS):
        term = Properties(user_properties=(("holdfast-retain-while", ("session", "connected")[number % 2]),))
        client.send(p.Publish(f"lease/{round_}/{number}", b"on", 1, True, False, number + 1, term))
    answers = client.packets()
    for _ in range(TOPICS):
        assert isinstance(next(answers), p.Puback)
    return client


def end_through_kills(broker: BrokerProcess, storage: tuple[str, ...], kills: int) -> None:
    """Kill the broker while leases end. All of them have ended once, and an absent subscriber is told of each."""
    wishes = Properties(session_expiry_interval=6000)
    broker.start()
    reader = RawClient.connected(broker.port, p.Connect("reader", 5, False, properties=wishes))
    reader.send(p.Subscribe(1, (p.SubscriptionRequest("lease/#", 1),)))
    assert isinstance(next(reader.packets()), p.Suback)
    reader.close()
    for round_ in range(kills):
        lend(broker.port, round_).close()
        time.sleep(random.choice((0, 1)) + random.random() / 20)
        broker.kill()
        broker.start()
    expected = sorted(f"lease/{round_}/{number}" for round_ in range(kills) for number in range(TOPICS))
    until = time.monotonic() + PATIENCE
    while len(ends_of(broker, storage)) < len(expected) and time.monotonic() < until:
        time.sleep(0.1)
    assert sorted(ends_of(broker, storage)) == expected
    reader = RawClient.connected(broker.port, p.Connect("reader", 5, False, properties=wishes))
    newest: dict[str, bytes] = {}
    for packet in reader.packets():
        assert isinstance(packet, p.Publish)
        newest[packet.topic] = packet.payload
        reader.send(p.Puback(packet.packet_identifier))
        if len(newest) == len(expected) and not any(newest.values()):
            break
    reader.send(p.Subscribe(2, (p.SubscriptionRequest("lease/#"),)), p.Pingreq())
    replayed = [packet for packet in until_pong(reader) if isinstance(packet, p.Publish) and packet.retain]
    assert replayed == []
    reader.close()


def until_pong(client: RawClient) -> list[p.Packet]:
    """Return the packets before PINGRESP."""
    found: list[p.Packet] = []
    for packet in client.packets():
        if isinstance(packet, p.Pingresp):
            return found
        found.append(packet)
    raise AssertionError("the connection has ended")


def killed_broker(broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...], folder: Path) -> BrokerProcess:
    """Return a broker with short times of grace and a history."""
    configuration = folder / "leases.toml"
    configuration.write_text(
        '[retainer]\nlease_grace = "1s"\n[retainer.history]\nenable = true\n[mqtt]\nwill_restart_grace = "1s"\n'
    )
    return broker_in("--config", str(configuration), *storage)


@pytest.mark.crash
def test_each_lease_ends_once(
    broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...], tmp_path: Path
) -> None:
    """Through kill -9 at random moments."""
    end_through_kills(killed_broker(broker_in, storage, tmp_path), storage, 2)


@pytest.mark.crash
@pytest.mark.nightly
def test_each_lease_ends_once_through_many_kills(
    broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...], tmp_path: Path
) -> None:
    """The same with many kills."""
    end_through_kills(killed_broker(broker_in, storage, tmp_path), storage, 40)
