"""A plant: the rooms of its offices, the machines of its halls, and edge nodes of Sparkplug B.

The topics follow three conventions::

    hq/FLOOR/ROOM/climate/temperature, hq/FLOOR/ROOM/light/1/state, ...    rooms, by the gateway of each floor
    acme/dresden/HALL/LINE/MACHINE/state, .../speed, ...                   a unified namespace
    spBv1.0/Dresden/DBIRTH/NODE/DEVICE, spBv1.0/Dresden/DDATA/NODE/DEVICE  Sparkplug B

Sparkplug retains only STATE. Many gateways can also retain births and data, so that the last values are always known.
The gateways here do.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import count

from attrs import frozen

from holdfast_pipeline.sample.recording import DAY, HOUR, MINUTE, SECOND, Payload, Recording, cut, encoded, iso

_FLOORS, _ROOMS = 3, 40
_HALLS, _LINES, _MACHINES = ("press", "weld", "paint", "assembly"), 3, 4
_NODES, _FANS = 6, 4
_SITE = "acme/dresden"
#: What machines measure: the unit, the usual value and its spread.
_MEASURED = {"speed": ("1/min", 1450, 20), "temperature": ("°C", 61, 2), "load": ("%", 70, 6)}
#: The share of the rooms with people, by the hour of the clock.
_OCCUPIED = {
    7: 0.2, 8: 0.55, 9: 0.8, 10: 0.85, 11: 0.8, 12: 0.45, 13: 0.7, 14: 0.85, 15: 0.8, 16: 0.65, 17: 0.4, 18: 0.15
}  # fmt: skip


def plant(seed: int, until: int) -> Recording:
    """Return the messages of a plant until a time, in milliseconds since the epoch, with its faults."""
    recording = Recording(seed, until)
    _rooms(recording)
    _machines(recording)
    _sparkplug(recording)
    return recording


@frozen
class _Room:
    """A room: the prefix of its topics, and the Client Identifier of its gateway."""

    prefix: str
    gateway: str


def _rooms(recording: Recording) -> None:
    chance = recording.chance
    rooms = [
        _Room(f"hq/f{floor:02}/r{floor}{number:02}", f"gateway-f{floor:02}")
        for floor in range(1, _FLOORS + 1)
        for number in range(1, _ROOMS + 1)
    ]
    stale, broken, binary, alone, lacking, misspelling, hot, flapping = recording.pick(rooms, 8)
    for room in rooms:
        for device, maker in (("climate", "Aerolux"), ("light", "Lumen & Sons"), ("meter", "Wattson")):
            serial = f"{maker[:2].upper()}-{chance.randrange(10**6):06}"
            info = encoded(maker=maker, serial=serial, firmware=f"1.{chance.randrange(5)}.0")
            recording.publish(room.gateway, f"{room.prefix}/device/{device}/info", info, recording.set_up)
        for name, value in _climate(recording, fahrenheit=room == hot).items():
            until = recording.until - 9 * HOUR if room == stale else None
            recording.repeat(room.gateway, f"{room.prefix}/climate/{name}", value, 50 * MINUTE, until)
        for lamp in (1, 2, 3):
            shown: Payload = _lamp(recording)
            if lamp == 2 and room == broken:
                shown = cut(shown)
            elif lamp == 3 and room == binary:
                shown = _binary
            recording.repeat(room.gateway, f"{room.prefix}/light/{lamp}/state", shown, 3 * HOUR)
        name = "metre" if room == misspelling else "meter"
        if room != lacking:
            recording.repeat(room.gateway, f"{room.prefix}/{name}/power", _power(recording), 2 * HOUR)
        recording.repeat(room.gateway, f"{room.prefix}/window/contact", recording.one_of("open", "closed"), 4 * HOUR)
        recording.repeat(room.gateway, f"{room.prefix}/presence", _presence(recording), 2 * HOUR)
    recording.plant("stale device", stale.prefix, "its climate sensors have sent nothing for 9 hours")
    recording.plant("malformed payloads", f"{broken.prefix}/light/2/state", "its JSON is cut off")
    recording.plant("malformed payloads", f"{binary.prefix}/light/3/state", "its payload is not text")
    recording.plant("missing topics", lacking.prefix, "it has no meter")
    recording.plant("misspelled topic", f"{misspelling.prefix}/metre/power", "the others say meter/power")
    recording.plant("unusual values", f"{hot.prefix}/climate/temperature", "it measures in °F, all others in °C")
    recording.alternate(flapping.gateway, f"{flapping.prefix}/presence", ("true", "false"), 300)
    recording.repeat(
        "vibration-probe", f"{alone.prefix}/vibration/raw",
        lambda at: encoded(mm_s=round(chance.gauss(0, 1), 4), at=iso(at)), 20 * SECOND,
    )  # fmt: skip
    recording.plant("lone topic", f"{alone.prefix}/vibration/raw", "someone has left a probe there")
    recording.plant("chatty topic", f"{alone.prefix}/vibration/raw", "it changes every 20 seconds")

    (unreliable,) = recording.pick(range(1, _FLOORS + 1), 1)
    for floor in range(1, _FLOORS + 1):
        told = encoded(state="online", at=iso(recording.set_up))
        recording.publish(f"gateway-f{floor:02}", f"hq/f{floor:02}/gateway/status", told, recording.set_up)
    gone = recording.until - chance.randrange(8, 14) * HOUR
    recording.lose_connection(
        f"gateway-f{unreliable:02}", f"hq/f{unreliable:02}/gateway/status", encoded(state="offline", at=None),
        encoded(state="online", at=iso(gone + 2 * HOUR)), gone, 2 * HOUR,
    )  # fmt: skip


def _machines(recording: Recording) -> None:
    chance = recording.chance
    machines = [
        f"{_SITE}/{hall}/line-{line}/{hall}-{line}{machine}"
        for hall in _HALLS
        for line in range(1, _LINES + 1)
        for machine in range(1, _MACHINES + 1)
    ]
    commanded, late, stuck, shared, text = recording.pick(machines, 5)
    for machine in machines:
        client = machine.rpartition("/")[2]
        off = 95 * MINUTE if machine == late else 0
        info = encoded(vendor=chance.choice(("Krauss", "Fanuc", "Arburg")), year=chance.randrange(2009, 2026))
        recording.publish(client, f"{machine}/info", info, recording.set_up)
        recording.repeat(client, f"{machine}/state", recording.one_of("RUN", "IDLE", "SETUP"), 90 * MINUTE)
        for name, (unit, usual, spread) in _MEASURED.items():
            held = 63.2 if machine == stuck and name == "temperature" else None
            told = _measured(recording, unit, usual, spread, off, held)
            recording.repeat(client, f"{machine}/{name}", told, 20 * MINUTE)
        recording.repeat(client, f"{machine}/parts", _counted(chance.randrange(10**5, 10**6)), 30 * MINUTE)
    recording.publish("scada", f"{commanded}/cmd", encoded(start=True), recording.until - 4 * HOUR)
    recording.plant("retained command", f"{commanded}/cmd", "the control room published a command with RETAIN")
    recording.plant("wrong clock", late, "its clock is 95 minutes late")
    recording.plant("stuck value", f"{stuck}/temperature", "it says 63.2 all day")
    recording.publish(text.rpartition("/")[2], f"{text}/parts", "n/a", recording.until)
    recording.plant("malformed payloads", f"{text}/parts", "it says n/a in place of a number")
    recording.share(f"{shared}/order", ("planning", "order-4711"), ("planning-test", "order-0"))
    recording.plant("several publishers", f"{shared}/order", "the test of the planning publishes to the plant")
    for name in ("layout", "shift"):
        recording.publish("terminal-3", f"{_SITE}/terminal/{name}", encoded(version=1), recording.gone)
    recording.plant("orphans", f"{_SITE}/terminal", "the terminal was removed 40 days ago")


def _sparkplug(recording: Recording) -> None:
    chance = recording.chance
    state = encoded(online=True, timestamp=recording.set_up)
    recording.publish("scada-host", "spBv1.0/STATE/scada", state, recording.set_up)
    for number in range(1, _NODES + 1):
        node, seq = f"ahu-{number:02}", count(_FANS + 1)
        at = recording.set_up + number * SECOND
        named = [_Metric(0, "bdSeq"), _Metric(21.5, "Supply/Temperature", 1), _Metric(True, "Running", 2)]
        recording.publish(node, f"spBv1.0/Dresden/NBIRTH/{node}", _payload(at, 0, named), at)
        for fan in range(1, _FANS + 1):
            metrics = [_Metric(1450.0, "Speed", 10), _Metric("ok", "Status", 11), _Metric(12_345 + fan, "Hours", 12)]
            recording.publish(node, f"spBv1.0/Dresden/DBIRTH/{node}/fan-{fan}", _payload(at, fan, metrics), at)

            def speed(at: int, seq: count[int] = seq) -> bytes:
                return _payload(at, next(seq) % 256, [_Metric(round(chance.gauss(1450, 20), 1), alias=10)])

            recording.repeat(node, f"spBv1.0/Dresden/DDATA/{node}/fan-{fan}", speed, HOUR)

        def supply(at: int, seq: count[int] = seq) -> bytes:
            return _payload(at, next(seq) % 256, [_Metric(round(chance.gauss(21, 1), 2), alias=1)])

        recording.repeat(node, f"spBv1.0/Dresden/NDATA/{node}", supply, 20 * MINUTE)


def _climate(recording: Recording, fahrenheit: bool) -> dict[str, Payload]:
    chance = recording.chance

    def temperature(at: int) -> str:
        return f"{recording.warmth(at) * 1.8 + 32 if fahrenheit else recording.warmth(at):.1f}"

    def co2(at: int) -> str:
        return f"{max(400, 430 + 450 * _OCCUPIED.get(at % DAY // HOUR, 0) + chance.gauss(0, 60)):.0f}"

    return {"temperature": temperature, "humidity": recording.about(45, 4), "co2": co2}


def _lamp(recording: Recording) -> Payload:
    def shown(at: int) -> str:
        on = recording.chance.random() < _OCCUPIED.get(at % DAY // HOUR, 0)
        return encoded(on=on, level=recording.chance.randrange(10, 101) if on else 0, at=iso(at))

    return shown


def _power(recording: Recording) -> Payload:
    def shown(at: int) -> str:
        drawn = recording.chance.gauss(40 + 180 * _OCCUPIED.get(at % DAY // HOUR, 0), 20)
        return encoded(value=round(max(5, drawn), 1), unit="W", at=iso(at))

    return shown


def _presence(recording: Recording) -> Payload:
    return lambda at: "true" if recording.chance.random() < _OCCUPIED.get(at % DAY // HOUR, 0) else "false"


def _measured(
    recording: Recording, unit: str, usual: float, spread: float, off: int, held: float | None
) -> Payload:  # fmt: skip
    def shown(at: int) -> str:
        value = round(recording.chance.gauss(usual, spread), 1) if held is None else held
        return encoded(value=value, unit=unit, timestamp=at - off)

    return shown


def _binary(at: int) -> bytes:
    return b"\xff\xfe" + iso(at).encode()


def _counted(first: int) -> Payload:
    counted = count(first, 7)
    return lambda _: str(next(counted))


# Sparkplug B payloads by hand: the few fields of Protocol Buffers that births and data need.

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_INT64, _DOUBLE, _BOOLEAN, _STRING = 4, 10, 11, 12


@frozen
class _Metric:
    """A value with its name (in births), its alias (in data), or both."""

    value: bool | int | float | str
    name: str | None = None
    alias: int | None = None


def _payload(at: int, seq: int, metrics: Sequence[_Metric]) -> bytes:
    """Return a payload with its time (milliseconds since the epoch) and its sequence number (0 to 255)."""
    body = b"".join(_bytes(2, _metric(at, metric)) for metric in metrics)
    return _number(1, at) + body + _number(3, seq)


def _metric(at: int, metric: _Metric) -> bytes:
    named = b"" if metric.name is None else _bytes(1, metric.name.encode())
    aliased = b"" if metric.alias is None else _number(2, metric.alias)
    datatype, value = _value(metric.value)
    return named + aliased + _number(3, at) + _number(4, datatype) + value


def _value(value: bool | int | float | str) -> tuple[int, bytes]:
    if isinstance(value, bool):  # before int, because a bool is an int, too
        return _BOOLEAN, _number(14, int(value))
    if isinstance(value, int):
        return _INT64, _number(11, value)
    if isinstance(value, float):
        return _DOUBLE, _key(13, _FIXED64) + struct.pack("<d", value)
    return _STRING, _bytes(15, value.encode())


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value % 2**64)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(found) + bytes([value])
