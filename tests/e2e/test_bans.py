"""Failed logins, bans and the audit log of a whole broker. A proxy tells the addresses."""

from __future__ import annotations

import getpass
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.identity.hashes import HashParameters, new_hash
from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]

ATTACKER, BYSTANDER = 66, 1
ACCEPTED, WRONG = b"\x20\x02\0\0", b"\x20\x02\0\4"


@pytest.fixture
def broker(broker_in: Brokers, tmp_path: Path) -> BrokerProcess:
    """A broker behind a proxy: guests are admitted, and eight failures are a ban."""
    passwords = tmp_path / "passwords"
    passwords.write_text(f"alice:{new_hash(b'secret', HashParameters(8, 1))}\n")
    passwords.chmod(0o600)
    file = tmp_path / "holdfast.toml"
    file.write_text(
        '[listeners.x]\nendpoint = "haproxy:tcp:0:interface=127.0.0.1"\nallow_anonymous = true\n'
        'allow_plaintext = true\n[authentication.passwords]\ntype = "file"\npath = "passwords"\n'
        '[audit]\nfile = "audit.log"\n'
        "[failed_logins]\nmax_count = 8\n"
    )
    return broker_in("--config", str(file), listen=False).start()


def connect(broker: BrokerProcess, number: int, password: bytes | None = None) -> socket.socket:
    """Send CONNECT as a client of the proxy, without waiting for the answer."""
    client = socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE)
    user = None if password is None else "alice"
    packet = encode(p.Connect(f"c{number}", 4, True, 0, user, password), 4)
    client.sendall(b"PROXY TCP4 192.0.2.%d 192.0.2.99 5555 1883\r\n" % number + packet)
    return client


def answer(client: socket.socket) -> bytes:
    """Return the CONNACK; b"" if the broker closes the connection."""
    try:
        return client.recv(4)
    except ConnectionResetError:
        return b""


def holdfast(broker: BrokerProcess, *words: str) -> str:
    """Run a command for this broker."""
    command = [sys.executable, "-m", "holdfast.commands", *words, "--data-dir", str(broker.directory / "data")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def audited(broker: BrokerProcess, event: str) -> list[dict[str, Any]]:
    """Return the events of this kind."""
    lines = (broker.directory / "audit.log").read_text().splitlines()
    return [found for found in map(json.loads, lines) if found["event"] == event]


def test_who_guesses_is_delayed_and_banned_while_others_go_on(broker: BrokerProcess) -> None:
    for _ in range(5):
        assert answer(connect(broker, ATTACKER, b"wrong")) == WRONG
    delayed = connect(broker, ATTACKER, b"wrong")
    assert answer(connect(broker, BYSTANDER)) == ACCEPTED
    assert answer(delayed) == WRONG
    last = [connect(broker, ATTACKER, b"wrong") for _ in range(2)]
    assert [answer(client) for client in last] == [WRONG, WRONG]
    broker.wait_for("its address is banned")
    assert answer(connect(broker, ATTACKER)) == b""
    assert answer(connect(broker, BYSTANDER)) == ACCEPTED
    assert "peerhost 192.0.2.66 is banned until " in holdfast(broker, "ban", "list")
    holdfast(broker, "ban", "remove", "192.0.2.66")
    assert answer(connect(broker, ATTACKER)) == ACCEPTED
    broker.stop()
    refused = audited(broker, "refused")
    assert ["its answer waits for" in event["cause"] for event in refused] == [False] * 5 + [True] * 2 + [False]


def test_the_retained_messages_of_a_banned_user_are_there_again_after_the_ban(broker: BrokerProcess) -> None:
    """Replays leave them out meanwhile. Another user's message comes."""
    publisher, other = connect(broker, 2, b"secret"), connect(broker, 3)
    for client, topic in ((publisher, "a"), (other, "b")):
        assert answer(client) == ACCEPTED
        client.sendall(encode(p.Publish(topic, b"x", 1, True, False, 1), 4))
        assert answer(client) == encode(p.Puback(1), 4)

    def replayed() -> bytes:
        reader = connect(broker, BYSTANDER)
        reader.sendall(encode(p.Subscribe(1, (p.SubscriptionRequest("#", 0),)), 4))
        last = encode(p.Publish("b", b"x", 0, True), 4)
        came = b""
        while not came.endswith(last):
            came += reader.recv(1000)
        return came

    assert encode(p.Publish("a", b"x", 0, True), 4) in replayed()
    holdfast(broker, "ban", "add", "alice", "--user")
    assert encode(p.Publish("a", b"x", 0, True), 4) not in replayed()
    broker.stop()
    broker.start()
    assert encode(p.Publish("a", b"x", 0, True), 4) not in replayed()
    holdfast(broker, "ban", "remove", "alice", "--user")
    assert encode(p.Publish("a", b"x", 0, True), 4) in replayed()


def test_an_operators_ban_ends_connections_and_survives_a_restart(broker: BrokerProcess) -> None:
    banned, other = connect(broker, ATTACKER), connect(broker, BYSTANDER)
    assert answer(banned) == answer(other) == ACCEPTED
    holdfast(broker, "ban", "add", "192.0.2.64/28", "--reason", "scans")
    assert answer(banned) == b""
    other.sendall(encode(p.Pingreq(), 4))
    assert answer(other) == encode(p.Pingresp(), 4)
    broker.stop()
    (operated,) = audited(broker, "operated")
    assert (operated["operator"], operated["who"], operated["status"]) == (getpass.getuser(), "192.0.2.64/28", 200)
    assert [event["client_id"] for event in audited(broker, "connected")] == ["c66", "c1"]
    broker.start()
    assert answer(connect(broker, ATTACKER)) == b""
    assert answer(connect(broker, BYSTANDER)) == ACCEPTED
