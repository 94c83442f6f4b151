"""A database of one make becomes one of the other make, with every row; a killed move leaves no target."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from holdfast.storage import layouts
from holdfast.storage.database import Database, Durability
from holdfast.storage.layout import Kind, Layout
from holdfast.storage.location import StoreUnusable
from holdfast.storage.moving import LEFT_OUT, TABLES, move_database
from holdfast.storage.postgres import PostgresDatabase
from holdfast.storage.sqlite import SQLiteDatabase
from tests.postgres import drop, empty_database, fresh_database
from tests.storage.doubles import fresh_file

NODE = 7
#: Tables with one row only.
STATES = ("retained_history_state", "telemetry_state", "access_state")
ROWS = 3


def value_of(table: Layout, column: str, kind: Kind, number: int) -> Any:
    """Return a value that tells its place; every fourth one that may be NULL is NULL."""
    if table.name in STATES and column == "id":
        return 1
    if column == "node":
        return 0 if table.name in ("wills", "retained_leases") else number
    if column in ("id", "session_id", "message_id", "session") and table.name not in STATES:
        return (number + 1) << 8 | NODE
    match kind:
        case Kind.TEXT:
            return f"{column}/{number}/\u00e9\U0001d11e"
        case Kind.BLOB:
            return bytes([0, 255, number]) * (number + 1)
        case Kind.BIG:
            return 2**62 + number
        case _:
            return number


def filled(connection: Any, nullable: dict[str, set[str]], place: str = "?") -> None:
    """Fill every table."""
    for table in vars(layouts).values():
        if not isinstance(table, Layout) or table.name == "cluster_messages":
            continue
        connection.execute(f"DELETE FROM {table.name}")
        for number in range(1 if table.name in STATES else ROWS):
            row = [
                None if number == 1 and name in nullable[table.name] else value_of(table, name, kind, number)
                for name, kind in table.columns.items()
            ]
            places = ", ".join([place] * len(row))
            connection.execute(f"INSERT INTO {table.name} ({table.names}) VALUES ({places})", row)


def full_file(folder: Path) -> SQLiteDatabase:
    path = fresh_file(folder, "full.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        nullable = {
            table.name: {
                name
                for _, name, _, not_null, _, key in connection.execute(f"PRAGMA table_info({table.name})")
                if not not_null and not key
            }
            for table in vars(layouts).values()
            if isinstance(table, Layout)
        }
        filled(connection, nullable)
    return SQLiteDatabase(path, Durability.FULL)


def postgres(url: str) -> PostgresDatabase:
    return PostgresDatabase(make_url(url), Durability.FULL)


@pytest.fixture
def empty() -> Iterator[str]:
    url = empty_database()
    yield url
    drop(url)


def contents(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of the tables that are moved."""
    with closing(database.connect_reader()) as connection:
        found = {}
        for table in TABLES:
            cursor = connection.cursor()
            cursor.execute(f"SELECT {table.names} FROM {table.name} ORDER BY {', '.join(table.key)}")
            found[table.name] = [tuple(row) for row in cursor.fetchall()]
        return found


def moved(source: Database, target: Database, **more: Any) -> dict[str, int]:
    found = move_database(source, target, NODE, lambda _: None, **more)
    assert found.left_out == {}
    return found.rows


def test_every_table_is_moved_or_left_out_for_a_reason() -> None:
    every = {each.name for each in vars(layouts).values() if isinstance(each, Layout)}
    assert every == {table.name for table in TABLES} | LEFT_OUT


def test_every_row_moves_there_and_back(tmp_path: Path, empty: str) -> None:
    """The rows of a node get its number on Postgres, and tokens of the old turns become void."""
    source, there = full_file(tmp_path), postgres(empty)
    before = contents(source)
    counts = moved(source, there)
    assert counts == {name: len(rows) for name, rows in before.items()}
    on_postgres = contents(there)
    for name, rows in before.items():
        if name not in ("wills", "retained_leases", "session_subscriptions"):
            assert on_postgres[name] == rows, name
    assert {row[0] for name in ("wills", "retained_leases") for row in on_postgres[name]} == {NODE}
    since = list(layouts.session_subscriptions.columns).index("replay_since")
    assert [row[:since] for row in on_postgres["session_subscriptions"]] == [
        row[:since] for row in before["session_subscriptions"]
    ]
    assert {row[since] for row in on_postgres["session_subscriptions"]} == {None}
    back = SQLiteDatabase(tmp_path / "back.db", Durability.FULL)
    moved(there, back)
    after = contents(back)
    assert {name: rows for name, rows in after.items() if name != "session_subscriptions"} == {
        name: rows for name, rows in before.items() if name != "session_subscriptions"
    }
    assert contents(source) == before
    assert sorted(path.name for path in tmp_path.iterdir() if "back" in path.name) == ["back.db"]
    assert (tmp_path / "back.db").stat().st_mode & 0o777 == 0o600


