"""The load generator: a C program in `benchmarks/load`, compiled when it is first used, and its report."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.brokers import Broker, Unavailable
from benchmarks.connection import BenchError

SOURCES = Path(__file__).resolve().parent / "load"
BINARY = SOURCES / "build" / "generator"
_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra")
_LIBRARIES = ("-ldl",)  # part of the C library since glibc 2.34
_COMPILERS = ("cc", "gcc", "clang")
_SECONDS = 230.0  # of one run at most
_STALL_SECONDS = 8.0  # after so long without a message, the missing messages are lost
#: Parts of a report that must be 0, and what is wrong if they are not.
_MISTAKES = {
    "disordered": "out of order",
    "duplicates": "duplicates",
    "strangers": "never published",
    "unflagged": "without RETAIN",
    "unacknowledged": "without PUBACK",
    "pings_lost": "pings without an answer",
}


@dataclass(frozen=True)
class Report:
    """The figures of one run by name. `seconds` is its duration, and `messages` the number of its deliveries."""

    figures: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.figures[name]

    @property
    def lost(self) -> int:
        """The number of messages that were published and not delivered, or not acknowledged."""
        return int(self.figures["lost"])

    @property
    def mistakes(self) -> str:
        """What the broker did wrong, beside losses, in a few words; empty if nothing."""
        found = [(self.figures.get(name, 0), text) for name, text in _MISTAKES.items()]
        return ", ".join(f"{number:,.0f} {text}" for number, text in found if number)

    @property
    def broker_busy(self) -> float:
        """The part of the time for which the broker used a processor."""
        return self._share("broker_cpu_s")

    @property
    def generator_busy(self) -> float:
        """The part of the time for which the generator used a processor."""
        return self._share("generator_cpu_s")

    @property
    def broker_us(self) -> float:
        """Microseconds of processor time that the broker used for each message."""
        return self._per_message("broker_cpu_s")

    @property
    def generator_us(self) -> float:
        """Microseconds of processor time that the generator used for each message."""
        return self._per_message("generator_cpu_s")

    @property
    def limited(self) -> bool:
        """Whether the generator was the limit: it was nearly always busy, and the broker less."""
        return self.generator_busy > 0.85 and self.generator_busy > self.broker_busy + 0.05

    def part(self, prefix: str) -> Report:
        """Return the figures of a part of the run, whose names begin with ``prefix``, under the rest of their names."""
        own = {name.removeprefix(prefix): value for name, value in self.figures.items() if name.startswith(prefix)}
        return Report(own)

    def _share(self, name: str) -> float:
        return self.figures[name] / self.figures["seconds"] if self.figures["seconds"] else math.nan

    def _per_message(self, name: str) -> float:
        return 1e6 * self.figures[name] / self.figures["messages"] if self.figures["messages"] else math.nan


def parsed(text: str) -> Report:
    """Read the JSON object that the generator prints. Raises BenchError."""
    try:
        figures = json.loads(text)
    except ValueError:
        figures = None
    if not isinstance(figures, dict):
        raise BenchError(f"no report of the generator: {text.strip()[:200]!r}")
    if "error" in figures:
        raise BenchError(str(figures["error"]))
    return Report({str(name): float(value) for name, value in figures.items()})


def command(broker: Broker, scenario: str, **options: object) -> list[str]:
    """Return the command that runs the generator; underscores in names of options stand for hyphens."""
    common = {
        "port": broker.port,
        "process": broker.process_id,
        "protocol": broker.wire.version,
        "patience": _STALL_SECONDS,
        "timeout": _SECONDS,
    }
    words = [str(compiled()), scenario]
    for name, value in (common | options).items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def run(broker: Broker, scenario: str, **options: object) -> Report:
    """Run the generator against a broker to its end. Raises BenchError."""
    line = command(broker, scenario, **options)
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=_SECONDS + 30)
    return parsed(done.stdout or done.stderr)


def compiled() -> Path:
    """Return the program's path, after compiling it if its sources are newer. Raises Unavailable."""
    if _is_current():
        return BINARY
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", ""), *_COMPILERS))), None)
    if compiler is None:
        raise Unavailable("the load generator needs a C compiler; on Debian: apt-get install gcc libc6-dev")
    BINARY.parent.mkdir(exist_ok=True)
    with (BINARY.parent / "lock").open("w") as lock:  # tests run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_current():
            fresh = BINARY.with_suffix(".new")
            command = [compiler, *_FLAGS, "-o", str(fresh), *sorted(map(str, SOURCES.glob("*.c"))), *_LIBRARIES]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Unavailable(f"the load generator cannot be compiled: {done.stderr.strip()[:2000]}")
            fresh.replace(BINARY)
    return BINARY


def _is_current() -> bool:
    newest = max(path.stat().st_mtime for path in SOURCES.glob("*.[ch]"))
    return BINARY.exists() and BINARY.stat().st_mtime >= newest


def main() -> int:
    """Compile the generator."""
    try:
        print(compiled())
    except Unavailable as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
