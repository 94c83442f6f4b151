"""Each revision alone and all of them in sequence, with the rows of a used database."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from holdfast.storage import schema
from holdfast.storage.maintenance import examine, upgrade_schema
from holdfast.storage.tables import metadata, views
from tests.migrations.old import (
    MAKES,
    REVISIONS,
    contents,
    empty,
    expected,
    in_order,
    left_by,
    migrate,
    rows_of,
    step,
)

pytestmark = pytest.mark.parametrize("make", MAKES)

#: Each step alone is tested at each change, and so are all steps together.
QUICK_UPGRADES = (("0001", True), (REVISIONS[-2], True))


def test_every_revision_is_tested_here(make: str) -> None:
    assert REVISIONS[-1] == schema.newest_version()
    assert ["0001", *(revision for revision, _ in schema.steps_from("0001"))] == list(REVISIONS)


def test_the_first_one_builds_an_empty_store(make: str, tmp_path: Path) -> None:
    with empty(make, tmp_path) as (_, database), database.engine().begin() as connection:
        migrate(connection, "0001")
        assert contents(connection) == {"retained": [], "retained_levels": [], "store_meta": [(1, 0, 0, 0, 0)]}


@pytest.mark.parametrize("to", REVISIONS[1:])
def test_a_revision_keeps_every_row_of_the_one_before(make: str, tmp_path: Path, to: str) -> None:
    """The rows have text in any script, payloads with NUL, tombstones, expired messages and negative totals."""
    before = REVISIONS[REVISIONS.index(to) - 1]
    with empty(make, tmp_path) as (_, database):
        left_by(database, before)
        with database.engine().begin() as connection:
            assert contents(connection) == in_order(rows_of(before))
            migrate(connection, to)
        with database.engine().begin() as connection:
            assert schema.own_version(connection.connection, database) == to
            assert contents(connection) == in_order(step(rows_of(before), to))


@pytest.mark.parametrize(
    ("shape", "at_once"),
    [
        pytest.param(shape, at_once, marks=() if (shape, at_once) in QUICK_UPGRADES else pytest.mark.nightly)
        for shape in REVISIONS
        for at_once in (True, False)
    ],
)
def test_from_any_revision_to_the_newest(make: str, tmp_path: Path, shape: str, at_once: bool) -> None:
    """One upgrade, or one for each version, leads to the same schema as that of a new database."""
    with empty(make, tmp_path) as (_, database), empty(make, tmp_path, "new.db") as (_, new):
        left_by(database, shape)
        if at_once:
            upgrade_schema(database, lambda _: None)
        else:
            for to in REVISIONS[REVISIONS.index(shape) + 1 :]:
                with database.engine().begin() as connection:
                    migrate(connection, to)
        schema.prepare(database)  # as the broker does when it starts
        schema.prepare(new)
        assert examine(database) == examine(new)
        with database.engine().begin() as connection, new.engine().begin() as fresh:
            assert contents(connection) == in_order(expected(shape))
            assert described(connection) == described(fresh)


def test_the_newest_revision_has_the_tables_of_the_program(make: str, tmp_path: Path) -> None:
    """This includes tables, the order of columns, types, collations, defaults, keys, checks, indexes and views."""
    with empty(make, tmp_path) as (_, database), empty(make, tmp_path, "new.db") as (_, other):
        left_by(database, "0001")
        upgrade_schema(database, lambda _: None)
        with database.engine().begin() as connection, other.engine().begin() as straight:
            options = {"compare_type": True, "compare_server_default": True}
            assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
            metadata.create_all(straight)
            ours = [line for line in described(connection) if line[0] != "view" and "alembic_version" not in line[1]]
            assert ours == described(straight)
            for view in views.tables.values():
                result = connection.execute(text(f"SELECT * FROM {view.name}"))
                assert list(result.keys()) == [column.name for column in view.columns]


#: everything of a Postgres schema that a migration could get wrong, each with its kind and its table first
_CATALOG = """
SELECT 'column', attrelid::regclass::text, row_number() OVER (PARTITION BY attrelid ORDER BY attnum)::text || ' '
    || attname || ' ' || format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
    || ' COLLATE ' || coalesce((SELECT collname FROM pg_collation WHERE oid = attcollation), '-')
    || ' DEFAULT ' || coalesce((SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
                                WHERE adrelid = attrelid AND adnum = attnum), '-')
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
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
