"""The migration that adds the history keeps every row, in both databases."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.engine import make_url

from holdfast.storage import schema
from holdfast.storage.database import Durability
from holdfast.storage.postgres import PostgresDatabase
from holdfast.storage.sqlite import SQLiteDatabase
from holdfast.storage.tables import metadata, views
from tests.postgres import drop, empty_database


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "sqlite":
        yield SQLiteDatabase(tmp_path / "x.db", Durability.PROCESS).engine()
        return
    url = empty_database()
    yield PostgresDatabase(make_url(url), Durability.PROCESS).engine()
    drop(url)


def to_0003(connection: Connection) -> None:
    """Build the schema before, with a message, a tombstone and a node."""
    config = Config()
    config.set_main_option("script_location", str(files("holdfast.migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "0003")
    for topic, tombstone in (("a/b", 0), ("c", 1)):
        connection.execute(
            text(
                "INSERT INTO retained VALUES (:topic, 256, 1, 0, 1, 5, NULL, :tombstone, 'c', 'u', :bytes, :bytes, "
                ":bytes, NULL, :bytes)"
            ),
            {"topic": topic, "tombstone": tombstone, "bytes": b"x"},
        )
    connection.execute(text("INSERT INTO nodes VALUES (1, 256, 1, 1, 10)"))


def rows(connection: Connection) -> list[tuple[object, ...]]:
    return [
        tuple(row)
        for table in ("retained", "nodes")
        for row in connection.execute(text(f"SELECT * FROM {table} ORDER BY 1"))
    ]


def test_old_rows_survive_and_the_history_begins_empty(engine: Engine) -> None:
    with engine.begin() as connection:
        to_0003(connection)
        before = rows(connection)
    with engine.begin() as connection:
        schema.upgrade(connection)
    with engine.begin() as connection:
        assert rows(connection) == before
        assert connection.execute(text("SELECT * FROM retained_history_events")).fetchall() == []
        assert connection.execute(text("SELECT * FROM retained_history_periods")).fetchall() == []
        state = connection.execute(text("SELECT last_seq, last_at, bytes, archived_seq FROM retained_history_state"))
        assert state.fetchall() == [(0, 0, 0, None)]


def test_an_upgrade_that_is_broken_off_leaves_the_schema_before(engine: Engine) -> None:
    with engine.begin() as connection:
        to_0003(connection)
        before = rows(connection)
    with engine.connect() as connection, connection.begin() as transaction:
        schema.upgrade(connection)
        transaction.rollback()
    with engine.begin() as connection:
        assert schema.current_version(connection) == "0003"
        assert not any("history" in name for name in inspect(connection).get_table_names())
        assert rows(connection) == before
        schema.upgrade(connection)
        assert rows(connection) == before


def test_it_leads_to_the_described_tables_and_views(engine: Engine) -> None:
    with engine.begin() as connection:
        schema.upgrade(connection)
        options = {"compare_type": True, "compare_server_default": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
        for view in views.tables.values():
            result = connection.execute(text(f"SELECT * FROM {view.name}"))
            assert list(result.keys()) == [column.name for column in view.columns]
