"""Latency of live messages while a broker merges an import, and without an import: one message every two milliseconds.

Each message is sent on time, also if earlier ones are still on their way, so a stall counts in full. Spark does not
run: the rows are staged already, and only the merge goes through the broker.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.brokers import Broker, Site
from benchmarks.connection import BenchError, Connection, Loop
from benchmarks.makes import start
from benchmarks.pipeline.databases import topic_of
from benchmarks.pipeline.figures import Figure
from benchmarks.results import percentile
from benchmarks.subscriber import ByteCounter
from benchmarks.wire import PACKET_ID_OFFSET, Wire
from holdfast.retained.staging import StagingArea, staging_area_for
from holdfast.retained.store.rows import Row
from holdfast_pipeline.sink import row_of_fields

_PERIOD = 0.002
#: Seconds of the measurement without an import, and the limit with one.
_IDLE, _PATIENCE = 5.0, 900.0
_RETAIN = 1
_PUBACK_SIZE = 4
_NOW = 1_700_000_000_000
_MERGE = """
import json, sys
from holdfast_pipeline.sink import Target
from holdfast.retained.verdicts import Merge
url, config, job, named = sys.argv[1:]
target = Target(None, config) if config else Target(url, None)
for said in target.merge(job, Merge.REPLACE, 0, json.loads(named)):
    pass
print(said["counts"]["imported"])
"""


class Acknowledged(Connection):
    """Counts PUBACKs by bytes."""

    def __init__(self, port: int, wire: Wire) -> None:
        super().__init__(port, wire)
        self._received = 0

    @property
    def messages(self) -> int:
        """The number of complete packets received."""
        return self._received // _PUBACK_SIZE

    def readable(self) -> None:
        """Count the received bytes."""
        taken = self.sock.recv(1 << 16)
        if not taken:
            self.closed_unless(b"")
        self._received += len(taken)


def live(site: Site, rows: int) -> list[Figure]:
    """Measure QoS 0 to its subscriber, and QoS 1, retained or not, to its PUBACK: without an import and with one."""
    figures = []
    for name, qos, retain in (("QoS 0", 0, 0), ("QoS 1", 1, 0), ("QoS 1 retained", 1, _RETAIN)):
        broker = start("holdfast", site)
        try:
            quiet = _measured(broker, qos, retain, None)
            with _staged(broker, rows) as process:
                begin = time.perf_counter()
                busy = _measured(broker, qos, retain, process)
                seconds = time.perf_counter() - begin
        finally:
            broker.stop()
        for label, times, note in (
            ("idle", quiet, ""),
            (f"import of {rows:,}", busy, f"{rows / seconds:,.0f} rows/s merged"),
        ):
            for share in (0.5, 0.99):
                figures.append(
                    Figure(f"live {name}, {label}: p{share * 100:.0f}", percentile(times, share), "ms", note=note)
                )
            figures.append(Figure(f"live {name}, {label}: max", times[-1], "ms", note=note))
    return figures


@contextmanager
def _staged(broker: Broker, rows: int) -> Iterator[subprocess.Popen[str]]:
    """Stage rows, and start to merge them."""
    data = broker.directory / "data"
    url = broker.postgres or f"sqlite:///{data / 'holdfast.db'}"
    configuration = broker.directory / "bench.toml"
    configuration.write_text(f'[node]\ndata_dir = "{data}"\n[storage]\nurl = "{url}"\n')
    stage: StagingArea = staging_area_for(url, "bench", None)
    stage.open()
    stage.put(1, (_row(number) for number in range(rows)))
    named = json.dumps(stage.prepare_merge([1]))
    command = [sys.executable, "-c", _MERGE, url, str(configuration), f"bench-{time.time_ns()}", named]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        told, _ = process.communicate()
        stage.drop()
    if process.returncode or int(told) != rows:
        raise BenchError(f"the import ended with status {process.returncode}: {told!r}")


def _row(number: int) -> Row:
    return row_of_fields({"topic": topic_of(number), "payload": b"%0120d" % number, "stored_at": _NOW}, _NOW)


def _measured(broker: Broker, qos: int, retain: int, process: subprocess.Popen[str] | None) -> list[float]:
    """Return the milliseconds of each message, in ascending order."""
    wire = broker.wire
    with Loop() as loop:
        counter: ByteCounter | Acknowledged
        if qos:
            counter = sender = Acknowledged(broker.port, wire)
        else:
            counter = ByteCounter(broker.port, wire)
            counter.subscribe(b"ping/#", 0)
            loop.add(counter)
            sender = Acknowledged(broker.port, wire)
        loop.add(sender)
        ping = bytearray(wire.ping(qos))
        ping[0] |= retain
        return _paced(loop, counter, sender, ping, qos, process)


def _paced(
    loop: Loop, counter: ByteCounter | Acknowledged, sender: Connection, ping: bytearray, qos: int,
    process: subprocess.Popen[str] | None,
) -> list[float]:  # fmt: skip
    due: deque[float] = deque()
    times: list[float] = []
    begin = time.perf_counter()
    sent = received = 0
    while True:
        now = time.perf_counter()
        over = now - begin > _IDLE if process is None else process.poll() is not None
        if over and received == sent:
            break
        if now - begin > _PATIENCE:
            raise BenchError(f"not complete after {_PATIENCE:.0f} s")
        while not over and begin + sent * _PERIOD <= now:
            due.append(begin + sent * _PERIOD)
            if qos:
                ping[PACKET_ID_OFFSET : PACKET_ID_OFFSET + 2] = (sent % 65_535 + 1).to_bytes(2, "big")
            sender.sock.send(ping)
            sent += 1
        loop.brief_turn(max(0.0, min(begin + sent * _PERIOD - time.perf_counter(), _PERIOD)))
        now = time.perf_counter()
        while received < counter.messages:
            times.append(1000 * (now - due.popleft()))
            received += 1
    return sorted(times)
