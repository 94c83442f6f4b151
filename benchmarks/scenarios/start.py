"""From the start of the process to the first CONNACK, and to the first retained message of ``#``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from benchmarks.brokers import START_SECONDS, Broker
from benchmarks.connection import Connection
from benchmarks.makes import start
from benchmarks.results import Metric, Result
from benchmarks.scenarios.seeding import ensure, retain

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

CONNACK = Metric("CONNACK", "ms", False)
FIRST = Metric("first", "ms", False)
CPU = Metric("processor", "ms", False)  # a busy machine does not lengthen it
_UPDATES = 5_000  # the number of updates in the write-ahead log that a kill leaves


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Use a broker of its own, whose data files are not in the page cache; its program is.

    mosquitto writes its database at a clean stop: after a kill it starts empty.
    """
    for count in (0, *scale.retained):
        own = start(broker.name, broker.site, durable=True)
        try:
            ensure(own, count)
            for _ in range(scale.starts):
                own.end()
                _report(result, own, after_stop(count))
            for _ in range(scale.starts if own.name == "holdfast" else 0):
                if count:
                    retain(own, 0, min(count, _UPDATES), 1000)
                own.kill()
                _report(result, own, f"{count:,} retained, after kill -9")
        finally:
            own.stop()


def after_stop(count: int) -> str:
    """The name of the case."""
    return f"{count:,} retained, after a clean stop"


def _report(result: Result, broker: Broker, name: str) -> None:
    log = _forget_pages(broker)
    connack, first = _start(broker)
    used = broker.cpu_seconds()
    metrics = [CONNACK, CPU] if first is None else [CONNACK, CPU, FIRST]
    with result.case(name, metrics, broker) as case:
        case[CONNACK] = 1000 * connack
        case[CPU] = 1000 * used
        if first is not None:
            case[FIRST] = 1000 * first
        if log:
            case.note(f"{log / 1e6:.1f} MB of log left")


def _forget_pages(broker: Broker) -> int:
    """Drop the broker's files from the page cache; return the size of their write-ahead logs."""
    logs = 0
    for path in broker.directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if path.name.endswith("-wal"):
                logs += path.stat().st_size
    return logs


def _start(broker: Broker) -> tuple[float, float | None]:
    """Return the seconds to CONNACK and, if there are retained messages, to the first message."""
    begin = time.perf_counter()
    broker.launch()
    connection = _connected(broker)
    try:
        connack = time.perf_counter() - begin
        if not broker.retained:
            return connack, None
        connection.first_message(b"#")
        return connack, time.perf_counter() - begin
    finally:
        connection.close()


def _connected(broker: Broker) -> Connection:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return Connection(broker.port, broker.wire)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                broker.ready()  # raises Unavailable with the reason
                raise
        time.sleep(0.001)
