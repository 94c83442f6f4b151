"""Write retained messages with SQLite alone: the bound for the broker's durable writes.

`python -m benchmarks.bare_sqlite --data-dir DIR --batch 500` writes the same rows as the broker, with the same schema,
indexes and settings of the connection. Each batch has scattered topics and is one transaction. There is no network, no
packet and no second thread, and the rows are made before the clock starts. It prints one JSON object.

`DIR` has a database from `python -m benchmarks.filling 0 1000000 --data-dir DIR`; without one it is filled first. The
topics of a batch are `--stride` apart, so each of them is on another page of the database.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.filling import CLIENT, fill, milliseconds
from benchmarks.wire import PAYLOAD, TOPIC
from holdfast.config import Config
from holdfast.core.messages import RetainedChange, RetainedMessage
from holdfast.retained.store.rows import COLUMNS, Row, row_of
from holdfast.storage.database import Durability
from holdfast.storage.revisions import RevisionClock
from holdfast.storage.sqlite import SQLiteDatabase
from holdfast.tap import Options
from holdfast.wire import NO_PROPERTIES

_NODE = 1
#: Prime to every round number of topics, so that the walk visits each topic once.
STRIDE = 611_953

_UPSERT = (
    f"INSERT INTO retained ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "
    f"ON CONFLICT (topic) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS[1:])} "
    "WHERE retained.revision < excluded.revision"
)
_MARK = "UPDATE nodes SET revision_mark = ? WHERE node = ?"


def batches(topics: int, messages: int, size: int, stride: int, first: int) -> Iterator[list[Row]]:
    """Yield the rows for this number of messages, scattered over the topics, in batches sorted by topic."""
    clock = RevisionClock(_NODE, 0, milliseconds)
    numbers = [(first + turn) * stride % topics for turn in range(messages)]
    for start in range(0, messages, size):
        yield sorted(_row(number, clock) for number in numbers[start : start + size])


def measure(database: SQLiteDatabase, found: list[list[Row]]) -> float:
    """Write each batch in a transaction of its own; return the seconds."""
    transactions = [(rows, max(row.revision for row in rows)) for rows in found]
    with closing(database.connect()) as connection:
        cursor = connection.cursor()
        begin = time.perf_counter()
        for rows, highest in transactions:
            cursor.execute(database.begin_statement)
            cursor.executemany(_UPSERT, rows)
            cursor.execute(_MARK, (highest, _NODE))
            connection.commit()
            database.maintain(connection)
        return time.perf_counter() - begin


def report(path: Path, topics: int, messages: int, size: int, stride: int = STRIDE, first: int = 0) -> dict[str, Any]:
    """Measure on the database at this path; return the figures."""
    database = SQLiteDatabase(path, Durability.FULL)
    with closing(database.connect_read_only()) as connection:
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    found = list(batches(topics, messages, size, stride, first))
    used = time.process_time()
    seconds = measure(database, found)
    return {
        "scenario": "bare-sqlite",
        "rows": messages,
        "batch": size,
        "topics": topics,
        "seconds": round(seconds, 3),
        "rows_per_s": round(messages / seconds),
        "cpu_s": round(time.process_time() - used, 3),
        "page_size": page_size,
        "sqlite": sqlite3.sqlite_version,
    }


def _row(number: int, clock: RevisionClock) -> Row:
    now, revision = milliseconds(), clock.next_revision()
    topic, payload = (TOPIC % (number % 1000, number)).decode(), PAYLOAD % number
    message = RetainedMessage(topic, payload, 1, NO_PROPERTIES, CLIENT, None, now, None, revision)
    return row_of(RetainedChange(topic, revision, now, message, CLIENT))


def _prepared(data_dir: Path, topics: int) -> Path:
    """Return the path of the database in a directory, after filling a new one."""
    options = Options()
    options.parseOptions(["--data-dir", str(data_dir)])  # type: ignore[no-untyped-call]
    config: Config = options.config
    path = Path(config.storage.url.removeprefix("sqlite:///"))
    if not path.exists():
        fill(config, 0, topics)
    return path


def main() -> None:
    """Fill a database if there is none, write to it, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bare_sqlite", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="the folder of the database (default: a new one, filled first)")
    parser.add_argument("--topics", type=int, default=1_000_000, help="topics in the database")
    parser.add_argument("--rows", type=int, default=50_000, help="rows to write")
    parser.add_argument("--batch", type=int, default=500, help="rows of one transaction")
    parser.add_argument("--stride", type=int, default=STRIDE, help="distance between successive topics; 1: neighbours")
    parser.add_argument("--first", type=int, default=0, help="where the walk over the topics begins")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="holdfast-bare-") as folder:
        path = _prepared(options.data_dir or Path(folder), options.topics)
        found = report(path, options.topics, options.rows, options.batch, options.stride, options.first)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
