"""From an older version's database to this one: refused, upgraded, served."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paho import PahoClient
from tests.processes import BrokerProcess
from tests.storage.test_maintenance import old_file

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]


def db(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run ``holdfast db``; return exit status, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "db", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_what_was_retained_by_an_older_version_is_served_after_the_upgrade(broker_in: Brokers, tmp_path: Path) -> None:
    """The broker refuses it with one message that names the command, which does what is needed."""
    (tmp_path / "data").mkdir()
    old_file(tmp_path / "data")
    broker = broker_in()
    broker.launch()
    status, errors = broker.wait()
    assert status == 1
    assert len(errors.splitlines()) == 1
    assert "older schema 0001" in errors
    assert "holdfast db upgrade" in errors
    status, said, errors = db(tmp_path, "upgrade")
    assert (status, errors) == (0, "")
    assert said.splitlines()[-1].startswith("upgraded to ")
    broker.start()
    client = PahoClient(broker.port, 5)
    client.subscribe("#", qos=1)
    assert client.messages(5) == [
        ("binary", bytes(range(16)) + b"'", 1, True),
        ("fire/and/forget", b"x", 0, True),
        ("house/garage", b"on", 1, True),
        ("house/kitchen/temperature", b"21.5", 1, True),
        ("last", b"x", 1, True),
    ]
    client.close()


def test_a_running_broker_is_not_disturbed(broker: BrokerProcess) -> None:
    """Neither in its data directory nor where only the database is named; a check may run beside it."""
    client = PahoClient(broker.port)
    client.publish("t", b"kept", retain=True)
    path = broker.directory / "data" / "holdfast.db"
    status, said, errors = db(broker.directory, "upgrade")
    assert (status, said, len(errors.splitlines())) == (1, "", 1)
    assert f"is in use by process {broker.pid}; stop that broker" in errors
    status, said, errors = db(broker.directory, "upgrade", "--data-dir", "other", "--storage", f"sqlite:///{path}")
    assert (status, said, len(errors.splitlines())) == (1, "", 1)
    assert "is locked by another process; stop the other broker" in errors
    status, said, errors = db(broker.directory, "check")
    assert (status, errors) == (0, "")
    assert said.splitlines()[1:] == ["integrity_check: ok", "foreign_key_check: ok"]
    client.publish("t", b"still", retain=True)
    client.close()
    assert broker.stop() == (0, "")
    assert not (broker.directory / "other").exists()
    assert db(broker.directory, "upgrade")[1].splitlines()[-1] == "up to date, nothing to do"
