"""The layouts of the tables are those of their full description, and a new file has the schema of the migrations."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import BigInteger, Column, Integer, LargeBinary, SmallInteger

from holdfast.storage import schema, tables
from holdfast.storage.database import Durability
from holdfast.storage.layouts import TABLES, VIEWS, Kind, Layout
from holdfast.storage.sqlite import SQLiteDatabase

_KINDS: dict[type, Kind] = {  # Integer is the last one: the other integer types are subclasses of it
    LargeBinary: Kind.BLOB,
    SmallInteger: Kind.SMALL,
    BigInteger: Kind.BIG,
    Integer: Kind.INTEGER,
}


def kind_of(column: Column[object]) -> Kind:
    return next((kind for sql, kind in _KINDS.items() if isinstance(column.type, sql)), Kind.TEXT)


@pytest.mark.parametrize("layout", TABLES, ids=lambda layout: layout.name)
def test_a_layout_has_the_columns_and_the_key_of_its_table(layout: Layout) -> None:
    table = tables.metadata.tables[layout.name]
    assert list(layout.columns.items()) == [(column.name, kind_of(column)) for column in table.columns]
    assert layout.key == tuple(column.name for column in table.primary_key)


def test_each_table_and_view_has_a_layout() -> None:
    assert {layout.name for layout in TABLES} == set(tables.metadata.tables)
    assert set(VIEWS) == set(tables.views.tables)


def contents(path: Path) -> tuple[list[str], list[str]]:
    """Return the statements that make the tables, without their white space, and those that fill them."""
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        rows = [line for line in connection.iterdump() if line.startswith("INSERT")]
    return [re.sub(r"\s+", "", sql) for (sql,) in made], rows


def test_a_new_file_is_what_the_migrations_make(tmp_path: Path) -> None:
    """After a new migration, change ``migrations/newest.sql`` until this test passes."""
    new, migrated = (SQLiteDatabase(tmp_path / name, Durability.PROCESS) for name in ("new.db", "migrated.db"))
    schema.prepare(new)
    with migrated.engine().begin() as connection:
        schema.upgrade(connection)
    made, rows = contents(new.path)
    assert made == contents(migrated.path)[0]
    assert sorted(rows) == sorted(contents(migrated.path)[1])
