"""Findings without rules in trees of other conventions than those of the examples: planted faults, and none.

A brewery with German names has its values in JSON, and publishes in fixed intervals. A home with Italian names has a
topic for each quantity, and publishes what has changed, or everything, as its devices like. Both are full of values
that are meant to stay: setpoints, counters that stand still, idle machines, full batteries, closed windows, night.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from attrs import evolve, field, frozen
from pyspark.sql import SparkSession

from holdfast.core.messages import RetainedChange
from holdfast_pipeline import snapshot_of
from holdfast_pipeline.jobs.check import check
from tests.pipeline.stores import NOW, database, message

pytestmark = pytest.mark.spark

_MINUTE = 60_000
_DAY = 24 * 60
_TANKS, _ROOMS = 24, 16


@frozen
class Tree:
    """Messages of a day, each with its minute, and the devices with planted faults, by the kind of their finding."""

    messages: list[tuple[float, str, bytes, str]] = field(factory=list)
    planted: dict[str, set[str]] = field(factory=dict)

    def put(self, minute: float, topic: str, payload: object, client: str) -> None:
        """Add a message: bytes, text, or a value that becomes JSON."""
        if not isinstance(payload, bytes):
            payload = (payload if isinstance(payload, str) else json.dumps(payload)).encode()
        self.messages.append((minute, topic, payload, client))


def brewery(random: Random, tree: Tree, *, faults: bool) -> None:
    """Add the fermentation tanks of two halls."""
    tanks = [f"brauerei/halle{1 + number % 2}/gaertank-{number:02d}" for number in range(_TANKS)]
    chosen = iter(random.sample(tanks, 10))

    def plant(kind: str) -> str:
        tank = next(chosen) if faults else ""
        if faults:
            tree.planted.setdefault(kind, set()).add(tank)
        return tank

    stuck, contact, lost, stale, clock = map(
        plant, ("stuck value", "flapping", "flapping", "stale device", "wrong clock")
    )
    lacking, misspelled, commanded, broken, far = map(
        plant, ("missing topics", "misspelled topic", "retained command", "malformed payloads", "unusual values")
    )
    idle, busy, resting = random.sample([tank for tank in tanks if tank not in (stuck, contact)], 3)
    for place, tank in enumerate(tanks):
        client = f"sps-{place}"
        base, level, total, setpoint = (
            random.uniform(8, 20),
            random.choice((0, 40.5, 80.25, 100)),
            random.uniform(0, 50_000),
            12.0,
        )
        held = 0.0
        for minute in range(random.randrange(20), _DAY, 20):
            if tank == stale and minute > 500:
                break
            warmth = round(base + 2 * math.sin(minute / 200 + place) + random.gauss(0, 0.2), 2)
            held = warmth if tank != stuck or minute < 600 else held
            at = NOW - (_DAY - minute) * _MINUTE - (2 * 3_600_000 if tank == clock else 0)
            level = level if random.random() < 0.95 else round(random.uniform(0, 100), 2)
            values = {
                "temp_c": round(900 + warmth, 2) if tank == far else held,
                "druck_bar": round(1.4 + random.gauss(0, 0.05), 3),
                "fuellstand": level,
                "timestamp": f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}",
            }
            tree.put(minute, f"{tank}/messwert", b"{temp" if tank == broken and minute > 1400 else values, client)
            if minute % 60 < 20:
                total += 0 if tank == idle and minute > 200 else random.uniform(1, 9)
                name = "zaehlr" if tank == misspelled else "zaehler"
                tree.put(minute, f"{tank}/{name}", round(total, 1), client)
                watts = (
                    4.5 if tank == resting and minute > 300 else random.choice((0, 0, 0, 700 + random.randrange(90)))
                )
                tree.put(minute, f"{tank}/leistung", watts, client)
                setpoint = round(random.uniform(8, 20), 1) if random.random() < 0.02 * (place % 5) else setpoint
                tree.put(minute, f"{tank}/sollwert", setpoint, client)
        if tank != lacking:
            tree.put(1, f"{tank}/firmware", "4.12.1", client)
        for turn in _turns(random, 120 if tank == busy else 8, 20):
            tree.put(turn, f"{tank}/ventil", "auf", client)
            tree.put(turn + 0.5, f"{tank}/ventil", "zu", client)
        if tank == contact:
            for flip in range(160):
                tree.put(900 + flip / 10, f"{tank}/ventil", "zu" if flip % 2 else "auf", client)
        tree.put(0, f"{tank}/connection", "online", client)
        if tank == stale:
            tree.put(500, f"{tank}/connection", "offline", client)
        for turn in _turns(random, 14 if tank == lost else random.randrange(2), 30):
            tree.put(turn, f"{tank}/connection", "offline", client)
            tree.put(turn + 4, f"{tank}/connection", "online", client)
    if commanded:
        tree.put(700, f"{commanded}/ventil/set", "auf", "leitstand")


def home(random: Random, tree: Tree, *, faults: bool) -> None:
    """Add the sensors of a house: each quantity has a topic, a day has a night, and half of the devices repeat all."""
    rooms = [f"casa-{name}" for name in "abcdefghijklmnop"[:_ROOMS]]
    stuck, flapping, stale = random.sample(rooms, 3) if faults else ("", "", "")
    if faults:
        tree.planted.setdefault("stuck value", set()).add(stuck)
        tree.planted.setdefault("flapping", set()).add(flapping)
        tree.planted.setdefault("stale device", set()).add(stale)
    alike = random.choice([room for room in rooms if room != stuck])
    for place, room in enumerate(rooms):
        base, humid, held = random.uniform(18, 23), random.uniform(40, 60), 0.0
        for minute in range(random.randrange(30), _DAY, 30):
            if room == stale and minute > 300:
                break
            warmth = round(base + math.sin(minute / 300) + random.gauss(0, 0.15), 1 if room == alike else 2)
            held = warmth if room != stuck or minute < 500 else held
            lux = round(max(0.0, 500 * math.sin((minute - 360) / 230) * random.uniform(0.8, 1)), 1)
            signal = min(-40, round(-60 - place + random.gauss(0, 3))) if place else -40
            for name, value in (
                ("temperatura", held), ("umidita", round(humid + random.gauss(0, 0.5), 1)),
                ("luce", lux if 360 < minute < 1080 else 0.0), ("segnale", signal),
            ):  # fmt: skip
                tree.put(minute, f"{room}/sensor/{name}/state", value, room)
            if minute % 240 < 30:
                tree.put(minute, f"{room}/sensor/batteria/state", 100 if place % 3 else 100 - minute // 240, room)
                tree.put(minute, f"{room}/sensor/versione/state", "2026.11.2", room)
        tree.put(0, f"{room}/status", "online", room)
        if room == stale:
            tree.put(_DAY - 30, f"{room}/status", "offline", room)
        for turn in _turns(random, 18 if flapping == room else 1, 10):
            tree.put(turn, f"{room}/status", "offline", room)
            tree.put(turn + 2, f"{room}/status", "online", room)
        for turn in _turns(random, random.choice((2, 5, 25)), 25):
            tree.put(turn, f"{room}/binary_sensor/movimento/state", "ON", room)
            tree.put(turn + random.uniform(0.5, 9), f"{room}/binary_sensor/movimento/state", "OFF", room)


def _turns(random: Random, count: int, apart: float) -> Iterator[float]:
    """Give minutes of the day, some ``apart`` from each other."""
    places = random.sample(range(1, int((_DAY - 20) / apart)), min(count, int((_DAY - 20) / apart) - 1))
    yield from (place * apart for place in sorted(places))


def judged(
    spark: SparkSession, folder: Path, seed: int, *, faults: bool
) -> tuple[dict[str, set[str]], set[tuple[str, str]]]:
    """Return the planted faults that were not found, and the findings that were not planted."""
    random, tree = Random(seed), Tree()
    brewery(random, tree, faults=faults)
    home(random, tree, faults=faults)
    since = NOW - _DAY * _MINUTE
    with database("sqlite", folder, recorded=True) as filled:
        with evolve(filled, since=since).store() as store:
            for minute, topic, payload, client in sorted(tree.messages, key=lambda each: each[0]):
                revision, at = store.next_revision(), since + int(minute * _MINUTE)
                stored = evolve(message(topic, payload, client_id=client), revision=revision, stored_at=at)
                assert store.put(RetainedChange(topic, revision, at, stored, client)).failure is None
        with snapshot_of(filled.url) as snapshot:
            found = check(spark, evolve(snapshot, taken_at=NOW), (), discovers=True).findings
    missed = {kind: set(devices) for kind, devices in tree.planted.items()}
    false = set()
    for each in found:
        told = {each.finding.subject, *each.finding.topics}
        hit = {
            device
            for device in tree.planted.get(each.finding.kind, ())
            if any(one == device or one.startswith(f"{device}/") for one in told)
        }
        missed.get(each.finding.kind, set()).difference_update(hit)
        if not hit:
            false.add((each.finding.kind, each.finding.subject))
    return missed, false


@pytest.mark.parametrize("faults", [False, True])
def test_planted_faults_are_found_and_no_others(spark: SparkSession, tmp_path: Path, faults: bool) -> None:
    """Of each kind all, and in trees without faults none."""
    missed, false = judged(spark, tmp_path, 7, faults=faults)
    assert not false
    assert not any(missed.values()), missed
