"""Databases of older versions of the broker: rows for each revision, written by plain SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect, text
from sqlalchemy.engine import make_url

from holdfast.storage.database import Database, Durability
from holdfast.storage.postgres import PostgresDatabase
from holdfast.storage.sqlite import SQLiteDatabase
from tests.postgres import drop, empty_database

Contents = dict[str, list[tuple[Any, ...]]]

REVISIONS = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "0006",
    "0007",
    "0008",
    "0009",
    "0010",
    "0011",
    "0012",
    "0013",
    "0014",
    "0015",
    "0016",
    "0017",
    "0018",
    "0019",
    "0020",
)
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

#: the bytes of the live messages since revision 0007: topic, properties, payload and 200 each
BYTES = sum(row[4] + len(row[0].encode()) + len(row[12]) + 200 for row in LIVE)

PUMP, SLEEPER = revision(20), revision(21)
FIRST, SECOND, QUEUED = revision(30), revision(31), revision(32)

SESSIONS: Contents = {
    "sessions": [
        (PUMP, "pump-7", "anna", "default", None, None),
        (SLEEPER, "sleeper", None, "default", 86_400, FAR),
    ],
    "session_subscriptions": [
        (PUMP, "alarm/#", 2, 0, 1, 2, 7, None),
        (SLEEPER, "$share/group/jobs/+", 1, 0, 0, 0, None, None),
        (SLEEPER, "haus/#", 1, 1, 0, 0, None, "haus/garage"),
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
}
WILLS = [
    ("lost", None, "alarm/lost", 1, 1, 5, OVER, UNIT, b"gone"),
    ("pump-7", "anna", "haus/pump", 0, 0, 30, None, b"\0", b"\0off"),
]
HISTORY: Contents = {
    "retained_history": [
        (1, "haus/garage", "set", "baseline", 1, 2, THEN, None, revision(3), "gateway-1", "anna", b"\0", None, b"on"),
        (2, "haus/gone", "clear", "publish", 0, 0, THEN + 1, None, revision(4), "gateway-1", None, b"", None, b""),
        (5, "raw", "set", "publish", 1, 256, THEN + 2, None, revision(7), None, None, b"\0", None, bytes(range(256))),
    ],
    "retained_history_periods": [(0, THEN, None, "raw/large", 1)],
    "retained_history_state": [(1, 5, THEN + 2, 700, 2)],
    "retained_history_absent": [(2,)],
}


def rows_of(shape: str) -> Contents:
    """Return the rows of a database with the schema of this revision that has been in use."""
    rows: Contents = {"retained": RETAINED, "retained_levels": [(1,), (2,), (3,), (4,)], "store_meta": [(1, *TOTALS)]}
    if shape >= "0002":
        rows |= SESSIONS | {"wills": WILLS}
    if shape >= "0003":
        del rows["store_meta"]
        rows |= {"nodes": [(1, *TOTALS), (2, revision(3, 2), -1, -20, 0)], "wills": [(1, *will) for will in WILLS]}
    if shape >= "0004":
        rows["retained_usage"] = [("", "gateway-1", 8, 80_000, None), ("haus/#", "", 3, 13, "haus/k\u00fcche")]
    if shape >= "0005":
        rows |= HISTORY
    if shape >= "0006":
        rows["pipeline_jobs"] = [
            ("nacht \u65e5", "merging", "newer", "haus/k\u00fcche", '{"imported":3}', THEN, THEN + 1)
        ]
    if shape >= "0007":
        rows["sessions"] = [(*row, revision(9)) for row in rows["sessions"]]
        rows["session_subscriptions"] = [(*row, revision(10)) for row in rows["session_subscriptions"]]
        rows["nodes"] = [(*row, revision(11)) for row in rows["nodes"]]
    if shape >= "0008":
        mark, count, _, largest = TOTALS
        rows["nodes"] = [
            (1, mark, count, BYTES + 900, largest, revision(11)), (2, revision(3, 2), -1, -900, 0, None),
        ]  # fmt: skip
        rows["retained_usage"] = [("", "", 0, 0, None), ("", "gateway-1", 8, 81_900, None)]
    if shape >= "0009":
        rows["users"] = [("anna \u65e5", "$argon2id$...", '["b\u00fcro"]', THEN, THEN + 1)]
        rows["authorization_rules"] = [(7, 1, '{"action":"all","topics":["#"],"allow":true}', THEN)]
        rows["access_state"] = [(1, 3, 9, 7)]
    if shape >= "0010":
        rows["source_surveys"] = [(1, "5f2a", revision(11))]
    if shape >= "0011":
        rows["api_keys"] = [("gr\u00e4fana", "hf1", "00ff", '["read"]', "anna", THEN, None)]
    if shape >= "0012":
        marker = '["my/end","my/#",true,false,3,120,[]]'
        rows["session_subscriptions"] = [(*row, marker) for row in rows["session_subscriptions"]]
    if shape >= "0013":
        rows["session_subscriptions"] = [(*row, 250) for row in rows["session_subscriptions"]]
    if shape >= "0014":
        rows["session_subscriptions"] = [(*row, "stored-at,revision") for row in rows["session_subscriptions"]]
    if shape >= "0015":
        rows["retained_leases"] = [(0, "b\u00fcro/1", revision(11), "gateway-1", None, "session", 7)]
    if shape >= "0016":
        rows["session_subscriptions"] = [(*row, 3) for row in rows["session_subscriptions"]]
        rows |= {
            "retained_changes": [(3, "haus/k\u00fcche", THEN)],
            "retained_changes_epochs": [(1, 1, 0, "00ff00ff00ff00ff", "")],
            "retained_changes_kept": [(1, 0, THEN)],
        }
    if shape >= "0017":
        rules = '[["haus/k\u00fcche/#",0],["haus/#",3600000]]'
        rows["retained_history_periods"] = [
            (*row, rules, f'{{"3600000":[2,{THEN}]}}') for row in rows["retained_history_periods"]
        ]
        rows["retained_history_state"] = [(*row, "00ff00ff00ff00ff") for row in rows["retained_history_state"]]
    if shape >= "0018":
        rows["retained_changes_epochs"] = [(*row, 1) for row in rows["retained_changes_epochs"]]
    if shape >= "0019":
        rows["wills"] = [(*row, "default", 0, 1) for row in rows["wills"]]
    if shape >= "0020":
        rows["retained_history"] = [(*row, "anna") for row in rows["retained_history"]]
    return rows


def step(rows: Contents, to: str) -> Contents:
    """Return the expected rows of a revision, from the rows of the revision before."""
    after = dict(rows)
    if to == "0002":
        after |= {table: [] for table in (*SESSIONS, "wills")}
    elif to == "0003":
        ((_, mark, *totals),) = after.pop("store_meta")
        after["nodes"] = [(mark & 255, mark, *totals)]
        after["wills"] = [(0, *will) for will in rows["wills"]]
    elif to == "0004":
        after["retained_usage"] = []
    elif to == "0005":
        after |= {table: [] for table in HISTORY} | {"retained_history_state": [(1, 0, 0, 0, None)]}
    elif to == "0006":
        after["pipeline_jobs"] = []
    elif to == "0007":
        for table in ("sessions", "session_subscriptions", "nodes"):
            after[table] = [(*row, None) for row in rows[table]]
    elif to == "0008":
        first = min(node for node, *_ in rows["nodes"])
        after["nodes"] = [
            (node, mark, count, BYTES if node == first else 0, *rest) for node, mark, count, _, *rest in rows["nodes"]
        ]
        after["retained_usage"] = [
            (scope, subject, 0, 0, "") for scope, subject, *_ in rows["retained_usage"] if not subject
        ]
    elif to == "0009":
        after |= {"users": [], "authorization_rules": [], "access_state": [(1, 0, 0, 0)]}
    elif to == "0010":
        after["source_surveys"] = []
    elif to == "0011":
        after["api_keys"] = []
    elif to in ("0012", "0013", "0014"):
        after["session_subscriptions"] = [(*row, None) for row in rows["session_subscriptions"]]
    elif to == "0015":
        after["retained_leases"] = []
    elif to == "0016":
        after["session_subscriptions"] = [(*row, None) for row in rows["session_subscriptions"]]
        after |= {"retained_changes": [], "retained_changes_epochs": [], "retained_changes_kept": []}
    elif to == "0017":
        after["retained_history_periods"] = [(*row, None, None) for row in rows["retained_history_periods"]]
        after["retained_history_state"] = [(*row, None) for row in rows["retained_history_state"]]
    elif to == "0018":
        after["retained_changes_epochs"] = [(*row, None) for row in rows["retained_changes_epochs"]]
    elif to == "0019":
        after["wills"] = [(*row, None, None, None) for row in rows["wills"]]
    elif to == "0020":
        after["retained_history"] = [(*row, None) for row in rows["retained_history"]]
    return after


def expected(shape: str) -> Contents:
    """Return the expected rows of the newest revision, from the rows of this revision."""
    rows = rows_of(shape)
    for to in REVISIONS[REVISIONS.index(shape) + 1 :]:
        rows = step(rows, to)
    return rows


def migrate(connection: Connection, to: str) -> None:
    """Run the migrations up to this revision."""
    config = Config()
    config.set_main_option("script_location", str(files("holdfast.migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)


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


def left_by(database: Database, shape: str) -> None:
    """Turn an empty database into a used one of this revision."""
    with database.engine().begin() as connection:
        migrate(connection, shape)
    with database.engine().begin() as connection:
        fill(connection, rows_of(shape))


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
