"""Write what a start needs of the schema from its tables: ``make schema``. Nobody edits the two files.

- ``migrations/newest.sql`` builds a new SQLite file;
- ``src/holdfast/storage/layouts.py`` has the names and kinds of the columns.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, SmallInteger, Table

from holdfast.storage.tables import metadata, statements, views

ROOT = Path(__file__).parents[2]

_KINDS: dict[type, str] = {  # Integer is the last one: the other integer types are subclasses of it
    LargeBinary: "BLOB",
    SmallInteger: "SMALL",
    BigInteger: "BIG",
    Integer: "INTEGER",
}
_HEAD = '''"""The layouts of the tables, made by ``make schema`` from :mod:`holdfast.storage.tables`: do not edit.

The broker writes and reads its tables with plain SQL and needs only these names. The full description needs SQLAlchemy,
which costs a fifth of a second and 20 MiB, so a start does not load it.
"""

from __future__ import annotations

from holdfast.storage.layout import Kind, Layout

TEXT, BLOB, SMALL, INTEGER, BIG = Kind
'''


def kind_of(column: Column[object]) -> str:
    """Return the kind of a column's values."""
    return next((kind for sql, kind in _KINDS.items() if isinstance(column.type, sql)), "TEXT")


def layout_of(table: Table) -> str:
    """Return a table's layout as Python."""
    columns = "".join(f"    {column.name}={kind_of(column)},\n" for column in table.columns)
    return f'{table.name} = Layout(\n    "{table.name}",\n    {len(table.primary_key)},\n{columns})\n'


def layouts() -> str:
    """Return the text of ``layouts.py``."""
    tables = metadata.tables.values()
    names = "".join(f"    {table.name},\n" for table in tables)
    shown = "".join(f'    "{view}",\n' for view in views.tables)
    return (
        f"{_HEAD}\n{''.join(map(layout_of, tables))}\n#: all tables\nTABLES = (\n{names})\n\n"
        f"#: the names of all views\nVIEWS = (\n{shown})\n"
    )


def newest() -> str:
    """Return the text of ``newest.sql``."""
    return "-- Made by `make schema` from the tables: do not edit.\n" + ";\n".join(statements("sqlite")) + "\n"


#: the text of each file
FILES = {ROOT / "src/holdfast/storage/layouts.py": layouts, ROOT / "migrations/newest.sql": newest}

if __name__ == "__main__":
    for path, text in FILES.items():
        path.write_text(text())
