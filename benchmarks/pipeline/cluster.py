"""Count what each executor of a cluster reads of a Postgres database: rows, bytes and tasks, on 1, 2 and 4 executors.

All executors are on this machine (``local-cluster``), so seconds say little: counts show how the work divides.

How it works. A process for each number of executors reads all retained messages from a snapshot, in the same number of
tasks. A function in each task counts the rows and bytes that arrive, and names its executor by its working folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyspark

from benchmarks.pipeline.databases import database, fill

_TIMEOUT = 3600
_SCHEMA = "executor string, rows bigint, bytes bigint"
#: Tasks wait until all executors are there. Otherwise the first one would take most of them.
_SETTINGS = (
    "--conf spark.scheduler.minRegisteredResourcesRatio=1 "
    "--conf spark.scheduler.maxRegisteredResourcesWaitingTime=120s "
    "--conf spark.executor.memory=1g pyspark-shell"
)


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the rows of a task; yield one row with its executor."""
    rows = held = 0
    for batch in batches:
        rows += batch.num_rows
        held += batch.nbytes
    yield pa.RecordBatch.from_pydict({"executor": [Path.cwd().name], "rows": [rows], "bytes": [held]})


def read(url: str, tasks: int) -> list[tuple[str, int, int]]:
    """Read all messages in Spark; return the executor, the rows and the bytes of each task."""
    from holdfast_pipeline.sources.snapshot import snapshot_of
    from holdfast_pipeline.sources.tables import read_retained
    from holdfast_pipeline.spark import SparkProcess

    with SparkProcess("holdfast cluster", quiet=True) as process:
        spark = process.start()
        with snapshot_of(url) as snapshot:
            frame = read_retained(spark, snapshot, partitions=tasks)
            return [tuple(row) for row in frame.mapInArrow(counted, _SCHEMA).collect()]


def on_cluster(url: str, executors: int, tasks: int, folder: Path) -> list[tuple[str, int, int]]:
    """Run :func:`read` in a process with a cluster of its own. Raises CalledProcessError if it fails."""
    home = folder / f"spark-{executors}"  # the executors' folders are made below it
    home.mkdir()
    for part in ("bin", "jars", "python"):
        if (found := Path(pyspark.__file__).parent / part).exists():
            (home / part).symlink_to(found)
    environment = {
        **os.environ, "MASTER": f"local-cluster[{executors},1,1024]", "SPARK_HOME": str(home),
        "PYSPARK_SUBMIT_ARGS": _SETTINGS, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.pipeline.cluster", "--url", url, "--tasks", str(tasks)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT, env=environment)
    return [tuple(each) for each in json.loads(done.stdout)]


def table(found: dict[int, Sequence[tuple[str, int, int]]]) -> Iterator[str]:
    """Yield a table in Markdown: for each number of executors, what each one has read."""
    yield "| executors | rows of each executor | MB of each | tasks of each | largest share |"
    yield "|---|---|---|---|---|"
    for executors, tasks in found.items():
        rows, held, count = Counter[str](), Counter[str](), Counter[str]()
        for name, number, size in tasks:
            rows[name] += number
            held[name] += size
            count[name] += 1
        names = sorted(count)
        cells = [
            f"{executors}", ", ".join(f"{rows[name]:,}" for name in names),
            ", ".join(f"{held[name] / 1e6:.0f}" for name in names), ", ".join(f"{count[name]}" for name in names),
            f"{100 * max(rows.values()) / rows.total():.0f} %",
        ]  # fmt: skip
        yield "| " + " | ".join(cells) + " |"


def main() -> int:
    """Parse the command line, count, report. The exit status is 1 if rows are missing or counted twice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.cluster", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="retained messages (10,000,000)")
    parser.add_argument("--tasks", type=int, default=16, help="tasks that read, on any number of executors (16)")
    parser.add_argument("--executors", type=int, action="append", help="a number of executors (1, 2 and 4)")
    parser.add_argument("--directory", help="the folder for data (default: the system's temporary folder)")
    parser.add_argument("--url", help=argparse.SUPPRESS)  # in a process with a cluster of its own
    options = parser.parse_args()
    if options.url:
        print(json.dumps(read(options.url, options.tasks)))
        return 0
    found: dict[int, Any] = {}
    with TemporaryDirectory(prefix="bench-cluster-", dir=options.directory) as name:
        folder = Path(name)
        with database(True, folder, "retained") as url:
            fill(url, options.rows)
            print(f"{options.rows:,} retained messages in Postgres, read in {options.tasks} tasks", flush=True)
            for executors in options.executors or (1, 2, 4):
                found[executors] = on_cluster(url, executors, options.tasks, folder)
                print(f"{executors} done", file=sys.stderr)
    print("\n".join(table(found)))
    return int(any(sum(rows for _, rows, _ in tasks) != options.rows for tasks in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
