"""Retained QoS 1 messages over scattered topics: PUBACKs per second. Holdfast sends them after the commit to disk."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks import bare_sqlite, generator
from benchmarks.brokers import Broker
from benchmarks.results import RATE, Case, Result
from benchmarks.scenarios.seeding import ensure, filled

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

BARE = "bare SQLite"
WINDOWS = (1, 1000, 10_000)
_MOST = 400_000
_SYNCS = 500


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Update the topics of the largest set. Beside Holdfast on SQLite, do the same with bare SQLite."""
    count = scale.retained[-1]
    ensure(broker, count)
    for window in WINDOWS:
        messages = min(scale.messages, _MOST)
        with result.case(name(window), [RATE], broker) as case:
            report = generator.run(
                broker,
                "seed",
                count=count,
                stride=bare_sqlite.STRIDE,
                messages=messages,
                window=window,
                seconds=scale.seconds,
            )
            case.take(report, {RATE: "rate"})
            if window == 1:
                case.note(f"the disk itself: {syncs_per_second(broker.directory):,.0f} fdatasync of 4 KiB/s")
            if broker.name == "holdfast" and broker.postgres is None:
                _compare(broker, case, count, window, int(report["messages"]))


def name(window: int) -> str:
    """The name of the case."""
    return f"QoS 1, retained, scattered, window {window:,}"


def _compare(broker: Broker, case: Case, count: int, window: int, messages: int) -> None:
    """Write as many rows with bare SQLite, in a copy of the database as it was before."""
    with TemporaryDirectory(prefix="bench-bare-", dir=broker.directory) as directory:
        data = Path(directory) / "data"
        shutil.copytree(filled(broker, count), data)
        found = bare_sqlite.report(data / "holdfast.db", count, messages, window)
    case.compare(BARE, RATE, found["rows_per_s"])
    case.note(f"SQLite {found['sqlite']}, page size {found['page_size']:,}")


def syncs_per_second(directory: Path) -> float:
    """Return the number of synced writes of 4 KiB per second: no commit that waits for the disk is faster."""
    with NamedTemporaryFile(dir=directory) as file:
        begin = time.perf_counter()
        for _ in range(_SYNCS):
            os.pwrite(file.fileno(), bytes(4096), 0)
            os.fdatasync(file.fileno())
        return _SYNCS / (time.perf_counter() - begin)
