"""What a database has to offer to the store, and what all of them share."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol

from sqlalchemy import Engine

from holdfast.storage.driver import Connection, WritableDatabase
from holdfast.tickets import StorageFailure


class StoreUnusable(Exception):
    """The database cannot be used; the message tells the operator what was found and what to do."""


class StoreDamaged(StoreUnusable):
    """The contents of the database are damaged."""


class Durability(Enum):
    """When a change counts as stored."""

    FULL = "full"
    PROCESS = "process"
    ASYNC = "async"

    def loss_window(self, flush_interval: float) -> str:
        """Say what may be lost of what was acknowledged; ``flush_interval`` (seconds) matters to ``async`` only."""
        if self is Durability.FULL:
            return "acknowledged once committed and synced to disk: no loss when killed, none when power fails"
        if self is Durability.PROCESS:
            return "acknowledged once committed: no loss when killed; when power fails, the commits not yet synced"
        return f"acknowledged at once: when killed, up to {flush_interval:g} s of changes; more when power fails"


class Database(WritableDatabase, Protocol):
    """A database of either make. Its connections are those of the driver, in autocommit mode."""

    @property
    def dialect(self) -> str:
        """What SQLAlchemy calls its dialect: "sqlite" or "postgresql"."""

    @property
    def location(self) -> str:
        """What to call it in messages; never with a password."""

    @property
    def errors(self) -> type[Exception]:
        """The root of its driver's exceptions."""

    @property
    def remote(self) -> bool:
        """Whether it is asked over a network: reading takes a thread, and it may be away for a while."""

    def connect_reader(self) -> Connection:
        """Open a connection that only reads."""

    def check(self) -> None:
        """Prove that it can be read and written; a file is created if missing. Raises :class:`StoreUnusable`."""

    def check_present(self) -> None:
        """Prove that it is there, without making or changing anything. Raises :class:`StoreUnusable`."""

    def check_beginning(self) -> None:
        """Prove that what is read at start can be read; the schema is current. Raises :class:`StoreDamaged`."""

    def engine(self) -> Engine:
        """Return an SQLAlchemy engine over writing connections, each closed when given back."""

    def exclusive(self) -> Engine:
        """Return an engine whose transactions fail while a broker uses the database."""

    def looking(self) -> Engine:
        """Return an engine that only reads, also while a broker uses the database."""

    def damages(self) -> dict[str, list[str]]:
        """Return what is wrong with the database, by kind of check."""

    def explained(self) -> AbstractContextManager[None]:
        """Raise :class:`StoreUnusable`, with what to do, for an error of the database."""

    def failure(self, error: BaseException) -> StorageFailure:
        """Say why something failed: FULL, UNAVAILABLE, or REFUSED for what only this row can be blamed for."""
