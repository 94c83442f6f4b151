"""Time whole commands of ``holdfast-pipeline`` on a small database, as multiples of bare Spark.

Bare Spark is a process that starts a session, counts one row and ends. It runs before each command, so that both meet
the same machine; a figure is the median of the ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

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


def seconds(arguments: Sequence[str], **settings: str) -> float:
    """Return how long a process runs. Raises :class:`subprocess.CalledProcessError` if it fails."""
    environment = {**os.environ, **settings}
    begin = time.perf_counter()
    subprocess.run(arguments, check=True, capture_output=True, timeout=_TIMEOUT, env=environment, text=True)
    return time.perf_counter() - begin


def main() -> int:
    """Parse the command line, measure, report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.commands", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000, help="retained messages (10,000)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each command (3)")
    parser.add_argument("--postgres", action="store_true", help="Postgres rather than SQLite")
    parser.add_argument("--only", action="append", choices=list(COMMANDS), help="only this command; may be repeated")
    parser.add_argument("--warm", action="store_true", help="with a server, without bare Spark")
    options = parser.parse_args()
    command = str(Path(sys.executable).with_name("holdfast-pipeline"))
    with TemporaryDirectory(prefix="bench-commands-") as folder, database(options.postgres, Path(folder), "db") as url:
        fill(url, options.rows, changes=2, recorded=True)
        print(f"{options.rows:,} retained messages; seconds are medians")
        try:
            if options.warm:
                seconds([command, "server", "start"])
            for name in options.only or COMMANDS:
                line = [command, *(each.format(db=url, dir=f"{folder}/{{dir}}") for each in COMMANDS[name])]
                print(_measured(name, line, options.repeat, options.warm), flush=True)
        except subprocess.CalledProcessError as error:
            print(f"{error.cmd}: {error.stderr.strip()}", file=sys.stderr)
            return 1
        finally:
            if options.warm:
                seconds([command, "server", "stop"])
    return 0


def _measured(name: str, line: Sequence[str], repeat: int, warm: bool) -> str:
    """Return the figures of a command. On a server, the first run is not counted: Java compiles the code in it."""
    bare, found = [], []
    for number in range(repeat + warm):
        if not warm:
            bare.append(seconds([sys.executable, "-c", _BARE], PYSPARK_PYTHON=sys.executable))
        found.append(seconds([each.format(dir=f"{name}-{number}") for each in line]))
    if warm:
        return f"{name:10} {statistics.median(found[1:]):6.1f} s"
    ratio = statistics.median(mine / theirs for mine, theirs in zip(found, bare, strict=True))
    return (
        f"{name:10} {statistics.median(found):6.1f} s, bare Spark {statistics.median(bare):6.1f} s, ratio {ratio:.2f}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
