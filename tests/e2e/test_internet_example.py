"""The example for the Internet starts, and serves a device over TLS and a browser's client over WebSocket."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.certificates import Authority
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).parents[2] / "etc" / "examples"


def test_the_example_for_the_internet_serves_its_users(broker_in: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """As it is, except for the ports and the folder of the audit log."""
    text = (EXAMPLES / "internet.toml").read_text()
    for old, new in (
        ("tcp:8883", "tcp:0:interface=127.0.0.1"),
        ("tcp:8084", "tcp:0:interface=localhost"),
        ("/var/log/holdfast/", ""),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "internet.toml").write_text(text)
    shutil.copy(EXAMPLES / "rules.toml", tmp_path)
    authority = Authority()
    authority.write(tmp_path, "ca")
    authority.issue("localhost", ["localhost"]).write(tmp_path, "broker")
    command = [sys.executable, "-m", "holdfast.commands", "passwd", "add", str(tmp_path / "passwords"), "homeassistant"]
    subprocess.run(command, input="open sesame\n", text=True, check=True, capture_output=True)
    broker = broker_in("--config", str(tmp_path / "internet.toml"), listen=False).start()
    ports = [int(line.rsplit(":", 1)[1]) for line in broker.lines if line.startswith("listening ")]
    assert len(ports) == 2
    for port, transport in ((broker.port, "tcp"), (next(port for port in ports if port != broker.port), "websockets")):
        assert published(tmp_path, port, transport, "open sesame") == "Success"
        assert published(tmp_path, port, transport, "wrong") != "Success"
    assert broker.stop()[0] == 0
    assert (tmp_path / "audit.log").read_text().count('"connected"') == 2


def published(folder: Path, port: int, transport: str, password: str) -> str:
    """Connect, publish with RETAIN 1, and return the Reason Code of CONNACK or PUBACK by name."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, "", protocol=MQTTProtocolVersion.MQTTv5, transport=transport)  # type: ignore[arg-type]
    client.tls_set(ca_certs=str(folder / "ca.pem"))
    client.username_pw_set("homeassistant", password)
    if transport == "websockets":
        client.ws_set_options("/mqtt")
    said: list[str] = []
    done = threading.Event()

    def answered(*arguments: object) -> None:
        reason = arguments[3]
        said.append(str(reason))
        done.set()

    def connected(*arguments: object) -> None:
        if str(arguments[3]) == "Success":
            client.publish("home/light", b"on", 1, retain=True)
        else:
            answered(*arguments)

    client.on_connect = connected
    client.on_publish = answered
    client.connect("localhost", port)
    client.loop_start()
    assert done.wait(PATIENCE)
    client.disconnect()
    client.loop_stop()
    return "Success" if said[0] == "No matching subscribers" else said[0]
