"""An empty database gets the schema, a current one is accepted, all others are refused with a remedy."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import inspect
from sqlalchemy.engine import make_url

from holdfast.storage import schema
from holdfast.storage.database import Database, Durability
from holdfast.storage.driver import Connection
from holdfast.storage.location import StoreUnusable
from holdfast.storage.maintenance import examine, upgrade_schema
from holdfast.storage.postgres import PostgresDatabase
from holdfast.storage.sqlite import SQLiteDatabase
from tests.postgres import drop, empty_database
from tests.storage.doubles import fresh_file


def database(path: Path) -> SQLiteDatabase:
    return SQLiteDatabase(path, Durability.PROCESS)


@contextmanager
def of_make(make: str, folder: Path) -> Iterator[Database]:
    """Yield an empty database of this make."""
    if make == "sqlite":
        yield database(folder / "x.db")
        return
    url = empty_database()
    try:
        yield PostgresDatabase(make_url(url), Durability.PROCESS)
    finally:
        drop(url)


def names_in(found: Database) -> set[str]:
    with found.reading_engine().begin() as connection:
        return set(inspect(connection).get_table_names()) | set(inspect(connection).get_view_names())


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
        with fresh.transaction() as connection:
            assert schema.own_version(connection, fresh) == schema.newest_version()


def test_an_empty_database_has_no_version(tmp_path: Path) -> None:
    empty = database(tmp_path / "x.db")
    with empty.transaction() as connection:
        assert schema.own_version(connection, empty) is None


def test_an_older_schema_is_refused_with_the_command_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fresh_file(tmp_path)
    monkeypatch.setattr(schema, "newest_version", lambda: "9999")
    with pytest.raises(StoreUnusable, match=r"older schema \d{4}, this is 9999.*holdfast db upgrade --config x$"):
        schema.prepare(database(path), "holdfast db upgrade --config x")


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = fresh_file(tmp_path)
    alter(path, "UPDATE alembic_version SET version_num = '9999'")
    known = schema.newest_version()
    with pytest.raises(StoreUnusable, match=rf"schema 9999.*its own is {known}.*newer version of the broker"):
        schema.prepare(database(path))


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["CREATE TABLE bookmarks (url TEXT)"], "belongs to another program; name another database"),
        (
            [
                "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
                "INSERT INTO alembic_version VALUES ('0022')",
                "CREATE TABLE bookmarks (url TEXT)",
            ],
            "belongs to another program; name another database",
        ),
        (["CREATE TABLE retained (topic TEXT)"], "has tables of the broker but no schema version"),
    ],
    ids=["without a version", "with a version that is also one of ours", "half of ours"],
)
@pytest.mark.parametrize("make", ["sqlite", "postgres"])
def test_the_database_of_another_program_is_refused_and_not_changed(
    tmp_path: Path, make: str, statements: list[str], message: str
) -> None:
    with of_make(make, tmp_path) as found:
        with found.engine().begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        before = names_in(found)
        for attempt in (schema.prepare, lambda it: upgrade_schema(it, print), examine):
            with pytest.raises(StoreUnusable, match=message):
                attempt(found)
            assert names_in(found) == before


@pytest.mark.parametrize("make", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP TABLE wills", "is not complete, it lacks wills; restore a backup"),
        ("DROP VIEW retained_messages", "is not complete, it lacks retained_messages; restore a backup"),
        ("DROP TABLE alembic_version", "no schema version, so it is not complete; restore a backup"),
        ("DELETE FROM alembic_version", "no schema version, so it is not complete; restore a backup"),
    ],
)
def test_a_database_that_lacks_something_is_refused(tmp_path: Path, make: str, statement: str, message: str) -> None:
    """Otherwise the broker would find out when it needs the table."""
    with of_make(make, tmp_path) as found:
        schema.prepare(found)
        with found.engine().begin() as connection:
            connection.exec_driver_sql(statement)
        for attempt in (schema.prepare, lambda it: upgrade_schema(it, print), examine):
            with pytest.raises(StoreUnusable, match=message):
                attempt(found)


def test_an_empty_database_is_built(tmp_path: Path) -> None:
    """This includes an empty file, which a full disk or a power failure can leave."""
    (tmp_path / "x.db").touch()
    for make in ("sqlite", "postgres"):
        with of_make(make, tmp_path) as found:
            schema.prepare(found)
            assert examine(found).is_current


def test_a_build_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = database(tmp_path / "x.db")
    build = schema.build

    def interrupted(connection: Connection, found: Database) -> None:
        build(connection, found)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(schema, "build", interrupted)
        with pytest.raises(KeyboardInterrupt):
            schema.prepare(fresh)
    connection = sqlite3.connect(fresh.path)
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    connection.close()
    schema.prepare(fresh)


@pytest.mark.parametrize("new", [True, False])
def test_a_file_is_built_and_opened_without_sqlalchemy_and_alembic(tmp_path: Path, new: bool) -> None:
    """They cost a third of a second and 30 MiB."""
    path = tmp_path / "new.db" if new else fresh_file(tmp_path)
    program = (
        "import sys; from pathlib import Path; from holdfast.storage.database import Durability; "
        "from holdfast.storage.schema import prepare; from holdfast.storage.sqlite import SQLiteDatabase; "
        "prepare(SQLiteDatabase(Path(sys.argv[1]), Durability.FULL)); "
        "sys.exit(bool({'alembic', 'sqlalchemy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 0


def test_two_versions_at_once_are_not_known(tmp_path: Path) -> None:
    """Another program has changed the schema."""
    path = fresh_file(tmp_path)
    alter(path, "INSERT INTO alembic_version VALUES ('9999')")
    with pytest.raises(StoreUnusable, match=r"has the schema .* and 9999, which this version does not know"):
        schema.prepare(database(path))
