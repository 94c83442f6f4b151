"""The start of the real process, its output, and its exit status."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.wire import ReasonCode, encode
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.paho import PahoClient
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]


def test_it_announces_its_listeners_and_its_store(broker: BrokerProcess) -> None:
    """A line for each listener, ready, then version, database, durability and loss window."""
    assert broker.wait_for(r"^listening default tcp:127\.0\.0\.1:\d+$")
    line = broker.wait_for("Holdfast 0")
    assert "sqlite:////" in line
    assert "durability full" in line
    assert "no loss" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_with_status_0(broker: BrokerProcess, number: int) -> None:
    """MQTT 5 clients receive 0x8B; the status is 0; stderr is empty."""
    client = RawClient(broker.port, "c", 5)
    status, errors = broker.stop(number)
    assert (status, errors) == (0, "")
    (disconnect,) = client.packets()
    assert isinstance(disconnect, p.Disconnect)
    assert disconnect.reason_code == ReasonCode.SERVER_SHUTTING_DOWN


def failed_start(broker: BrokerProcess) -> str:
    """Start a broker that must not start; return its one message."""
    broker.launch()
    status, errors = broker.wait()
    assert status == 1, (status, errors, broker.lines)
    assert "Traceback" not in errors + "\n".join(broker.lines)
    assert "ready" not in broker.lines
    return errors.strip()


def test_a_port_in_use(broker_in: Brokers, storage: tuple[str, ...]) -> None:
    """One message names listener and port; the status is 1, although the database is already open."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = failed_start(broker_in("--listen", f"tcp:{port}:interface=127.0.0.1", *storage, listen=False))
    assert len(message.splitlines()) == 1
    assert str(port) in message
    assert "in use" in message


def test_a_data_directory_in_use(broker: BrokerProcess, broker_in: Brokers) -> None:
    """The message names the process that holds the lock."""
    message = failed_start(broker_in())
    assert len(message.splitlines()) == 1
    assert str(broker.pid) in message


def test_a_data_directory_that_cannot_be_made(broker_in: Brokers, tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "data").write_text("in the way")
    message = failed_start(broker_in())
    assert len(message.splitlines()) == 1
    assert str(tmp_path / "data") in message


def test_a_damaged_database(broker_in: Brokers, tmp_path: Path) -> None:
    """It stays unchanged, and the message gives the remedy."""
    (tmp_path / "data").mkdir()
    database = tmp_path / "data" / "holdfast.db"
    database.write_bytes(b"this is not a database" * 100)
    message = failed_start(broker_in())
    assert len(message.splitlines()) == 1
    assert str(database) in message
    assert database.read_bytes().startswith(b"this is not")


def test_every_problem_of_a_configuration_is_reported(broker_in: Brokers, tmp_path: Path) -> None:
    """FILE:LINE: KEY: message for each, and status 1."""
    file = tmp_path / "bad.toml"
    file.write_text("[mqtt]\nmax_qos_allowed = 7\nmax_inflihgt = 3\n[nonsense]\n")
    lines = failed_start(broker_in("--config", str(file))).splitlines()
    assert [line.split(": ")[0:2] for line in lines] == [
        [f"{file}:2", "mqtt.max_qos_allowed"],
        [f"{file}:3", "mqtt.max_inflihgt"],
        [f"{file}:4", "nonsense"],
    ]
    assert "max_inflight" in lines[1]


def test_an_open_listener_needs_permission(broker_in: Brokers) -> None:
    """A listener for other machines without authentication is refused unless it is allowed explicitly."""
    message = failed_start(broker_in("--listen", "tcp:0", listen=False))
    assert "allow_anonymous" in message
    allowed = broker_in("--listen", "tcp:0", "--allow-anonymous", listen=False).start()
    assert allowed.wait_for(r"^listening default tcp:0\.0\.0\.0:\d+$")
    assert allowed.stop()[0] == 0


def test_an_unknown_kind_of_database_is_refused(broker_in: Brokers) -> None:
    """The message lists the known kinds, and shows no password."""
    message = failed_start(broker_in("--storage", "mysql://user:secret@localhost/x"))
    assert "sqlite:////absolute/path, postgresql+psycopg://" in message
    assert "secret" not in message


def test_a_wrong_option_ends_it_with_an_error(broker_in: Brokers) -> None:
    broker = broker_in("--no-such-option")
    broker.launch()
    status, _ = broker.wait()
    assert status != 0


def test_several_listeners_and_a_configuration(broker_in: Brokers, tmp_path: Path) -> None:
    """Listeners, zones and limits of the file take effect; relative paths begin at the file."""
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "holdfast.toml").write_text(
        """
        [listeners.plain]
        endpoint = "tcp:0:interface=127.0.0.1"
        [listeners.sensors]
        endpoint = "unix:%s"
        zone = "sensors"
        [zones.sensors.mqtt]
        retain_available = false
        [storage]
        url = "sqlite:///kept.db"
        durability = "process"
        """
        % (tmp_path / "socket")
    )
    broker = broker_in("--config", str(folder / "holdfast.toml"), listen=False).start()
    assert broker.wait_for(r"^listening plain tcp:127\.0\.0\.1:\d+$")
    assert broker.wait_for(r"^listening sensors unix:")
    assert (folder / "kept.db").exists()
    assert broker.wait_for("durability process")
    assert broker.stop()[0] == 0


def test_files_are_private(broker: BrokerProcess) -> None:
    """Folder 0700, database and lock 0600."""
    data = broker.directory / "data"
    modes = {path.name: stat.S_IMODE(os.stat(path).st_mode) for path in (data, *data.iterdir())}
    assert modes["data"] == 0o700
    assert modes["holdfast.db"] == modes["holdfast.lock"] == 0o600


def test_the_view_shows_retained_messages_to_sql(broker: BrokerProcess) -> None:
    """With the client that sent each of them."""
    client = PahoClient(broker.port, 5, "sensor-1")
    client.publish("a/b", "21.5", qos=1, retain=True)
    client.publish("a/c", "gone", qos=1, retain=True)
    client.publish("a/c", "", qos=1, retain=True)
    client.close()
    with sqlite3.connect(f"file:{broker.directory}/data/holdfast.db?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT topic, payload, qos, client_id, size FROM retained_messages").fetchall()
    assert rows == [("a/b", b"21.5", 1, "sensor-1", 4)]


def test_a_unix_socket_serves_clients(broker_in: Brokers, tmp_path: Path) -> None:
    """A listener on a UNIX domain socket, with a message larger than the socket takes at once."""
    path = tmp_path / "mqtt.sock"
    broker = broker_in("--listen", f"unix:{path}", listen=False).start()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(path))
        large = encode(p.Publish("t", b"x" * 900_000), 4)
        connection.sendall(
            encode(p.Connect("c"), 4) + encode(p.Subscribe(1, (p.SubscriptionRequest("t"),)), 4) + large * 3
        )
        expected = 4 + 5 + 3 * len(large)
        received = 0
        while received < expected:
            received += len(connection.recv(1 << 20))
    assert received == expected
    assert broker.stop()[0] == 0
