"""Users and rules in the database of a running broker: they count at once, and a restart keeps them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.e2e.test_passwords import Client
from tests.processes import BrokerProcess

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]

CONFIGURATION = """
[authentication.accounts]
type = "database"
[authorization]
sources = ["stored"]
[authorization.stored]
type = "database"
[listeners.door]
endpoint = "tcp:0:interface=127.0.0.1"
"""


def test_users_and_rules_count_at_once_and_after_a_restart(
    broker_in: Brokers, tmp_path: Path, storage: tuple[str, ...]
) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(CONFIGURATION)
    broker = broker_in("--config", str(file), *storage, listen=False).start()

    def holdfast(*words: str, typed: str = "", status: int = 0) -> str:
        options = ("--config", str(file), "--data-dir", str(broker.directory / "data"), *storage)
        command = [sys.executable, "-m", "holdfast.commands", *words, *options]
        done = subprocess.run(command, input=typed, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    holdfast("user", "add", "alice", "--group", "readers", typed="secret\n")
    holdfast("user", "add", "bob", typed="builder\n")
    assert "has one of the characters" in holdfast("user", "add", "a/#", typed="x\n", status=1)
    holdfast("acl", "add", "allow", "--action", "subscribe", "--topic", "#", "--group", "readers")
    holdfast("acl", "add", "allow", "--action", "all", "--topic", "wills/%u", "--user", "bob")
    alice = Client(broker, MQTTProtocolVersion.MQTTv5, "alice", "secret")
    heard: list[bytes] = []
    alice.client.on_message = lambda _c, _u, message: heard.append(bytes(message.payload))
    subscribed: list[int] = []
    alice.client.on_subscribe = lambda _c, _u, _m, codes, _p: subscribed.append(codes[0].value)
    alice.client.subscribe("#", 1)
    alice.wait(lambda: bool(subscribed))
    assert subscribed == [1]
    bob = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5, reconnect_on_failure=False)
    bob.username_pw_set("bob", "builder")
    bob.will_set("wills/bob", b"gone", 1)
    ends: list[int] = []
    bob.on_disconnect = lambda _c, _u, _f, code, _p: ends.append(code.value)
    bob.connect("127.0.0.1", broker.port)
    bob.loop_start()
    alice.wait(bob.is_connected)
    holdfast("user", "remove", "bob")
    alice.wait(lambda: bool(ends) and bool(heard))
    assert (ends, heard) == ([135], [b"gone"])
    holdfast("acl", "remove", "1")
    alice.wait(lambda: bool(alice.ends))  # the subscription is not allowed any more
    assert Client(broker, MQTTProtocolVersion.MQTTv5, "bob", "builder").codes == [134]
    broker.stop()
    assert "secret" not in "\n".join(broker.lines)
    broker.start()
    assert Client(broker, MQTTProtocolVersion.MQTTv311, "alice", "secret").codes == [0]
    assert holdfast("acl", "list").startswith("2  allow everything on wills/%u for users bob")
