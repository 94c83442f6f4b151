"""The arrangement that most tests of Sessions share."""

from __future__ import annotations

import pytest

from tests.doubles import Client, MemoryBroker


@pytest.fixture
def broker() -> MemoryBroker:
    """Return a broker with default limits."""
    return MemoryBroker()


@pytest.fixture
def publisher(broker: MemoryBroker) -> Client:
    """Return a connected client that publishes."""
    return broker.client("p")
