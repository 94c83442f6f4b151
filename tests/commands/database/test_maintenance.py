"""``holdfast db upgrade`` and ``check``: the chosen database, the output, and the effects of a kill."""

from __future__ import annotations

import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import db_work, main
from holdfast.storage.database import Durability
from holdfast.storage.location import DirectoryLock, StoreUnusable
from holdfast.storage.schema import newest_version, prepare, steps_from
from holdfast.storage.sqlite import SQLiteDatabase, verdict
from tests.migrations.later import BASE, LATER, later_program
from tests.storage.doubles import fresh_file
from tests.storage.test_maintenance import old_file, rows


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(autouse=True)
def later(tmp_path: Path, folder: Path) -> Iterator[Path]:
    """The folder with the migrations of a later program, which this process is meanwhile."""
    with later_program(tmp_path) as migrations:
        yield migrations


@pytest.fixture
def data(folder: Path) -> Path:
    """A data directory with a database of the program before this one."""
    data = folder / "data"
    data.mkdir()
    old_file(data)
    return data


def db(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["db", *map(str, arguments)])


def refused(*arguments: str | Path) -> str:
    """Return the one line of a command that fails."""
    result = db(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    return line


def test_an_upgrade(data: Path) -> None:
    result = db("upgrade")
    assert (result.exit_code, result.stderr) == (0, "")
    first, *steps, last, kept = result.stdout.splitlines()
    assert (
        first == f"{data}/holdfast.db: has the schema {BASE}, this version of the broker works with {newest_version()}"
    )
    assert steps == [f"running {revision}: {what}" for revision, what in steps_from(BASE)]
    assert steps[0].startswith(f"running {LATER[0]}: ")
    assert last == f"upgraded to {newest_version()}"
    assert kept.endswith(": a copy of the database before the upgrade; to go back, restore it")
    again = db("upgrade")
    assert (again.exit_code, again.stdout.splitlines()[1:], again.stderr) == (0, ["up to date, nothing to do"], "")


def copies(data: Path) -> list[Path]:
    return sorted(data.glob("holdfast.db.schema-*"))


def test_an_upgrade_makes_a_backup(data: Path) -> None:
    """The backup is one good file beside the database. A second run has nothing to do, and makes none."""
    before = rows(data / "holdfast.db"), rows(data / "holdfast.db", "alembic_version")
    result = db("upgrade")
    (copy,) = copies(data)
    assert result.stdout.splitlines()[-1].startswith(f"{copy}: ")
    assert copy.name.startswith(f"holdfast.db.schema-{BASE}.")
    assert (rows(copy), rows(copy, "alembic_version")) == before
    assert copy.stat().st_mode & 0o777 == 0o600
    assert db("verify", copy).exit_code == 0
    assert db("upgrade").exit_code == 0
    assert copies(data) == [copy]


def test_no_backup_makes_no_backup(data: Path) -> None:
    assert db("upgrade", "--no-backup").exit_code == 0
    assert copies(data) == []


def test_an_upgrade_that_fails_leaves_no_copy_behind(data: Path) -> None:
    """It would only take up room: the database is unchanged."""
    path = data / "holdfast.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE colours (x)")
    connection.close()
    before = sorted(data.iterdir())
    assert db("upgrade").exit_code == 1
    assert set(data.iterdir()) - {data / "holdfast.lock"} == set(before)


