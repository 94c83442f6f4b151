"""Wills of Clients that were connected when the broker ended: published unless the Client returns in time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.makes import needs_mqttjs
from tests.e2e.makes.face import Message, Options, RealClient
from tests.e2e.makes.mqttjs_client import MqttJsClient
from tests.e2e.makes.paho_client import PahoRealClient
from tests.paho import PahoClient
from tests.processes import BrokerProcess, lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.crash]


def device(port: int, version: int, name: str) -> PahoClient:
    """Return a device that has published "online". Its Will says that it is offline. In MQTT 5 its Session lasts."""
    topic = f"state/{name}/{version}"
    client = PahoClient(
        port,
        version,
        f"{name}-{version}",
        clean=version == 4,
        expiry=600,
        will=(topic, b"offline", 1, True),
        comes_back=False,
    )
    client.publish(topic, b"online", retain=True)
    return client


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_devices_that_do_not_come_back_are_offline(
    broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...], tmp_path: Path, number: signal.Signals
) -> None:
    """After mqtt.will_restart_grace their retained Wills are published. Wills of devices that returned are not."""
    (tmp_path / "holdfast.toml").write_text('mqtt.will_restart_grace = "2s"\n')
    port = lasting_port()
    options = (*storage, "--config", "holdfast.toml", "--listen", f"tcp:{port}:interface=127.0.0.1")
    broker = broker_in(*options, listen=False).start()
    lost = [device(port, version, "lost") for version in (4, 5)]
    returning = [device(port, version, "back") for version in (4, 5)]
    broker.stop(number)
    broker.start()
    for client in returning:
        client.reconnect()
    watcher = PahoClient(port)
    watcher.subscribe("state/#")
    offline: set[str] = set()
    while len(offline) < 2:
        message = watcher.next_message()
        if message.payload == b"offline":
            offline.add(message.topic)
    assert offline == {"state/lost/4", "state/lost/5"}
    fresh = PahoClient(port, 5)
    fresh.subscribe("state/#")
    assert sorted(fresh.messages(4)) == [
        ("state/back/4", b"online", 0, True),
        ("state/back/5", b"online", 0, True),
        ("state/lost/4", b"offline", 0, True),
        ("state/lost/5", b"offline", 0, True),
    ]
    for client in (*lost, *returning, watcher, fresh):
        client.close()
    assert broker.stop() == (0, "")


def with_its_default(make: type[RealClient], port: int, version: int) -> RealClient:
    """Return a device that has said "online", with the Client Identifier that this make chooses, if it chooses one."""
    topic = f"state/{make.name}/{version}"
    client = make(Options(port, version, "", will=Message(topic, b"offline", 1, True)))
    client.publish(Message(topic, b"online", 1, True))
    return client


@needs_mqttjs
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_devices_that_are_back_with_their_default_client_identifiers_stay_online(
    broker_in: Callable[..., BrokerProcess], tmp_path: Path, number: signal.Signals
) -> None:
    """Broker and devices lose power together. The topics end "online", though no device has its old identifier."""
    (tmp_path / "holdfast.toml").write_text('mqtt.will_restart_grace = "5s"\n')
    port = lasting_port()
    broker = broker_in("--config", "holdfast.toml", "--listen", f"tcp:{port}:interface=127.0.0.1", listen=False).start()
    kinds = [(make, version) for make in (PahoRealClient, MqttJsClient) for version in (4, 5)]
    devices = [with_its_default(make, port, version) for make, version in kinds]
    lost = device(port, 5, "~lost")  # the last one by Client Identifier: all other Wills have their turn before
    broker.stop(number)
    for each in devices:
        each.drop()
    broker.start()
    devices = [with_its_default(make, port, version) for make, version in kinds]
    watcher = PahoClient(port)
    watcher.subscribe("state/#")
    states: dict[str, bytes] = {}
    while states.get("state/~lost/5") != b"offline":
        message = watcher.next_message()
        states[message.topic] = bytes(message.payload)
    assert states.pop("state/~lost/5") == b"offline"
    assert states == {f"state/{make.name}/{version}": b"online" for make, version in kinds}
    for each in devices:
        each.close()
    for client in (lost, watcher):
        client.close()
    assert broker.stop() == (0, "")
