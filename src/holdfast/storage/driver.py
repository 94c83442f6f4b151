"""What the writer needs of a database driver (PEP 249), and of the database behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from holdfast.tickets import StorageFailure


class Cursor(Protocol):
    """A driver's cursor."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement changed."""

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ..., /) -> Any:
        """Run one statement."""

    def fetchone(self) -> Any:
        """Return the next row, None at the end."""

    def fetchall(self) -> Sequence[Any]:
        """Return the rows left."""


class Connection(Protocol):
    """A driver's connection in autocommit mode: a transaction begins where a statement says so."""

    def cursor(self) -> Cursor:
        """Return a new cursor."""

    def commit(self) -> None:
        """End the transaction, if one is open, and make it durable."""

    def rollback(self) -> None:
        """Undo the transaction, if one is open."""

    def close(self) -> None:
        """Close the connection."""


class WritableDatabase(Protocol):
    """A database as its one writer sees it."""

    @property
    def begin_statement(self) -> str:
        """The statement that begins a transaction which is going to write."""

    @property
    def damage(self) -> StorageFailure | None:
        """Why nothing may be written any more: what is stored has been found damaged."""

    def connect(self) -> Connection:
        """Open the writer's connection."""

    def committed(self, connection: Connection) -> None:
        """Do what has to be done now and then, after a commit on the writer's connection. Raises nothing."""

    def checkpoint(self, connection: Connection) -> None:
        """Bring the files in order before the writer's connection is closed."""

    def is_away(self, error: BaseException) -> bool:
        """Tell whether the error says that the database cannot be reached, or not now: later it may."""

    def is_conflict(self, error: BaseException) -> bool:
        """Tell whether the transaction was in another one's way, so that it is worth doing again at once."""

    def failure(self, error: BaseException) -> StorageFailure:
        """Say in our terms why a write failed; REFUSED when the fault lies with the row, not with the database."""
