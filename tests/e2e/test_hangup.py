"""SIGHUP, which service managers send to reload and logrotate to reopen the log: what holds for every process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

Start = Callable[..., BrokerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a broker by a command."""
    brokers: list[BrokerProcess] = []

    def starts(*program: str) -> BrokerProcess:
        brokers.append(BrokerProcess(tmp_path, program=program))
        return brokers[-1].start()

    yield starts
    for broker in brokers:
        broker.end()


def twistd(*options: str) -> tuple[str, ...]:
    """The command of twistd with these options."""
    return (str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", *options, "holdfast")


def read_until(file: Path, text: str) -> str:
    """Return the file's text once it has ``text``."""
    deadline = time.monotonic() + PATIENCE
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < deadline, f"{text!r} does not come in {file}"
        time.sleep(0.02)
    return file.read_text()


def answers(client: RawClient) -> bool:
    """Tell whether the broker still answers this client."""
    client.send(p.Pingreq())
    return isinstance(next(client.packets()), p.Pingresp)


def test_after_sighup_clients_stay_and_the_log_goes_to_a_new_file(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    broker = start(*twistd(f"--logfile={log}"))
    client = RawClient(broker.port, "c")
    read_until(log, "Holdfast 0")
    old = log.rename(tmp_path / "broker.log.1")
    os.kill(broker.pid, signal.SIGHUP)
    text = read_until(log, "reload: nothing has changed")
    assert f"SIGHUP: log files reopened: {log}" in text
    assert "reload: " not in old.read_text()
    assert answers(client)
    assert broker.stop() == (0, "")
    assert "everything accepted is stored" in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_a_broker_that_logs_to_stdout_goes_on_and_says_so(start: Start, number: signal.Signals) -> None:
    """SIGUSR1 rotates twistd's log file. Without such a file it would end the broker."""
    broker = start(*HOLDFAST_RUN)
    client = RawClient(broker.port, "c")
    os.kill(broker.pid, number)
    broker.wait_for(f"{number.name}: log files reopened: none")
    if number == signal.SIGHUP:
        broker.wait_for("reload: nothing has changed")
    assert answers(client)
    assert broker.stop() == (0, "")


def test_under_nohup_it_goes_on_too(start: Start) -> None:
    broker = start("nohup", *HOLDFAST_RUN)
    client = RawClient(broker.port, "c")
    os.kill(broker.pid, signal.SIGHUP)
    assert broker.wait_for("reload: nothing has changed")
    assert answers(client)
