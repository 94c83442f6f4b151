"""``holdfast db backup`` and ``verify``: copies of one moment, and their check."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import main
from holdfast.storage.database import Durability
from holdfast.storage.location import StoreUnusable
from holdfast.storage.sqlite import SQLiteDatabase, back_up
from tests.storage.doubles import fresh_file


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a store of two messages in its data directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    fresh_file(tmp_path / "data", "holdfast.db")
    for topic in ("a", "b"):
        assert run("retainer", "set", topic, "x").exit_code == 0
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_a_backup_is_one_file_and_good(folder: Path) -> None:
    result = run("db", "backup", "b.db")
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == ["b.db", "data"]
    assert (folder / "b.db").stat().st_mode & 0o777 == 0o600
    result = run("db", "verify", "b.db")
    assert result.stdout.splitlines() == [
        "integrity_check: ok", "foreign_key_check: ok", "b.db: good, with 2 retained messages",
    ]  # fmt: skip
    assert run("retainer", "topics", "--storage", f"sqlite:///{folder}/b.db").stdout == "a\nb\n"


def test_a_backup_is_the_database_at_one_moment(folder: Path) -> None:
    """Later writes are not in the backup, and do not make it begin again."""
    database = SQLiteDatabase(folder / "data" / "holdfast.db", Durability.PROCESS)
    writer = database.connect()
    writer.execute("CREATE TABLE filler (i, data)")
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
    writer.execute(f"{numbers} INSERT INTO filler SELECT i, zeroblob(1000) FROM n")
    seen: list[tuple[int, int]] = []

    def report(done: int, total: int | None = None, /) -> None:
        seen.append((done, total or 0))
        writer.execute("DELETE FROM filler WHERE i <= ?", (1000 * len(seen),))

    back_up(database, folder / "b.db", report)
    writer.close()
    assert len(seen) > 3
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]
    with sqlite3.connect(folder / "b.db") as connection:
        assert connection.execute("SELECT count(*) FROM filler").fetchone() == (20_000,)


def test_no_file_is_overwritten(folder: Path) -> None:
    (folder / "b.db").write_text("precious")
    result = run("db", "backup", "b.db")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "b.db: exists already; name another file, or move this file away\n"
    assert (folder / "b.db").read_text() == "precious"


def test_a_backup_that_fails_leaves_nothing(folder: Path) -> None:
    database = SQLiteDatabase(folder / "data" / "holdfast.db", Durability.PROCESS)

    def report(_done: int, _total: int | None = None, /) -> None:
        raise sqlite3.OperationalError("no space left")

    with pytest.raises(StoreUnusable, match="no space left"):
        back_up(database, folder / "b.db", report)
    assert [path.name for path in folder.iterdir()] == ["data"]


def test_postgres_has_its_own_backups() -> None:
    result = run("db", "backup", "b", "--storage", "postgresql+psycopg://u:secret@h/d")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "pg_dump" in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize("damage", ["text", "cut", "flipped", "foreign"])
def test_verify_refuses_a_bad_backup(folder: Path, damage: str) -> None:
    run("db", "backup", "b.db")
    path = folder / "b.db"
    data = path.read_bytes()
    if damage == "text":
        path.write_text("x" * 5000)
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        path.write_bytes(data[:4096] + bytes(len(data) - 4096))
    else:
        path.unlink()
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE other (a)")
    result = run("db", "verify", "b.db")
    assert result.exit_code == 3
    assert "Traceback" not in result.output
    assert result.stderr.startswith("b.db: is not a good backup: it ")
    assert "good, with" not in result.stdout
    assert "on_corruption" not in result.stderr  # what a broker can do with its own database
    assert "holdfast-verify" not in result.stderr  # the copy, which is gone
    told = json.loads(run("db", "verify", "b.db", "--json").stdout)
    assert (told["good"], told["messages"]) == (False, None)
    assert f"b.db: is not a good backup: {told['fault']}\n" == result.stderr


def test_a_backup_that_is_not_there_is_a_failure_of_the_command(folder: Path) -> None:
    result = run("db", "verify", "b.db")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "b.db: No such file or directory\n")
