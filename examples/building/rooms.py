"""Rooms, and the messages of their devices in each hour of the day."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi
from random import Random

from attrs import evolve, frozen

from examples.building.events import HOUR, Day, Kind, Message, encoded

#: The share of the rooms with people, by the hour of the clock. In other hours the building is closed.
_OCCUPIED = {
    7: 0.2, 8: 0.55, 9: 0.8, 10: 0.85, 11: 0.8, 12: 0.45, 13: 0.7, 14: 0.85, 15: 0.8, 16: 0.65, 17: 0.4, 18: 0.15
}  # fmt: skip
#: The hours of the clock with an event: blinds go up, the last lamps go out, the cleaners come.
_OPENS, _CLOSES, _CLEANED = 6, 19, 20
#: The share of the lamps that people switch on, in daylight and in the dark.
_BY_DAY, _IN_THE_DARK = 0.35, 0.95
_DAYLIGHT = range(9, 16)
_JSON = "application/json"
#: The expiry of a short booking, in seconds, and the hours that others last.
_SHORT = 1800
_HOURS_LONG = (3, 6, 12, 24, 48)
#: One in so many rooms has a lamp that cuts its JSON off; one in so many has a sensor that falls silent.
_BROKEN_LAMP, _SILENT_SENSOR = 61, 37
#: The first hour of the day in which that sensor is silent.
_SILENT_FROM = 5
_CHATTY_EVERY = 20


@frozen
class Room:
    """A room: its number in the building, the prefix of its topics, and the gateway of its devices."""

    number: int
    prefix: str
    gateway: str


def first_values(room: Room, day: Day) -> Iterator[Message]:
    """Give the messages of its devices when they are switched on. Some topics are never updated again."""
    for message in _switched_on(room, day):
        yield evolve(message, kind=Kind.FIRST) if message.kind is Kind.UPDATE else message


def _switched_on(room: Room, day: Day) -> Iterator[Message]:
    chance = day.chance(room.number, "first")
    for device, maker in (("climate", "Aerolux"), ("light", "Lumen & Sons"), ("meter", "Wattson")):
        serial = f"{maker[:2].upper()}-{chance.randrange(10**6):06}"
        info = encoded(maker=maker, serial=serial, firmware=f"1.{chance.randrange(5)}.0", at=day.clock(0))
        yield Message(0, room.gateway, f"{room.prefix}/device/{device}/info", info)
    yield from _climate(room, day, chance, 0, 0)
    yield Message(1, room.gateway, f"{room.prefix}/climate/setpoint", b"20.5")
    for lamp in (1, 2, 3):
        yield _lamp(room, day, 2, lamp, False, chance)
    for side in (1, 2):
        yield Message(3, room.gateway, f"{room.prefix}/blind/{side}/position", b"100")
        yield Message(3, room.gateway, f"{room.prefix}/window/{side}/contact", b"closed")
    yield Message(4, room.gateway, f"{room.prefix}/presence", b"false")
    yield from _meter(room, day, chance, 5, 0)
    yield Message(6, room.gateway, f"{room.prefix}/smoke/status", b"ok")
    yield Message(6, room.gateway, f"{room.prefix}/smoke/battery", b"%d" % chance.randrange(20, 101))
    entry = encoded(badge=None, at=day.clock(7))
    yield Message(7, "access-control", f"{room.prefix}/access/last", entry, qos=2)
    yield Message(8, "facility", f"{room.prefix}/display/text", b"Good night")


def hourly(room: Room, day: Day, hour: int) -> Iterator[Message]:
    """Give the messages of its devices in an hour of the day, in no order."""
    chance = day.chance(room.number, hour)
    begin, clock = hour * HOUR, day.hour_of_clock(hour)
    if hour % 2 == room.number % 2 and not (room.number % _SILENT_SENSOR == 1 and hour >= _SILENT_FROM):
        yield from _climate(room, day, chance, begin + chance.randrange(HOUR), hour)
    if hour % 3 == room.number % 3:
        yield from _meter(room, day, chance, begin + chance.randrange(HOUR), hour)
    if clock in _OCCUPIED:
        yield from _people(room, day, chance, begin, clock)
        yield from _bookings(room, day, chance, begin)
    if clock == _OPENS:
        yield Message(begin, "facility", f"{room.prefix}/display/text", b"Welcome")
        for side in (1, 2):
            yield Message(begin + 60, room.gateway, f"{room.prefix}/blind/{side}/position", b"0")
    if clock == _CLOSES:
        left = begin + chance.randrange(HOUR // 2)
        yield Message(left, room.gateway, f"{room.prefix}/presence", b"false")
        for lamp in (1, 2, 3):
            yield _lamp(room, day, left + lamp, lamp, False, chance)
    if clock == _CLEANED:  # the cleaners have done the noted repairs, too
        if room.number % 4 == 0:
            yield Message(begin, "facility", f"{room.prefix}/maintenance/note", b"", Kind.CLEAR)
        yield Message(begin + 60, "facility", f"{room.prefix}/display/text", b"", Kind.CLEAR)
    if room.number == 1:
        for at in range(begin, begin + HOUR, _CHATTY_EVERY):
            value = encoded(mm_s=round(chance.gauss(0, 1), 4), at=day.clock(at))
            yield Message(at, "vibration-probe", f"{room.prefix}/vibration/raw", value, Kind.CHATTER)


def _people(room: Room, day: Day, chance: Random, begin: int, clock: int) -> Iterator[Message]:
    came = begin + chance.randrange(HOUR // 2)
    here = chance.random() < _OCCUPIED[clock]
    yield Message(came, room.gateway, f"{room.prefix}/presence", b"true" if here else b"false")
    if here:
        badge = f"B{chance.randrange(4000):04}"
        entry = encoded(badge=badge, granted=chance.random() < 0.97, at=day.clock(came))
        yield Message(came, "access-control", f"{room.prefix}/access/last", entry, qos=2, content_type=_JSON)
    for lamp in (1, 2, 3):
        if chance.random() < 0.4:
            on = here and chance.random() < (_BY_DAY if clock in _DAYLIGHT else _IN_THE_DARK)
            yield _lamp(room, day, came + lamp, lamp, on, chance)
    if chance.random() < 0.3:
        moved = came + chance.randrange(HOUR // 2)
        yield Message(moved, room.gateway, f"{room.prefix}/blind/1/position", b"%d" % chance.randrange(0, 101, 5))
        opened = b"open" if chance.random() < 0.5 else b"closed"
        yield Message(moved, room.gateway, f"{room.prefix}/window/1/contact", opened)
    if room.number % 4 == 0 and chance.random() < 0.2:
        note = chance.choice(["Lamp flickers", "Window sticks", "Projector: no signal", "Zu warm hier", "Café leer"])
        yield Message(came, "facility", f"{room.prefix}/maintenance/note", note.encode())


def _bookings(room: Room, day: Day, chance: Random, begin: int) -> Iterator[Message]:
    if chance.random() < 0.35:
        at = begin + chance.randrange(HOUR)
        booked = encoded(by=f"P{chance.randrange(900):03}", until=day.clock(at + HOUR), at=day.clock(at))
        expires = _SHORT if chance.random() < 0.3 else chance.choice(_HOURS_LONG) * HOUR
        yield Message(at, "booking-service", f"{room.prefix}/booking", booked, Kind.EXPIRING, 1, expires, _JSON)


def _climate(room: Room, day: Day, chance: Random, at: int, hour: int) -> Iterator[Message]:
    clock = day.hour_of_clock(hour)
    warmth = 20.5 - 2 * cos((clock - 3) * pi / 12) + chance.gauss(0, 0.3)
    measured = {"temperature": f"{warmth:.1f}", "humidity": f"{45 + chance.gauss(0, 4):.0f}"}
    measured["co2"] = f"{max(400, 430 + 450 * _OCCUPIED.get(clock, 0) + chance.gauss(0, 60)):.0f}"
    for name, value in measured.items():
        yield Message(at, room.gateway, f"{room.prefix}/climate/{name}", value.encode())
    state = encoded(mode="heat" if warmth < 20 else "idle", valve=chance.randrange(101), at=day.clock(at))
    yield Message(at, room.gateway, f"{room.prefix}/climate/state", state)


def _meter(room: Room, day: Day, chance: Random, at: int, hour: int) -> Iterator[Message]:
    drawn = 40 + 180 * _OCCUPIED.get(day.hour_of_clock(hour), 0)
    power = encoded(value=round(max(5, chance.gauss(drawn, 20)), 1), unit="W", at=day.clock(at))
    energy = encoded(value=1000 + room.number + hour * 0.25, unit="kWh", at=day.clock(at))
    yield Message(at, room.gateway, f"{room.prefix}/meter/power", power)
    yield Message(at, room.gateway, f"{room.prefix}/meter/energy", energy)


def _lamp(room: Room, day: Day, at: int, lamp: int, on: bool, chance: Random) -> Message:
    state = encoded(on=on, level=chance.randrange(10, 101) if on else 0, at=day.clock(at))
    message = Message(at, room.gateway, f"{room.prefix}/light/{lamp}/state", state)
    if lamp == 2 and room.number % _BROKEN_LAMP == 2:
        return evolve(message, payload=state[:-4], kind=Kind.MALFORMED)
    if lamp == 3 and room.number % _BROKEN_LAMP == 3:
        return evolve(message, payload=b"\xff\xfe" + state, kind=Kind.MALFORMED)
    return message
