"""Reads and transactions on the open store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twisted.internet.defer import Deferred, fail, maybeDeferred

from holdfast.storage.database import Database
from holdfast.storage.driver import Connection
from holdfast.storage.store import DurableStore
from holdfast.tickets import FailureKind, StorageFailure

T = TypeVar("T")


def read(store: DurableStore, work: Callable[[Connection], T]) -> Deferred[T]:
    """Read from the database. Fails with StorageFailure, or with the exception of the work."""
    if store.parts is None:
        return fail(_closed())
    return maybeDeferred(store.parts.readers.read, work)


def read_now(database: Database, work: Callable[[Connection], T]) -> T:
    """Read from the database in this thread. Raises StoreUnusable, or the exception of the work."""
    with database.explaining_errors():
        connection = database.connect_reader()
        try:
            return work(connection)
        finally:
            connection.close()


def write(store: DurableStore, work: Callable[[Connection], T]) -> Deferred[T]:
    """Run a transaction in the writer's thread; fires when it is durable. Fails as :func:`read` does; then nothing is
    changed.
    """
    return fail(_closed()) if store.parts is None else store.parts.writer.run(work)


def _closed() -> StorageFailure:
    return StorageFailure(FailureKind.UNAVAILABLE, "the database is not open")
