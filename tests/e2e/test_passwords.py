"""Passwords with a real broker: files of mosquitto_passwd and of the command, mosquitto's clients, and paho."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.e2e.makes import needs_mosquitto
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]

CONFIGURATION = """
[authentication.passwords]
type = "file"
path = "passwords"
[listeners.door]
endpoint = "tcp:0:interface=127.0.0.1"
authentication = ["passwords"]
"""


def passwd(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.commands", "passwd", *arguments],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def closed(broker_in: Brokers, tmp_path: Path) -> BrokerProcess:
    """A broker with the users of mosquitto_passwd, not started yet."""
    (tmp_path / "holdfast.toml").write_text(CONFIGURATION)
    file = str(tmp_path / "passwords")
    subprocess.run(["mosquitto_passwd", "-c", "-b", file, "alice", "wonderland"], check=True)
    subprocess.run(["mosquitto_passwd", "-H", "sha512", "-b", file, "bob", "builder"], check=True)
    return broker_in("--config", str(tmp_path / "holdfast.toml"), listen=False)


def publish(broker: BrokerProcess, user: str, password: str, version: str) -> str:
    """Publish with mosquitto_pub; return what it complains about."""
    command = ["mosquitto_pub", "-p", str(broker.port), "-V", version, "-u", user, "-P", password]
    done = subprocess.run([*command, "-t", "t", "-m", "x", "-q", "1"], capture_output=True, text=True, check=False)
    return done.stderr


class Client:
    """A paho client: its answers, and when it was disconnected."""

    def __init__(self, broker: BrokerProcess, version: MQTTProtocolVersion, user: str | None, password: str) -> None:
        self.codes: list[int] = []
        self.ends: list[int] = []
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=version, reconnect_on_failure=False)
        if user is not None:
            self.client.username_pw_set(user, password)
        self.client.on_connect = lambda _c, _u, _f, code, _p: self.codes.append(code.value)
        self.client.on_disconnect = lambda _c, _u, _f, code, _p: self.ends.append(code.value)
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()
        self.wait(lambda: bool(self.codes))

    def wait(self, done: Callable[[], bool]) -> None:
        for _ in range(200):
            if done():
                return
            time.sleep(0.05)
        raise AssertionError("the client waits in vain")

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@needs_mosquitto
def test_a_password_file_of_mosquitto_works_unchanged_and_gets_better_hashes(closed: BrokerProcess) -> None:
    broker = closed.start()
    for version in ("mqttv31", "mqttv311", "mqttv5"):
        for user, password in (("alice", "wonderland"), ("bob", "builder")):
            assert publish(broker, user, password, version) == ""
        for user, password in (("alice", "builder"), ("mallory", "wonderland")):
            said = publish(broker, user, password, version).lower()
            assert "bad user name or password" in said or "not authori" in said
    # A busy machine lets the threads that hash wait, and a broker that stops waits for none of them.
    passwords = Path(broker.directory) / "passwords"
    deadline = time.monotonic() + PATIENCE
    while passwords.read_text().count("$argon2id$") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    broker.stop()
    log = "\n".join(broker.lines)
    assert "the password is wrong (authentication.passwords), on listener door as user 'alice'" in log
    assert "wonderland" not in log
    assert "builder" not in log


@needs_mosquitto
@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
def test_paho_is_admitted_and_disconnected_when_its_user_is_removed(
    closed: BrokerProcess, version: MQTTProtocolVersion
) -> None:
    broker = closed.start()
    file = str(Path(broker.directory) / "passwords")
    assert passwd("add", file, "carol", typed="secret\n").returncode == 0
    carol = Client(broker, version, "carol", "secret")
    alice = Client(broker, version, "alice", "wonderland")
    assert (carol.codes, alice.codes) == ([0], [0])
    refused = [Client(broker, version, user, "other").codes for user in ("carol", "mallory", None)]
    expected = [134, 134, 135]
    assert refused == [[code] for code in expected]
    assert passwd("remove", file, "carol").returncode == 0
    carol.wait(lambda: bool(carol.ends))
    assert not alice.ends
    again = Client(broker, version, "carol", "secret")
    assert again.codes == [134]
    for client in (carol, alice, again):
        client.stop()


def test_a_malformed_line_stops_the_start(closed: BrokerProcess) -> None:
    """Nobody becomes a user without a password (CVE-2018-12551)."""
    file = Path(closed.directory) / "passwords"
    file.write_text(f"{file.read_text()}mallory\n")
    closed.launch()
    status, said = closed.wait()
    assert status == 1
    assert f"{file}:3: found no hash of a password after the name" in said
