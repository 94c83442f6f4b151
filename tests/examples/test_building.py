"""The day of a building before it is sent: complete, of the given size, and the same each time."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.building.clock import DayClock
from examples.building.day import Building
from examples.building.events import HOUR, HOURS, Back, Day, Event, Kind, Lost, Message
from examples.building.sparkplug import Metric, payload

#: A day that does not begin at midnight.
MORNING = Day(datetime(2026, 3, 2, 8, 40, tzinfo=UTC), 1)


def day(scale: float, seed: int = 1) -> list[Event]:
    return played(Building.of(scale, Day(seed=seed)))


def played(building: Building) -> list[Event]:
    return [*building.first_values(), *(event for hour in range(HOURS) for event in building.hour(hour))]


@pytest.fixture(scope="module")
def small() -> list[Event]:
    return day(0.05)


def test_a_seed_gives_the_same_day(small: list[Event]) -> None:
    assert day(0.05) == small
    assert day(0.05, seed=2) != small


def test_the_scale_determines_the_number_of_topics(small: list[Event]) -> None:
    """The number is in proportion to the scale. A building of any size has all kinds, and two floors at least."""
    topics = {event.topic for event in small if isinstance(event, Message)}
    assert len(topics) == pytest.approx(2500, rel=0.1)
    building = Building.of(0.0001, Day())
    assert (building.rooms, building.floors, building.nodes) == (4, 2, 2)


def test_each_hour_is_in_order_and_an_offline_client_publishes_nothing() -> None:
    """It is silent from the loss of its connection until its return."""
    building = Building.of(0.4, Day(seed=1))
    away: set[str] = set()
    befell = Counter[str]()
    for hour in range(HOURS):
        events = building.hour(hour)
        assert [event.at for event in events] == sorted(event.at for event in events)
        assert all(hour <= event.at // 3600 <= hour + 1 for event in events)
        for event in events:
            match event:
                case Lost():
                    away.add(event.client)
                case Back():
                    away.remove(event.client)
                case _:
                    assert event.client not in away
            befell[type(event).__name__] += 1
    assert (befell["Lost"], befell["Back"], len(away)) == (2, 1, 1)
    assert {event.client for event in building.first_values()} <= {one.client_id for one in building.clients()}


def test_the_day_has_numbers_json_clears_expiries_and_malformed_payloads(small: list[Event]) -> None:
    messages = [event for event in small if isinstance(event, Message)]
    kinds = Counter(message.kind for message in messages)
    assert set(kinds) == set(Kind)
    assert all(message.payload == b"" for message in messages if message.kind is Kind.CLEAR)
    assert all(message.expires for message in messages if message.kind is Kind.EXPIRING)
    for message in messages:
        if message.kind is Kind.MALFORMED:
            with pytest.raises(ValueError, match=r"."):
                json.loads(message.payload)
        elif message.payload.startswith(b"{"):
            assert json.loads(message.payload)
    temperatures = [float(one.payload) for one in messages if one.topic.endswith("/climate/temperature")]
    assert 10 < min(temperatures) < max(temperatures) < 30


@pytest.mark.parametrize("given", [Day(seed=1), MORNING])
def test_people_come_and_go_by_the_hour_of_the_clock(given: Day) -> None:
    """Whenever the day begins. At night nobody is there, no lamp is on, and it is colder than in the afternoon."""
    occupied, lamps_on, warmth = Counter[int](), Counter[int](), dict[int, list[float]]()
    for event in played(Building.of(0.05, given)):
        if not isinstance(event, Message):
            continue
        clock = given.hour_of_clock(event.at // HOUR)
        occupied[clock] += event.topic.endswith("/presence") and event.payload == b"true"
        lamps_on[clock] += "/light/" in event.topic and event.payload.startswith(b'{"on":true')
        if event.topic.endswith("/climate/temperature"):
            warmth.setdefault(clock, []).append(float(event.payload))
    night = [*range(7), *range(19, 24)]
    assert not sum(occupied[clock] + lamps_on[clock] for clock in night)
    assert occupied[10] > 2 * occupied[7] > 0
    assert occupied[10] > 1.3 * occupied[12]
    assert lamps_on[17] > lamps_on[10] * occupied[17] / occupied[10]
    averages = {clock: sum(found) / len(found) for clock, found in warmth.items()}
    assert averages[15] > averages[3] + 3


def test_the_day_has_the_times_of_its_24_hours() -> None:
    times = [
        json.loads(event.payload)["at"]
        for event in played(Building.of(0.01, MORNING))
        if isinstance(event, Message) and event.kind is Kind.CHATTER
    ]
    assert times == sorted(times)
    assert times[0] == "2026-03-02T08:40:00Z"
    assert times[-1] == MORNING.clock(HOURS * HOUR - 20) == "2026-03-03T08:39:40Z"


def test_the_clock_of_the_day_never_goes_back(tmp_path: Path) -> None:
    setter, reader = DayClock(tmp_path / "clock", 1_000), DayClock(tmp_path / "clock")
    assert reader.now() == 1_000
    setter.set(MORNING.milliseconds(0))
    setter.set(5_000)
    assert reader.now() == MORNING.milliseconds(0) == 1772440800000


def test_sparkplug_payloads_follow_the_schema() -> None:
    """By hand from the fields' numbers: timestamp 1, metrics 2, seq 3; of a metric name 1, alias 2, ..."""
    assert payload(1, 0, []) == bytes.fromhex("0801 1800")
    assert payload(300, 2, [Metric(7, "a", 5)]) == bytes.fromhex("08ac02 120c 0a0161 1005 18ac02 2004 5807 1802")
    assert payload(0, 0, [Metric(True)]) == bytes.fromhex("0800 1206 1800 200b 7001 1800")
    assert payload(0, 0, [Metric(1.5)]) == bytes.fromhex("0800 120d 1800 200a 69000000000000f83f 1800")
    assert payload(0, 0, [Metric("ok")]) == bytes.fromhex("0800 1208 1800 200c 7a026f6b 1800")
    assert payload(0, 0, [Metric(-1)]) == bytes.fromhex("0800 120f 1800 2004 58ffffffffffffffffff01 1800")
