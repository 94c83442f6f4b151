"""Attacks beside a client that pings every 20 ms: its worst wait, and the broker's memory. Holdfast only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.attacks import ATTACKS, Attack
from benchmarks.attacks.field import Field
from benchmarks.brokers import Broker
from benchmarks.bystander import bystander
from benchmarks.makes import start
from benchmarks.results import Case, Metric, Result

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

WAIT = Metric("wait", "ms", False)
BUSY = Metric("busy", "ms", False)
BEFORE = Metric("before", "MiB", False)
PEAK = Metric("peak", "MiB", False)
GONE = Metric("gone", "MiB", False)
SETTLED = Metric("settled", "MiB", False)
_METRICS = (WAIT, BUSY, BEFORE, PEAK, GONE, SETTLED)
_SETTLE = 3.0  # seconds after the broker has nothing left to do
_TOLERATED = 1.1  # of the memory before the attack, after it
_LONGEST = 50.0  # milliseconds that the bystander may wait


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Give each attack a broker of its own, so that the memory of other attacks does not count."""
    if broker.name != "holdfast":
        return
    for name, attack in ATTACKS.items():
        own = start(broker.name, broker.site)
        try:
            with result.case(name, _METRICS, own) as case:
                _measure(own, case, attack, scale)
        finally:
            own.stop()


def _measure(broker: Broker, case: Case, attack: Attack, scale: Scale) -> None:
    field = Field(broker, scale.attack)
    try:
        steps = attack(field)
        next(steps)
        field.warm_up()
        broker.quiet()
        before = broker.rss_anon()
        with bystander(broker) as report:
            time.sleep(0.2)
            answer = next(steps)
            field.leave()
            broker.settle()
            gone = broker.rss_anon()
            broker.quiet()
        time.sleep(min(_SETTLE, scale.seconds))
        settled = broker.rss_anon()
    finally:
        field.leave()
    case[WAIT], case[BUSY] = report.wait, report.busy
    case[BEFORE], case[PEAK], case[GONE], case[SETTLED] = before, max(before, report.peak), gone, settled
    missed = ["wait"] * (report.wait > _LONGEST) + ["memory"] * (settled > _TOLERATED * before)
    notes = [answer] * bool(answer) + [f"MISSED: {' and '.join(missed)}"] * bool(missed)
    case.rows[WAIT].note = "; ".join(notes)  # once, not beside each figure
