"""Run the scenarios on Holdfast and on the peers that are installed, in turn; print them side by side."""

from __future__ import annotations

import argparse
import gc
import json
import resource
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks import goals, pictures
from benchmarks.brokers import Broker, Site, Unavailable
from benchmarks.generator import compiled
from benchmarks.makes import MAKES, NULL, TRANSPORTS, is_installed, start, version
from benchmarks.report import Figures, lines, markdown
from benchmarks.results import Result
from benchmarks.scenarios import FULL, QUICK, SCENARIOS, Scale, Scenario
from benchmarks.wire import LARGEST, Wire

_DEFAULT = ("holdfast", "mosquitto", "flashmq")
_SECONDS = 240.0  # for one case
_FILES = 65536  # more than any scenario opens
_WITH_NODELAY = "mosquitto-nodelay"


def measure(site: Site, makes: Sequence[str], names: Sequence[str], scale: Scale, repeat: int) -> Figures:
    """Run every scenario on every broker, alternating, each broker keeping its process through one round."""
    figures: Figures = {}
    for round_number in range(repeat):
        running: dict[str, Broker] = {}
        try:
            for name in names:
                scenario = SCENARIOS[name]
                if scenario.once and round_number:
                    continue
                for broker_name in configurations(scenario, makes):
                    begin = time.perf_counter()
                    broker = running.get(broker_name)
                    if broker is None:
                        broker = running[broker_name] = start(broker_name, site)
                    result = Result(broker, _SECONDS)
                    try:
                        scenario.run(broker, result, scale)
                    except Exception as error:  # the other scenarios can still be measured
                        result.failures.append(repr(error))
                        print(f"{name} on {broker_name}: {error!r}", file=sys.stderr)
                    for row in result.rows:
                        by_broker = figures.setdefault((name, row.case, row.metric), {})
                        by_broker.setdefault(row.of or broker_name, []).append(row)
                    if result.failed:
                        running.pop(broker_name).stop()
                    seconds = time.perf_counter() - begin
                    print(f"round {round_number + 1}: {name} on {broker_name} in {seconds:.0f} s", file=sys.stderr)
        finally:
            for broker in running.values():
                broker.stop()
    return figures


def configurations(scenario: Scenario, makes: Sequence[str]) -> list[str]:
    """Return the brokers that run a scenario: each configuration of each make, as far as it matters."""
    if scenario.alone and "holdfast" in makes:
        return ["holdfast"]
    names = [name for make in makes for name in MAKES[make] if scenario.null or make != NULL]
    if scenario.nodelay:
        names = [name for name in names if name == _WITH_NODELAY or not name.startswith("mosquitto")]
    return names


def sizes(text: str) -> tuple[int, ...]:
    """Return one or more numbers of retained messages, in ascending order."""
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1 or numbers[-1] > LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers from 1 to {LARGEST}, such as 10000,1000000")
    return numbers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=sorted(SCENARIOS), help="only this one; may be repeated")
    parser.add_argument("--only", action="append", choices=sorted(MAKES), help="only this broker; may be repeated")
    parser.add_argument("--quick", action="store_true", help="100,000 retained messages, one round of short runs")
    parser.add_argument("--retained", type=sizes, help="numbers of retained messages, such as 1000000,10000000")
    parser.add_argument("--repeat", type=int, help="rounds; the medians are reported (default 3, with --quick 1)")
    parser.add_argument("--protocol", type=int, choices=[4, 5], default=4, help="4 is MQTT 3.1.1")
    parser.add_argument(
        "--transport",
        action="append",
        choices=TRANSPORTS,
        help="fleet: only devices that connect in this way, or have rules; may be repeated; other scenarios ignore it",
    )
    parser.add_argument("--markdown", action="store_true", help="print the tables in Markdown")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--pictures", type=Path, help="draw the figures of live and growth to SVG files in this folder")
    parser.add_argument("--directory", help="where brokers keep their data (default: the system's temporary folder)")
    parser.add_argument("--holdfast-args", default="", help="more options for twistd holdfast")
    parser.add_argument("--postgres", action="store_true", help="let Holdfast keep its data in a Postgres database")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    return parser


def main() -> int:
    """Parse the command line, measure, report."""
    options = _parser().parse_args()
    if options.list:
        print("\n".join(SCENARIOS))
        return 0
    site = Site.here(options.directory, Wire(options.protocol), options.holdfast_args, options.postgres)
    makes = options.only or list(_DEFAULT)
    for make in [make for make in makes if not is_installed(make)]:
        print(f"{make} is not installed: without it", file=sys.stderr)
        makes.remove(make)
    _allow_many_files()
    site.pin_generator()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit("terminated"))  # so that the brokers are ended too
    gc.disable()
    names = options.scenario or [name for name, one in SCENARIOS.items() if one.quick or not options.quick]
    names = [name for name in SCENARIOS if name in names]
    scale = QUICK if options.quick else FULL
    if options.retained:
        scale = replace(scale, retained=options.retained)
    if options.transport:
        scale = replace(scale, transports=tuple(options.transport))
    begin = time.perf_counter()
    try:
        compiled()
        figures = measure(site, makes, names, scale, options.repeat or (1 if options.quick else 3))
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    versions = [f"{make}: {version(make)}" for make in makes]
    store, protocol = "Postgres" if options.postgres else "SQLite", "5.0" if options.protocol == 5 else "3.1.1"
    took = f"{(time.perf_counter() - begin) / 60:.0f} minutes"
    print("; ".join([*versions, f"Holdfast on {store}", f"MQTT {protocol}", took]))
    for line in (markdown if options.markdown else lines)(figures, makes):
        print(line)
    if "holdfast" in makes:
        print()
        table = list(goals.summary(figures, goals.goals(scale, options.postgres), "flashmq" in makes))
        for line in (goals.markdown if options.markdown else goals.terminal)(table):
            print(line)
    if options.json:
        _write(options.json, figures)
    if options.pictures:
        caption = [f"{time.strftime('%Y-%m-%d')}, two cores: a broker has one, the load the other.", *versions]
        for path in pictures.draw(figures, scale.retained[-1], options.pictures, caption):
            print(path, file=sys.stderr)
    return 0


def _allow_many_files() -> None:
    """Raise the limit of open files for the brokers, as a service manager does.

    The limit itself costs memory: mosquitto's WebSocket makes room for each file that may be open.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _write(path: Path, figures: Figures) -> None:
    rows = [
        {
            "scenario": scenario,
            "case": case,
            "metric": metric.name,
            "unit": metric.unit,
            "broker": broker,
            "values": [row.value for row in rows],
            "lost": [row.lost for row in rows],
            "broker_us": [row.processor.broker if row.processor else None for row in rows],
            "generator_us": [row.processor.generator if row.processor else None for row in rows],
            "generator_limited": [bool(row.processor and row.processor.limited) for row in rows],
        }
        for (scenario, case, metric), by_broker in figures.items()
        for broker, rows in by_broker.items()
    ]
    path.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    raise SystemExit(main())
