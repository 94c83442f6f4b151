"""Bridges of this broker to a real mosquitto and to a second Holdfast, through kills in the middle of exchanges."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import CLIENT, Authority
from tests.e2e.mosquitto_broker import PROGRAM, needs_mosquitto_broker
from tests.paho import PahoClient
from tests.processes import PATIENCE, BrokerProcess, lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

KILLS = 3
WINDOW = 20
MOST = 800  #: messages of one publisher
END = b"that is all"

HOLDFAST = str(Path(sys.executable).parent / "holdfast")

LINES = """topics = [
    { filter = "num/#", direction = "out", qos = 2, remote_prefix = "up/" },
    { filter = "num/#", direction = "in", qos = 2, local_prefix = "down/" },
    { filter = "both/#", qos = 1 },
]"""


class Far:
    """The other broker: mosquitto, or a second Holdfast."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.port = lasting_port()
        folder.mkdir()
        self._mosquitto: subprocess.Popen[bytes] | None = None
        self.holdfast: BrokerProcess | None = None
        if kind == "mosquitto":
            assert PROGRAM is not None
            file = folder / "mosquitto.conf"
            file.write_text(f"user root\nlistener {self.port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
            self._mosquitto = subprocess.Popen([PROGRAM, "-c", str(file)], stderr=subprocess.DEVNULL)
        else:
            self.holdfast = BrokerProcess(folder, "--listen", f"tcp:{self.port}:interface=127.0.0.1", listen=False)
            self.holdfast.start()

    def stop(self) -> None:
        """End the process."""
        if self.holdfast is not None:
            self.holdfast.end()
        if self._mosquitto is not None:
            self._mosquitto.terminate()
            self._mosquitto.wait(PATIENCE)


class Publisher:
    """Publishes numbers with one QoS, :data:`WINDOW` at a time, up to :data:`MOST`."""

    def __init__(self, port: int, version: int, qos: int) -> None:
        self.topic = f"num/{qos}"
        self.published = self.completed = 0
        self._qos = qos
        self._stopping = False
        self._progress = threading.Condition()
        self.paho = lasting(port, version, f"publisher-{qos}")
        self.paho.client.on_publish = lambda *_: self._on_completed()
        self._publish()

    def _publish(self) -> None:
        self.published += 1
        self.paho.client.publish(self.topic, b"%d" % self.published, self._qos)

    def _on_completed(self) -> None:
        with self._progress:
            self.completed += 1
            self._progress.notify()
        while not self._stopping and self.published < MOST and self.published - self.completed < WINDOW:
            self._publish()

    def reach(self, completed: int) -> None:
        """Wait until so many exchanges are completed."""
        with self._progress:
            assert self._progress.wait_for(lambda: self.completed >= completed, PATIENCE)

    def finish(self) -> None:
        """Stop; wait until every exchange is completed, then send the last message."""
        self._stopping = True
        self.reach(self.published)
        self.paho.publish(self.topic, END, self._qos)
        self.paho.close()


def lasting(port: int, version: int, client_id: str) -> PahoClient:
    deadline = time.monotonic() + PATIENCE
    while True:
        with suppress(OSError):
            return PahoClient(port, version, client_id, clean=False, expiry=600, comes_back=False)
        assert time.monotonic() < deadline
        time.sleep(0.05)


def received(subscriber: PahoClient, prefix: str) -> dict[str, list[int]]:
    """Return the numbers that came on each topic, until both have had their last message."""
    numbers: dict[str, list[int]] = {"num/1": [], "num/2": []}
    going_on = set(numbers)
    while going_on:
        message = subscriber.next_message()
        topic = message.topic.removeprefix(prefix)
        if message.payload == END:
            going_on.discard(topic)
        else:
            numbers[topic].append(int(message.payload))
    return numbers


@pytest.fixture
def bridged(
    broker_in: Callable[..., BrokerProcess], tmp_path: Path, kind: str, version: str
) -> Iterator[tuple[BrokerProcess, int, Far]]:
    """A broker with a bridge, and the other one."""
    far = Far(kind, tmp_path / "far")
    port = lasting_port()
    file = tmp_path / "holdfast.toml"
    file.write_text(
        f'[listeners.default]\nendpoint = "tcp:{port}:interface=127.0.0.1"\n'
        '[sys_topics]\nsys_msg_interval = "1s"\n'
        f'[bridges.far]\naddresses = ["127.0.0.1:{far.port}"]\nprotocol_version = "{version}"\n'
        f'restart_timeout = "100ms"\n{LINES}\n'
    )
    near = broker_in("--config", str(file), listen=False).start()
    near.wait_for("bridge far is connected")
    yield near, port, far
    far.stop()


BROKERS = [
    pytest.param("holdfast", "mqttv50", marks=pytest.mark.nightly),
    pytest.param("mosquitto", "mqttv311", marks=[needs_mosquitto_broker]),
    pytest.param("mosquitto", "mqttv50", marks=[needs_mosquitto_broker, pytest.mark.nightly]),
    pytest.param("holdfast", "mqttv311", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("kind", "version"), BROKERS)
def test_acknowledged_messages_cross_despite_kills(
    bridged: tuple[BrokerProcess, int, Far], kind: str, version: str
) -> None:
    """QoS 1: at least once. QoS 2: exactly once. Both ways. Between two Holdfasts also in order.

    Mosquitto 2.0 sends some messages earlier than older ones after a connection was lost.
    """
    near, port, far = bridged
    sides = {"up/": lasting(far.port, 5, "subscriber"), "down/": lasting(port, 5, "subscriber")}
    for prefix, subscriber in sides.items():
        subscriber.subscribe(f"{prefix}#", qos=2)
    publishers = {
        "up/": [Publisher(port, 5, qos) for qos in (1, 2)],
        "down/": [Publisher(far.port, 5, qos) for qos in (1, 2)],
    }
    chance = random.Random(version + kind)
    for _ in range(KILLS):
        one = chance.choice(publishers["up/"])
        one.reach(min(one.completed + chance.randrange(1, 150), MOST))
        near.kill()
        near.start()
        for client in (sides["down/"], *(publisher.paho for publisher in publishers["up/"])):
            client.reconnect()
            assert client.session_present
    for prefix, subscriber in sides.items():
        for publisher in publishers[prefix]:
            publisher.finish()
        numbers = received(subscriber, prefix)
        subscriber.close()
        for publisher in publishers[prefix]:
            came = numbers[publisher.topic]
            if publisher.topic == "num/1":
                came = list(dict.fromkeys(came))
            if kind == "mosquitto":
                came.sort()
            assert came == list(range(1, publisher.published + 1)), (prefix, publisher.topic)
    assert near.stop() == (0, "")
    assert "Traceback" not in "\n".join(near.lines)


@pytest.mark.parametrize(("kind", "version"), BROKERS)
def test_messages_do_not_come_back_and_keep_retain(
    bridged: tuple[BrokerProcess, int, Far], kind: str, version: str
) -> None:
    near, port, far = bridged
    clients = {"near": PahoClient(port, 5), "far": PahoClient(far.port, 5)}
    for client in clients.values():
        client.subscribe("both/#", qos=1, retainAsPublished=True)
    for name, client in clients.items():
        client.publish(f"both/{name}", b"x", 1, retain=True)
        client.publish(f"both/{name}", b"", 1, retain=True)
    expected = [(f"both/{name}", payload, 1, True) for name in clients for payload in (b"x", b"")]
    for client in clients.values():
        assert sorted(client.messages(4)) == sorted(expected)
        assert client.quiet()
        client.close()
    near.stop()


@pytest.mark.parametrize(("kind", "version"), [pytest.param("holdfast", "mqttv50")])
def test_a_bridge_is_paused_resumed_changed_and_removed_while_the_broker_runs(
    bridged: tuple[BrokerProcess, int, Far], tmp_path: Path, kind: str, version: str
) -> None:
    """What is published meanwhile waits. A removed bridge ends with its Session."""
    near, port, far = bridged
    file = tmp_path / "holdfast.toml"

    def holdfast(*words: str) -> list[dict[str, Any]]:
        command = [HOLDFAST, *words, "--config", str(file), "--data-dir", str(near.directory / "data"), "--json"]
        found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout
        return [json.loads(line) for line in found.splitlines()]

    publisher, subscriber = PahoClient(port, 5), PahoClient(far.port, 5)
    subscriber.subscribe("up/#", "new/#", qos=2)
    watcher = PahoClient(port, 5)
    watcher.subscribe("$SYS/broker/connection/far/state")
    while watcher.next_message().payload != b"1":
        pass  # the state at the start, until the next second
    [bridge] = holdfast("bridge", "list")
    assert (bridge["name"], bridge["state"], bridge["proto_ver"]) == ("far", "connected", 5)
    [paused] = holdfast("bridge", "pause", "far")
    assert paused["state"] == "paused"
    publisher.publish("num/a", "waits", 2)
    [paused] = holdfast("bridge", "list")
    assert (paused["queued"], paused["messages"]["sent"]) == (1, 0)
    assert watcher.next_message().payload == b"0"
    holdfast("bridge", "resume", "far")
    assert subscriber.messages(1) == [("up/num/a", b"waits", 2, False)]

    file.write_text(file.read_text().replace('remote_prefix = "up/"', 'remote_prefix = "new/"'))
    holdfast("reload")
    publisher.publish("num/b", "changed", 2)
    assert subscriber.messages(1) == [("new/num/b", b"changed", 2, False)]

    text = file.read_text()
    file.write_text(text[: text.index("[bridges.far]")])
    holdfast("reload")
    near.wait_for("bridge far is not configured any more")
    assert holdfast("bridge", "list") == []
    publisher.publish("num/c", "stays", 2)
    assert subscriber.quiet()
    assert near.stop() == (0, "")


def test_both_brokers_prove_themselves_by_certificates(broker_in: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """A remote broker with a certificate of another authority gets nothing."""
    authority = Authority()
    authority.write(tmp_path, "ca")
    Authority("Another CA").write(tmp_path, "other")
    authority.issue("localhost", ["localhost"]).write(tmp_path, "server")
    authority.issue("bridge", usage=CLIENT).write(tmp_path, "bridge")
    folder, port = tmp_path / "far", lasting_port()
    folder.mkdir()
    (folder / "far.toml").write_text(
        f'[listeners.tls]\nendpoint = "tcp:{port}:interface=127.0.0.1"\ntls = {{ certificate = "../server.pem",'
        ' key = "../server.key", client = "required", client_ca = "../ca.pem" }\n'
        '[listeners.plain]\nendpoint = "tcp:0:interface=127.0.0.1"\n'
    )
    far = BrokerProcess(folder, "--config", str(folder / "far.toml"), listen=False).start()
    shown = 'certificate = "bridge.pem", key = "bridge.key"'
    (tmp_path / "near.toml").write_text(
        f'[bridges.right]\naddresses = ["localhost:{port}"]\ntopics = [{{ filter = "a/#", direction = "out" }}]\n'
        f'tls = {{ ca = "ca.pem", {shown} }}\n'
        f'[bridges.wrong]\naddresses = ["localhost:{port}"]\ntopics = [{{ filter = "b/#", direction = "out" }}]\n'
        f'tls = {{ ca = "other.pem", {shown} }}\n'
    )
    try:
        near = broker_in("--config", str(tmp_path / "near.toml")).start()
        near.wait_for("bridge right is connected")
        assert "certificate verify failed" in near.wait_for("bridge wrong is not connected")
        subscriber = PahoClient(int(far.wait_for("^listening plain").rsplit(":", 1)[1]), 5)
        subscriber.subscribe("#", qos=1)
        publisher = PahoClient(near.port, 5)
        for topic in ("b/1", "a/1"):
            publisher.publish(topic, "x", 1)
        assert subscriber.messages(1) == [("a/1", b"x", 1, False)]
        assert subscriber.quiet()
        assert near.stop() == (0, "")
    finally:
        far.end()
