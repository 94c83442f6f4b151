"""Run the scenarios on Holdfast and, if it is installed, on mosquitto, in turn; print both side by side."""

from __future__ import annotations

import argparse
import gc
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.brokers import Broker, Site, Unavailable
from benchmarks.makes import start, version
from benchmarks.report import Figures, lines, markdown
from benchmarks.results import Result
from benchmarks.scenarios import FULL, QUICK, SCENARIOS, Scale
from benchmarks.wire import ID_SIZE, Wire

BROKERS = ("holdfast", "mosquitto")
SECONDS = 240.0  # for one case
LARGEST = 10**ID_SIZE


def measure(site: Site, brokers: list[str], names: list[str], scale: Scale, repeat: int) -> Figures:
    """Run every scenario on every broker, alternating, each broker keeping its process through one round."""
    figures: Figures = {}
    for round_number in range(repeat):
        running: dict[str, Broker] = {}
        try:
            for name in names:
                for broker_name in brokers:
                    broker = running.get(broker_name)
                    if broker is None:
                        broker = running[broker_name] = start(broker_name, site)
                    result = Result(broker, SECONDS)
                    try:
                        SCENARIOS[name](broker, result, scale)
                    except Exception as error:  # the other scenarios can still be measured
                        result.failed = True
                        print(f"{name} on {broker_name}: {error!r}", file=sys.stderr)
                    for row in result.rows:
                        figures.setdefault((name, row.case, row.metric), {}).setdefault(broker_name, []).append(row)
                    if result.failed:
                        running.pop(broker_name).stop()
                    print(f"round {round_number + 1}: {name} on {broker_name} done", file=sys.stderr)
        finally:
            for broker in running.values():
                broker.stop()
    return figures


def sizes(text: str) -> tuple[int, ...]:
    """Return one or more numbers of retained messages, in ascending order."""
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1 or numbers[-1] > LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers from 1 to {LARGEST}, such as 10000,1000000")
    return numbers


def main() -> int:
    """Parse the command line, measure, report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=sorted(SCENARIOS), help="only this one; may be repeated")
    parser.add_argument("--only", choices=BROKERS, help="measure one broker alone")
    parser.add_argument("--quick", action="store_true", help="100,000 retained messages, short runs")
    parser.add_argument("--retained", type=sizes, help="numbers of retained messages, such as 10000,1000000,10000000")
    parser.add_argument("--repeat", type=int, default=3, help="rounds; the medians are reported (default 3)")
    parser.add_argument("--protocol", type=int, choices=[4, 5], default=4, help="4 is MQTT 3.1.1")
    parser.add_argument("--markdown", action="store_true", help="print one table in Markdown")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--directory", help="where brokers keep their data (default: the system's temporary folder)")
    parser.add_argument("--holdfast-args", default="", help="more options for twistd holdfast")
    parser.add_argument("--postgres", action="store_true", help="let Holdfast keep its data in a Postgres database")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    options = parser.parse_args()
    if options.list:
        print("\n".join(SCENARIOS))
        return 0
    site = Site.here(options.directory, Wire(options.protocol), options.holdfast_args, options.postgres)
    brokers = [options.only] if options.only else list(BROKERS)
    if "mosquitto" in brokers and version("mosquitto") == "not installed":
        print("mosquitto is not installed: Holdfast alone")
        brokers.remove("mosquitto")
    site.pin_generator()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit("terminated"))  # so that the brokers are ended too
    gc.disable()
    names = [name for name in SCENARIOS if not options.scenario or name in options.scenario]
    try:
        scale = QUICK if options.quick else FULL
        if options.retained:
            scale = replace(scale, retained=options.retained)
        figures = measure(site, brokers, names, scale, options.repeat)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    versions = [f"{name}: {version(name)}" for name in brokers]
    store, protocol = "Postgres" if options.postgres else "SQLite", "5.0" if options.protocol == 5 else "3.1.1"
    print("; ".join([*versions, f"Holdfast on {store}", f"MQTT {protocol}"]))
    if options.markdown:
        print()
    for line in (markdown if options.markdown else lines)(figures, brokers):
        print(line)
    if options.json:
        rows = [
            {"scenario": s, "case": c, "metric": m.name, "unit": m.unit, "broker": b, "values": [r.value for r in rs]}
            for (s, c, m), by_broker in figures.items()
            for b, rs in by_broker.items()
        ]
        options.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
