"""Connections to Postgres that stay open from one store to the next, as in a pool.

A new connection is a new process of the server, with nothing known of the tables. To open a store takes three of them,
and a property opens a store for each example.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.storage.postgres.database import PostgresDatabase

_Make = Callable[[PostgresDatabase], psycopg.Connection[Any]]

#: the connections that are free, by the method that opens them and by database
_free: defaultdict[tuple[str, str], list[psycopg.Connection[Any]]] = defaultdict(list)


def _keeping(make: Any) -> _Make:
    def connect(database: PostgresDatabase) -> psycopg.Connection[Any]:
        free = _free[make.__name__, database.location]
        if not free:
            made: psycopg.Connection[Any] = make(database)
            made.close = partial(_leave, made, free)  # type: ignore[method-assign]
            return made
        # A writer locks its node. With a connection that is free, it does the same.
        with patch.object(database, "_open", free.pop):
            return make(database)  # type: ignore[no-any-return]

    return connect


def _leave(connection: psycopg.Connection[Any], free: list[psycopg.Connection[Any]]) -> None:
    """Leave a connection as a new one is, unless it is broken: with no transaction and no lock."""
    if connection.info.transaction_status is not TransactionStatus.IDLE:
        psycopg.Connection.close(connection)
        return
    connection.execute("SELECT pg_advisory_unlock_all()")
    free.append(connection)


_WRITER = _keeping(PostgresDatabase.connect)
_READER = _keeping(PostgresDatabase.connect_reader)


@contextmanager
def kept_connections() -> Iterator[None]:
    """Let databases take connections that are free, and leave theirs for the next ones instead of closing them."""
    with (
        patch.object(PostgresDatabase, "connect", _WRITER),
        patch.object(PostgresDatabase, "connect_reader", _READER),
    ):
        yield
