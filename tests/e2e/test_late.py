"""A broker that starts before its database or its network: it waits, says so, and goes on by itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.paho import PahoClient
from tests.postgres import drop, empty_database
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess, lasting_port, notified

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]
#: an address that no machine has
ELSEWHERE = "tcp:0:interface=192.0.2.1"
WAITS = "the broker waits, and tries again"


@pytest.fixture
def late_postgres(tmp_path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The URL of a Postgres that nobody reaches, and the function that brings it up: its socket's folder appears."""
    url = empty_database()
    folder = tmp_path / "run"

    def come_up() -> None:
        folder.symlink_to(str(make_url(url).query["host"]))

    yield make_url(url).set(query={"host": str(folder)}).render_as_string(hide_password=False), come_up
    drop(url)


def ask(command: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "holdfast"
    return subprocess.run([program, command, *options], check=False, capture_output=True, text=True, timeout=PATIENCE)


def test_it_waits_for_its_database_and_tells_everybody(
    tmp_path: Path, late_postgres: tuple[str, Callable[[], None]]
) -> None:
    url, come_up = late_postgres
    with notified() as (address, tell):
        broker = BrokerProcess(
            tmp_path, "--storage", url, program=HOLDFAST_RUN, environment={**os.environ, "NOTIFY_SOCKET": address}
        )
        broker.launch()
        try:
            told = [tell() for _ in range(2)]  # again and again: systemd gives it more time
            assert all(each.startswith("EXTEND_TIMEOUT_USEC=") for each in told), told
            assert all("\nSTATUS=waiting: postgresql" in each for each in told), told
            options = ("--data-dir", tmp_path / "data", "--storage", url)
            for command in ("ping", "doctor"):
                asked = ask(command, *options)
                assert "the broker waits for its database: " in asked.stdout + asked.stderr
                assert asked.returncode == (1 if command == "ping" else 3)
            assert "ready" not in broker.lines
            come_up()
            broker.wait_for("^ready$")
            while not told[-1].startswith("READY=1"):
                told.append(tell())
            assert ask("ping", *options).stdout == "the broker answers\n"
            assert sum(WAITS in line for line in broker.lines) == 1  # said once
            assert broker.stop() == (0, "")
        finally:
            broker.end()


#: a broker in which one module's first connection for reading is not made in time
_CUT_OFF = """
import sys
from psycopg.errors import ConnectionTimeout
from twisted.scripts.twistd import run
from holdfast.storage.postgres import PostgresDatabase

connect, unlucky = PostgresDatabase.connect_reader, [sys.argv.pop(1)]

def cut_off(self):
    if sys._getframe(1).f_globals["__name__"] in unlucky:
        unlucky.clear()
        raise ConnectionTimeout("connection timeout expired")
    return connect(self)

PostgresDatabase.connect_reader = cut_off
run()
"""


@pytest.mark.parametrize("reader", ["holdfast.sessions.durable", "holdfast.retained.leases"])
def test_it_waits_when_the_database_goes_away_while_it_reads_its_state(tmp_path: Path, reader: str) -> None:
    """A client of the last process is known afterwards, and known once."""
    url = empty_database()
    broker = BrokerProcess(tmp_path, "--storage", url).start()
    client = PahoClient(broker.port, 5, "pump-7", clean=False, expiry=3600)
    client.subscribe("a", qos=1)
    client.close()
    assert broker.stop() == (0, "")
    twistd = (sys.executable, "-c", _CUT_OFF, reader, "-n", "--pidfile=", "holdfast")
    broker = BrokerProcess(tmp_path, "--storage", url, program=twistd).start()
    try:
        assert [WAITS in line for line in broker.lines].count(True) == 1
        client = PahoClient(broker.port, 5, "pump-7", clean=False, expiry=3600)
        assert client.session_present
        client.publish("a", b"x", qos=1)
        assert client.messages(1) == [("a", b"x", 1, False)]
        client.close()
        assert broker.stop() == (0, "")
    finally:
        broker.end()
        drop(url)


def test_a_database_that_comes_up_wrong_ends_it_with_status_1(
    broker_in: Brokers, late_postgres: tuple[str, Callable[[], None]]
) -> None:
    url, come_up = late_postgres
    broker = broker_in("--storage", make_url(url).set(database="nowhere").render_as_string(hide_password=False))
    broker.launch()
    broker.wait_for(WAITS)
    come_up()
    status, errors = broker.wait()
    assert status == 1
    assert "nowhere" in errors
    assert "Traceback" not in errors + "\n".join(broker.lines)


def taken(port: int) -> socket.socket:
    """Take a port as soon as it is free: the broker has tried it out, and closes it after its line about the wait."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def test_a_port_that_is_taken_meanwhile_ends_it_with_status_1(
    broker_in: Brokers, late_postgres: tuple[str, Callable[[], None]]
) -> None:
    url, come_up = late_postgres
    port = lasting_port()
    broker = broker_in("--storage", url, "--listen", f"tcp:{port}:interface=127.0.0.1", listen=False)
    broker.launch()
    broker.wait_for(WAITS)
    with taken(port):
        come_up()
        status, errors = broker.wait()
    assert status == 1
    assert "in use" in errors
    assert "Traceback" not in errors + "\n".join(broker.lines)
    assert "ready" not in broker.lines


def test_a_port_in_use_ends_it_at_once_although_the_database_is_late(broker_in: Brokers, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1"
        broker = broker_in(
            "--storage", f"postgresql+psycopg:///x?host={tmp_path}/none", "--listen", place, listen=False
        )
        broker.launch()
        status, errors = broker.wait()
    assert status == 1
    assert "in use" in errors


def test_a_signal_ends_the_wait_with_status_0(
    broker_in: Brokers, late_postgres: tuple[str, Callable[[], None]]
) -> None:
    broker = broker_in("--storage", late_postgres[0])
    broker.launch()
    broker.wait_for(WAITS)
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_for("nothing is reloaded while the broker waits")
    assert broker.stop() == (0, "")
    assert not (broker.directory / "data" / "control.sock").exists()


def test_a_signal_ends_the_first_try_with_status_0(broker_in: Brokers) -> None:
    """A server that accepts connections and answers nothing: the broker is in the middle of its first try."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE)
        broker = broker_in("--storage", f"postgresql+psycopg://a@127.0.0.1:{silent.getsockname()[1]}/x")
        broker.launch()
        connection, _ = silent.accept()
        with connection:
            assert broker.stop() == (0, "")


def test_listeners_whose_address_is_there_open_at_once(broker_in: Brokers) -> None:
    both = ("--listen", "tcp:0:interface=127.0.0.1", "--listen", ELSEWHERE, "--allow-anonymous")
    broker = broker_in(*both, listen=False).start()
    [opened] = [line for line in broker.lines if line.startswith("listening ")]
    assert opened.startswith("listening listen-1 ")
    data = broker.directory / "data"
    assert ask("ping", "--data-dir", data).stdout == "the broker answers; these listeners do not listen yet: listen-2\n"
    assert broker.stop() == (0, "")
    assert sum(WAITS in line for line in broker.lines) == 1


def test_a_broker_without_any_address_waits_until_a_signal(broker_in: Brokers) -> None:
    broker = broker_in("--listen", ELSEWHERE, "--allow-anonymous", listen=False)
    broker.launch()
    broker.wait_for(WAITS)
    assert broker.stop() == (0, "")
    assert "ready" not in broker.lines


@pytest.mark.parametrize("late", ["address", "database"])
def test_a_script_can_forbid_the_wait(broker_in: Brokers, tmp_path: Path, late: str) -> None:
    address, database = ("--listen", ELSEWHERE), ("--storage", f"postgresql+psycopg:///x?host={tmp_path}/none")
    broker = broker_in(
        "--no-wait", "--allow-anonymous", *(address if late == "address" else database), listen=late == "database"
    )
    broker.launch()
    status, errors = broker.wait()
    assert status == 1
    assert len(errors.splitlines()) == 1
