"""From an older version's database to a later one: refused, upgraded, served."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage.schema import newest_version
from tests.migrations.later import (
    BASE,
    LATER,
    LIVE,
    MAKES,
    contents,
    empty,
    expected,
    in_order,
    left_by_this_program,
    write,
)
from tests.paho import PahoClient
from tests.processes import BrokerProcess

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]
#: the later program is among the tests
_PATH = {"PYTHONPATH": str(Path(__file__).parents[2])}
#: runs twistd as the program whose migrations are in the folder that follows
_TWISTD = """
import sys
from pathlib import Path
from twisted.scripts.twistd import run
from tests.migrations.later import become

become(Path(sys.argv.pop(1)))
run()
"""


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The folder with the migrations of a later program."""
    migrations = tmp_path / "later"
    write(migrations)
    return migrations


def holdfast(migrations: Path | None) -> list[str]:
    """Return the command ``holdfast`` of this program, or of the later one."""
    later = [] if migrations is None else [str(migrations)]
    return [sys.executable, "-m", "tests.migrations.later" if later else "holdfast.commands", *later]


def db(folder: Path, *arguments: str, migrations: Path | None = None) -> tuple[int, str, str]:
    """Run ``holdfast db``; return exit status, stdout and stderr."""
    done = subprocess.run(
        [*holdfast(migrations), "db", *arguments],
        cwd=folder,
        env={**os.environ, **_PATH},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("make", ["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)])
def test_all_that_an_older_version_has_stored_goes_on_after_the_upgrade(tmp_path: Path, later: Path, make: str) -> None:
    """The broker refuses the old database with one message. The command in the message upgrades it.

    Retained messages that have not expired, messages in flight and in queues, and an unpublished Will are kept.
    """
    (tmp_path / "data").mkdir()
    (tmp_path / "h.toml").write_text('mqtt.will_restart_grace = "0s"\n')
    with empty(make, tmp_path / "data") as (url, database):
        left_by_this_program(database)
        options = "--config", str(tmp_path / "h.toml"), "--storage", url
        twistd = (sys.executable, "-c", _TWISTD, str(later), "-n", "--pidfile=", "holdfast")
        broker = BrokerProcess(tmp_path, *options, program=twistd, environment=_PATH)
        try:
            broker.launch()
            status, errors = broker.wait()
            assert status == 1
            assert len(errors.splitlines()) == 1
            assert f"older schema {BASE}, this is {LATER[-1]}" in errors
            command = errors.rstrip("\n").partition("run: holdfast db ")[2]
            status, said, errors = db(tmp_path.parent, *shlex.split(command), migrations=later)
            assert (status, errors) == (0, "")
            assert f"upgraded to {LATER[-1]}" in said
            broker.start()
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
            kept = {row[0]: (row[14], row[3]) for row in LIVE if row[0] not in ("haus/over", "$app/state")}
            kept["alarm/lost"] = (b"gone", 1)
            found = {topic: (payload, qos) for topic, payload, qos, _ in reader.messages(len(kept))}
            assert found == kept
            reader.publish("haus/over", b"anew", retain=True)
            assert reader.messages(1) == [("haus/over", b"anew", 1, False)]
            for client in (pump, reader):
                client.close()
            assert broker.stop() == (0, "")
        finally:
            broker.end()
        assert db(tmp_path, "check", "--storage", url, migrations=later)[0] == 0


@pytest.mark.parametrize("make", MAKES)
def test_one_of_several_simultaneous_upgrades_succeeds(tmp_path: Path, later: Path, make: str) -> None:
    """A second process waits, or fails with one line. Every row exists once."""
    (tmp_path / "data").mkdir()
    with empty(make, tmp_path / "data") as (url, database):
        left_by_this_program(database)
        processes = [
            subprocess.Popen(
                [*holdfast(later), "db", "upgrade", "--storage", url],
                cwd=tmp_path,
                env={**os.environ, **_PATH},
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
            assert contents(connection) == in_order(expected())


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
    with empty("sqlite", tmp_path / "data") as (_, database):
        left_by_this_program(database)
        with database.engine().begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    broker = broker_in()
    broker.launch()
    assert broker.wait() == (
        1,
        f"holdfast: {tmp_path}/data/holdfast.db: has the schema 9999, which this version does not know (its own is "
        f"{newest_version()}); start the newer version of the broker that wrote it, or restore a backup\n",
    )
