"""The retained messages of a made-up company, with a history since yesterday: for tests and pictures of the dashboard.

How it works. Each message belongs to one of these families; most of them are vehicles:

    fleet/north/truck-00042/battery                   {"voltage": 25.61, "soc": 87}
    fleet/north/truck-00042/firmware                  bytes
    building/site-03/floor-07/room-12/temperature     {"value": 21.4, "unit": "°C"}
    zigbee2mqtt/kitchen_lamp_0042                     {"state": "ON", "brightness": 180, "linkquality": 112}
    zigbee2mqtt/kitchen_lamp_0042/availability        online
    homeassistant/sensor/0x00158d0000000042/config    {"name": …, "unique_id": …}

The story of :data:`FLOOR`: its sensors send a value each quarter of an hour since yesterday. Two hours ago, a client of
an operator cleared all of it by mistake. :data:`SENSOR` is one of its sensors.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from itertools import count, islice, product
from pathlib import Path

from attrs import frozen

from benchmarks.filling import BATCH, milliseconds, offline_store, settle
from holdfast.changes.periods import begin, write_part
from holdfast.config import Config
from holdfast.core.messages import RetainedChange, RetainedMessage
from holdfast.core.tickets import CommitTicket
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.database import Durability
from holdfast.storage.maintenance import database_at
from holdfast.wire.properties import NO_PROPERTIES, Properties

FLOOR = "building/site-03/floor-07"
SENSOR = f"{FLOOR}/room-12/temperature"
#: the Client Identifier and the user name of the operator who has cleared :data:`FLOOR`
OPERATOR = "maintenance-laptop", "jonas"
#: a vehicle that exists in fleets of any size
VEHICLE = "fleet/north/truck-00042"

_MINUTE, _HOUR = 60_000, 3_600_000
#: the ages of the first messages, of the clearing, and the pause between two values of a sensor of the floor
_FIRST, _CLEARED, _PAUSE = 30 * _HOUR, 2 * _HOUR, 15 * _MINUTE
_SITES, _FLOORS, _ROOMS = 40, 12, 20
_SENSORS = "temperature", "humidity", "co2", "presence"
_REGIONS = "north", "east", "south", "west"
_PLACES = "kitchen", "office", "hall", "workshop", "store"
_DEVICES = "lamp", "plug", "motion", "button", "thermostat"
#: the parts of a vehicle
_PARTS = "status", "position", "battery", "odometer", "firmware"
_JSON = Properties(content_type="application/json", payload_format_indicator=1)
_FIRMWARE = Properties(content_type="application/octet-stream", user_properties=(("version", "4.2.1"),))


@frozen
class Retained:
    """One message to be retained, and the Client that published it."""

    topic: str
    payload: bytes
    client_id: str
    username: str | None
    properties: Properties = NO_PROPERTIES


def fill_fleet(config: Config, topics: int) -> None:
    """Store so many topics, or a few more, and the history of :data:`FLOOR`. No broker may use the database.

    Raises what :func:`benchmarks.filling.offline_store` raises.
    """
    since = milliseconds() - _FIRST
    clock = [since]
    with offline_store(config, lambda: clock[0]):
        pass  # the schema
    _begin_history(config, since)
    with offline_store(config, lambda: clock[0]) as (store, commit):
        messages = fleet(topics)
        while batch := list(islice(messages, BATCH)):
            tickets = [_put(store, each, clock[0]) for each in batch]
            commit()
            settle(tickets)
            clock[0] += _HOUR * BATCH // topics
        for at in range(since + 2 * _HOUR, since + _FIRST - _CLEARED, _PAUSE):
            clock[0] = at
            tickets = [_put(store, each, at) for each in floor(at - since)]
            commit()
            settle(tickets)
        clock[0] = since + _FIRST - _CLEARED
        tickets = [_clear(store, each.topic, clock[0]) for each in floor(0)]
        commit()
        settle(tickets)


def _begin_history(config: Config, at: int) -> None:
    """Begin the history of a database without messages, so that it is complete since that time."""
    with database_at(config.storage.url, Durability.PROCESS).transaction() as connection:
        cursor = connection.cursor()
        begin(cursor, at, config.node.id)
        assert write_part(cursor, at, 1, 1)


def _put(store: SQLRetainedStore, each: Retained, at: int) -> CommitTicket:
    revision = store.next_revision()
    message = RetainedMessage(
        each.topic, each.payload, 1, each.properties, each.client_id, each.username, at, None, revision
    )
    return store.put(RetainedChange(each.topic, revision, at, message, each.client_id, each.username))


def _clear(store: SQLRetainedStore, topic: str, at: int) -> CommitTicket:
    return store.put(RetainedChange(topic, store.next_revision(), at, None, *OPERATOR))


def fleet(topics: int) -> Iterator[Retained]:
    """Yield at least so many messages of all families, in the proportions of a large fleet."""
    chance = random.Random(topics)
    yield from floor(0)
    left = topics
    for each in _buildings(chance, topics // 50):
        left -= 1
        yield each
    for each in _zigbee(chance, topics // 20):
        left -= 1
        yield each
    yield from _vehicles(chance, left)


def floor(age: int) -> Iterator[Retained]:
    """Yield the values of the sensors of :data:`FLOOR`, ``age`` milliseconds after the first ones."""
    for room, sensor in product(range(1, _ROOMS + 1), _SENSORS):
        yield _sensor(f"{FLOOR}/room-{room:02}/{sensor}", room, age)


def _sensor(topic: str, room: int, age: int) -> Retained:
    day = math.sin(age / (24 * _HOUR) * 2 * math.pi + room)
    hour = math.sin(age / _HOUR * 2 * math.pi + room * room)
    sensor = topic.rpartition("/")[2]
    values: dict[str, dict[str, object]] = {
        "temperature": {"value": round(21.5 + 2 * day + 0.4 * hour, 2), "unit": "°C", "battery": 90 - age // _HOUR},
        "humidity": {"value": round(44 - 6 * day + hour, 1), "unit": "%"},
        "co2": {"value": round(650 + 220 * day + 40 * hour), "unit": "ppm"},
        "presence": {"value": day + hour > 0},
    }
    return _json(topic, values[sensor], f"gateway-{topic.split('/')[1]}", "building")


def _json(topic: str, value: object, client_id: str, username: str | None) -> Retained:
    return Retained(topic, json.dumps(value, ensure_ascii=False).encode(), client_id, username, _JSON)


def _buildings(chance: random.Random, most: int) -> Iterator[Retained]:
    places = product(range(1, _SITES + 1), range(1, _FLOORS + 1), range(1, _ROOMS + 1), _SENSORS)
    named = (
        (f"building/site-{site:02}/floor-{level:02}/room-{room:02}/{sensor}", room)
        for site, level, room, sensor in places
    )
    for topic, room in islice((each for each in named if not each[0].startswith(FLOOR)), most):
        yield _sensor(topic, room, chance.randrange(_HOUR))


def _zigbee(chance: random.Random, most: int) -> Iterator[Retained]:
    client, user = "zigbee2mqtt_4f1c", "zigbee2mqtt"
    yield Retained("zigbee2mqtt/bridge/state", b'{"state":"online"}', client, user)
    for number in range(most // 3):
        name = f"{_PLACES[number % 5]}_{_DEVICES[number // 5 % 5]}_{number:04}"
        address = f"0x00158d{number:010x}"
        state = {
            "state": chance.choice(("ON", "OFF")),
            "brightness": chance.randrange(255),
            "linkquality": 60 + number % 90,
        }
        yield _json(f"zigbee2mqtt/{name}", state, client, user)
        yield Retained(
            f"zigbee2mqtt/{name}/availability", chance.choice((b"online", b"online", b"offline")), client, user
        )
        config = {"name": name.replace("_", " "), "unique_id": address, "state_topic": f"zigbee2mqtt/{name}"}
        yield _json(f"homeassistant/sensor/{address}/config", config, client, user)


def _vehicles(chance: random.Random, most: int) -> Iterator[Retained]:
    made = (part for number in count() for part in _vehicle(chance, number))
    return islice(made, most)


def _vehicle(chance: random.Random, number: int) -> Iterator[Retained]:
    name = f"truck-{number:05}"
    topic = f"fleet/{_REGIONS[(number - 42) % 4]}/{name}"
    charge = chance.randrange(20, 101)
    place = {"lat": round(52 + chance.random(), 5), "lon": round(9 + chance.random(), 5)}
    values: dict[str, object] = {
        "status": {"state": chance.choice(("driving", "parked", "charging")), "since": 1_790_000_000 + number},
        "position": {**place, "heading": number % 360},
        "battery": {"voltage": round(22 + charge / 25, 2), "soc": charge},
        "odometer": chance.randrange(300_000),
    }
    for part in _PARTS:
        if part == "firmware":
            yield Retained(f"{topic}/{part}", chance.randbytes(48), name, "fleet", _FIRMWARE)
        else:
            yield _json(f"{topic}/{part}", values[part], name, "fleet")


def configured(directory: Path) -> Config:
    """Return the configuration of a broker that keeps a history in ``directory/data``."""
    from holdfast.tap import Options

    file = directory / "holdfast.toml"
    file.write_text(CONFIGURATION)
    options = Options()
    options.parseOptions(["--config", str(file), "--data-dir", str(directory / "data")])  # type: ignore[no-untyped-call]
    config: Config = options.config
    return config


#: a history, and an alarm that is active from the start: no disk has so much free space
CONFIGURATION = """
[retainer.history]
enable = true
[alarms]
disk_free = "1000000GB"
"""
