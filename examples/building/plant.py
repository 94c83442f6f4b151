"""The plant in the cellar: Edge Nodes of Sparkplug B, each an air handling unit with fans, and their host.

Sparkplug retains only STATE and certificates. Many gateways can also retain births and data, so that the last values
are always known. The gateways here do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from examples.building.events import HOUR, Day, Kind, Message, encoded
from examples.building.sparkplug import Metric, payload

HOST = "scada-host"
HOST_STATE = "spBv1.0/STATE/scada"
#: An MQTT server that knows Sparkplug keeps births here. In this example, a client does it for the broker.
_CERTIFICATES = "$sparkplug/certificates/"
_CURATOR = "sparkplug-curator"
_FANS = 8
_READINGS = 3


def node(number: int) -> str:
    """Return the Client Identifier of an Edge Node."""
    return f"ahu-{number:02}"


def births(number: int, day: Day) -> Iterator[Message]:
    """Give the births of an Edge Node and of its devices, and their certificates."""
    at = 10 + number
    named = [Metric(0, "bdSeq"), Metric(21.5, "Supply/Temperature", 1), Metric(True, "Running", 2)]
    yield from _born(number, at, f"spBv1.0/HQ/NBIRTH/{node(number)}", payload(day.milliseconds(at), 0, named))
    for fan in range(1, _FANS + 1):
        metrics = [Metric(1450.0, "Speed", 10), Metric("ok", "Status", 11), Metric(12_345 + fan, "Hours", 12)]
        topic = f"spBv1.0/HQ/DBIRTH/{node(number)}/fan-{fan}"
        yield from _born(number, at, topic, payload(day.milliseconds(at), fan, metrics))


def hourly(number: int, day: Day, hour: int) -> Iterator[Message]:
    """Give the measurements of an Edge Node in an hour, with the aliases of its births."""
    chance = day.chance(node(number), hour)
    seq = count(_FANS + 1 + hour * (_FANS + _READINGS))
    for fan in range(1, _FANS + 1):
        at = hour * HOUR + 60 + fan
        speed = Metric(round(chance.gauss(1450, 20), 1), alias=10)
        told = payload(day.milliseconds(at), next(seq) % 256, [speed, Metric(12_345 + fan + hour, alias=12)])
        yield Message(at, node(number), f"spBv1.0/HQ/DDATA/{node(number)}/fan-{fan}", told, Kind.SPARKPLUG)
    for reading in range(1, _READINGS + 1):
        at = hour * HOUR + 1000 * reading
        told = payload(day.milliseconds(at), next(seq) % 256, [Metric(round(chance.gauss(21, 1), 2), alias=1)])
        yield Message(at, node(number), f"spBv1.0/HQ/NDATA/{node(number)}", told, Kind.SPARKPLUG)


def death(number: int) -> tuple[str, bytes]:
    """Return the topic and the payload of an Edge Node's Will; it is not retained."""
    return f"spBv1.0/HQ/NDEATH/{node(number)}", payload(0, 0, [Metric(0, "bdSeq")])


def host_state(day: Day, online: bool, at: int) -> bytes:
    """Return the payload of the host's STATE. Offline, it is the host's Will."""
    return encoded(online=online, timestamp=day.milliseconds(at))


def _born(number: int, at: int, topic: str, told: bytes) -> Iterator[Message]:
    yield Message(at, node(number), topic, told, Kind.SPARKPLUG)
    yield Message(at + 1, _CURATOR, f"{_CERTIFICATES}{topic}", told, Kind.SPARKPLUG)
