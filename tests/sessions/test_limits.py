"""Options of a zone that change the messages of its Clients. Options that refuse are in tests/conformance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from twisted.logger import formatEvent

from holdfast.broker.sessions import limits_of
from holdfast.config.document import load
from holdfast.config.sections.mqtt import MQTTConfig
from holdfast.core.messages import seconds_left
from holdfast.retained.configured import limits_of as retainer_limits_of
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties
from holdfast.wire import packets as p
from holdfast.wire.property_codec import encode_properties
from tests.doubles import MemoryBroker
from tests.logs import logged


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(("published", "granted", "plain", "upgraded"), [(0, 2, 0, 2), (1, 2, 1, 2), (2, 1, 1, 2)])
def test_upgrade_qos(version: int, published: int, granted: int, plain: int, upgraded: int) -> None:
    """Off: the lesser of both QoS [MQTT5-3.8.4-8]. On: the greater."""
    for limits, expected in ((Limits(), plain), (Limits(upgrade_qos=True), upgraded)):
        broker = MemoryBroker(limits=limits)
        client = broker.client("c", version)
        client.subscribe("t", qos=granted)
        broker.client("p", version).publish("t", b"x", qos=published)
        assert client.messages() == [("t", b"x", expected, False)]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_ignore_loop_deliver(version: int) -> None:
    """Every subscription of MQTT 3 Clients is treated as No Local. MQTT 5 Clients choose that themselves."""
    for ignored in (False, True):
        broker = MemoryBroker(limits=Limits(ignore_loop_deliver=ignored))
        client, other = broker.client("c", version), broker.client("o", version)
        for each in (client, other):
            each.subscribe("t", "#")
        client.publish("t", b"own")
        assert [payload for _, payload, _, _ in other.messages()] == [b"own"]
        assert [payload for _, payload, _, _ in client.messages()] == [b"own"] * (not ignored or version == 5)


def test_keepalive_multiplier() -> None:
    """A Client may be silent for the product of its Keep Alive and this factor, and no longer."""
    broker = MemoryBroker(limits=Limits(keepalive_multiplier=3))
    client = broker.client("c", keep_alive=10)
    broker.advance(29.9)
    assert not client.network.closed
    broker.advance(0.2)
    assert client.network.closed


@pytest.mark.parametrize("version", [4, 5])
def test_mqueue_store_qos0(version: int) -> None:
    """Messages with QoS 0 wait for a Client that is away, in order with the other messages."""
    for stored in (False, True):
        broker = MemoryBroker(limits=Limits(mqueue_store_qos0=stored))
        properties = Properties(session_expiry_interval=100) if version == 5 else Properties()
        client = broker.client("c", version, clean=False, properties=properties)
        client.subscribe("t", qos=1)
        client.drop()
        publisher = broker.client("p")
        for number, qos in enumerate((0, 1, 0)):
            publisher.publish("t", b"%d" % number, qos=qos)
        client = broker.client("c", version, clean=False, properties=properties)
        waited = [packet.payload for packet in client.backlog if isinstance(packet, p.Publish)]
        assert waited == ([b"0", b"1", b"2"] if stored else [b"1"])


def test_every_option_of_a_zone_reaches_its_clients(tmp_path: Path) -> None:
    """Every option of [zones.X.mqtt] appears in the limits of the zone."""
    values: dict[str, Any] = {
        "max_packet_size": 2000, "max_topic_levels": 5, "max_qos_allowed": 1,
        "max_topic_alias": 7, "retain_available": False, "wildcard_subscription": False, "shared_subscription": False,
        "subscription_identifiers": False, "queue_subscription": False, "server_keepalive": 30,
        "max_keepalive": 40,
        "keepalive_multiplier": 2.5, "max_inflight": 3, "max_inflight_bytes": 2048,
        "max_awaiting_rel": 4,
        "max_subscriptions": 8,
        "max_mqueue_len": 10, "max_mqueue_bytes": 4096, "mqueue_full": "reject",
        "mqueue_store_qos0": True, "session_expiry_interval": 11, "idle_timeout": 5, "upgrade_qos": True,
        "ignore_loop_deliver": True, "min_replay_levels": 2,
        "control_characters": "accept", "conflate_interval": 2, "conflate_filter": "a/#",
    }  # fmt: skip
    of_the_broker = {"will_restart_grace"}  #: options that are not for single zones
    assert {field.name for field in attrs.fields(MQTTConfig)} - of_the_broker == set(values)
    durations = (
        *("session_expiry_interval", "idle_timeout", "server_keepalive", "max_keepalive"),
        "conflate_interval",
    )
    lines = ["[zones.x.mqtt]"]
    for name, value in values.items():
        text = f'"{value}s"' if name in durations else str(value).lower() if isinstance(value, bool) else repr(value)
        lines.append(f"{name} = {text}")
    (tmp_path / "holdfast.toml").write_text("\n".join(lines))
    limits = limits_of(load(tmp_path / "holdfast.toml").zone("x"))
    for name, value in values.items():
        told = getattr(limits, name)
        assert (told.value if name == "mqueue_full" else told) == {"control_characters": True}.get(name, value), name


def devices_message(devices: int) -> bytes:
    """Return a message like that of Zigbee2MQTT about its devices: 6.5 KB for each."""
    expose = {"access": 7, "label": "Power-on behavior", "name": "power_on", "type": "enum", "values": ["off", "on"]}
    device = {"ieee_address": "0x00158d0001dc126a", "definition": {"model": "TS011F", "exposes": [expose] * 60}}
    return json.dumps([device | {"network_address": number} for number in range(devices)]).encode()


@pytest.mark.parametrize("file", ["", "home.toml"])
@pytest.mark.parametrize("version", [4, 5])
def test_zigbee2mqtt_with_300_devices_is_retained(file: str, version: int, tmp_path: Path) -> None:
    """On the defaults, and with the example for a home: no limit behind ``mqtt.max_packet_size`` refuses it."""
    if file:
        config = load(Path(__file__).parents[2] / "etc" / "examples" / file)
    else:
        (tmp_path / "holdfast.toml").write_text("")
        config = load(tmp_path / "holdfast.toml")
    message = devices_message(300)
    assert 1_900_000 < len(message) < 2_000_000
    retainer = retainer_limits_of(config.retainer, config.max_packet_size)
    broker = MemoryBroker(limits=limits_of(config.zone("")), retainer=retainer)
    gateway, home = broker.client("zigbee2mqtt", version), broker.client("home", version)
    home.subscribe("zigbee2mqtt/#", qos=1)
    gateway.publish("zigbee2mqtt/bridge/devices", message, 0, True)
    gateway.publish("zigbee2mqtt/bridge/state", b"online", 1, True)
    assert [(one[0], len(one[1])) for one in home.messages()] == [
        ("zigbee2mqtt/bridge/devices", len(message)),
        ("zigbee2mqtt/bridge/state", 6),
    ]
    replayed = broker.client("later", version).subscribe("zigbee2mqtt/#", qos=1)
    assert {one.topic: len(one.payload) for one in replayed if isinstance(one, p.Publish)} == {
        "zigbee2mqtt/bridge/devices": len(message),
        "zigbee2mqtt/bridge/state": 6,
    }


def test_a_packet_that_is_too_large_is_refused_with_the_name_of_the_option() -> None:
    """In the log and in DISCONNECT. Before a client is admitted, another limit holds."""
    broker = MemoryBroker(limits=Limits(max_packet_size=100_000))
    for will, size, said in [
        (p.Will("t" * 10_000, b"x" * 60_000), 0, "the most accepted is 65536 before a client is admitted"),
        (None, 100_000, "the most accepted is 100000 (mqtt.max_packet_size)"),
    ]:
        with logged() as events:
            client = broker.client("c", 5, will=will)
            if size:
                client.publish("t", b"x" * size)
        assert client.network.closed
        assert any(said in str(formatEvent(event)) for event in events)


@pytest.mark.parametrize("most", [False, True])
def test_all_numbers_in_connack_are_what_usual_clients_take(most: bool, tmp_path: Path) -> None:
    """With the highest and with the lowest values that the configuration allows. paho checks each of them."""
    values: dict[str, Any] = {
        "max_packet_size": "256MB" if most else "1KB",
        "max_awaiting_rel": 65535 if most else 1,
        "max_topic_alias": 65535 if most else 0,
        "server_keepalive": 65535 if most else 0,
        "session_expiry_interval": "infinity" if most else "0s",
        "max_qos_allowed": 2 if most else 0,
    }
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    (tmp_path / "holdfast.toml").write_text(f"[mqtt]\n{text}")
    limits = limits_of(load(tmp_path / "holdfast.toml").zone(""))
    broker = MemoryBroker(limits=limits)
    client = broker.client("", 5, properties=Properties(session_expiry_interval=0xFFFFFFFE))
    assert client.connack is not None
    told: Any = PahoProperties(PacketTypes.CONNACK)  # type: ignore[no-untyped-call]
    told.unpack(encode_properties(client.connack.properties))
    assert told.MaximumPacketSize == (268_435_455 if most else 1024)


def test_a_message_expiry_interval_never_exceeds_its_field() -> None:
    """Not even after a clock was set back by years."""
    assert seconds_left(2**62, 0) == 0xFFFFFFFF
