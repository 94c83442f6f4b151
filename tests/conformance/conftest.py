"""One real broker for the conformance tests that ask for it; each of them uses topics of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.paho import PahoClient
from tests.postgres import drop, empty_database
from tests.processes import BrokerProcess

pytest.register_assert_rewrite("tests.conformance.expect")

VERSIONS = {"v3.1.1": 4, "v5.0": 5}


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with default settings, on each make of database."""
    directory: Path = tmp_path_factory.mktemp("conformance")
    options = () if request.param == "sqlite" else ("--storage", empty_database())
    process = BrokerProcess(directory, *options).start()
    yield process
    process.end()
    if options:
        drop(options[1])


@pytest.fixture(params=list(VERSIONS.values()), ids=list(VERSIONS))
def version(request: pytest.FixtureRequest) -> int:
    """The protocol level of the test's clients."""
    return int(request.param)


@pytest.fixture
def connect(broker: BrokerProcess, version: int) -> Iterator[Callable[..., PahoClient]]:
    """Connect clients that are closed after the test."""
    clients: list[PahoClient] = []

    def connected(**options: Any) -> PahoClient:
        client = PahoClient(broker.port, options.pop("version", version), **options)
        clients.append(client)
        return client

    yield connected
    for client in clients:
        client.close()


@pytest.fixture
def house(request: pytest.FixtureRequest) -> str:
    """A topic level that no other test uses."""
    return str(request.node.name).replace("+", "_").replace("#", "_").replace("/", "_")
