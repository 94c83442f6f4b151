"""Options of a zone that change the messages of its Clients. Options that refuse are in tests/conformance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from holdfast.config.document import load
from holdfast.config.sections.mqtt import MQTTConfig
from holdfast.sessions.configured import limits_of
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker


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
        "max_packet_size": 2000, "max_clientid_len": 23, "max_topic_levels": 5, "max_qos_allowed": 1,
        "max_topic_alias": 7, "retain_available": False, "wildcard_subscription": False, "shared_subscription": False,
        "subscription_identifiers": False, "response_information": "answers/", "server_keepalive": 30,
        "max_keepalive": 40, "max_topic_alias_out": 6,
        "keepalive_multiplier": 2.5, "max_inflight": 3, "max_inflight_bytes": 2048,
        "max_awaiting_rel": 4, "await_rel_timeout": 9,
        "max_subscriptions": 8, "max_wildcard_patterns": 9,
        "max_mqueue_len": 10, "max_mqueue_bytes": 4096, "mqueue_full": "reject",
        "mqueue_store_qos0": True, "session_expiry_interval": 11, "idle_timeout": 5, "upgrade_qos": True,
        "ignore_loop_deliver": True, "min_replay_levels": 2, "max_user_properties": 12,
        "max_properties_bytes": 5000, "control_characters": "accept", "conflate_interval": 2, "conflate_filter": "a/#",
    }  # fmt: skip
    of_the_broker = {"will_restart_grace"}  #: options that are not for single zones
    assert {field.name for field in attrs.fields(MQTTConfig)} - of_the_broker == set(values)
    durations = (
        *("await_rel_timeout", "session_expiry_interval", "idle_timeout", "server_keepalive", "max_keepalive"),
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
