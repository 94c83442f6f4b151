"""Stores on real files. Work runs in the calling thread, and the test sets the clocks."""

from __future__ import annotations

import shutil
import sqlite3
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.sqlite import SQLiteDatabase
from holdfast.storage.store import DurableStore


@define
class Wall:
    """A wall clock in milliseconds."""

    now: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@define
class Bench:
    """A durable store, and the clocks and the executor that drive it."""

    path: Path
    durability: Durability = Durability.PROCESS
    manual: bool = False
    node: int = 1
    max_pending: int = 0
    wall: Wall = field(factory=Wall)
    clock: Clock = field(factory=Clock)
    pressure: list[bool] = field(factory=list)
    executor: SynchronousExecutor = field(init=False)
    store: DurableStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.executor = SynchronousExecutor(self.manual)
        self.store = DurableStore(
            f"sqlite:///{self.path}",
            durability=self.durability,
            flush_interval=1.0,
            max_pending=self.max_pending,
            node=self.node,
            reactor=self.clock,
            now=self.wall,
            on_pressure=self.pressure.append,
            executor=self.executor,
            reading_executor=SynchronousExecutor,
        )


@lru_cache
def _template() -> Path:
    path = Path(mkdtemp(prefix="holdfast-test-")) / "template.db"
    bench = Bench(path)
    bench.store.open()
    bench.store.close()
    return path


def fresh_file(directory: Path, name: str = "store.db") -> Path:
    """Return the path of an empty store with a current schema. All of them are copies of one file."""
    return Path(shutil.copy(_template(), directory / name))


def result_of(deferred: Deferred[Any]) -> Any:
    """Return the result of a Deferred that has fired, or raise its failure."""
    results: list[Any] = []
    deferred.addBoth(results.append)
    assert results, "it has not fired"
    if hasattr(results[0], "raiseException"):
        results[0].raiseException()
    return results[0]


class InjectedError(sqlite3.OperationalError):
    """An error that the test has injected."""

    def __init__(self, code: int = sqlite3.SQLITE_IOERR) -> None:
        super().__init__("injected")
        self.sqlite_errorcode = code


@define
class Faults:
    """Makes chosen calls fail. ``calls`` counts statements, commits and rollbacks; the call number ``fail_at`` fails.

    While ``away``, all of them fail, and the database says that it is away.
    """

    fail_at: int | None = None
    error: BaseException = field(factory=InjectedError)
    also_rollback: bool = False
    calls: int = 0
    away: bool = False

    def strike(self) -> None:
        """Count a call, and fail if it is chosen."""
        self.calls += 1
        if self.away or self.calls - 1 == self.fail_at:
            raise self.error


class FaultyCursor:
    """A cursor whose statements can fail."""

    def __init__(self, cursor: sqlite3.Cursor, faults: Faults) -> None:
        self._cursor = cursor
        self._faults = faults

    def execute(self, *arguments: Any) -> Any:
        self._faults.strike()
        self._cursor.execute(*arguments)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class FaultyConnection:
    """A connection whose calls can fail."""

    def __init__(self, connection: sqlite3.Connection, faults: Faults) -> None:
        self._connection = connection
        self._faults = faults

    def cursor(self) -> FaultyCursor:
        return FaultyCursor(self._connection.cursor(), self._faults)

    def commit(self) -> None:
        self._faults.strike()
        self._connection.commit()

    def rollback(self) -> None:
        if self._faults.also_rollback:
            self._faults.also_rollback = False
            raise InjectedError
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class FaultyDatabase(SQLiteDatabase):
    """A database whose writer's connections can fail; ``opened`` counts them."""

    def __init__(self, path: Path, faults: Faults) -> None:
        super().__init__(path, Durability.PROCESS, 0)
        self.faults = faults
        self.opened = 0

    def is_away(self, error: BaseException) -> bool:
        return self.faults.away

    def connect(self) -> Any:
        self.opened += 1
        return FaultyConnection(super().connect(), self.faults)

    def checkpoint(self, connection: Any) -> None:
        self.faults.fail_at = None
        super().checkpoint(connection)
