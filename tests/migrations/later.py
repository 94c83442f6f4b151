"""A program with two later revisions of the schema, and a used database as this program leaves it.

The revisions do what revisions do: the first one makes a table with a row, adds a column and an index; the second one
counts all messages slice by slice, deletes rows and shows one more column in a view. ``python -m tests.migrations.later
FOLDER COMMAND ...`` runs the command ``holdfast`` of that program.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.engine import make_url

from holdfast.storage import schema, tables
from holdfast.storage.database import Database, Durability
from holdfast.storage.postgres import PostgresDatabase
from holdfast.storage.sqlite import SQLiteDatabase
from tests.postgres import drop, empty_database

Contents = dict[str, list[tuple[Any, ...]]]

MAKES = ("sqlite", "postgres")

#: milliseconds since the epoch: when these rows were written, a moment that is over, and one that is far away
THEN, OVER, FAR = 1_795_248_918_518, 1_795_248_900_000, 4_102_444_800_000


def revision(number: int, node: int = 1) -> int:
    """Return the revision that a node's clock gave at that time."""
    return (THEN + number) << 20 | number << 8 | node


def _length(remaining: int) -> bytes:
    encoded = b""
    while True:
        remaining, digit = divmod(remaining, 128)
        encoded += bytes([digit | (128 if remaining else 0)])
        if not remaining:
            return encoded


