"""Recorded messages without RETAIN: kill -9 loses none that was acknowledged as stored, and operators read them."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Callable
from contextlib import closing

import pytest

from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.paho import PahoClient
from tests.processes import PATIENCE, BrokerProcess

LISTENER = '[listeners.default]\nendpoint = "tcp:0:interface=127.0.0.1"\n'
POLICY = '[[retainer.policies]]\nfilter = "t/#"\nrecord = "all"\n'
STORED = POLICY + 'record_acknowledge = "stored"\n'
WINDOW = 100


def holdfast(broker: BrokerProcess, *command: str) -> str:
    """Return what a command of ``holdfast`` prints about this broker."""
    options = ("--config", str(broker.directory / "holdfast.toml"), "--data-dir", str(broker.directory / "data"))
    return subprocess.run(
        [sys.executable, "-m", "holdfast.commands", *command, *options, *broker.options[2:]],
        check=True, capture_output=True, text=True, timeout=PATIENCE,
    ).stdout  # fmt: skip


def configured(broker_in: Callable[..., BrokerProcess], policy: str, *options: str) -> BrokerProcess:
    """Return a broker with this policy."""
    broker = broker_in("--config", "holdfast.toml", *options, listen=False)
    (broker.directory / "holdfast.toml").write_text(LISTENER + policy)
    return broker


@pytest.mark.e2e
def test_a_real_client_is_recorded_and_read(broker_in: Callable[..., BrokerProcess]) -> None:
    """By the command with a running broker and with a stopped one. Subscribers get nothing of it later."""
    broker = configured(broker_in, POLICY).start()
    client = PahoClient(broker.port, client_id="meter")
    client.publish("t/a", b"21.5", qos=1)
    client.publish("other", b"x", qos=1)
    client.publish("t/b", b"\xff\0", qos=2)
    lines = holdfast(broker, "retainer", "telemetry").splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == [
        "meter  t/b  qos 2, 2 bytes: 0xff00",
        "meter  t/a  qos 1, 4 bytes: 21.5",
    ]
    client.publish("t/c", b"just now", qos=0)
    client.publish("t/c", b"behind", qos=1)
    holdfast(broker, "db", "backup", str(broker.directory / "copy.db"))
    with closing(sqlite3.connect(broker.directory / "copy.db")) as copy:
        assert copy.execute("SELECT payload FROM telemetry_messages WHERE topic = 't/c' ORDER BY seq").fetchall() == [
            (b"just now",),
            (b"behind",),
        ]
    client.close()
    assert broker.stop()[0] == 0
    stopped = holdfast(broker, "retainer", "telemetry", "t/a", "--json", "--oldest-first")
    assert [(one["topic"], one["payload"], one["from_clientid"]) for one in map(json.loads, stopped.splitlines())] == [
        ("t/a", "MjEuNQ==", "meter")
    ]
    assert holdfast(broker, "retainer", "count").startswith("retained messages: 0")


class Storm(threading.Thread):
    """Publishes numbers in runs with QoS 1, without RETAIN; notes the acknowledged ones."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[bytes] = []
        self.enough = threading.Event()
        self._client = RawClient(port, name)
        self._name = name
        self._sent: dict[int, bytes] = {}
        self._number = 0

    def run(self) -> None:
        free = list(range(1, WINDOW + 1))
        try:
            self._send(free)
            for packet in self._client.packets():
                assert isinstance(packet, p.Puback)
                self.acknowledged.append(self._sent.pop(packet.packet_identifier))
                free.append(packet.packet_identifier)
                if len(self.acknowledged) > 5 * WINDOW:
                    self.enough.set()
                if len(free) > WINDOW // 4:
                    self._send(free)
        except OSError:
            return

    def _send(self, free: list[int]) -> None:
        packets = []
        while free:
            identifier = free.pop()
            self._number += 1
            self._sent[identifier] = b"%s %d" % (self._name.encode(), self._number)
            packets.append(p.Publish(f"t/{self._number % 7}", self._sent[identifier], 1, False, False, identifier))
        self._client.send(*packets)


@pytest.mark.e2e
@pytest.mark.crash
def test_kills_lose_no_message_that_was_acknowledged_as_stored(
    broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...]
) -> None:
    """After each kill -9, the table has every acknowledged message once, in its order, and its numbers have no gap."""
    broker = configured(broker_in, STORED, *storage)
    acknowledged: list[bytes] = []
    for cycle in range(3):
        broker.start()
        storms = [Storm(broker.port, f"{cycle}-{number}") for number in range(2)]
        for storm in storms:
            storm.start()
        for storm in storms:
            assert storm.enough.wait(60)
        broker.kill()
        for storm in storms:
            storm.join(60)
            assert not storm.is_alive()
            acknowledged += storm.acknowledged
    broker.start()
    found = [json.loads(line) for line in holdfast(broker, "retainer", "telemetry", "--json").splitlines()][::-1]
    assert [int(one["seq"]) for one in found] == list(range(1, len(found) + 1))
    payloads = [b64decode(one["payload"]) for one in found]
    assert len(set(payloads)) == len(payloads)
    assert len(acknowledged) > 3000
    assert set(acknowledged) <= set(payloads)
    for name in {payload.split()[0] for payload in payloads}:
        numbers = [int(payload.split()[1]) for payload in payloads if payload.split()[0] == name]
        assert numbers == sorted(numbers)
