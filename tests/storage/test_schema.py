"""Fresh databases are built, current ones accepted, and all others refused with what to do."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.storage import schema
from holdfast.storage.database import Durability, StoreUnusable
from holdfast.storage.sqlite import SQLiteDatabase
from tests.storage.doubles import fresh_file


def database(path: Path) -> SQLiteDatabase:
    return SQLiteDatabase(path, Durability.PROCESS)


def alter(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_fresh_database_is_built_and_accepted_the_next_time(tmp_path: Path) -> None:
    fresh = database(tmp_path / "x.db")
    for _ in range(2):
        schema.prepare(fresh)
        with fresh.engine().begin() as connection:
            assert schema.is_current(connection)
            assert schema.current_version(connection) == schema.newest_version()


def test_an_empty_database_is_not_current(tmp_path: Path) -> None:
    with database(tmp_path / "x.db").engine().begin() as connection:
        assert schema.current_version(connection) is None
        assert not schema.is_current(connection)


def test_an_older_schema_is_refused_with_the_command_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fresh_file(tmp_path)
    monkeypatch.setattr(schema, "newest_version", lambda: "9999")
    with pytest.raises(StoreUnusable, match=r"older schema \d{4}, this is 9999.*holdfast db upgrade"):
        schema.prepare(database(path))


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = fresh_file(tmp_path)
    alter(path, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreUnusable, match=r"schema 9999.*newer version of the broker"):
        schema.prepare(database(path))


def test_somebody_elses_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    alter(path, "CREATE TABLE bookmarks (url)")
    with pytest.raises(StoreUnusable, match="belongs to another program"):
        schema.prepare(database(path))
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT group_concat(name) FROM sqlite_master").fetchone() == ("bookmarks",)
    connection.close()


def test_a_build_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = database(tmp_path / "x.db")
    upgrade = schema.upgrade

    def interrupted(connection: object) -> None:
        upgrade(connection)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(schema, "upgrade", interrupted)
        with pytest.raises(KeyboardInterrupt):
            schema.prepare(fresh)
    connection = sqlite3.connect(fresh.path)
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    connection.close()
    schema.prepare(fresh)


def test_a_current_schema_is_opened_without_alembic(tmp_path: Path) -> None:
    """It would take a tenth of a second and 10 MiB of every start."""
    path = fresh_file(tmp_path)
    program = (
        "import sys; from pathlib import Path; from holdfast.storage.database import Durability; "
        "from holdfast.storage.schema import prepare; from holdfast.storage.sqlite import SQLiteDatabase; "
        "prepare(SQLiteDatabase(Path(sys.argv[1]), Durability.FULL)); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 0


def test_two_versions_at_once_are_not_known(tmp_path: Path) -> None:
    """Somebody else has had their hands on it."""
    path = fresh_file(tmp_path)
    alter(path, "INSERT INTO alembic_version VALUES ('0001')")
    with pytest.raises(StoreUnusable, match=r"has the schema 0001 and .*, which this version does not know"):
        schema.prepare(database(path))
