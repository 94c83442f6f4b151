"""Real clients of different makes, in both protocol versions."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paho import PahoClient
from tests.processes import BrokerProcess

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
VERSIONS = pytest.mark.parametrize("version", [4, 5])

needs_mosquitto = pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto-clients is not installed")
needs_mqttjs = pytest.mark.skipif(
    shutil.which("node") is None or not (HERE / "node_modules" / "mqtt").exists(),
    reason="Node.js or the npm package mqtt is not installed",
)


def run(*command: str, timeout: float = 30) -> str:
    """Run a command; return its stdout, failing on any other status than 0."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_mosquitto
@pytest.mark.parametrize("name", ["mqttv31", "mqttv311", "5"])
def test_mosquitto_pub_and_sub(broker: BrokerProcess, name: str) -> None:
    """Retained with every QoS, read back through a wildcard; cleared with -n."""
    common = ("-p", str(broker.port), "-V", name)
    for qos in "012":
        run("mosquitto_pub", *common, "-t", f"m/{qos}", "-m", f"v{qos}", "-q", qos, "-r")
    run("mosquitto_pub", *common, "-t", "m/gone", "-m", "x", "-q", "1", "-r")
    run("mosquitto_pub", *common, "-t", "m/gone", "-n", "-q", "1", "-r")
    seen = run("mosquitto_sub", *common, "-t", "m/#", "-q", "2", "-C", "3", "-W", "20", "-F", "%r %q %t %p")
    assert seen.splitlines() == ["1 0 m/0 v0", "1 1 m/1 v1", "1 2 m/2 v2"]


@needs_mqttjs
@VERSIONS
def test_mqtt_js(broker: BrokerProcess, version: int) -> None:
    """MQTT.js gets the retained messages in topic order, then the live one."""
    seen = json.loads(run("node", str(HERE / "mqttjs.js"), str(broker.port), str(version)))
    assert seen == [
        ["js/0", "value 0", 0, True],
        ["js/1", "value 1", 1, True],
        ["js/2", "value 2", 2, True],
        ["js/live", "now", 2, False],
    ]


@VERSIONS
def test_paho_persistent_session_and_will(broker: BrokerProcess, version: int) -> None:
    """A Session is resumed with what it missed; a Will is published when the socket just closes.

    A client that knows nothing of Holdfast needs nothing else [MQTT5-7.0.0-2], [MQTT311-7.0.0-2].
    """
    options = {"client_id": "keeper", "clean": False, "expiry": 100}
    keeper = PahoClient(broker.port, version, **options)  # type: ignore[arg-type]
    keeper.subscribe("news/#", "wills/#", qos=2)
    assert keeper.quiet()  # its replays are over: one cut off here would go on at the next connection
    keeper.close()
    dying = PahoClient(broker.port, version, "dying", will=("wills/dying", b"gone", 1, True))
    dying.drop()
    other = PahoClient(broker.port, version)
    for qos in (1, 2):
        other.publish(f"news/{qos}", "missed", qos=qos)
    keeper = PahoClient(broker.port, version, **options)  # type: ignore[arg-type]
    assert keeper.session_present
    assert sorted(keeper.messages(3)) == [
        ("news/1", b"missed", 1, False),
        ("news/2", b"missed", 2, False),
        ("wills/dying", b"gone", 1, False),
    ]
    other.subscribe("wills/#")
    assert other.messages(1) == [("wills/dying", b"gone", 0, True)]
    keeper.close()
    other.close()


@VERSIONS
def test_aiomqtt(broker: BrokerProcess, version: int) -> None:
    """aiomqtt publishes and receives."""
    script = f"""
import asyncio, aiomqtt
async def main():
    options = dict(port={broker.port}, protocol=aiomqtt.ProtocolVersion.V{"5" if version == 5 else "311"})
    async with aiomqtt.Client("127.0.0.1", **options) as client:
        await client.publish("aio/t", b"kept", qos=1, retain=True)
        await client.subscribe("aio/#", qos=1)
        async for message in client.messages:
            print(message.topic, message.payload.decode(), message.qos, message.retain)
            break
asyncio.run(asyncio.wait_for(main(), 20))
"""
    assert run(sys.executable, "-c", script) == "aio/t kept 1 True\n"


@VERSIONS
def test_gmqtt(broker: BrokerProcess, version: int) -> None:
    """gmqtt, a client written from the standard alone, publishes and receives."""
    import gmqtt

    async def main() -> tuple[str, bytes, int, int]:
        client = gmqtt.Client(f"gmqtt-{version}", clean_session=True)
        arrived: asyncio.Future[tuple[str, bytes, int, int]] = asyncio.get_running_loop().create_future()

        async def on_message(_client, topic, payload, qos, properties):  # type: ignore[no-untyped-def]
            if not arrived.done():
                arrived.set_result((topic, payload, qos, properties["retain"]))
            return 0

        client.on_message = on_message
        await client.connect("127.0.0.1", broker.port, version=version)
        client.publish("gm/t", b"kept", qos=1, retain=True)
        await asyncio.sleep(0.2)
        client.subscribe("gm/#", qos=1)
        result = await asyncio.wait_for(arrived, 20)
        await client.disconnect()
        return result

    assert asyncio.run(main()) == ("gm/t", b"kept", 1, 1)
