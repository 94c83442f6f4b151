"""Cause every fault many times, and print a table. The exit status is 1 if the broker broke a promise."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

from tests.faults.outages import all_outages
from tests.faults.results import Result, table
from tests.faults.ruin import DAMAGES, logs, quarantines
from tests.faults.statements import Bench, Cutting, LostAnswer, errors_of, failures, kills
from tests.faults.storm import storm
from tests.faults.window import window
from tests.postgres import drop, empty_database

STORES = ("sqlite", "postgresql")


def _on_each(try_on: Callable[[Path, str, tuple[str, ...]], Result], directory: Path) -> Iterator[Result]:
    """Cause a fault of a whole broker with both databases."""
    for store in STORES:
        folder = directory / store
        folder.mkdir()
        if store == "sqlite":
            yield try_on(folder, store, ())
            continue
        url = empty_database()
        try:
            yield try_on(folder, store, ("--storage", url))
        finally:
            drop(url)


def _statements(directory: Path, step: int) -> Iterator[Result]:
    def positions(calls: int) -> range:
        return range(0, calls, step)

    for store in STORES:
        (directory / store).mkdir()
        bench = Bench(store, directory / store)
        yield kills(bench, positions)
        yield failures("statement fails", bench, errors_of(store), positions, whole=False)
    yield failures("connection cut", bench, Cutting, positions, whole=True)
    yield failures("answer to COMMIT lost", bench, LostAnswer, positions, whole=True)


def _groups(options: argparse.Namespace) -> dict[str, Callable[[Path], Iterator[Result]]]:
    times, step = (1, 15) if options.quick else (5, 1)
    count = options.kills or (5 if options.quick else 100)

    def killed(folder: Path, store: str, more: tuple[str, ...]) -> Result:
        return storm(folder, store, more, count)

    def killed_ahead(folder: Path, store: str, more: tuple[str, ...]) -> Result:
        return window(folder, store, more, max(2, count // 5))

    return {
        "kills": lambda at: _on_each(killed, at),
        "statements": lambda at: _statements(at, step),
        "logs": lambda at: iter([logs(at, 100 if options.quick else 1000)]),
        "damage": lambda at: iter([quarantines(at, DAMAGES * times)]),
        "outages": all_outages,
        "async": lambda at: _on_each(killed_ahead, at),
    }


def main() -> int:
    """Run the groups of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few tries of each fault; takes some minutes")
    parser.add_argument("--kills", type=int, help="number of kills of a broker under load (default 100)")
    parser.add_argument("--only", action="append", default=[], help="only this group; the option may be repeated")
    options = parser.parse_args()
    groups = _groups(options)
    unknown = set(options.only) - set(groups)
    if unknown:
        parser.error(f"there is no group {', '.join(sorted(unknown))}; there are: {', '.join(groups)}")
    results: list[Result] = []
    for name in options.only or groups:
        directory = Path(mkdtemp(prefix="holdfast-faults-"))
        started = time.monotonic()
        for result in groups[name](directory):
            results.append(result)
            print("  ".join(result.cells()), f"({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)
            started = time.monotonic()
        shutil.rmtree(directory)
    print(table(results))
    return int(any(result.broken for result in results))


if __name__ == "__main__":
    sys.exit(main())
