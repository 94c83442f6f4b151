"""The rate of acknowledgements of retained messages with QoS 1. Holdfast acknowledges after the commit to disk."""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.results import RATE, Result
from benchmarks.scenarios.seeding import retain

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

_ONE_BY_ONE = 3_000
_SYNCS = 500


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Publish the smallest set of retained messages again and again: new topics first, then their updates."""
    for window in (10_000, 1000, 1):
        count = scale.retained[0] if window > 1 else min(scale.retained[0], _ONE_BY_ONE)
        with result.case(f"QoS 1, window {window}, {count:,} topics", [RATE]) as case:
            with case.watched():
                flow = retain(broker, 0, count, window)
            broker.retained = max(broker.retained, count)
            case[RATE] = flow.rate
            case.lost(flow.lost)
            if window == 1:
                case.note(f"the disk itself: {syncs_per_second(broker.directory):,.0f} fdatasync of 4 KiB/s")


def syncs_per_second(directory: Path) -> float:
    """Return the number of synced writes of 4 KiB per second: no commit that waits for the disk is faster."""
    with NamedTemporaryFile(dir=directory) as file:
        begin = time.perf_counter()
        for _ in range(_SYNCS):
            os.pwrite(file.fileno(), bytes(4096), 0)
            os.fdatasync(file.fileno())
        return _SYNCS / (time.perf_counter() - begin)
