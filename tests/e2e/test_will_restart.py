"""Wills of Clients that were connected when the broker ended: published unless the Client returns in time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

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
