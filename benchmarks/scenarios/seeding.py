"""Retained messages for the scenarios that read them: published or, faster, written to the database."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import generator
from benchmarks.brokers import REPOSITORY, Broker
from benchmarks.connection import BenchError
from benchmarks.generator import Report
from benchmarks.makes import NULL

_WORTH_FILLING = 50_000  # with fewer messages, publishing takes no longer than a restart of the broker
_WINDOW = 10_000
_filled: dict[tuple[str, ...], Path] = {}  # directories with a filled database, until the end of this process


def retain(broker: Broker, first: int, count: int, window: int) -> Report:
    """Publish the topics from the number ``first`` with QoS 1."""
    return generator.run(broker, "seed", first=first, count=count, messages=count, window=window)


def ensure(broker: Broker, count: int) -> None:
    """Make exactly the topics with the numbers 0 to ``count - 1`` retained."""
    if broker.retained > count:
        raise BenchError(f"{broker.retained} messages are retained already, {count} are wanted")
    missing = count - broker.retained
    if not missing:
        return
    if broker.name == NULL:
        broker.add_options("--retained", str(count))
        broker.restart()
        broker.retained = count
    elif broker.name == "holdfast" and missing >= _WORTH_FILLING:
        broker.end()
        if broker.postgres is None and not broker.retained:
            shutil.rmtree(broker.directory / "data")
            shutil.copytree(filled(broker, count), broker.directory / "data")
            broker.retained = count
        else:
            fill(broker, count)
        broker.launch()
        broker.ready()
    else:
        report = retain(broker, broker.retained, missing, _WINDOW)
        if report.lost:
            raise BenchError(f"{report.lost} retained messages were not acknowledged")
        broker.retained = count


def fill(broker: Broker, count: int) -> None:
    """Write the missing rows into the database of Holdfast, which is stopped; do not wait for its start."""
    _write(broker.retained, count, broker.options)
    broker.retained = count


def filled(broker: Broker, count: int) -> Path:
    """Return a data directory with so many messages, as a broker with these options on SQLite would leave it.

    It is filled once, and copied for each broker. Nothing may change it.
    """
    key = (str(count), *broker.site.holdfast_args)
    if key not in _filled:
        directory = Path(tempfile.mkdtemp(prefix="bench-filled-", dir=broker.site.directory))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        data = directory / "data"
        _write(0, count, [*broker.options, "--data-dir", str(data)])
        _filled[key] = data
    return _filled[key]


def _write(first: int, end: int, options: Sequence[str]) -> None:
    command = [sys.executable, "-m", "benchmarks.filling", str(first), str(end), *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"the database could not be filled: {(done.stderr or done.stdout).strip()[-300:]}")
