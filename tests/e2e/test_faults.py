"""A few of each fault, with a real broker; ``make faults`` has more of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.wire import ReasonCode
from tests.faults.outages import faulty, file_too_large, locked, read_only, refused, waits
from tests.faults.results import Result
from tests.faults.ruin import pages_gone, quarantines, truncated
from tests.faults.storm import storm
from tests.faults.window import window
from tests.postgres import drop, empty_database
from tests.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.crash]


@pytest.fixture
def url() -> Iterator[str]:
    """An empty Postgres database."""
    made = empty_database()
    yield made
    drop(made)


def kept(result: Result, tried: int) -> None:
    """Expect that no promise was broken, however often the fault was tried."""
    assert result.broken == []
    assert result.tried == tried


def test_kill_9_under_load(tmp_path: Path, storage: tuple[str, ...]) -> None:
    """QoS 1 and 2, sets and clears, and a Session: nothing acknowledged is lost, nothing cleared comes back."""
    kept(storm(tmp_path, "", storage, 2), 2)


def test_kill_9_with_durability_async(tmp_path: Path, storage: tuple[str, ...]) -> None:
    """What is lost are the last changes, without holes; how much time they span, ``make faults`` measures."""
    kept(window(tmp_path, "", storage, 1, measured=False), 1)


def test_a_full_disk(tmp_path: Path) -> None:
    """MQTT 5 is told Quota exceeded, MQTT 3 closed; live messages go on; it heals by itself."""
    broker, outage = faulty(tmp_path)
    kept(refused("", broker, outage("full"), ReasonCode.QUOTA_EXCEEDED, r"changes not stored \(full\)", 1), 1)


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """The limit of the operating system, without help by a test."""
    reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    kept(refused("", BrokerProcess(tmp_path), file_too_large, reason, r"not stored \(unavailable\)", 1), 1)


def test_a_database_that_is_read_only(tmp_path: Path) -> None:
    """MQTT 5 is told Implementation specific error, MQTT 3 closed; it heals by itself."""
    broker, outage = faulty(tmp_path)
    reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    kept(refused("", broker, outage("readonly"), reason, "readonly", 1), 1)


def test_a_database_that_is_locked(tmp_path: Path) -> None:
    """By a real other connection: publishers wait, and nobody else."""
    kept(waits("", "sqlite", BrokerProcess(tmp_path), locked, "changes wait for the database.*locked", 1), 1)


def test_a_postgres_that_only_reads(tmp_path: Path, url: str) -> None:
    """As after a failover: publishers wait until a connection leads to one that writes."""
    broker = BrokerProcess(tmp_path, "--storage", url)
    kept(waits("", "postgresql", broker, read_only(url), "changes wait for the database.*read-only", 1), 1)


def test_a_damaged_file(tmp_path: Path) -> None:
    """Refused with what to do, or put into quarantine; what can be read of it is retained."""
    kept(quarantines(tmp_path, (truncated, pages_gone)), 2)
