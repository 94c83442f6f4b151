"""From an older version's database to this one: refused, upgraded, served."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage.schema import newest_version
from tests.migrations import old
from tests.paho import PahoClient
from tests.processes import BrokerProcess
from tests.storage.test_maintenance import old_file

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]


def db(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run ``holdfast db``; return exit status, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.commands", "db", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_retained_messages_of_an_older_version_are_served_after_the_upgrade(broker_in: Brokers, tmp_path: Path) -> None:
    """The broker refuses the old database with one message. The command in the message upgrades it."""
    (tmp_path / "data").mkdir()
    old_file(tmp_path / "data")
    broker = broker_in()
    broker.launch()
    status, errors = broker.wait()
    assert status == 1
    assert len(errors.splitlines()) == 1
    assert "older schema 0001" in errors
    command = errors.rstrip("\n").partition("run: holdfast db ")[2]
    status, said, errors = db(tmp_path.parent, *shlex.split(command))
    assert (status, errors) == (0, "")
    assert "upgraded to " in said
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


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        ("sqlite", "0002"),
        *(pytest.param("postgres", shape, marks=pytest.mark.nightly) for shape in ("0003", "0004")),
    ],
)
def test_sessions_and_wills_of_an_older_version_go_on(
    broker_in: Brokers, tmp_path: Path, make: str, shape: str
) -> None:
    """Retained messages that have not expired, messages in flight and in queues, and an unpublished Will are kept."""
    (tmp_path / "data").mkdir()
    with old.empty(make, tmp_path / "data") as (url, database):
        old.left_by(database, shape)
        assert db(tmp_path, "upgrade", "--data-dir", "data", "--storage", url)[0] == 0
        (tmp_path / "h.toml").write_text('mqtt.will_restart_grace = "0s"\n')
        broker = broker_in("--config", "h.toml", "--storage", url).start()
        pump = PahoClient(broker.port, 5, "pump-7", clean=False, expiry=3600)
        assert pump.session_present
        assert sorted(pump.messages(4)) == [
            ("alarm/door", b"", 1, False),
            ("alarm/fire", b"one", 1, False),
            ("alarm/lost", b"gone", 1, True),
            ("alarm/\u6c34", b"two\0", 2, False),
        ]
        reader = PahoClient(broker.port, 5)
        reader.subscribe("#", qos=2)
        kept = {row[0]: (row[14], row[3]) for row in old.LIVE if row[0] not in ("haus/over", "$app/state")}
        kept["alarm/lost"] = (b"gone", 1)
        found = {topic: (payload, qos) for topic, payload, qos, _ in reader.messages(len(kept))}
        assert found == kept
        reader.publish("haus/over", b"anew", retain=True)
        assert reader.messages(1) == [("haus/over", b"anew", 1, False)]
        for client in (pump, reader):
            client.close()
        assert broker.stop() == (0, "")
        assert db(tmp_path, "check", "--storage", url)[0] == 0


@pytest.mark.parametrize("make", old.MAKES)
def test_one_of_several_simultaneous_upgrades_succeeds(tmp_path: Path, make: str) -> None:
    """A second process waits, or fails with one line. Every row exists once."""
    (tmp_path / "data").mkdir()
    with old.empty(make, tmp_path / "data") as (url, database):
        old.left_by(database, "0001")
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "holdfast.commands", "db", "upgrade", "--storage", url],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(4)
        ]
        ends = []
        for process in processes:
            _, errors = process.communicate(timeout=60)
            ends.append(process.returncode)
            assert len(errors.splitlines()) == process.returncode
            assert process.returncode == 0 or "is in use by process" in errors or "is locked by another" in errors
        assert 0 in ends
        with database.engine().begin() as connection:
            assert old.contents(connection) == old.in_order(old.expected("0001"))


def test_a_running_broker_is_not_disturbed(broker: BrokerProcess) -> None:
    """An upgrade is refused by the data directory and by the database alone. A check may run meanwhile."""
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
    _, library, *checks = said.splitlines()
    assert library.startswith("SQLite 3.")
    assert checks == ["integrity_check: ok", "foreign_key_check: ok"]
    client.publish("t", b"still", retain=True)
    client.close()
    assert broker.stop() == (0, "")
    assert not (broker.directory / "other").exists()
    assert db(broker.directory, "upgrade")[1].splitlines()[-1] == "up to date, nothing to do"


def test_a_database_of_a_newer_version_is_refused(broker_in: Brokers, tmp_path: Path) -> None:
    """The message has both revisions and the remedy."""
    (tmp_path / "data").mkdir()
    with old.empty("sqlite", tmp_path / "data") as (_, database):
        old.left_by(database, newest_version())
        with database.engine().begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    broker = broker_in()
    broker.launch()
    assert broker.wait() == (
        1,
        f"holdfast: {tmp_path}/data/holdfast.db: has the schema 9999, which this version does not know (its own is "
        f"{newest_version()}); start the newer version of the broker that wrote it, or restore a backup\n",
    )