def test_sessions_of_an_earlier_number_belong_to_the_node(tmp_path: Path, empty: str) -> None:
    """In SQLite the number of the node has no meaning, so it may have changed."""
    source = full_file(tmp_path)
    with closing(sqlite3.connect(source.path)) as connection, connection:
        connection.execute("UPDATE sessions SET id = id - 1 WHERE id = (SELECT min(id) FROM sessions)")
    moved(source, postgres(empty))
    assert {row[0] & 255 for row in contents(postgres(empty))["sessions"]} == {NODE}


@pytest.mark.parametrize("make", ["sqlite", "postgres"])
def test_a_dry_move_only_counts(tmp_path: Path, make: str, empty: str) -> None:
    source = full_file(tmp_path)
    target: Database = postgres(empty)
    if make == "sqlite":
        moved(source, target)
        source, target = target, SQLiteDatabase(tmp_path / "x.db", Durability.FULL)  # type: ignore[assignment]
    assert moved(source, target, dry=True)["retained"] == ROWS
    if make == "sqlite":
        assert not (tmp_path / "x.db").exists()
    else:
        assert names_in(empty) == set()


def names_in(url: str) -> set[str]:
    with closing(postgres(url).connect_reader()) as connection:
        return postgres(url).relations(connection)


def test_a_target_with_something_in_it_is_refused_and_not_changed(tmp_path: Path) -> None:
    source, url = full_file(tmp_path), fresh_database()
    try:
        with pytest.raises(StoreUnusable, match="has tables already, such as access_state; name an empty database"):
            moved(source, postgres(url))
        assert contents(postgres(url))["retained"] == []
        (tmp_path / "there.db-wal").write_bytes(b"")
        with pytest.raises(StoreUnusable, match=r"there\.db-wal: is there already"):
            moved(postgres(url), SQLiteDatabase(tmp_path / "there.db", Durability.FULL))
    finally:
        drop(url)


def test_a_source_in_use_is_refused(tmp_path: Path, empty: str) -> None:
    """Also one in which messages wait to cross between members of a cluster."""
    source = full_file(tmp_path)
    with closing(source.connect()) as broker:
        broker.execute("SELECT count(*) FROM retained").fetchone()
        with pytest.raises(StoreUnusable, match=r"full\.db"):
            moved(SQLiteDatabase(source.path, Durability.FULL, 0.05), postgres(empty))
    moved(source, postgres(empty))
    target = SQLiteDatabase(tmp_path / "x.db", Durability.FULL)
    with (
        closing(PostgresDatabase(make_url(empty), Durability.FULL, 3).connect()),
        pytest.raises(StoreUnusable, match=r"is used by brokers \(node.id 3\); stop them"),
    ):
        moved(postgres(empty), target)
    with psycopg.connect(**postgres(empty).parameters()) as connection:
        connection.execute(
            "INSERT INTO cluster_messages VALUES (1, 1, ',2,', NULL, NULL, 't', 0, 0, 0, NULL, NULL, NULL, '', '')"
        )
    with pytest.raises(StoreUnusable, match="1 messages wait to cross between members"):
        moved(postgres(empty), target)
    assert not target.path.exists()


KILLED = """
import os, signal, sys
from holdfast.storage import moving
from holdfast.storage.database import Durability
from holdfast.storage.maintenance import database_at
source, target, most = sys.argv[1:]
left = int(most)
once = moving._translated
def killed(*given):
    global left
    for row in once(*given):
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        yield row
moving._translated = killed
moving.move_database(*(database_at(url, Durability.FULL) for url in (source, target)), 7, lambda _: None)
"""


def kill_at(row: int, source: str, target: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, source, target, str(row)], check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_move_that_is_killed_at_any_row_leaves_no_target_and_is_begun_again(tmp_path: Path, empty: str) -> None:
    source = full_file(tmp_path)
    before = contents(source)
    total = sum(map(len, before.values()))
    back = tmp_path / "back.db"
    for row in (total // 2, total - 1):
        kill_at(row, f"sqlite:///{source.path}", empty)
        assert names_in(empty) == set()
    assert contents(source) == before
    moved(source, postgres(empty))
    for row in (1, total - 1):
        kill_at(row, empty, f"sqlite:///{back}")
        assert not back.exists()
    moved(postgres(empty), SQLiteDatabase(back, Durability.FULL))
    assert contents(SQLiteDatabase(back, Durability.FULL))["retained"] == before["retained"]
    assert not back.with_name("back.db.partial").exists()
