"""Rooms, and the messages of their devices in each hour of the day."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi
from random import Random

from attrs import evolve, frozen

from examples.building.events import HOUR, Kind, Message, clock, encoded

_OFFICE_HOURS = range(7, 19)
_JSON = "application/json"
#: The expiry of a short booking, in seconds: it expires while the day is played. Others last for hours.
SHORT = 2
_HOURS_LONG = (3, 6, 12, 24, 48)
#: One in so many rooms has a lamp that cuts its JSON off; one in so many has a sensor that falls silent in the night.
_BROKEN_LAMP, _SILENT_SENSOR = 61, 37
_SILENT_FROM = 5
_CHATTY_EVERY = 20


@frozen
class Room:
    """A room: its number in the building, the prefix of its topics, and the gateway of its devices."""

    number: int
    prefix: str
    gateway: str


def first_values(room: Room, seed: int) -> Iterator[Message]:
    """Give the messages of its devices when they are switched on. Some topics are never updated again."""
    for message in _switched_on(room, seed):
        yield evolve(message, kind=Kind.FIRST) if message.kind is Kind.UPDATE else message


def _switched_on(room: Room, seed: int) -> Iterator[Message]:
    chance = _chance(room, seed, "first")
    for device, maker in (("climate", "Aerolux"), ("light", "Lumen & Sons"), ("meter", "Wattson")):
        serial = f"{maker[:2].upper()}-{chance.randrange(10**6):06}"
        info = encoded(maker=maker, serial=serial, firmware=f"1.{chance.randrange(5)}.0", at=clock(0))
        yield Message(0, room.gateway, f"{room.prefix}/device/{device}/info", info)
    yield from _climate(room, chance, 0, 0)
    yield Message(1, room.gateway, f"{room.prefix}/climate/setpoint", b"20.5")
    for lamp in (1, 2, 3):
        yield _lamp(room, 2, lamp, False, chance)
    for side in (1, 2):
        yield Message(3, room.gateway, f"{room.prefix}/blind/{side}/position", b"100")
        yield Message(3, room.gateway, f"{room.prefix}/window/{side}/contact", b"closed")
    yield Message(4, room.gateway, f"{room.prefix}/presence", b"false")
    yield from _meter(room, chance, 5, 0)
    yield Message(6, room.gateway, f"{room.prefix}/smoke/status", b"ok")
    yield Message(6, room.gateway, f"{room.prefix}/smoke/battery", b"%d" % chance.randrange(20, 101))
    yield Message(7, "access-control", f"{room.prefix}/access/last", encoded(badge=None, at=clock(7)), qos=2)
    yield Message(8, "facility", f"{room.prefix}/display/text", b"Good night")


def hourly(room: Room, seed: int, hour: int) -> Iterator[Message]:
    """Give the messages of its devices in an hour, in no order."""
    chance = _chance(room, seed, str(hour))
    begin, working = hour * HOUR, hour in _OFFICE_HOURS
    if hour % 2 == room.number % 2 and not (room.number % _SILENT_SENSOR == 1 and hour >= _SILENT_FROM):
        yield from _climate(room, chance, begin + chance.randrange(HOUR), hour)
    if hour % 3 == room.number % 3:
        yield from _meter(room, chance, begin + chance.randrange(HOUR), hour)
    if working:
        yield from _people(room, chance, begin)
        yield from _bookings(room, chance, begin)
    if hour == 6:
        yield Message(begin, "facility", f"{room.prefix}/display/text", b"Welcome")
        for side in (1, 2):
            yield Message(begin + 60, room.gateway, f"{room.prefix}/blind/{side}/position", b"0")
    if hour == 20:  # the cleaners have been, and have done the noted repairs
        if room.number % 4 == 0:
            yield Message(begin, "facility", f"{room.prefix}/maintenance/note", b"", Kind.CLEAR)
        yield Message(begin + 60, "facility", f"{room.prefix}/display/text", b"", Kind.CLEAR)
    if room.number == 1:
        for at in range(begin, begin + HOUR, _CHATTY_EVERY):
            value = encoded(mm_s=round(chance.gauss(0, 1), 4), at=clock(at))
            yield Message(at, "vibration-probe", f"{room.prefix}/vibration/raw", value, Kind.CHATTER)


def _people(room: Room, chance: Random, begin: int) -> Iterator[Message]:
    came = begin + chance.randrange(HOUR // 2)
    here = chance.random() < 0.7
    yield Message(came, room.gateway, f"{room.prefix}/presence", b"true" if here else b"false")
    if here:
        badge = f"B{chance.randrange(4000):04}"
        entry = encoded(badge=badge, granted=chance.random() < 0.97, at=clock(came))
        yield Message(came, "access-control", f"{room.prefix}/access/last", entry, qos=2, content_type=_JSON)
    for lamp in (1, 2, 3):
        if chance.random() < 0.4:
            yield _lamp(room, came + lamp, lamp, here, chance)
    if chance.random() < 0.3:
        moved = came + chance.randrange(HOUR // 2)
        yield Message(moved, room.gateway, f"{room.prefix}/blind/1/position", b"%d" % chance.randrange(0, 101, 5))
        opened = b"open" if chance.random() < 0.5 else b"closed"
        yield Message(moved, room.gateway, f"{room.prefix}/window/1/contact", opened)
    if room.number % 4 == 0 and chance.random() < 0.2:
        note = chance.choice(["Lamp flickers", "Window sticks", "Projector: no signal", "Zu warm hier", "Café leer"])
        yield Message(came, "facility", f"{room.prefix}/maintenance/note", note.encode())


def _bookings(room: Room, chance: Random, begin: int) -> Iterator[Message]:
    if chance.random() < 0.35:
        at = begin + chance.randrange(HOUR)
        booked = encoded(by=f"P{chance.randrange(900):03}", until=clock(at + HOUR), at=clock(at))
        expires = SHORT if chance.random() < 0.3 else chance.choice(_HOURS_LONG) * HOUR
        yield Message(at, "booking-service", f"{room.prefix}/booking", booked, Kind.EXPIRING, 1, expires, _JSON)


def _climate(room: Room, chance: Random, at: int, hour: int) -> Iterator[Message]:
    warmth = 20.5 - 2 * cos((hour - 3) * pi / 12) + chance.gauss(0, 0.3)
    measured = {"temperature": f"{warmth:.1f}", "humidity": f"{45 + chance.gauss(0, 4):.0f}"}
    measured["co2"] = f"{max(400, (800 if hour in _OFFICE_HOURS else 430) + chance.gauss(0, 60)):.0f}"
    for name, value in measured.items():
        yield Message(at, room.gateway, f"{room.prefix}/climate/{name}", value.encode())
    state = encoded(mode="heat" if warmth < 20 else "idle", valve=chance.randrange(101), at=clock(at))
    yield Message(at, room.gateway, f"{room.prefix}/climate/state", state)


def _meter(room: Room, chance: Random, at: int, hour: int) -> Iterator[Message]:
    power = encoded(value=round(abs(chance.gauss(120, 60)), 1), unit="W", at=clock(at))
    energy = encoded(value=1000 + room.number + hour * 0.25, unit="kWh", at=clock(at))
    yield Message(at, room.gateway, f"{room.prefix}/meter/power", power)
    yield Message(at, room.gateway, f"{room.prefix}/meter/energy", energy)


def _lamp(room: Room, at: int, lamp: int, on: bool, chance: Random) -> Message:
    state = encoded(on=on, level=chance.randrange(10, 101) if on else 0, at=clock(at))
    message = Message(at, room.gateway, f"{room.prefix}/light/{lamp}/state", state)
    if lamp == 2 and room.number % _BROKEN_LAMP == 2:
        return evolve(message, payload=state[:-4], kind=Kind.MALFORMED)
    if lamp == 3 and room.number % _BROKEN_LAMP == 3:
        return evolve(message, payload=b"\xff\xfe" + state, kind=Kind.MALFORMED)
    return message


def _chance(room: Room, seed: int, part: str) -> Random:
    """Return random numbers that depend only on the arguments: changes of one part leave the others as they are."""
    return Random(f"{seed}/{room.number}/{part}")
