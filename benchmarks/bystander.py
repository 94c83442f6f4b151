"""A client that pings every 20 ms while others attack the broker, in a process of its own.

`python -m benchmarks.bystander PORT PROCESS` prints "ready", pings until its standard input ends, and prints its report
as JSON. A ping is sent when it is due, even if the last one is unanswered, so a stall counts in full.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from benchmarks.brokers import REPOSITORY, Broker, rss_anon
from benchmarks.connection import BenchError, Connection
from benchmarks.wire import PINGREQ, PINGRESP, Wire

INTERVAL = 0.02
_PATIENCE = 120.0  # for the answers to the last pings
_NICE = -5  # where it is permitted: the generator shares the bystander's core


@dataclass
class Report:
    """What the bystander saw: its worst wait, the processor time of the broker's reactor within one wait, and memory.

    ``wait`` and ``busy`` are in milliseconds, ``peak`` in MiB. On a machine with other work, ``wait`` includes the time
    for which the broker had no processor; ``busy`` does not.
    """

    pings: int = 0
    wait: float = 0.0
    busy: float = 0.0
    peak: float = 0.0
    closed: bool = False


@contextmanager
def bystander(broker: Broker) -> Iterator[Report]:
    """Let a bystander ping during the block. The report is filled in at its end. Raises BenchError."""
    command = [sys.executable, "-m", "benchmarks.bystander", str(broker.port), str(broker.process_id)]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    report = Report()
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise BenchError("the bystander is not admitted")
        yield report
        text, _ = process.communicate(timeout=_PATIENCE + 10)
        if process.returncode:
            raise BenchError("the bystander failed")
        for name, value in json.loads(text).items():
            setattr(report, name, value)
        if report.closed:
            raise BenchError("the broker closed the bystander's connection")
    finally:
        process.kill()
        process.wait()


class _Bystander:
    """The pinging side."""

    def __init__(self, port: int, process: int) -> None:
        self._process = process
        self._sock = Connection(port, Wire(4)).sock
        self._due: deque[tuple[float, float]] = deque()  # of each unanswered ping: when it was due, and the busy time
        self.report = Report()

    def run(self) -> Report:
        """Ping until the standard input ends and all pings are answered."""
        begin = time.perf_counter()
        ending = 0.0
        while not self.report.closed and not (ending and not self._due):
            now = time.perf_counter()
            if ending and now - ending > _PATIENCE:
                break
            while not ending and begin + self.report.pings * INTERVAL <= now:
                self._ping(begin + self.report.pings * INTERVAL)
            sources: list[socket.socket | TextIO] = [self._sock] if ending else [self._sock, sys.stdin]
            wait = 1.0 if ending else max(0.0, begin + self.report.pings * INTERVAL - now)
            ready, _, _ = select.select(sources, [], [], wait)
            if self._sock in ready:
                self._answered()
            if sys.stdin in ready:
                ending = time.perf_counter()
        for due, busy in self._due:  # unanswered
            self._note(due, busy)
        return self.report

    def _ping(self, due: float) -> None:
        self._due.append((due, self._busy()))
        self.report.pings += 1
        self.report.peak = max(self.report.peak, rss_anon(self._process))
        try:
            self._sock.sendall(PINGREQ)
        except OSError:
            self.report.closed = True

    def _answered(self) -> None:
        try:
            received = self._sock.recv(1 << 16)
        except OSError:
            received = b""
        self.report.closed = not received
        for _ in range(len(received) // len(PINGRESP)):
            self._note(*self._due.popleft())

    def _note(self, due: float, busy: float) -> None:
        wait = 1000 * (time.perf_counter() - due)
        self.report.wait = max(self.report.wait, wait)
        self.report.busy = max(self.report.busy, min(wait, self._busy() - busy))

    def _busy(self) -> float:
        """The processor time of the broker's main thread, which runs the reactor, in milliseconds."""
        return int(Path(f"/proc/{self._process}/schedstat").read_text().split()[0]) / 1e6


def main(arguments: list[str]) -> int:
    """Ping, and print the report."""
    port, process = map(int, arguments)
    with suppress(PermissionError):
        os.nice(_NICE)
    one = _Bystander(port, process)
    print("ready", flush=True)
    print(json.dumps(asdict(one.run())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
