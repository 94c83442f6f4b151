"""Permissions by rules from a file, with real clients on a real broker."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

CONFIG = """\
[listeners.door]
endpoint = "tcp:0:interface=127.0.0.1"

[authorization]
sources = ["rules"]

[authorization.rules]
type = "file"
path = "rules.toml"
"""
RULES = """\
[[rule]]
clients = ["sensor"]
action = ["publish", "retain"]
topics = ["site/sensor/#"]
allow = true

[[rule]]
clients = ["dashboard"]
action = ["subscribe", "receive"]
topics = ["site/#"]
allow = true
"""


class Paho:
    """A client that notes what it is told."""

    def __init__(self, broker: BrokerProcess, name: str, version: int, will: str = "") -> None:
        self.codes: queue.Queue[int] = queue.Queue()
        self.arrived: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion(version))
        if will:
            self.client.will_set(will, b"gone", 1)
        self.client.on_connect = lambda _c, _u, _f, code, _p: self.codes.put(code.value)
        self.client.on_publish = lambda _c, _u, _m, code, _p: self.codes.put(code.value)
        self.client.on_subscribe = lambda _c, _u, _m, codes, _p: self.codes.put(codes[0].value)
        self.client.on_message = lambda _c, _u, message: self.arrived.put((message.topic, bytes(message.payload)))
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()
        self.connected = self.told()

    def told(self) -> int:
        """Return the next Reason Code."""
        return self.codes.get(timeout=PATIENCE)

    def after(self, call: Callable[..., Any], *arguments: Any) -> int:
        """Call a method of the client, and return the Reason Code of the answer."""
        call(*arguments)
        return self.told()

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.mark.parametrize("version", [4, 5])
def test_a_sensor_writes_below_its_name_and_a_dashboard_reads(
    tmp_path: Path, broker_in: Callable[..., BrokerProcess], version: int
) -> None:
    """Live and retained messages, subscriptions, and a Will that is not allowed."""
    (tmp_path / "rules.toml").write_text(RULES)
    config = tmp_path / "holdfast.toml"
    config.write_text(CONFIG)
    broker = broker_in("--config", str(config), listen=False).start()
    denied = 0x87 if version == 5 else 0
    dashboard, sensor = Paho(broker, "dashboard", version), Paho(broker, "sensor", version)
    assert dashboard.after(dashboard.client.subscribe, "site/#", 1) == 1
    assert dashboard.after(dashboard.client.subscribe, "other", 1) == (0x87 if version == 5 else 0x80)
    assert sensor.after(sensor.client.subscribe, "site/sensor/#", 1) == (0x87 if version == 5 else 0x80)
    assert sensor.after(sensor.client.publish, "site/other", b"1", 1) == denied
    assert sensor.after(sensor.client.publish, "site/sensor/t", b"2", 1, True) == 0
    assert sensor.after(sensor.client.publish, "site/sensor/t", b"", 1, True) == denied
    assert dashboard.after(dashboard.client.publish, "site/sensor/t", b"3", 1) == denied
    assert sensor.after(sensor.client.publish, "site/sensor/t", b"4", 2) == 0
    assert [dashboard.arrived.get(timeout=PATIENCE)[1] for _ in range(2)] == [b"2", b"4"]
    late = Paho(broker, "dashboard", version)
    assert late.after(late.client.subscribe, "site/sensor/+", 1) == 1
    assert late.arrived.get(timeout=PATIENCE) == ("site/sensor/t", b"2")
    refused = Paho(broker, "sensor", version, will="site/other")
    assert refused.connected == 0x87  # paho's name for 5 of MQTT 3, too
    for client in (refused, late, sensor, dashboard):
        client.close()
    assert dashboard.arrived.empty()
    status, errors = broker.stop()
    assert (status, errors) == (0, "")
