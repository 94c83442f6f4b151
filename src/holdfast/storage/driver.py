"""The interfaces of a database driver (PEP 249), and of a database to its writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from holdfast.tickets import StorageFailure


class Cursor(Protocol):
    """A driver's cursor."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the last statement changed."""

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ..., /) -> Any:
        """Run one statement."""

    def fetchone(self) -> Any:
        """Return the next row, None at the end."""

    def fetchall(self) -> Sequence[Any]:
        """Return the remaining rows."""


class Connection(Protocol):
    """A driver's connection in autocommit mode: only an explicit statement begins a transaction."""

    def cursor(self) -> Cursor:
        """Return a new cursor."""

    def commit(self) -> None:
        """Commit the transaction, if one is open."""

    def rollback(self) -> None:
        """Roll the transaction back, if one is open."""

    def close(self) -> None:
        """Close the connection."""


class WritableDatabase(Protocol):
    """The part of a database that its one writer uses."""

    @property
    def begin_statement(self) -> str:
        """The statement that begins a transaction which is going to write."""

    @property
    def damage(self) -> StorageFailure | None:
        """The reason why nothing may be written any more: stored data is damaged."""

    def connect(self) -> Connection:
        """Open the writer's connection."""

    def maintain(self, connection: Connection) -> None:
        """Do regular maintenance on the writer's connection, between two transactions. Raises nothing."""

    def checkpoint(self, connection: Connection) -> None:
        """Complete the files before the writer's connection is closed."""

    def is_away(self, error: BaseException) -> bool:
        """Tell whether the error says that the database cannot be reached now, but perhaps later."""

    def is_conflict(self, error: BaseException) -> bool:
        """Tell whether another transaction caused the error. Then the writer tries again at once."""

    def failure(self, error: BaseException) -> StorageFailure:
        """Classify the error of a write: REFUSED if the row is to blame, not the database."""
