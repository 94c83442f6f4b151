"""The day of a building before it is sent: complete, of the given size, and the same each time."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from examples.building.day import HOURS, Building
from examples.building.events import Back, Event, Kind, Lost, Message
from examples.building.sparkplug import Metric, payload


def day(scale: float, seed: int = 1) -> list[Event]:
    building = Building.of(scale, seed)
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
    building = Building.of(0.0001, 1)
    assert (building.rooms, building.floors, building.nodes) == (4, 2, 2)


def test_each_hour_is_in_order_and_an_offline_client_publishes_nothing() -> None:
    """It is silent from the loss of its connection until its return."""
    building = Building.of(0.4, 1)
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


def test_sparkplug_payloads_follow_the_schema() -> None:
    """By hand from the fields' numbers: timestamp 1, metrics 2, seq 3; of a metric name 1, alias 2, ..."""
    assert payload(1, 0, []) == bytes.fromhex("0801 1800")
    assert payload(300, 2, [Metric(7, "a", 5)]) == bytes.fromhex("08ac02 120c 0a0161 1005 18ac02 2004 5807 1802")
    assert payload(0, 0, [Metric(True)]) == bytes.fromhex("0800 1206 1800 200b 7001 1800")
    assert payload(0, 0, [Metric(1.5)]) == bytes.fromhex("0800 120d 1800 200a 69000000000000f83f 1800")
    assert payload(0, 0, [Metric("ok")]) == bytes.fromhex("0800 1208 1800 200c 7a026f6b 1800")
    assert payload(0, 0, [Metric(-1)]) == bytes.fromhex("0800 120f 1800 2004 58ffffffffffffffffff01 1800")
