"""A few tries of each fault, with a real broker; ``make faults`` makes more."""

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
    """Expect that no promise was broken in any try."""
    assert result.broken == []
    assert result.tried == tried


def test_kill_9_under_load(tmp_path: Path, storage: tuple[str, ...]) -> None:
    """With QoS 1 and 2, sets, clears and a Session: no acknowledged message is lost, no cleared one comes back."""
    kept(storm(tmp_path, "", storage, 2), 2)


def test_kill_9_with_durability_async(tmp_path: Path, storage: tuple[str, ...]) -> None:
    """Only the last changes are lost; ``make faults`` measures the time they span."""
    kept(window(tmp_path, "", storage, 1, measured=False), 1)


def test_a_full_disk(tmp_path: Path) -> None:
    """MQTT 5 gets Quota exceeded, MQTT 3 is closed; live messages go on; the broker recovers."""
    broker, outage = faulty(tmp_path)
    kept(refused("", broker, outage("full"), ReasonCode.QUOTA_EXCEEDED, r"changes not stored \(full\)", 1), 1)


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """The operating system sets the limit."""
    reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    kept(refused("", BrokerProcess(tmp_path), file_too_large, reason, r"not stored \(unavailable\)", 1), 1)


def test_a_database_that_is_read_only(tmp_path: Path) -> None:
    """MQTT 5 gets Implementation specific error, MQTT 3 is closed; the broker recovers."""
    broker, outage = faulty(tmp_path)
    reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    kept(refused("", broker, outage("readonly"), reason, "readonly", 1), 1)


def test_a_database_that_is_locked(tmp_path: Path) -> None:
    """Another connection holds the lock: only publishers wait."""
    kept(waits("", "sqlite", BrokerProcess(tmp_path), locked, "changes wait for the database.*locked", 1), 1)


def test_a_postgres_that_only_reads(tmp_path: Path, url: str) -> None:
    """As after a failover, publishers wait until the server accepts writes."""
    broker = BrokerProcess(tmp_path, "--storage", url)
    kept(waits("", "postgresql", broker, read_only(url), "changes wait for the database.*read-only", 1), 1)


def test_a_damaged_file(tmp_path: Path) -> None:
    """It is refused with a remedy, or put into quarantine; its readable messages are retained."""
    kept(quarantines(tmp_path, (truncated, pages_gone)), 2)
