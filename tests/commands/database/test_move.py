"""``holdfast migrate sqlite-to-postgres`` and back: what an operator sees of a move."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import main
from tests.postgres import drop, empty_database
from tests.storage.doubles import fresh_file


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a message in its data directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    fresh_file(tmp_path / "data", "holdfast.db")
    assert run("retainer", "set", "a/b", "value").exit_code == 0
    return tmp_path


@pytest.fixture
def url() -> Iterator[str]:
    found = empty_database()
    yield found
    drop(found)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_everything_moves_there_and_back(folder: Path, url: str) -> None:
    """A dry run writes nothing; a second run is refused and changes nothing."""
    exported = run("retainer", "export").stdout
    assert "Nothing was written to" in run("migrate", "sqlite-to-postgres", url, "--dry-run").stdout
    done = run("migrate", "sqlite-to-postgres", url)
    assert "retained: 1 row\n" in done.stdout
    assert "set storage.url to it and start the broker" in done.stdout
    assert run("retainer", "export", "--storage", url).stdout == exported
    again = run("migrate", "sqlite-to-postgres", url)
    assert (again.exit_code, "has tables already" in again.stderr) == (1, True)
    (folder / "other").mkdir()
    back = ("migrate", "postgres-to-sqlite", "other/holdfast.db", "--storage", url)
    assert json.loads(run(*back, "--json").stdout)["rows"]["retained"] == 1
    assert run("retainer", "export", "--data-dir", "other").stdout == exported
    assert run("db", "check", "--data-dir", "other").exit_code == 0
    assert "is there already" in run(*back).stderr
    assert run("retainer", "export").stdout == exported


def test_another_direction_is_refused(url: str) -> None:
    wrong = run("migrate", "postgres-to-sqlite", "x.db")
    assert wrong.exit_code == 1
    assert "allowed is Postgres to SQLite" in wrong.stderr
    wrong = run("migrate", "sqlite-to-postgres", url, "--storage", url)
    assert "allowed is SQLite to Postgres" in wrong.stderr
    assert not Path("x.db").exists()


def test_an_empty_or_missing_source_is_refused(url: str) -> None:
    empty = run("migrate", "postgres-to-sqlite", "x.db", "--storage", url)
    assert "is empty: there is nothing to move" in empty.stderr
    assert run("migrate", "sqlite-to-postgres", url, "--data-dir", "nowhere").exit_code == 1
