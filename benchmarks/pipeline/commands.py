"""Time whole commands of ``holdfast-pipeline``: their processor time, and seconds by the clock.

Processor time is that of all processes of a command together, also of Java, of Python workers, and of a server: on a
machine that others use too, it says more than the clock. Figures are medians.

Bare Spark is a process that starts a session, counts one row and ends. It runs before each command, so that both meet
the same machine. With ``--beside``, the command of another installation runs in turn with this one, on the same data.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import frozen

from benchmarks.pipeline.databases import database, fill

_BARE = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate().range(1).count()"
_TIMEOUT = 600
#: By name, the arguments of each command; {db} is the database, {dir} a path that each run has for itself.
COMMANDS: Mapping[str, Sequence[str]] = {
    "tree": ("report", "--only", "tree", "--storage", "{db}"),
    "shapes": ("report", "--only", "shapes", "--storage", "{db}"),
    "asof": ("asof", "--storage", "{db}", "--out", "{dir}-now"),
    "asof-past": ("asof", "0s", "--storage", "{db}", "--out", "{dir}-asof"),
    "check": ("check", "--storage", "{db}"),
    "report": ("report", "--storage", "{db}", "--out", "{dir}.html"),
    "sync": ("sync", "--storage", "{db}", "--to", "{dir}-lake"),
}
#: Linux: processes whose parent has ended become children of this one, so that their time is known, too.
_BECOME_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
_PAUSE = 0.02


@frozen
class Cost:
    """The seconds that a command took, by the clock and of all processors together."""

    wall: float
    processor: float


def cost(arguments: Sequence[str], server: int | None = None, **settings: str) -> Cost:
    """Run a command and return its cost, with that of the session of the process ``server`` meanwhile.

    Raises :class:`subprocess.CalledProcessError` if it fails.
    """
    environment = {**os.environ, **settings}
    before, begin = _processor(server), time.perf_counter()
    subprocess.run(arguments, check=True, capture_output=True, timeout=_TIMEOUT, env=environment, text=True)
    wall = time.perf_counter() - begin
    _reap_orphans(server)
    return Cost(wall, _processor(server) - before)


def _processor(server: int | None) -> float:
    """Return the processor time of all children that have ended, and of the server's processes."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = ended.ru_utime + ended.ru_stime
    if server is not None:
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                fields = entry.read_text().rpartition(")")[2].split()
                if int(fields[3]) == server:
                    spent += sum(map(int, fields[11:15])) / _TICKS
    return spent


def _reap_orphans(server: int | None) -> None:
    """Wait for processes that outlive their command: Java ends a moment later."""
    deadline = time.monotonic() + _TIMEOUT
    with suppress(ChildProcessError):
        while server is None and time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(_PAUSE)


@contextmanager
def serving(commands: Sequence[str], warm: bool) -> Iterator[dict[str, int | None]]:
    """Run the server of each installation while the block runs, if ``warm``; give the ids of their processes."""
    try:
        if warm:
            for command in commands:
                cost([command, "server", "start"], server=0)
        yield {command: _server(command) if warm else None for command in commands}
    finally:
        if warm:
            for command in commands:
                cost([command, "server", "stop"], server=0)


def _server(command: str) -> int:
    found = subprocess.run([command, "server", "status", "--json"], check=True, capture_output=True, timeout=_TIMEOUT)
    return int(json.loads(found.stdout)["pid"])


def main() -> int:
    """Parse the command line, measure, report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.commands", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000, help="retained messages (10,000)")
    parser.add_argument("--storage", help="the URL of a database that is there, instead of a new one")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each command (3)")
    parser.add_argument("--postgres", action="store_true", help="Postgres rather than SQLite")
    parser.add_argument("--only", action="append", choices=list(COMMANDS), help="only this command; may be repeated")
    parser.add_argument("--warm", action="store_true", help="with a server, without bare Spark")
    parser.add_argument("--beside", metavar="COMMAND", help="holdfast-pipeline of another installation, run in turn")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0)
    own = str(Path(sys.executable).with_name("holdfast-pipeline"))
    commands = {"": own} if options.beside is None else {"beside": options.beside, "": own}
    with TemporaryDirectory(prefix="bench-commands-") as folder, database(options.postgres, Path(folder), "db") as new:
        url = options.storage or new
        if options.storage is None:
            fill(url, options.rows, changes=2, recorded=True)
            print(f"{options.rows:,} retained messages")
        try:
            with serving(list(commands.values()), options.warm) as servers:
                for name in options.only or COMMANDS:
                    for line in _measured(name, commands, servers, url, folder, options.repeat):
                        print(line, flush=True)
        except subprocess.CalledProcessError as error:
            print(f"{error.cmd}: {error.stderr.strip()}", file=sys.stderr)
            return 1
    return 0


def _measured(
    name: str, commands: Mapping[str, str], servers: Mapping[str, int | None], url: str, folder: str, repeat: int
) -> Iterator[str]:
    """Return the figures of a command. On a server, the first run is not counted: Java compiles the code in it."""
    warm = any(server is not None for server in servers.values())
    bare: list[Cost] = []
    found: dict[str, list[Cost]] = {label: [] for label in commands}
    for number in range(repeat + warm):
        if not warm:
            bare.append(cost([sys.executable, "-c", _BARE], PYSPARK_PYTHON=sys.executable))
        for label, command in commands.items():
            here = f"{folder}/{name}-{label}-{number}"
            line = [command, *(each.format(db=url, dir=here) for each in COMMANDS[name])]
            found[label].append(cost(line, servers[command]))
    for label, runs in found.items():
        counted = runs[warm:]
        text = (
            f"{name:10} {label:6} processor {statistics.median(run.processor for run in counted):7.1f} s, "
            f"clock {statistics.median(run.wall for run in counted):7.1f} s"
        )
        if bare:
            pairs = list(zip(counted, bare, strict=True))
            text += (
                f", of bare Spark {statistics.median(mine.processor / theirs.processor for mine, theirs in pairs):.2f}"
                f" and {statistics.median(mine.wall / theirs.wall for mine, theirs in pairs):.2f}"
            )
        yield text


if __name__ == "__main__":
    raise SystemExit(main())
