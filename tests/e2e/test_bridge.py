"""A real mosquitto as a bridge: messages of both sides reach the other one, once, and survive restarts of both."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.mosquitto_broker import MosquittoBridge, needs_mosquitto_broker
from tests.paho import PahoClient
from tests.processes import PATIENCE, BrokerProcess, lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.crash, needs_mosquitto_broker]

STATE = "$SYS/broker/connection/mosquitto-hall-3/state"
COUNTER = "$SYS/broker/holdfast/counters/messages_dropped_bridge_state"
MESSAGES = 50


class Sides:
    """Holdfast and mosquitto with a bridge between them."""

    def __init__(self, broker: BrokerProcess, port: int, bridge: MosquittoBridge) -> None:
        self.holdfast = broker
        self.ports = {"holdfast": port, "mosquitto": bridge.port}
        self.mosquitto = bridge

    def client(self, side: str, client_id: str = "") -> PahoClient:
        """Connect a client to one side, as soon as it can be reached. With a Client Identifier its Session lasts."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError):
                return PahoClient(self.ports[side], 4, client_id, clean=not client_id)
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def retain(self, side: str, topic: str, payload: str) -> None:
        """Publish a retained message on one side."""
        client = self.client(side)
        client.publish(topic, payload, 1, True)
        client.close()

    def bridged(self) -> None:
        """Wait until messages cross the bridge."""
        near, far = self.client("holdfast"), self.client("mosquitto")
        far.subscribe("probe")
        deadline = time.monotonic() + PATIENCE
        near.publish("probe")
        while far.quiet():
            assert time.monotonic() < deadline
            near.publish("probe")
        near.close()
        far.close()

    def retained(self, side: str, count: int) -> dict[str, bytes]:
        """Wait until a side has so many retained messages; return them."""
        deadline = time.monotonic() + PATIENCE
        while True:
            client = self.client(side)
            client.subscribe("#", "end", qos=1)
            client.publish("end")
            found = {}
            while (message := client.next_message()).topic != "end":
                found[message.topic] = bytes(message.payload)
            client.close()
            if len(found) >= count or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def exchange(self, name: str) -> None:
        """Publish on both sides; everything must arrive once on both, and nothing come back."""
        clients = {side: self.client(side) for side in self.ports}
        for client in clients.values():
            client.subscribe(f"live/{name}/#", f"over/{name}/#", qos=1)
        expected = Counter(f"live/{name}/{side}/{number}" for side in self.ports for number in range(MESSAGES))
        for side, client in clients.items():
            for number in range(MESSAGES):
                client.publish(f"live/{name}/{side}/{number}", side)
        # Both ways keep the order. So when these have made their way there and back, all echoes have come, too.
        seen: dict[str, Counter[str]] = {side: Counter() for side in clients}
        for number, side in enumerate(["holdfast", "mosquitto"] * 2):
            clients[side].publish(f"over/{name}/{number}")
            for other, client in clients.items():
                while (topic := client.next_message().topic) != f"over/{name}/{number}":
                    seen[other][topic] += 1
        assert seen == {"holdfast": expected, "mosquitto": expected}
        for client in clients.values():
            client.close()


@pytest.fixture(params=["mqttv311", "mqttv50"])
def version(request: pytest.FixtureRequest) -> str:
    """The protocol version of the bridge."""
    return str(request.param)


@pytest.fixture
def sides(broker_in: Callable[..., BrokerProcess], tmp_path: Path, version: str) -> Iterator[Sides]:
    """Both brokers, not started yet."""
    port = lasting_port()
    file = tmp_path / "holdfast.toml"
    file.write_text(
        f'[listeners.default]\nendpoint = "tcp:{port}:interface=127.0.0.1"\n[sys_topics]\nsys_msg_interval = "1s"\n'
    )
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    bridge = MosquittoBridge(folder, port, version)
    yield Sides(broker_in("--config", str(file), listen=False), port, bridge)
    bridge.stop()


@pytest.mark.parametrize("version", [pytest.param("mqttv311", marks=pytest.mark.nightly), "mqttv50"])
def test_a_bridge_with_the_settings_of_the_page_exchanges_everything_once(sides: Sides, version: str) -> None:
    """Retained messages of both sides, live messages, and all that is published while one side is away."""
    sides.holdfast.start()
    sides.retain("holdfast", "kept/holdfast", "from holdfast")
    sides.holdfast.kill()
    sides.mosquitto.start()
    sides.retain("mosquitto", "kept/mosquitto", "from mosquitto")
    sides.holdfast.start()
    sides.bridged()
    kept = {"kept/holdfast": b"from holdfast", "kept/mosquitto": b"from mosquitto"}
    for side in sides.ports:
        assert sides.retained(side, 2) == kept
    sides.exchange("first")

    watcher = sides.client("holdfast")
    watcher.subscribe(COUNTER, STATE)
    message = watcher.next_message()
    while message.payload == b"0":
        message = watcher.next_message()
    assert message.topic == COUNTER  # the state itself is neither retained nor delivered
    watcher.close()

    sides.mosquitto.stop()
    sides.retain("holdfast", "kept/meanwhile", "mosquitto was away")
    kept["kept/meanwhile"] = b"mosquitto was away"
    sides.mosquitto.start()
    sides.bridged()
    assert sides.retained("mosquitto", 3) == kept
    sides.exchange("after a restart of mosquitto")

    for end in (sides.holdfast.stop, sides.holdfast.kill):
        end()
        number = len(kept)
        sides.retain("mosquitto", f"kept/{number}", "holdfast was away")
        kept[f"kept/{number}"] = b"holdfast was away"
        sides.holdfast.start()
        sides.bridged()
        assert sides.retained("holdfast", len(kept)) == kept
        sides.exchange(f"with {number} topics")
    assert sides.retained("mosquitto", len(kept)) == kept
    assert not any("may not publish" in line or "is refused" in line for line in sides.holdfast.lines)


def test_a_lasting_bridge_gets_what_was_published_while_it_was_away(sides: Sides, version: str) -> None:
    """Its Session queues QoS 1 messages, through a kill too. In MQTT 5 it has none, since mosquitto asks for none."""
    sides.holdfast.start()
    sides.mosquitto.start()
    sides.bridged()
    sides.exchange("first")
    subscriber = sides.client("mosquitto", "lasting")
    subscriber.subscribe("queued/#", "end", qos=1)
    subscriber.close()
    sides.mosquitto.stop()
    publisher = sides.client("holdfast")
    for number in range(MESSAGES):
        publisher.publish(f"queued/{number}")
    publisher.close()
    sides.holdfast.kill()
    sides.holdfast.start()
    sides.mosquitto.start()
    sides.bridged()
    subscriber = sides.client("mosquitto", "lasting")
    publisher = sides.client("holdfast")
    publisher.publish("end")
    publisher.close()
    came = []
    while (topic := subscriber.next_message().topic) != "end":
        came.append(topic)
    subscriber.close()
    assert came == ([] if version == "mqttv50" else [f"queued/{number}" for number in range(MESSAGES)])
