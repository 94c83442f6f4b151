"""What users, rules and keys in the database have in common: refusals, transactions, versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred, fail, maybeDeferred

from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.storage.database import Database
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.store import DurableStore

# Why a change of users or rules is refused; the texts are for operators.


class BadValue(ValueError):
    """A name, a password or a rule cannot be used."""


class Unknown(Exception):
    """There is no such user, or no such rule."""


class AlreadyThere(Exception):
    """There is a user of this name."""


class Contended(Exception):
    """Other nodes changed the rules meanwhile, again and again."""


# Reads and transactions on the open store.


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


# The versions of the users and of the rules in the database: a node learns by them that another one changed something.
#
# A transaction raises the version of what it changes before it does so. That locks the row, so changes of several nodes
# come one after the other, and whoever reads a version and then the rows has at least the changes up to this version.


_READ = "SELECT users_version, rules_version FROM access_state WHERE id = 1"
_RAISE_USERS = "UPDATE access_state SET users_version = users_version + 1 WHERE id = 1 RETURNING users_version"

#: the version of rules that were lost with a damaged file
LOST = -1


@frozen
class Versions:
    """The versions of the users and of the rules."""

    users: int
    rules: int


def read_versions(connection: Connection) -> Versions:
    """Return the present versions."""
    cursor = connection.cursor()
    cursor.execute(_READ)
    return Versions(*cursor.fetchall()[0])


def raise_users_version(cursor: Cursor) -> int:
    """Return a new version of the users."""
    cursor.execute(_RAISE_USERS)
    ((version,),) = cursor.fetchall()
    return int(version)