def message(
    number: int, topic: str, payload: bytes, qos: int, expires_at: int | None = None, username: str | None = None,
    properties5: bytes = b"\0", properties_json: str | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Return a row of ``retained``."""
    name = topic.encode()
    length = len(name).to_bytes(2, "big")
    remaining = 2 + len(name) + len(payload)
    return (
        topic, revision(number), topic.count("/") + 1, qos, len(payload), THEN + number, expires_at, 0, "gateway-1",
        username, b"\x31" + _length(remaining) + length, b"\x31" + _length(remaining + len(properties5)) + length,
        properties5, properties_json, payload,
    )  # fmt: skip


def tombstone(number: int, topic: str) -> tuple[Any, ...]:
    """Return the row of a cleared topic."""
    return topic, revision(number), topic.count("/") + 1, 0, 0, THEN + number, None, 1, "gateway-1", None, *(
        b"", b"", b"", None, b"",
    )  # fmt: skip


UNIT = b"\x19\x03\x00\x0atext/plain&\x00\x04unit\x00\x03\xc2\xb0C"

RETAINED = [
    message(1, "/haus//", b"empty levels", 0),
    message(2, "$app/state", b"{}", 1),
    message(3, "haus/garage", b"on", 1, username="anna"),
    tombstone(4, "haus/gone"),
    message(5, "haus/k\u00fcche/\u6e29\u5ea6/\U0001f321", b"21.5", 2, FAR, None, UNIT,
            '{"content_type":"text/plain","user_properties":[["unit","\u00b0C"]]}'),
    message(6, "haus/over", b"expired", 1, OVER),
    message(7, "raw", bytes(range(256)), 1),
    message(8, "raw/large", b"\0\xff" * 40_000, 0),
]  # fmt: skip
LIVE = [row for row in RETAINED if not row[7]]
TOTALS = (revision(8), len(LIVE), sum(row[4] for row in LIVE), max(len(row[11]) + len(row[0]) + row[4] for row in LIVE))

#: the bytes of the live messages: topic, properties, payload and 200 each
BYTES = sum(row[4] + len(row[0].encode()) + len(row[12]) + 200 for row in LIVE)

PUMP, SLEEPER = revision(20), revision(21)
FIRST, SECOND, QUEUED = revision(30), revision(31), revision(32)
_PROGRESS = (revision(10), '["my/end","my/#",true,false,3,120,[]]', 250, "stored-at,revision", 3)
_RULES = '[["haus/k\u00fcche/#",0],["haus/#",3600000]]', f'{{"3600000":[2,{THEN}]}}'

#: the rows of a database that has been in use
ROWS: Contents = {
    "retained": RETAINED,
    "retained_levels": [(1,), (2,), (3,), (4,)],
    "nodes": [
        (1, TOTALS[0], TOTALS[1], BYTES + 900, TOTALS[3], revision(11)),
        (2, revision(3, 2), -1, -900, 0, None),
    ],
    "cluster_members": [(2, "plant", 3, THEN, "dead", 1, 1, "0123456789ab", "mqtt2.example.org:1883")],
    "cluster_messages": [
        (2, revision(40, 2), ",1,3,", "$share/group/jobs/+", None, "jobs/1", 1, 0, 0, "gateway-2", "anna", FAR, UNIT,
         b"3\0"),
        (2, revision(41, 2), ",1,", None, revision(41, 2), "haus/k\u00fcche", 0, 1, 1, None, None, None, b"\0", b""),
    ],
    "cluster_cursors": [(1, 1, 0), (1, 2, revision(40, 2)), (2, 2, revision(41, 2))],
    "cluster_runs": [(7, 1, b"\0run")],
    "cluster_bans": [("username", "0f" * 32, THEN, '{"as": "username", "who": "mallory"}')],
    "hook_positions": [("plant", "", revision(41), 1, 0), ("\u00fcber", "AgEBAQEBAQEBAAAAAAAAAAc", 0, 2, FAR)],
    "retained_usage": [("", "", 0, 0, None), ("", "gateway-1", 8, 81_900, None)],
    "sessions": [
        (PUMP, "pump-7", "anna", "default", None, None, revision(9), 1),
        (SLEEPER, "sleeper", None, "default", 86_400, FAR, revision(9), 1),
    ],
    "session_cuts": [(SLEEPER, 1, revision(40)), (SLEEPER, 2, revision(40, 2))],
    "session_subscriptions": [
        (PUMP, "alarm/#", 2, 0, 1, 2, 7, None, None, None, None, None, None),
        (SLEEPER, "$share/group/jobs/+", 1, 0, 0, 0, None, None, None, None, None, None, None),
        (SLEEPER, "haus/#", 1, 1, 0, 0, None, "haus/garage", *_PROGRESS),
    ],
    "session_messages": [
        (FIRST, "alarm/fire", 1, 0, "gateway-1", None, None, b"\0", b"one"),
        (SECOND, "alarm/\u6c34", 2, 0, "gateway-1", "anna", FAR, UNIT, b"two\0"),
        (QUEUED, "alarm/door", 1, 1, None, None, None, b"\0", b""),
    ],
    "session_deliveries": [
        (PUMP, 1, FIRST, 1, 0, "7", 1, 0, None),
        (PUMP, 2, SECOND, 2, 0, "7", 2, 0, None),
        (PUMP, 3, None, 2, 0, "", 3, 1, None),
        (PUMP, 4, QUEUED, 1, 0, "7", None, 0, None),
        (SLEEPER, 1, FIRST, 1, 0, "", None, 0, "$share/group/jobs/+"),
    ],
    "session_received": [(PUMP, 9, THEN)],
    "wills": [
        (1, "lost", None, "alarm/lost", 1, 1, 5, OVER, UNIT, b"gone", "default", 1, 0),
        (1, "pump-7", "anna", "haus/pump", 0, 0, 30, None, b"\0", b"\0off", "default", 0, 1),
    ],
    "retained_leases": [(0, "b\u00fcro/1", revision(11), "gateway-1", None, "session", 7)],
    "retained_history": [
        (1, "haus/garage", "set", "baseline", 1, 2, THEN, None, revision(3), "gateway-1", "anna", b"\0", None, b"on",
         None),
        (2, "haus/gone", "clear", "publish", 0, 0, THEN + 1, None, revision(4), "gateway-1", None, b"", None, b"",
         "anna"),
        (5, "raw", "set", "publish", 1, 256, THEN + 2, None, revision(7), None, None, b"\0", None, bytes(range(256)),
         None),
    ],
    "retained_history_periods": [(0, THEN, None, "raw/large", 1, *_RULES)],
    "retained_history_state": [(1, 5, THEN + 2, 700, 2, "00ff00ff00ff00ff")],
    "retained_history_absent": [(2,)],
    "telemetry": [
        (4, "haus/k\u00fcche", 1, 2, THEN, FAR, "gateway-1", "anna", UNIT, '{"content_type":"text/plain"}', b"2\0"),
        (5, "raw", 0, 0, THEN + 1, None, None, None, b"\0", None, b""),
    ],
    "telemetry_state": [(1, 5, THEN + 1, 500)],
    "pipeline_jobs": [("nacht \u65e5", "merging", "newer", "haus/k\u00fcche", '{"imported":3}', THEN, THEN + 1)],
    "users": [("anna \u65e5", "$argon2id$...", '["b\u00fcro"]', THEN, THEN + 1)],
    "authorization_rules": [(7, 1, '{"action":"all","topics":["#"],"allow":true}', THEN)],
    "access_state": [(1, 3, 9, 7)],
    "source_surveys": [(1, "5f2a", revision(11))],
    "api_keys": [("gr\u00e4fana", "hf1", "00ff", '["read"]', "anna", THEN, None)],
    "retained_changes": [(3, "haus/k\u00fcche", THEN, 1)],
    "retained_changes_epochs": [(1, 1, 0, "00ff00ff00ff00ff", "", 1)],
    "retained_changes_kept": [(1, 0, THEN)],
}  # fmt: skip

#: the revision of this program, and the later ones
BASE = schema.newest_version()
LATER = tuple(f"{int(BASE) + step:04}" for step in (1, 2))
TITLES = ("Colours: a table, a column and an index.", "Totals are counted anew, slice by slice.")
#: the topics counted by one statement of the second revision
SLICE = 10_000

_FORM = '''"""{title}"""

import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{before}"


def upgrade():
    """Change the schema."""
{body}'''
_BODIES = (
    """    colours = op.create_table("colours", sa.Column("name", sa.Text, primary_key=True))
    op.bulk_insert(colours, [{"name": "blue"}])
    op.add_column("pipeline_jobs", sa.Column("colour", sa.Text))
    op.create_index("pipeline_jobs_colour", "pipeline_jobs", ["colour"])
""",
    f"""    connection = op.get_bind()
    lengths = {{
        "sqlite": "length(CAST(topic AS BLOB)) + length(properties5)",
        "postgresql": "octet_length(topic) + octet_length(properties5)",
    }}[connection.dialect.name]
    of_slice = sa.text(
        "SELECT count(*), max(topic), CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM (SELECT topic, "
        f"CASE tombstone WHEN 0 THEN size + {{lengths}} + 200 ELSE 0 END AS bytes FROM retained "
        "WHERE topic > :after ORDER BY topic LIMIT {SLICE}) AS slice"
    )
    total, after, rows = 0, "", {SLICE}
    while rows == {SLICE}:
        rows, after, size = connection.execute(of_slice, {{"after": after}}).one()
        total += size
    op.execute("UPDATE nodes SET retained_bytes = 0")
    connection.execute(
        sa.text("UPDATE nodes SET retained_bytes = :total WHERE node = (SELECT min(node) FROM nodes)"),
        {{"total": total}},
    )
    op.execute("DELETE FROM retained_usage WHERE subject <> ''")
    view = "VIEW retained_history_events AS SELECT {", ".join(tables.retained_history_events.c.keys())}, op AS kind"
    if connection.dialect.name == "postgresql":
        op.execute(f"CREATE OR REPLACE {{view}} FROM retained_history")
    else:
        op.execute("DROP VIEW retained_history_events")
        op.execute(f"CREATE {{view}} FROM retained_history")
""",
)


def expected() -> Contents:
    """Return the rows of :data:`ROWS` after both later revisions."""
    first = min(node for node, *_ in ROWS["nodes"])
    return ROWS | {
        "colours": [("blue",)],
        "pipeline_jobs": [(*row, None) for row in ROWS["pipeline_jobs"]],
        "nodes": [
            (node, mark, count, BYTES if node == first else 0, *rest) for node, mark, count, _, *rest in ROWS["nodes"]
        ],
        "retained_usage": [row for row in ROWS["retained_usage"] if not row[1]],
    }


def write(folder: Path) -> None:
    """Write the migrations of the later program into an empty folder."""
    shutil.copytree(str(files("holdfast.migrations")), folder)
    before = BASE
    for revision_, title, body in zip(LATER, TITLES, _BODIES, strict=True):
        script = _FORM.format(title=title, revision=revision_, before=before, body=body)
        (folder / "versions" / f"{revision_}_later.py").write_text(script)
        before = revision_


def become(folder: Path) -> None:
    """Let this process be the later program, whose migrations are in the folder."""
    schema.MIGRATIONS = folder
    schema.versions.cache_clear()


@contextmanager
def later_program(folder: Path) -> Iterator[Path]:
    """Let this process be the later program for a while. Yield the folder with its migrations."""
    own, migrations = schema.MIGRATIONS, folder / "later_migrations"
    write(migrations)
    become(migrations)
    try:
        yield migrations
    finally:
        become(own)


def fill(connection: Connection, rows: Contents) -> None:
    """Replace the rows of the tables by these rows."""
    for table, found in rows.items():
        connection.execute(text(f"DELETE FROM {table}"))
        for row in found:
            values = ", ".join(f":v{number}" for number in range(len(row)))
            connection.execute(
                text(f"INSERT INTO {table} VALUES ({values})"),
                {f"v{number}": value for number, value in enumerate(row)},
            )


def contents(connection: Connection) -> Contents:
    """Return all rows of all tables except Alembic's."""
    return {
        table: sorted((tuple(row) for row in connection.execute(text(f"SELECT * FROM {table}"))), key=repr)
        for table in inspect(connection).get_table_names()
        if table != "alembic_version"
    }


def in_order(rows: Contents) -> Contents:
    """Return rows in the order of :func:`contents`."""
    return {table: sorted(found, key=repr) for table, found in rows.items()}


def left_by_this_program(database: Database) -> None:
    """Turn an empty database into a used one of this program's revision."""
    with database.engine().begin() as connection:
        for statement in tables.statements(connection.dialect.name):
            connection.exec_driver_sql(statement)
        scripts = ScriptDirectory(str(files("holdfast.migrations")))
        MigrationContext.configure(connection).stamp(scripts, BASE)
        fill(connection, ROWS)


@contextmanager
def empty(make: str, folder: Path, name: str = "holdfast.db") -> Iterator[tuple[str, Database]]:
    """Yield the URL of an empty database of this make, and the database."""
    if make == "sqlite":
        path = folder / name
        yield f"sqlite:///{path}", SQLiteDatabase(path, Durability.PROCESS, busy_timeout=0)
        return
    url = empty_database()
    try:
        yield url, PostgresDatabase(make_url(url), Durability.PROCESS)
    finally:
        drop(url)


if __name__ == "__main__":
    from holdfast.commands import main

    become(Path(sys.argv[1]))
    sys.argv[1:2] = []
    main()
