"""Upgrades that are interrupted at every statement: the old or the new revision is complete."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, event

from holdfast.storage import postgres
from holdfast.storage.database import Database, Durability
from holdfast.storage.location import StoreUnusable
from holdfast.storage.maintenance import examine, upgrade_schema
from holdfast.storage.sqlite import SQLiteDatabase
from tests.migrations.later import (
    BASE,
    LATER,
    ROWS,
    SLICE,
    Contents,
    contents,
    empty,
    expected,
    in_order,
    later_program,
    left_by_this_program,
)
from tests.postgres import synchronous
from tests.storage.doubles import result_of

#: more than the statements of both revisions together
MANY = 300

AsIs = tuple[str | None, Contents]
BEFORE: AsIs = (BASE, in_order(ROWS))
AFTER: AsIs = (LATER[-1], in_order(expected()))

#: The statements that an upgrade has at least: with the rows of a used database, and with more messages than one slice.
FEWEST = {"used": 10, "large": 12}
_TOPICS = 2 * SLICE + 1
_MANY_TOPICS = (
    "INSERT INTO retained WITH RECURSIVE numbers (n) AS "
    "(SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {most}) "
    "SELECT 'many/' || n, revision + n * 256, 2, qos, size, stored_at, NULL, 0, NULL, NULL, prefix3, prefix5, "
    "properties5, NULL, payload FROM numbers JOIN retained ON topic = 'haus/garage'"
)


@pytest.fixture
def later(tmp_path: Path) -> Iterator[Path]:
    """The folder with the migrations of the later program, which this process is meanwhile."""
    with later_program(tmp_path) as migrations:
        yield migrations


def fill(database: Database, size: str) -> AsIs:
    """Leave a used database; return its contents. A large one has thousands of messages."""
    left_by_this_program(database)
    if size == "large":
        with database.engine().begin() as connection:
            connection.exec_driver_sql(_MANY_TOPICS.format(most=_TOPICS))
    return state(database)


def upgraded(size: str) -> AsIs:
    """Return what an upgrade leads to, except the rows of the thousands of messages."""
    after = expected()
    if size == "large":
        each = 2 + 200 + 1  # of one message: payload, what each counts, and the properties
        names = sum(len(f"many/{number}") for number in range(1, _TOPICS + 1))
        first = min(node for node, *_ in after["nodes"])
        after["nodes"] = [
            (node, mark, count, bytes_ + (_TOPICS * each + names if node == first else 0), *rest)
            for node, mark, count, bytes_, *rest in after["nodes"]
        ]
    return LATER[-1], in_order(after)


def without_many(found: AsIs) -> AsIs:
    """Leave out the rows of the thousands of messages."""
    version, rows = found
    return version, rows | {"retained": [row for row in rows["retained"] if not row[0].startswith("many/")]}


def state(database: Database) -> AsIs:
    """Return the revision and every row."""
    condition = examine(database)
    assert condition.is_sound
    with database.reading_engine().begin() as connection:
        return condition.version, contents(connection)


class Statements:
    """Counts every statement and commit of any engine, and makes one of them fail."""

    def __init__(self, fail_at: int, error: Exception) -> None:
        self.failed = False
        self._fail_at = fail_at
        self._error = error
        self._number = count()

    def strike(self, *_: object) -> None:
        if next(self._number) == self._fail_at:
            self.failed = True
            raise self._error

    @contextmanager
    def listened_to(self) -> Iterator[None]:
        names = ("before_cursor_execute", "commit")
        for name in names:
            event.listen(Engine, name, self.strike)
        try:
            yield
        finally:
            for name in names:
                event.remove(Engine, name, self.strike)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        ("sqlite", "used"),
        ("postgres", "large"),
        pytest.param("sqlite", "large", marks=pytest.mark.nightly),
        pytest.param("postgres", "used", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.usefixtures("later")
def test_whichever_statement_fails_the_old_revision_is_complete(make: str, size: str, tmp_path: Path) -> None:
    error = sqlite3.OperationalError("disk I/O error") if make == "sqlite" else psycopg.errors.DiskFull("no space")
    with empty(make, tmp_path) as (_, database):
        before = fill(database, size)
        for number in range(MANY):
            statements = Statements(number, error)
            with statements.listened_to():
                try:
                    upgrade_schema(database, lambda _: None)
                except StoreUnusable as refusal:
                    assert "\n" not in str(refusal)  # noqa: PT017 - the last upgrade is to succeed
            if not statements.failed:
                break
            assert state(database) == before
        assert number > FEWEST[size]
        assert without_many(state(database)) == upgraded(size)


@pytest.mark.crash
@pytest.mark.parametrize(
    ("make", "size", "step"),
    [
        ("sqlite", "used", 3),
        ("postgres", "large", 3),
        *(
            pytest.param(make, size, 1, marks=pytest.mark.nightly)
            for make in ("sqlite", "postgres")
            for size in ("used", "large")
        ),
    ],
)
def test_whenever_it_is_killed_the_old_or_the_new_revision_is_complete(
    make: str, size: str, step: int, tmp_path: Path, later: Path
) -> None:
    """After SIGKILL before each statement (one in ``step``) and before the commit, the next upgrade completes."""
    with empty(make, tmp_path) as (url, database):
        before = fill(database, size)
        with subprocess.Popen(
            [sys.executable, "-m", "tests.migrations.killed", url, later],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            for number in range(0, MANY, step):
                print(number, file=process.stdin, flush=True)
                ended = int(process.stdout.readline())
                if ended == 0:
                    break
                assert ended == signal.SIGKILL
                assert state(database) == before
            process.stdin.close()
        assert number > FEWEST[size]
        assert without_many(state(database)) == upgraded(size)
        upgrade_schema(database, lambda _: None)
        assert without_many(state(database)) == upgraded(size)


@pytest.mark.usefixtures("later")
def test_however_much_room_is_left_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = SQLiteDatabase.connect_exclusive
    path = tmp_path / "holdfast.db"
    database = SQLiteDatabase(path, Durability.FULL, busy_timeout=0)
    left_by_this_program(database)
    for room in range(MANY):

        def small(self: SQLiteDatabase, room: int = room) -> sqlite3.Connection:
            connection = connect(self)
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count={pages + room}")
            return connection

        with monkeypatch.context() as patched:
            patched.setattr(SQLiteDatabase, "connect_exclusive", small)
            try:
                upgrade_schema(database, lambda _: None)
            except StoreUnusable as refusal:
                assert str(refusal) == f"{path}: there is no space left on its disk; free some space"  # noqa: PT017 - likewise
            else:
                break
        assert state(database) == BEFORE
    assert room > 1
    assert state(database) == AFTER


@pytest.mark.usefixtures("later")
class TestPostgres:
    """Other users of the database are not disturbed, and do not delay an upgrade without end."""

    def test_an_idle_broker_is_noticed(self, tmp_path: Path) -> None:
        """The broker holds its lock from the start, also if it has written nothing."""
        with empty("postgres", tmp_path) as (url, database):
            durable, _ = synchronous(url, node=7)
            durable.open()
            with pytest.raises(StoreUnusable, match=r"is used by brokers \(node.id 7\); stop them"):
                upgrade_schema(database, lambda _: None)
            result_of(durable.close())
            upgrade_schema(database, lambda _: None)

    @pytest.mark.parametrize(
        "held", ["SELECT pg_advisory_xact_lock(1752132708, 0)", "LOCK TABLE pipeline_jobs IN ACCESS SHARE MODE"]
    )
    def test_an_upgrade_waits_for_a_locked_schema_but_not_for_ever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str
    ) -> None:
        """This can be another upgrade, or a session that reads a table."""
        monkeypatch.setattr(postgres, "_SCHEMA_LOCK_TIMEOUT", 50)
        with empty("postgres", tmp_path) as (_, database):
            left_by_this_program(database)
            with database.reading_engine().begin() as other:
                other.exec_driver_sql(held)
                with pytest.raises(StoreUnusable, match=r"another session has locked its schema .* try again"):
                    upgrade_schema(database, lambda _: None)
            assert examine(database).version == BASE
            upgrade_schema(database, lambda _: None)
            assert state(database) == AFTER
