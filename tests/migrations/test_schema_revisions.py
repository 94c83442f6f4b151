"""The migrations, one after the other, lead to the tables of the program."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

from holdfast.storage import schema
from holdfast.storage.database import Durability
from holdfast.storage.sqlite import SQLiteDatabase
from holdfast.storage.tables import metadata, views


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return SQLiteDatabase(tmp_path / "x.db", Durability.PROCESS).engine()


@pytest.fixture
def upgraded(engine: Engine) -> Iterator[Connection]:
    with engine.begin() as connection:
        schema.upgrade(connection)
        yield connection


def configuration() -> Config:
    config = Config()
    config.set_main_option("script_location", str(files("holdfast.migrations")).replace("%", "%%"))
    return config


def scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(configuration())


def test_there_is_one_head() -> None:
    assert scripts().get_heads() == [schema.newest_version()]


def test_revisions_are_numbered_in_order() -> None:
    revisions = [script.revision for script in reversed(list(scripts().walk_revisions()))]
    assert revisions == [f"{number:04}" for number in range(1, len(revisions) + 1)]


def test_the_migrations_lead_to_the_described_tables(upgraded: Connection) -> None:
    options = {"compare_type": True, "compare_server_default": True}
    assert compare_metadata(MigrationContext.configure(upgraded, opts=options), metadata) == []


def test_the_described_views_are_there_with_their_columns(upgraded: Connection) -> None:
    assert sorted(inspect(upgraded).get_view_names()) == sorted(views.tables)
    for view in views.tables.values():
        result = upgraded.execute(text(f"SELECT * FROM {view.name}"))
        assert list(result.keys()) == [column.name for column in view.columns]
        assert upgraded.execute(view.select()).fetchall() == []


def test_retained_messages_lie_in_the_order_of_their_topics(upgraded: Connection) -> None:
    sql = upgraded.execute(text("SELECT sql FROM sqlite_master WHERE name = 'retained'")).scalar_one()
    assert "WITHOUT ROWID" in sql


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("SELECT topic FROM retained WHERE expires_at IS NOT NULL AND expires_at <= 5", "retained_expiry"),
        ("SELECT topic FROM retained WHERE tombstone = 1 AND stored_at < 5", "retained_tombstones"),
    ],
)
def test_sweeps_use_their_partial_index(upgraded: Connection, statement: str, index: str) -> None:
    steps = upgraded.execute(text(f"EXPLAIN QUERY PLAN {statement}")).fetchall()
    assert any(index in str(step) for step in steps)


def test_upgrading_a_current_database_changes_nothing(upgraded: Connection) -> None:
    before = upgraded.execute(text("SELECT name, sql FROM sqlite_master ORDER BY name")).fetchall()
    upgraded.execute(text("UPDATE nodes SET revision_mark = 5"))
    schema.upgrade(upgraded)
    assert upgraded.execute(text("SELECT name, sql FROM sqlite_master ORDER BY name")).fetchall() == before
    assert upgraded.execute(text("SELECT revision_mark FROM nodes")).scalar_one() == 5


def test_an_aborted_upgrade_does_not_change_the_database(engine: Engine) -> None:
    with engine.connect() as connection, connection.begin() as transaction:
        schema.upgrade(connection)
        transaction.rollback()
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == []


def test_without_the_brokers_connection_nothing_is_migrated() -> None:
    with pytest.raises(SystemExit, match="holdfast db upgrade"):
        command.upgrade(configuration(), "head")
