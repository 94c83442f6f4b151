"""Operators find past changes and restore messages, with and without a running broker, on both databases."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_operator import holdfast, said
from tests.paho import PahoClient
from tests.processes import BrokerProcess

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]

_CONFIGURATION = """
[retainer]
delivery_rate = "infinity"
[retainer.history]
enable = true
[retainer.topic_quotas.lamps]
topic_filter = "lamp/#"
max_retained_messages = 3
"""


@pytest.fixture
def options(tmp_path: Path, storage: tuple[str, ...]) -> tuple[str, ...]:
    (tmp_path / "h.toml").write_text(_CONFIGURATION)
    return "--config", str(tmp_path / "h.toml"), "--data-dir", str(tmp_path / "data"), *storage


def moment_between() -> str:
    """Return a moment after all earlier changes and before all later ones."""
    at = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 <= at:
        pass
    return str(at)


def test_finding_the_client_of_a_change_and_restoring_messages(
    broker_in: Brokers, storage: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """Present subscribers get a restore live. A restore without a broker is kept for the next broker."""
    broker = broker_in(*options[:2], *storage).start()
    folder = broker.directory
    alice, bob = PahoClient(broker.port, 5, "alice"), PahoClient(broker.port, 5, "bob")
    for topic in ("lamp/1", "lamp/2"):
        alice.publish(topic, b"on", qos=1, retain=True)
    then = moment_between()
    bob.publish("lamp/1", b"off", qos=1, retain=True)
    bob.publish("lamp/2", b"", qos=1, retain=True)
    bob.publish("lamp/3", b"new", qos=1, retain=True)
    lines = said(folder, "retainer", "history", *options, "lamp/+").decode().splitlines()
    assert [line.split()[1:5] for line in lines] == [
        ["set", "publish", "bob", "lamp/3"],
        ["clear", "publish", "bob", "lamp/2"],
        ["set", "publish", "bob", "lamp/1"],
        ["set", "publish", "alice", "lamp/2"],
        ["set", "publish", "alice", "lamp/1"],
    ]
    assert said(folder, "retainer", "topics", *options, "--at", then) == b"lamp/1\nlamp/2\n"
    assert said(folder, "retainer", "get", *options, "lamp/1", "--payload", "--at", then) == b"on"
    watcher = PahoClient(broker.port, 5)
    watcher.subscribe("lamp/2")
    restored = said(folder, "retainer", "restore", *options, "lamp/#", "--at", then, "--clear", "--yes")
    assert restored == b"2 restored, 1 cleared\n"
    assert [message[:2] for message in watcher.messages(1)] == [("lamp/2", b"on")]
    for client in (alice, bob, watcher):
        client.close()
    assert broker.stop() == (0, "")
    said(folder, "retainer", "clean", *options, "#")
    assert said(folder, "retainer", "restore", *options, "lamp/1", "--at", then, "--yes") == b"1 restored\n"
    newest = json.loads(said(folder, "retainer", "history", *options, "--json", "--limit", "1"))
    assert (newest["origin"], newest["topic"], newest["from_clientid"]) == ("restore", "lamp/1", "alice")
    broker.start()
    late = PahoClient(broker.port, 5)
    late.subscribe("#")
    assert [message[:2] for message in late.messages(1)] == [("lamp/1", b"on")]
    assert late.quiet()
    late.close()


def asked(folder: Path, path: str) -> Any:
    """Return the answer to a call of the broker's API."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "data" / "control.sock"))
        connection.sendall(f"GET /api/v5/mqtt/retainer{path} HTTP/1.0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def test_settings_and_replays_of_a_running_broker(broker: BrokerProcess) -> None:
    """A changed rate counts at once, even for a running replay. A cancelled replay is gone.

    Scans of the messages answer from their thread, and end with the broker.
    """
    folder = broker.directory
    lines = b"".join(json.dumps({"topic": f"t/{number}", "payload": "eA=="}).encode() + b"\n" for number in range(300))
    said(folder, "retainer", "import", "-", given=lines)
    (node,) = asked(folder, "/tree")["data"]
    assert (node["topic"], node["count"], node["exact"]) == ("t", 300, True)
    assert asked(folder, "/messages?sort=size&limit=7&min_size=1")["meta"]["scanned"] == 300
    assert asked(folder, "/count?topic=t/%2B&search=99")["count"] == 3
    said(folder, "retainer", "settings", "delivery_rate=1/1h")
    slow = PahoClient(broker.port, 5, "slow")
    slow.subscribe("#")
    slow.messages(1)
    (replay,) = [json.loads(line) for line in said(folder, "retainer", "replays", "--json").splitlines()]
    assert (replay["clientid"], replay["topic"], replay["sent"], replay["throttled"]) == ("slow", "#", 1, True)
    told = said(folder, "retainer", "settings", "delivery_rate=infinity", "flow_control.client_rate=1/1h").decode()
    assert 'retainer.flow_control.client_rate = "1/3600s"  # until the broker ends' in told
    status, out, errors = holdfast(folder, "retainer", "settings", "delivery_rate=5/s", "enable=false")
    assert (status, out) == (1, b"")
    assert "retainer.enable: cannot be changed by this call" in errors
    assert b'delivery_rate = "infinity"' in said(folder, "retainer", "settings")
    said(folder, "retainer", "replays", "--cancel", str(replay["id"]))
    assert said(folder, "retainer", "replays") == b""
    slow.close()
    assert broker.stop() == (0, "")
    broker.start()
    assert b"until the broker ends" not in said(folder, "retainer", "settings")
