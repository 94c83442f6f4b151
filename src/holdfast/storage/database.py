"""The interface of a database to the store, and the parts that SQLite and Postgres share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.storage.driver import Connection
from holdfast.storage.location import StoreUnusable

if TYPE_CHECKING:
    from sqlalchemy import Connection as SQLAlchemyConnection
    from sqlalchemy import Engine


class Durability(Enum):
    """When a change is acknowledged."""

    FULL = "full"
    PROCESS = "process"
    ASYNC = "async"

    def loss_window(self, flush_interval: float) -> str:
        """Describe which acknowledged changes can be lost; only ``async`` uses ``flush_interval`` (seconds)."""
        if self is Durability.FULL:
            return "acknowledged once committed and synced to disk: no loss when killed, none when power fails"
        if self is Durability.PROCESS:
            return "acknowledged once committed: no loss when killed; when power fails, the commits not yet synced"
        return f"acknowledged at once: when killed, up to {flush_interval:g} s of changes; more when power fails"


class Database(ABC):
    """A database, SQLite or Postgres. Its connections are those of the driver, in autocommit mode.

    It implements :class:`holdfast.storage.driver.WritableDatabase` for the writer.
    """

    #: the statement that begins a transaction which is going to write
    begin_statement: ClassVar[str]
    #: SQLAlchemy's name for the dialect: "sqlite" or "postgresql"
    dialect: ClassVar[str]
    #: the base class of the driver's exceptions
    errors: ClassVar[type[Exception]]
    #: whether a network is between the broker and the database: then reads need a thread, and the database can be away
    remote: ClassVar[bool]
    #: the driver's errors that a row itself causes: the same row would fail again
    row_errors: ClassVar[tuple[type[Exception], ...]]

    #: why nothing may be written any more: stored data is damaged
    damage: StorageFailure | None = None

    @property
    @abstractmethod
    def location(self) -> str:
        """The database's name in messages; it never contains a password."""

    @property
    def library(self) -> str | None:
        """The version of the database's library and what is to be known of it, None if there is nothing."""
        return None

    @abstractmethod
    def connect(self) -> Any:
        """Open the writer's connection."""

    def begin(self, connection: Connection) -> None:
        """Begin a transaction of the writer, which is going to write."""
        connection.cursor().execute(self.begin_statement)

    @abstractmethod
    def connect_reader(self) -> Any:
        """Open a connection that only reads."""

    @abstractmethod
    def check(self) -> None:
        """Prove that the database can be read and written. Creates a missing file. Raises :class:`StoreUnusable`."""

    @abstractmethod
    def check_present(self) -> None:
        """Prove that the database exists. Creates and changes nothing. Raises :class:`StoreUnusable`."""

    @abstractmethod
    def inspect(self) -> None:
        """Make the checks of :meth:`check` that create and change nothing. Raises :class:`StoreUnusable`."""

    def check_readable(self) -> None:  # noqa: B027 - Postgres checks itself
        """Prove that the tables that a start reads can be read. Raises :class:`StoreDamaged`."""

    @abstractmethod
    def engine(self) -> Engine:
        """Return an SQLAlchemy engine over writing connections. It closes each connection after use."""

    @abstractmethod
    def exclusive_engine(self) -> Engine:
        """Return an engine whose transactions fail while a broker uses the database."""

    @abstractmethod
    def reading_engine(self) -> Engine:
        """Return an engine that only reads. A broker may use the database meanwhile."""

    @abstractmethod
    def relations(self, connection: Connection) -> set[str]:
        """Return the names of all tables and views."""

    @abstractmethod
    def find_damage(self) -> dict[str, list[str]]:
        """Check the whole database; return descriptions of the damage by kind of check."""

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield the writer's connection in a transaction, which is committed at the end, or rolled back on an error."""
        connection: Connection = self.connect()
        try:
            connection.cursor().execute(self.begin_statement)
            yield connection
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.close()

    @contextmanager
    def explaining_errors(self) -> Iterator[None]:
        """Turn the database's errors into :class:`StoreUnusable`, with a remedy for the operator."""
        try:
            yield
        except StorageFailure as failure:
            raise StoreUnusable(str(failure)) from failure
        except self.errors as error:
            raise self._explained(error) from error
        except Exception as error:
            cause = getattr(error, "orig", None)  # SQLAlchemy has wrapped the driver's error
            if not isinstance(cause, self.errors):
                raise
            raise self._explained(cause) from error

    def failure(self, error: BaseException) -> StorageFailure:
        """Classify an error: FULL, UNAVAILABLE, or REFUSED if only this row is to blame."""
        if isinstance(error, StorageFailure):
            return error
        if self._is_full(error):
            kind = FailureKind.FULL
        elif isinstance(error, (self.errors, OSError, MemoryError)) and not isinstance(error, self.row_errors):
            kind = FailureKind.UNAVAILABLE
        else:  # also errors of Python itself: a value that the driver cannot convert
            kind = FailureKind.REFUSED
        return StorageFailure(kind, f"{type(error).__name__}: {first_line(error)}", self.location)

    @abstractmethod
    def is_away(self, error: BaseException) -> bool:
        """Tell whether the error says that the database cannot be reached now, but perhaps later."""

    def is_conflict(self, error: BaseException) -> bool:
        """Tell whether another transaction caused the error. Then the writer tries again at once."""
        return False

    def maintain(self, connection: Connection) -> None:  # noqa: B027 - likewise
        """Do regular maintenance on the writer's connection, between two transactions. Raises nothing."""

    def checkpoint(self, connection: Connection) -> None:  # noqa: B027 - likewise
        """Complete the files before the writer's connection is closed."""

    @abstractmethod
    def _is_full(self, error: BaseException) -> bool:
        """Tell whether the database's disk is full."""

    @abstractmethod
    def _explained(self, error: BaseException) -> StoreUnusable:
        """Return the error for the operator."""


def engine_over(
    url: str, connect: Callable[[], Any], on_begin: Callable[[SQLAlchemyConnection], None] | None = None
) -> Engine:
    """Return an engine that opens a connection for each use. ``on_begin`` is called when a transaction begins."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    engine = create_engine(url, creator=connect, poolclass=NullPool)
    if on_begin is not None:
        event.listen(engine, "begin", on_begin)
    return engine


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its class if it has no text."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
