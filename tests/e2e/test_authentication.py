"""SCRAM-SHA-256 with a real broker: users made by the command, clients of two other makes, changes while it runs."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.e2e.logins import Login, Refused, scram, set_user
from tests.e2e.makes import needs_mosquitto, needs_mqttjs
from tests.e2e.makes.mosquitto_client import run
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]

CONFIGURATION = """
[authentication]
scram_file = "users.scram"
[listeners.door]
endpoint = "tcp:0:interface=127.0.0.1"
[listeners.guests]
endpoint = "unix:guests.sock"
allow_anonymous = true
"""


@pytest.fixture
def closed(broker_in: Brokers, tmp_path: Path) -> BrokerProcess:
    """A broker with the user alice, not started yet."""
    file = tmp_path / "holdfast.toml"
    file.write_text(CONFIGURATION)
    set_user(tmp_path, "alice", "p\u00e4ncil\u2168")
    return broker_in("--config", str(file), listen=False)


def refused_after(broker: BrokerProcess, user: str, password: str) -> str:
    """Expect that a login is refused like all others; return the challenge."""
    with pytest.raises(Refused) as caught:
        Login(broker.port, user, password)
    assert caught.value.reason == ReasonCode.NOT_AUTHORIZED
    return caught.value.challenge


def test_users_are_admitted_only_with_their_password(closed: BrokerProcess) -> None:
    """The database has the user of each message."""
    broker = closed.start()
    client = Login(broker.port, "alice", "p\u00e4ncilIX")
    client.send(p.Publish("t", b"x", 1, True, False, 1))
    assert isinstance(next(client.packets()), p.Puback)
    client.again()
    refused_after(broker, "alice", "pencil")
    refused_after(broker, "bob", "p\u00e4ncilIX")
    refused_after(broker, "Alice", "p\u00e4ncilIX")
    with sqlite3.connect(f"file:{broker.directory}/data/holdfast.db?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT topic, username, client_id FROM retained_messages").fetchall()
    assert rows == [("t", "alice", "client-of-alice")]
    log = "\n".join(broker.lines)
    assert "ncil" not in log


@needs_mqttjs
def test_mqtt_js_authenticates_with_the_cryptography_of_node_js(closed: BrokerProcess) -> None:
    """A client without code of the broker authenticates, and once more while it is connected."""
    set_user(closed.directory, "carol", "pencil")
    broker = closed.start()
    script = str(Path(__file__).parent / "scram.js")
    assert json.loads(run("node", script, str(broker.port), "carol", "pencil")) == [
        ["auth", 0x18, False],
        ["connack", 0, True],
        ["auth", 0x18, False],
        ["auth", 0, True],
    ]
    for user, password in (("carol", "eraser"), ("nobody", "pencil")):
        seen = json.loads(run("node", script, str(broker.port), user, password))
        assert seen == [["auth", 0x18, False], ["error", ReasonCode.NOT_AUTHORIZED, False]]


@needs_mosquitto
def test_clients_without_a_method_are_admitted_by_some_listeners_only(closed: BrokerProcess) -> None:
    """This is true of every version, also if the client sends an unneeded user name and password."""
    broker = closed.start()
    message = ("-t", "t", "-m", "x", "-q", "1", "-r")
    for version in ("mqttv31", "mqttv311", "5"):
        for login in ((), ("-u", "alice", "-P", "p\u00e4ncilIX")):
            command = ["mosquitto_pub", "-V", version, *login, *message]
            closed_door = [*command, "-p", str(broker.port)]
            done = subprocess.run(closed_door, capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode != 0
            assert "not authori" in done.stderr.lower()
    run("mosquitto_pub", "--unix", str(broker.directory / "guests.sock"), "-u", "alice", *message)
    with sqlite3.connect(f"file:{broker.directory}/data/holdfast.db?mode=ro", uri=True) as connection:
        assert connection.execute("SELECT topic, username FROM retained_messages").fetchall() == [("t", None)]


def test_users_change_while_the_broker_runs(closed: BrokerProcess) -> None:
    """A removed user, and one with another password, are disconnected. The new password counts at once."""
    folder = closed.directory
    broker = closed.start()
    set_user(folder, "bob", "pencil")
    alice = Login(broker.port, "alice", "p\u00e4ncilIX")
    bob = Login(broker.port, "bob", "pencil")
    set_user(folder, "carol", "pencil")
    carol = Login(broker.port, "carol", "pencil")
    set_user(folder, "bob", "eraser")
    refused_after(broker, "bob", "pencil")
    scram(folder, "remove", "alice")
    refused_after(broker, "alice", "p\u00e4ncilIX")
    for client in (alice, bob):
        (last,) = client.packets()
        assert isinstance(last, p.Disconnect)
        assert last.reason_code == ReasonCode.NOT_AUTHORIZED
    Login(broker.port, "bob", "eraser").again()
    carol.again()


def test_an_invalid_file_changes_nothing_while_the_broker_runs(closed: BrokerProcess) -> None:
    """The log names the mistake with its line."""
    broker = closed.start()
    with (broker.directory / "users.scram").open("a") as file:
        file.write("bob\n")
    refused_after(broker, "bob", "")
    assert broker.wait_for(r"users\.scram:2: found no SCRAM-SHA-256 verifier")
    Login(broker.port, "alice", "p\u00e4ncilIX")


def test_refusals_do_not_reveal_the_existing_users(closed: BrokerProcess) -> None:
    """The salt of an unknown user stays the same, even after a restart, like that of a known user."""
    salts = []
    for _ in range(2):
        broker = closed.start()
        for user in ("alice", "nobody", "nobody else"):
            _, salt, iterations = refused_after(broker, user, "wrong").split(",")
            salts.append((salt, iterations))
        assert broker.stop()[0] == 0
    assert salts[:3] == salts[3:]
    assert len(set(salts)) == 3
    assert {(len(salt), iterations) for salt, iterations in salts} == {(len("s=") + 24, "i=4096")}


def test_an_invalid_file_stops_the_start(closed: BrokerProcess) -> None:
    """stderr has every mistake with its line, but no content of the file. No listener is opened."""
    users = closed.directory / "users.scram"
    users.write_text(f"{users.read_text()}bob:secret\nalice:secret\n")
    closed.launch()
    status, errors = closed.wait()
    assert status == 1
    assert [line.split(": ")[0] for line in errors.splitlines()] == [f"{users}:2", f"{users}:3"]
    assert "secret" not in errors
    assert not any(line.startswith("listening") for line in closed.lines)


@pytest.mark.parametrize("damage", ["missing", "open to others"])
def test_a_file_that_cannot_be_trusted_stops_the_start(closed: BrokerProcess, damage: str) -> None:
    users = closed.directory / "users.scram"
    if damage == "missing":
        users.unlink()
    else:
        users.chmod(0o644)
    closed.launch()
    status, errors = closed.wait()
    assert status == 1
    assert len(errors.splitlines()) == 1
    assert errors.startswith(f"{users}: ")
    assert ("holdfast scram set" if damage == "missing" else f"chmod o= {users}") in errors
