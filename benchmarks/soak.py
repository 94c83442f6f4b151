"""An hour of a fleet (:mod:`benchmarks.scenarios.fleet`) beside Holdfast alone: does anything grow?

Every second it notes the broker's memory (RssAnon), open files, collections of garbage, processor time and the size of
its database, and draws them. The exit status is 1 if memory or open files go on growing, or if a message is lost.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from benchmarks import generator
from benchmarks.brokers import Broker, Site
from benchmarks.charts import Chart, Line, picture
from benchmarks.makes import start
from benchmarks.wire import Wire
from holdfast.broker.figures import HEARTBEAT_INTERVAL

GENERATIONS = (0, 1, 2)
#: Samples of a picture: a longer run has fewer each minute.
_SAMPLES = 600
#: Seconds for connecting all devices, and for the end.
_AROUND = 120.0
#: The share by which memory and open files may grow from the second fifth of the time to the last.
_ALLOWED = 0.1


@dataclass(frozen=True)
class Sample:
    """Figures of the broker, so many seconds after the first sample. ``collections`` are those of each generation."""

    seconds: float
    memory_mib: float
    files: int
    processor: float
    messages: float
    collections: Sequence[float]
    late: float
    database_mib: float


def take(broker: Broker, begun: float) -> Sample:
    """Return the broker's figures now. Raises OSError if it does not answer."""
    families = {family.name: family for family in text_string_to_metric_families(_metrics(broker))}
    collections = {sample.labels["generation"]: sample.value for sample in families["python_gc_collections"].samples}
    lag = families["holdfast_reactor_lag_seconds"].samples
    within = next(sample.value for sample in lag if sample.labels.get("le") == "0.01")
    return Sample(
        time.monotonic() - begun,
        broker.rss_anon(),
        len(os.listdir(f"/proc/{broker.process_id}/fd")),
        broker.cpu_seconds(),
        families["holdfast_messages_received"].samples[0].value,
        [collections[str(number)] for number in GENERATIONS],
        next(sample.value for sample in lag if sample.name.endswith("_count")) - within,
        sum(path.stat().st_size for path in (broker.directory / "data").glob("*.db*")) / 2**20,
    )


def _metrics(broker: Broker) -> str:
    """Ask the broker's control socket."""
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    with closing(connection):
        connection.sock.settimeout(30)
        connection.sock.connect(str(broker.directory / "data" / "control.sock"))
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


def soak(broker: Broker, count: int, seconds: float, period: float) -> tuple[generator.Report, list[Sample]]:
    """Run the fleet; return the generator's report, and the samples from the moment when all devices are connected.

    Raises BenchError if a part of the run fails.
    """
    line = generator.command(
        broker, "fleet", count=count, seconds=seconds, period=period, timeout=seconds + _AROUND, patience=30
    )
    samples: list[Sample] = []
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        begun = time.monotonic()
        while process.poll() is None and time.monotonic() < begun + seconds + 2 * _AROUND:
            if (sample := take(broker, begun)).messages or samples:
                samples.append(sample)
            time.sleep(max(1.0, seconds / _SAMPLES))
        return generator.parsed(process.communicate(timeout=_AROUND)[0]), samples
    finally:
        process.kill()
        process.wait()


def problems(samples: Sequence[Sample], report: generator.Report) -> list[str]:
    """Return what is wrong, in a sentence each."""
    found = []
    for name, of in (("memory", _memory), ("the number of open files", _files)):
        if is_growing([of(sample) for sample in samples], _ALLOWED):
            found.append(f"{name} goes on growing")
    if report.lost:
        found.append(f"{report.lost} messages are lost")
    if report.mistakes:
        found.append(report.mistakes)
    return found


def is_growing(values: Sequence[float], allowed: float) -> bool:
    """Tell whether values go on growing: each fifth of the last four has more, and the last ``allowed`` (0.1) more.

    The first fifth does not count: memory is taken for what is new then.
    """
    size = len(values) // 5
    if not size:
        return False
    fifths = [sum(values[place * size : (place + 1) * size]) / size for place in range(1, 5)]
    return all(after > before for before, after in pairwise(fifths)) and fifths[-1] > fifths[0] * (1 + allowed)


def _memory(sample: Sample) -> float:
    return sample.memory_mib


def _files(sample: Sample) -> float:
    return sample.files


def _rates(samples: Sequence[Sample], rate: Callable[[Sample, Sample], float]) -> list[tuple[float, float]]:
    """Return a rate between neighbours, at most 60 of them: those of single seconds would be noise."""
    step = max(1, len(samples) // 60)
    kept = samples[::step]
    return [(after.seconds / 60, rate(before, after)) for before, after in pairwise(kept)]


def drawn(samples: Sequence[Sample], caption: Sequence[str]) -> str:
    """Return the picture."""

    def over_time(of: Callable[[Sample], float]) -> list[tuple[float, float]]:
        return [(sample.seconds / 60, of(sample)) for sample in samples]

    def cost(before: Sample, after: Sample) -> float:
        return 1e6 * (after.processor - before.processor) / max(1, after.messages - before.messages)

    def number(generation: int) -> Callable[[Sample], float]:
        return lambda sample: sample.collections[generation] - samples[0].collections[generation]

    names = ("the youngest", "the second", "all")
    charts = [
        Chart("RssAnon, MiB", [Line("memory", over_time(_memory))]),
        Chart("open files", [Line("files", over_time(_files))]),
        Chart("the broker's processor time, µs a message", [Line("processor time", _rates(samples, cost))]),
        Chart(
            "collections of garbage since the start",
            [Line(names[one], over_time(number(one)), colour=one) for one in GENERATIONS],
        ),
        Chart(
            f"heartbeats of the reactor (one in {HEARTBEAT_INTERVAL} s) that were more than 10 ms late",
            [Line("late", over_time(lambda sample: sample.late - samples[0].late))],
        ),
        Chart("the database with its log, MiB", [Line("files", over_time(lambda sample: sample.database_mib))], "min"),
    ]
    return picture("A fleet over time", charts, caption)


def main() -> int:
    """Parse the command line, run, draw, report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="the measured time (3600)")
    parser.add_argument("--count", type=int, default=10_000, help="devices (10,000)")
    parser.add_argument("--period", type=float, default=60, help="seconds between two messages of a device, at most")
    parser.add_argument("--picture", type=Path, help="draw the figures to this SVG file")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    parser.add_argument("--directory", help="where the broker keeps its data")
    options = parser.parse_args()
    site = Site.here(options.directory, Wire(4))
    site.pin_generator()
    broker = start("holdfast", site)
    try:
        report, samples = soak(broker, options.count, options.seconds, options.period)
    finally:
        broker.stop()
    first, last = samples[len(samples) // 5], samples[-1]
    told = (
        f"{options.count:,} devices, {report['rate']:,.0f} messages/s to six subscribers, {time.strftime('%Y-%m-%d')}: "
        f"p50 {report['p50_ms']:.2f} ms, p99 {report['p99_ms']:.2f} ms, p99.9 {report['p999_ms']:.2f} ms"
    )
    print(told)
    print(f"memory {first.memory_mib:.1f} to {last.memory_mib:.1f} MiB, open files {first.files} to {last.files}")
    if options.picture is not None:
        line = f"python -m benchmarks.soak --seconds {options.seconds:g} --count {options.count}"
        options.picture.write_text(drawn(samples, [told, line]))
    if options.json is not None:
        options.json.write_text(json.dumps([vars(sample) for sample in samples]))
    found = problems(samples, report)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
