"""A new database has the tables of the program; an upgrade through later revisions keeps every row."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from holdfast.storage import schema
from holdfast.storage.location import StoreUnusable
from holdfast.storage.maintenance import examine, upgrade_schema
from holdfast.storage.tables import metadata, views
from tests.migrations.later import (
    BASE,
    LATER,
    MAKES,
    ROWS,
    TITLES,
    contents,
    empty,
    expected,
    in_order,
    later_program,
    left_by_this_program,
)


@pytest.mark.parametrize("make", MAKES)
def test_a_new_database_has_the_tables_of_the_program(make: str, tmp_path: Path) -> None:
    """This includes tables, the order of columns, types, collations, defaults, keys, checks, indexes and views."""
    with empty(make, tmp_path) as (_, database), empty(make, tmp_path, "other.db") as (_, other):
        schema.prepare(database)
        with database.engine().begin() as connection, other.engine().begin() as straight:
            options = {"compare_type": True, "compare_server_default": True}
            assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
            metadata.create_all(straight)
            beside = ("view", "persistence")  # not of the tables' metadata
            ours = [line for line in described(connection) if line[0] not in beside and "alembic" not in line[1]]
            assert ours == [line for line in described(straight) if line[0] not in beside]
            assert sorted(inspect(connection).get_view_names()) == sorted(views.tables)
            for view in views.tables.values():
                result = connection.execute(text(f"SELECT * FROM {view.name}"))
                assert list(result.keys()) == [column.name for column in view.columns]
                assert result.fetchall() == []


@pytest.mark.parametrize("make", MAKES)
def test_a_new_database_has_its_first_rows(make: str, tmp_path: Path) -> None:
    with empty(make, tmp_path) as (_, database):
        schema.prepare(database)
        with database.engine().begin() as connection:
            assert {table: rows for table, rows in contents(connection).items() if rows} == {
                "nodes": [(0, 0, 0, 0, 0, None)],
                "retained_history_state": [(1, 0, 0, 0, None, None)],
                "access_state": [(1, 0, 0, 0)],
                "telemetry_state": [(1, 0, 0, 0)],
            }


def test_retained_messages_lie_in_the_order_of_their_topics(tmp_path: Path) -> None:
    with empty("sqlite", tmp_path) as (_, database):
        schema.prepare(database)
        with database.engine().begin() as connection:
            sql = connection.execute(text("SELECT sql FROM sqlite_master WHERE name = 'retained'")).scalar_one()
            assert "WITHOUT ROWID" in sql


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("SELECT topic FROM retained WHERE expires_at IS NOT NULL AND expires_at <= 5", "retained_expiry"),
        ("SELECT topic FROM retained WHERE tombstone = 1 AND stored_at < 5", "retained_tombstones"),
    ],
)
def test_sweeps_use_their_partial_index(tmp_path: Path, statement: str, index: str) -> None:
    with empty("sqlite", tmp_path) as (_, database):
        schema.prepare(database)
        with database.engine().begin() as connection:
            steps = connection.execute(text(f"EXPLAIN QUERY PLAN {statement}")).fetchall()
            assert any(index in str(step) for step in steps)


@pytest.mark.parametrize("make", MAKES)
def test_an_upgrade_keeps_every_row(make: str, tmp_path: Path) -> None:
    """The rows have text in any script, payloads with NUL, tombstones, expired messages and negative totals."""
    with empty(make, tmp_path) as (_, database):
        left_by_this_program(database)
        with database.engine().begin() as connection:
            assert contents(connection) == in_order(ROWS)
        said: list[str] = []
        with later_program(tmp_path):
            upgrade_schema(database, said.append)
            assert schema.steps_from(LATER[0]) == [(LATER[1], TITLES[1])]
            assert examine(database).is_current
            schema.prepare(database)  # as the broker does when it starts
        assert said[1:] == [
            *(f"running {revision}: {title}" for revision, title in zip(LATER, TITLES, strict=True)),
            f"upgraded to {LATER[-1]}",
        ]
        with database.engine().begin() as connection:
            assert contents(connection) == in_order(expected())
            assert list(connection.execute(text("SELECT * FROM retained_history_events")).keys())[-1] == "kind"


@pytest.mark.parametrize("make", MAKES)
def test_a_database_of_the_first_release_becomes_a_new_one(make: str, tmp_path: Path) -> None:
    """With the same tables, columns, keys, checks, indexes and views as one of this program, and with all its rows."""
    with empty(make, tmp_path) as (_, database), empty(make, tmp_path, "other.db") as (_, other):
        left_by_this_program(other)
        left_by_this_program(database)
        with database.engine().begin() as connection:
            connection.exec_driver_sql("DROP VIEW telemetry_messages")
            cluster = ("cluster_members", "cluster_messages", "cluster_cursors", "cluster_runs", "cluster_bans")
            added = ("session_cuts", "hook_positions", *cluster)
            for table in ("telemetry", "telemetry_state", *added):
                connection.exec_driver_sql(f"DROP TABLE {table}")
            connection.exec_driver_sql("DROP INDEX sessions_clients")
            connection.exec_driver_sql("ALTER TABLE sessions DROP COLUMN owner")
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0022'")
        with pytest.raises(StoreUnusable, match="has the older schema 0022"):
            schema.prepare(database)
        upgrade_schema(database, lambda _: None)
        schema.prepare(database)
        with database.engine().begin() as connection, other.engine().begin() as new:
            assert described(connection) == described(new)
            ours = contents(connection)
            assert ours.pop("telemetry") == []
            assert ours.pop("telemetry_state") == [(1, 0, 0, 0)]
            assert [ours.pop(table) for table in added] == [[]] * len(added)
            assert ours == {table: rows for table, rows in contents(new).items() if table in ours}


@pytest.mark.parametrize("make", MAKES)
def test_the_newest_session_of_a_client_stays(make: str, tmp_path: Path) -> None:
    """Two nodes may have made one for the same client: the older ones are marked as ended, for their owners."""
    with empty(make, tmp_path) as (_, database):
        left_by_this_program(database)
        with database.engine().begin() as connection:
            for statement in (
                "DELETE FROM sessions", "DROP INDEX sessions_clients", "ALTER TABLE sessions DROP COLUMN owner",
                "DROP TABLE session_cuts", "DROP TABLE cluster_bans", "DROP TABLE hook_positions",
                "UPDATE alembic_version SET version_num = '0025'",
            ):  # fmt: skip
                connection.exec_driver_sql(statement)
            for identifier, client, expires_at in ((257, "a", "7"), (258, "a", "NULL"), (513, "b", "9"), (769, "c", 0)):
                connection.exec_driver_sql(
                    f"INSERT INTO sessions VALUES ({identifier}, '{client}', NULL, 'default', 60, {expires_at}, NULL)"
                )
        upgrade_schema(database, lambda _: None)
        with database.engine().begin() as connection:
            found = connection.exec_driver_sql(
                "SELECT id, owner, expiry_interval, expires_at FROM sessions ORDER BY id"
            )
            assert [tuple(row) for row in found] == [
                (257, 1, 0, 0),
                (258, 2, 60, None),
                (513, 1, 60, 9),
                (769, 1, 0, 0),
            ]


@pytest.mark.parametrize("make", MAKES)
def test_two_upgrades_lead_to_the_same_as_one(make: str, tmp_path: Path) -> None:
    with empty(make, tmp_path) as (_, once), empty(make, tmp_path, "twice.db") as (_, twice):
        for database in (once, twice):
            left_by_this_program(database)
        with later_program(tmp_path) as migrations:
            upgrade_schema(once, lambda _: None)
            with twice.engine().begin() as connection:
                config = configuration(migrations)
                config.attributes["connection"] = connection
                command.upgrade(config, LATER[0])
            upgrade_schema(twice, lambda _: None)
        with once.engine().begin() as connection, twice.engine().begin() as other:
            assert described(connection) == described(other)
            assert contents(connection) == contents(other)


@pytest.mark.parametrize("make", MAKES)
def test_an_upgrade_of_a_current_database_changes_nothing(make: str, tmp_path: Path) -> None:
    with empty(make, tmp_path) as (_, database):
        left_by_this_program(database)
        with database.engine().begin() as connection:
            before = described(connection)
        said: list[str] = []
        upgrade_schema(database, said.append)
        assert said[1:] == ["up to date, nothing to do"]
        with database.engine().begin() as connection:
            assert described(connection) == before
            assert contents(connection) == in_order(ROWS)


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("version", ["0001", "0012", "0020"])
def test_a_schema_before_the_first_release_is_refused(make: str, version: str, tmp_path: Path) -> None:
    """One sentence says how its messages come along. The database is not changed."""
    with empty(make, tmp_path) as (_, database):
        left_by_this_program(database)
        with database.engine().begin() as connection:
            connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{version}'")
            before = described(connection), contents(connection)
        for attempt in (schema.prepare, lambda it: upgrade_schema(it, print), examine):
            with pytest.raises(
                StoreUnusable,
                match=rf": has the schema {version}, which this version cannot upgrade; export its retained messages "
                r"with the version of the broker that wrote it, and import them with this one into a new database$",
            ):
                attempt(database)
        with database.engine().begin() as connection:
            assert (described(connection), contents(connection)) == before


def configuration(folder: Path) -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def test_revisions_form_one_line_and_are_numbered() -> None:
    scripts = ScriptDirectory.from_config(configuration(schema.MIGRATIONS))
    assert scripts.get_heads() == [BASE]
    revisions = [script.revision for script in reversed(list(scripts.walk_revisions()))]
    assert revisions == list(schema.versions())
    assert revisions == [f"{number:04}" for number in range(int(revisions[0]), int(BASE) + 1)]


def test_without_the_brokers_connection_nothing_is_migrated() -> None:
    with pytest.raises(SystemExit, match="holdfast db upgrade"):
        command.upgrade(configuration(schema.MIGRATIONS), "head")


#: everything of a Postgres schema that a migration could get wrong, each with its kind and its table first
_CATALOG = """
SELECT 'column', attrelid::regclass::text, row_number() OVER (PARTITION BY attrelid ORDER BY attnum)::text || ' '
    || attname || ' ' || format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
    || ' COLLATE ' || coalesce((SELECT collname FROM pg_collation WHERE oid = attcollation), '-')
    || ' DEFAULT ' || coalesce((SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
                                WHERE adrelid = attrelid AND adnum = attnum), '-')
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT 'persistence', oid::regclass::text, relpersistence::text FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
UNION ALL SELECT 'index', indrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
    JOIN pg_class ON pg_class.oid = indrelid WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'constraint', conrelid::regclass::text, conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
UNION ALL SELECT 'view', viewname, definition FROM pg_views WHERE schemaname = 'public'
UNION ALL SELECT 'sequence', sequencename, '' FROM pg_sequences WHERE schemaname = 'public'
"""


def described(connection: Connection) -> list[tuple[str, ...]]:
    """Return the whole schema from the database's own catalog."""
    if connection.dialect.name == "sqlite":
        statement = "SELECT type, name, coalesce(sql, '') FROM sqlite_master"
    else:
        statement = _CATALOG
    return sorted((row[0], row[1], " ".join(row[2].split())) for row in connection.exec_driver_sql(statement))
