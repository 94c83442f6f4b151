"""The broker's own topics as mosquitto's client sees them, in mosquitto's names and formats."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.makes.mosquitto_client import run
from tests.mosquitto_topics import MOSQUITTO_TOPICS
from tests.processes import BrokerProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto-clients is not installed"),
]


def watch(broker: BrokerProcess, seconds: int, *options: str) -> list[tuple[str, str, str, str]]:
    """Subscribe to $SYS/# for some seconds; return RETAIN, QoS, topic and payload of each message."""
    command = ["mosquitto_sub", "-p", str(broker.port), "-t", "$SYS/#", "-q", "2", "-W", str(seconds)]
    done = subprocess.run([*command, "-F", "%r|%q|%t|%p", *options], capture_output=True, text=True, check=False)
    lines = [line.split("|", 3) for line in done.stdout.splitlines()]
    return [(retain, qos, topic, payload) for retain, qos, topic, payload in lines]


@pytest.mark.parametrize("version", ["311", "5"])
def test_names_and_formats_are_mosquitto_s(
    broker_in: Callable[..., BrokerProcess], tmp_path: Path, version: str
) -> None:
    """All present values come at once with RETAIN 1. Changed values follow at each interval."""
    (tmp_path / "holdfast.toml").write_text('sys_topics.sys_msg_interval = "1s"\n')
    broker = broker_in("--config", "holdfast.toml").start()
    run("mosquitto_pub", "-p", str(broker.port), "-t", "t", "-m", "hello", "-r", "-q", "1")
    came = watch(broker, 3, "-V", version)
    assert {qos for _, qos, _, _ in came} == {"0"}
    present = {topic: payload for retain, _, topic, payload in came if retain == "1"}
    latest = {topic: payload for _, _, topic, payload in came}
    changed = {topic for retain, _, topic, _ in came if retain == "0"}
    assert set(present) >= set(MOSQUITTO_TOPICS)
    for _, _, topic, payload in came:
        assert re.fullmatch(MOSQUITTO_TOPICS.get(topic, ".+"), payload), (topic, payload)
        assert topic in MOSQUITTO_TOPICS or topic.startswith("$SYS/broker/holdfast/")
    assert present["$SYS/broker/holdfast/storage/durability"] == "full"
    assert "no loss" in present["$SYS/broker/holdfast/storage/loss_window"]
    assert latest["$SYS/broker/holdfast/storage/pending_bytes"] == "0"
    assert int(latest["$SYS/broker/holdfast/storage/commits"]) >= 1
    assert int(present["$SYS/broker/heap/maximum"]) >= int(present["$SYS/broker/heap/current"]) > 1 << 20
    assert changed >= {"$SYS/broker/uptime", "$SYS/broker/bytes/sent", "$SYS/broker/load/messages/received/1min"}
    assert "$SYS/broker/version" not in changed


def test_disabled(broker_in: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """No topic has a value."""
    (tmp_path / "holdfast.toml").write_text('sys_topics.sys_msg_interval = "disabled"\n')
    assert watch(broker_in("--config", "holdfast.toml").start(), 2) == []
