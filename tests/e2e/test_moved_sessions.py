"""Clients of a real mosquitto find their Sessions at Holdfast: queued messages, messages in flight, Subscriptions."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.wire import packets as p
from holdfast.wire.properties import Properties
from tests.e2e.mosquitto import PROGRAM
from tests.e2e.raw import RawClient
from tests.paho import PahoClient
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess, lasting_port

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.nightly,
    pytest.mark.skipif(PROGRAM is None, reason="mosquitto is not installed"),
]

WEEK = 604_800


@contextlib.contextmanager
def mosquitto(folder: Path) -> Iterator[int]:
    """Run a mosquitto that writes its database when it ends."""
    port = lasting_port()
    (folder / "mosquitto.conf").write_text(
        f"user root\nlistener {port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
        f"persistence_location {folder}/\n"
    )
    process = subprocess.Popen([str(PROGRAM), "-c", str(folder / "mosquitto.conf")], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            assert time.monotonic() < deadline, "mosquitto does not start"
            time.sleep(0.05)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def publishes(client: RawClient, count: int) -> list[p.Publish]:
    """Return the next PUBLISH packets, without an answer to them."""
    found: list[p.Publish] = []
    for packet in client.packets():
        if isinstance(packet, p.Publish):
            found.append(packet)
        if len(found) == count:
            break
    return found


def fill(port: int) -> None:
    """Leave Sessions: one with queued messages, one with messages in flight, one of MQTT 5.0 that expires."""
    queued = PahoClient(port, 4, "queued", clean=False)
    queued.subscribe("q/#", qos=2)
    queued.subscribe("only/0", qos=0)
    queued.close()
    flying = RawClient(port, "flying", 4, clean=False)
    flying.send(p.Subscribe(1, [p.SubscriptionRequest("q/#", 2)]))
    next(flying.packets())
    five = RawClient.connected(
        port, p.Connect("five", 5, clean_start=False, properties=Properties(session_expiry_interval=WEEK))
    )
    options = p.SubscriptionRequest("q/+", 1, no_local=True, retain_as_published=True)
    five.send(p.Subscribe(1, [options], Properties(subscription_identifiers=(7,))))
    next(five.packets())
    five.close()
    publisher = PahoClient(port, 5, "publisher")
    publisher.publish("q/1", "one", 1)
    publisher.publish("q/2", "two", 2)
    publisher.publish("q/3", b"\x00\xff", 1, retain=True)
    one, two, _ = publishes(flying, 3)
    assert (one.topic, two.topic) == ("q/1", "q/2")
    flying.send(p.Pubrec(two.packet_identifier))
    assert isinstance(next(flying.packets()), p.Pubrel)
    flying.close()
    publisher.close()


def run(folder: Path, *arguments: str, status: int = 0) -> tuple[dict[str, Any], str]:
    command = [HOLDFAST_RUN[0], "retainer", "import", "mosquitto.db", "--json", "--data-dir", "data", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout or "{}"), done.stderr


def test_clients_of_mosquitto_find_their_sessions(tmp_path: Path) -> None:
    """Each message as mosquitto would have delivered it. A second import, and a dry run, change nothing."""
    with mosquitto(tmp_path) as port:
        fill(port)
    (tmp_path / "data").mkdir()
    broker = BrokerProcess(tmp_path, "--allow-anonymous", "--data-dir", "data", program=HOLDFAST_RUN)
    try:
        broker.start()
        _, problem = run(tmp_path, "--sessions", status=1)
        assert "Sessions are imported while the broker does not run: stop it" in problem
        broker.stop()
        expected = {"sessions": 3, "subscriptions": 4, "messages": 9}
        assert run(tmp_path, "--sessions", "--dry-run")[0]["sessions_taken"] == expected
        told, _ = run(tmp_path, "--sessions")
        assert (told["imported"], told["sessions_taken"], told["sessions_left_out"]) == (1, expected, {})
        again, _ = run(tmp_path, "--sessions")
        assert again["sessions_taken"] == {"sessions": 0, "subscriptions": 0, "messages": 0}
        assert again["sessions_left_out"]["the client has a Session here already"] == 3
        broker.start()
        check(broker.port)
    finally:
        broker.end()


def check(port: int) -> None:
    queued = PahoClient(port, 4, "queued", clean=False)
    assert queued.session_present
    assert sorted(queued.messages(3)) == [  # this client gives a QoS 2 message away once it is released
        ("q/1", b"one", 1, False), ("q/2", b"two", 2, False), ("q/3", b"\x00\xff", 1, False),
    ]  # fmt: skip
    publisher = PahoClient(port)
    publisher.publish("only/0", "live", 0)
    assert queued.messages(1) == [("only/0", b"live", 0, False)]
    flying = RawClient(port, "flying", 4, clean=False)
    packets = flying.packets()
    first, second, third = (next(packets) for _ in range(3))
    assert isinstance(first, p.Publish)
    assert (first.topic, first.payload, first.dup) == ("q/1", b"one", True)
    assert isinstance(second, p.Pubrel)
    assert isinstance(third, p.Publish)
    assert (third.topic, third.payload, third.dup) == ("q/3", b"\x00\xff", True)
    five = RawClient.connected(
        port, p.Connect("five", 5, clean_start=False, properties=Properties(session_expiry_interval=WEEK))
    )
    found = publishes(five, 3)
    assert [(each.topic, each.qos, each.retain) for each in found] == [
        ("q/1", 1, False), ("q/2", 1, False), ("q/3", 1, True),
    ]  # fmt: skip
    assert {each.properties.subscription_identifiers for each in found} == {(7,)}
    for client in (queued, flying, five, publisher):
        client.close()
