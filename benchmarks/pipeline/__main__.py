"""Time the pipeline's jobs, and live messages while an import is merged; print them beside plain Python."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.brokers import Site, Unavailable
from benchmarks.connection import BenchError
from benchmarks.pipeline.figures import Figure, lines
from benchmarks.pipeline.jobs import CASES, databases_of
from benchmarks.pipeline.live import live
from benchmarks.wire import Wire
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.spark import SparkProcess

_LIVE = "live"


def rows_of(text: str) -> int:
    """Return a number of rows."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10**8:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows from 1 to 100000000")
    return int(text)


def main() -> int:
    """Parse the command line, measure, report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--rows", type=rows_of, default=1_000_000, help="retained messages (1,000,000)")
    parser.add_argument("--only", action="append", choices=[*CASES, _LIVE], help="only this case; may be repeated")
    parser.add_argument("--repeat", type=rows_of, default=2, help="runs of each job, of which the fastest counts (2)")
    parser.add_argument("--postgres", action="store_true", help="Postgres rather than SQLite")
    parser.add_argument("--markdown", action="store_true", help="print a table in Markdown")
    parser.add_argument("--directory", help="the folder for data (default: the system's temporary folder)")
    options = parser.parse_args()
    only = set(options.only or (*CASES, _LIVE))
    figures: list[Figure] = []
    try:
        with TemporaryDirectory(prefix="bench-pipeline-", dir=options.directory) as directory:
            folder = Path(directory)
            if only & set(CASES):
                with (
                    SparkProcess("holdfast benchmarks", quiet=False) as process,
                    databases_of(process.start(), options.rows, options.repeat, options.postgres, folder, only) as here,
                ):
                    for name, case in CASES.items():
                        if name in only:
                            figures.append(case(here))
                            print(f"{name} done", file=sys.stderr)
            if _LIVE in only:
                site = Site.here(directory, Wire(4), postgres=options.postgres)
                site.pin_generator()
                figures += live(site, options.rows)
    except (BenchError, PipelineError, Unavailable) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{options.rows:,} retained messages on {'Postgres' if options.postgres else 'SQLite'}")
    if options.markdown:
        print()
    for line in lines(figures, options.markdown):
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