def test_if_the_backup_fails_nothing_is_changed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full, the message says how to upgrade without a backup beside the database."""

    def full(*_: object) -> None:
        raise StoreUnusable(f"{data}/holdfast.db.x: there is no space left on its disk; free some space")

    monkeypatch.setattr(db_work, "back_up", full)
    assert refused("upgrade") == (
        f"no backup could be made, so nothing was changed: {data}/holdfast.db.x: there is no space left on its disk;"
        " free some space. To make one elsewhere, run holdfast db backup, then holdfast db upgrade --no-backup"
    )
    assert rows(data / "holdfast.db", "alembic_version") == [(BASE,)]
    assert db("upgrade", "--no-backup").exit_code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--data-dir {folder}/data"),
        (("--data-dir", "data"), "--data-dir {folder}/data"),
        (("--config", "h.toml"), "--config {folder}/h.toml"),
        (("--config", "h.toml", "--data-dir", "data"), "--config {folder}/h.toml --data-dir {folder}/data"),
        (
            ("--storage", "sqlite:///data/holdfast.db"),
            "--data-dir {folder}/data --storage sqlite:///{folder}/data/holdfast.db",
        ),
    ],
)
def test_an_old_schema_is_refused_with_the_whole_upgrade_command(
    data: Path, folder: Path, options: tuple[str, ...], said: str
) -> None:
    """The options name the same database from any folder, and the command works."""
    (folder / "h.toml").write_text('node.data_dir = "data"\n')
    command = f"holdfast db upgrade {said.format(folder=folder)}"
    result = CliRunner().invoke(main, ["retainer", "info", *options])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"{data}/holdfast.db: has the older schema {BASE}, this is {newest_version()};"
        f" stop the broker, take a backup and run: {command}\n"
    )
    assert db("check", *options).stdout.splitlines()[0].endswith(f"; run: {command}")
    assert db(*shlex.split(command)[2:]).exit_code == 0
    assert CliRunner().invoke(main, ["retainer", "info", *options]).exit_code == 0


def test_the_database_is_the_one_of_the_broker(folder: Path) -> None:
    """The configuration names it, and the command line overrides that."""
    (folder / "here").mkdir()
    (folder / "there").mkdir()
    here, there = old_file(folder / "here"), old_file(folder / "there")
    (folder / "there" / "h.toml").write_text('[node]\ndata_dir = "."\n[listeners.open]\nendpoint = "tcp:1883"\n')
    for path, options in (
        (here, ("--data-dir", "here")),
        (there, ("--config", "there/h.toml")),
        (here, ("--config", "there/h.toml", "--data-dir", "here")),
        (here, ("--storage", "sqlite:///here/holdfast.db")),
        (here, ("--config", "there/h.toml", "--storage", f"sqlite:///{here}")),
    ):
        assert db("check", *options).stdout.startswith(f"{path}: schema {BASE}, ")
    assert db("upgrade", "--config", "there/h.toml").exit_code == 0
    assert rows(here, "alembic_version") == [(BASE,)]
    assert rows(there, "alembic_version") == [(newest_version(),)]


def test_a_missing_database_is_not_made(folder: Path) -> None:
    for command in ("upgrade", "check"):
        assert refused(command) == (
            f"{folder}/data/holdfast.db: there is no such file;"
            " name the broker's own with --config, --data-dir or --storage"
        )
    assert list(folder.iterdir()) == []


def test_an_upgrade_beside_a_running_broker_is_refused(data: Path) -> None:
    """The database is not touched; a check is possible."""
    broker = DirectoryLock(data)
    broker.acquire()
    assert refused("upgrade") == (
        f"the data directory {data} is in use by process {os.getpid()};"
        " stop that broker, or choose another with --data-dir"
    )
    assert db("check").stdout.startswith(f"{data}/holdfast.db: schema {BASE}, ")
    broker.release()
    assert db("upgrade").exit_code == 0


def test_the_lock_is_released(data: Path) -> None:
    assert db("upgrade").exit_code == 0
    lock = DirectoryLock(data)
    lock.acquire()
    lock.release()


def test_a_lock_that_cannot_be_acquired_is_reported(data: Path) -> None:
    (data / "holdfast.lock").mkdir()
    assert refused("upgrade").startswith(f"the data directory {data} cannot be used: Is a directory")


def test_a_newer_database_is_refused(data: Path) -> None:
    connection = sqlite3.connect(data / "holdfast.db")
    with connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    for command in ("upgrade", "check"):
        assert (
            f"has the schema 9999, which this version does not know (its own is {newest_version()});"
            " start the newer version" in refused(command)
        )


def test_all_problems_of_a_configuration_are_reported(folder: Path) -> None:
    (folder / "h.toml").write_text("[node]\nid = 0\n[mqtt]\nmax_qos_allowed = 3\n")
    result = db("upgrade", "--config", "h.toml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert [line.split(": ")[0] for line in result.stderr.splitlines()] == ["h.toml:2", "h.toml:4"]
    assert refused("check", "--storage", "mysql://u:secret@h/d").startswith("command line: --storage: found the scheme")


def test_a_check_of_a_sound_database(folder: Path) -> None:
    path = folder / "x.db"
    prepare(SQLiteDatabase(path, Durability.PROCESS))
    result = db("check", "--storage", f"sqlite:///{path}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"{path}: schema {newest_version()}, up to date",
        verdict(),
        "integrity_check: ok",
        "foreign_key_check: ok",
    ]


def test_a_check_of_an_old_database_names_the_upgrade_command(data: Path) -> None:
    result = db("check")
    assert (result.exit_code, result.stderr) == (3, "")
    assert result.stdout.splitlines()[0] == (
        f"{data}/holdfast.db: schema {BASE}, this is {newest_version()}; run: holdfast db upgrade --data-dir {data}"
    )
    assert result.stdout.splitlines()[1:] == [verdict(), "integrity_check: ok", "foreign_key_check: ok"]


def test_a_check_of_a_damaged_database(folder: Path) -> None:
    path = fresh_file(folder, "x.db")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
    connection.execute("CREATE TABLE child (id REFERENCES parent)")
    connection.execute("INSERT INTO child VALUES (5)")
    connection.close()
    result = db("check", "--storage", f"sqlite:///{path}")
    assert result.exit_code == 3
    assert "foreign_key_check: row 1 of child refers to no row of parent" in result.stdout.splitlines()


@pytest.mark.parametrize("arguments", [("upgrade", "--no-such-option"), ("upgrade", "file"), ("downgrade",), ()])
def test_a_wrong_command_has_status_2(arguments: tuple[str, ...]) -> None:
    assert db(*arguments).exit_code == 2


KILLED = """
import os, signal, sys
from sqlalchemy import Engine, event
from pathlib import Path
from holdfast.commands import main
from tests.migrations.later import become

become(Path(sys.argv[2]))

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "COMMIT":
    event.listen(Engine, "commit", die)
else:
    @event.listens_for(Engine, "before_cursor_execute")
    def before(_connection, _cursor, statement, *_):
        if sys.argv[1] in statement:
            die()

main(["db", "upgrade"])
"""


@pytest.mark.crash
@pytest.mark.parametrize("moment", ["CREATE TABLE colours", "UPDATE nodes", "UPDATE alembic_version", "COMMIT"])
def test_an_upgrade_that_is_killed_can_be_run_again(data: Path, later: Path, moment: str) -> None:
    """The database is unchanged to the last row. The broker still refuses it and names the command."""
    path = data / "holdfast.db"
    before = rows(path), rows(path, "sqlite_master")
    program = [sys.executable, "-c", KILLED, moment, str(later)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(program, cwd=data.parent, env=environment, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    result = db("check")
    assert f"schema {BASE}" in result.stdout
    assert "integrity_check: ok" in result.stdout
    assert (rows(path), rows(path, "sqlite_master")) == before
    assert db("upgrade").exit_code == 0
    assert rows(path) == before[0]
    assert db("check").exit_code == 0
