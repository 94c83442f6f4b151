"""Stores with known contents, and ways to damage them."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from holdfast.core.messages import RetainedChange
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.sqlite import OnCorruption
from holdfast.storage.store import DurableStore
from tests.retained.store.contract import NOW, message
from tests.storage.doubles import Bench, fresh_file, result_of

PAGE = 4096
LOG_HEADER = 32
FRAME = 24 + PAGE


def topics(count: int) -> list[str]:
    """Return topics in their order."""
    return [f"plant/{number // 50:03}/sensor/{number % 50:02}" for number in range(count)]


def filled(path: Path, count: int, payload: bytes = b"x" * 100) -> Path:
    """Store ``count`` messages in a file, and close it."""
    bench = Bench(path)
    retained = SQLRetainedStore(bench.store)
    bench.store.open()
    put(retained, topics(count), payload)
    result_of(bench.store.close())
    return path


def put(retained: SQLRetainedStore, names: Iterable[str], payload: bytes) -> None:
    """Store messages, and check their tickets."""
    for name in names:
        stored = message(name, payload, retained.next_revision())
        ticket = retained.put(RetainedChange(name, stored.revision, NOW, stored))
        assert ticket.settled
        assert ticket.failure is None


def clear(retained: SQLRetainedStore, topic: str) -> None:
    """Clear a topic, and check the ticket."""
    ticket = retained.put(RetainedChange(topic, retained.next_revision(), NOW, None))
    assert ticket.settled
    assert ticket.failure is None


def store(path: Path, on_corruption: OnCorruption = OnCorruption.QUARANTINE) -> DurableStore:
    """Return a store on a file without opening it."""
    bench = Bench(path)
    bench.store._on_corruption = on_corruption
    return bench.store


def leaves(path: Path) -> list[int]:
    """Return the numbers of the leaf pages of retained messages, in no order."""
    data = path.read_bytes()
    pages = range(1, len(data) // PAGE)
    return [number + 1 for number in pages if data[number * PAGE] == 0x0A and b"plant/" in data[number * PAGE :][:PAGE]]


def garble(path: Path, page: int, filler: int = 0x5A) -> None:
    """Overwrite a page."""
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(bytes((filler,)) * PAGE)


def copy_of(path: Path, directory: Path) -> Path:
    """Copy a database and its log as a crash leaves them: without the index of the log."""
    directory.mkdir(exist_ok=True)
    for companion in ("", "-wal"):
        shutil.copy(f"{path}{companion}", directory / f"{path.name}{companion}")
    (directory / f"{path.name}-shm").unlink(missing_ok=True)
    return directory / path.name


def contents(path: Path) -> dict[str, bytes]:
    """Return the retained messages, by plain SQL."""
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = connection.execute("SELECT topic, payload, properties5 FROM retained WHERE tombstone = 0").fetchall()
        found = {topic: payload for topic, payload, _ in rows}
        count, size = connection.execute("SELECT sum(retained_count), sum(retained_bytes) FROM nodes").fetchone()
        assert (count or 0, size or 0) == (
            len(found),
            sum(len(topic.encode()) + len(payload) + len(block) + 200 for topic, payload, block in rows),
        )
        levels = {level for (level,) in connection.execute("SELECT levels FROM retained_levels")}
        assert levels >= {topic.count("/") + 1 for topic in found}
        return found
    finally:
        connection.close()


__all__ = ["clear", "contents", "copy_of", "filled", "fresh_file", "garble", "leaves", "put", "store", "topics"]
