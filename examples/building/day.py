"""The whole day: its clients, and all its events in order. The same seed and the same start give the same events."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from examples.building import plant, rooms
from examples.building.events import HOUR, HOURS, Back, Day, Event, Lost, Message, encoded
from examples.building.rooms import Room

_ROOMS, _FLOORS, _NODES = 2140, 20, 12
#: One in so many gateways loses its connection, for so many seconds.
_UNRELIABLE = 4
_OUTAGE = 2 * HOUR


@frozen
class Client:
    """A client, its version of MQTT, and its Will: topic, payload, and whether the Will is retained."""

    client_id: str
    version: int = 5
    will: tuple[str, bytes, bool] | None = None


@frozen
class Building:
    """A building with so many rooms, floors and Edge Nodes, on a day."""

    rooms: int
    floors: int
    nodes: int
    day: Day

    @classmethod
    def of(cls, scale: float, day: Day) -> Building:
        """Return a building; at scale 1 it has about 50,000 topics."""
        return cls(max(4, round(_ROOMS * scale)), max(2, round(_FLOORS * scale)), max(2, round(_NODES * scale)), day)

    def clients(self) -> list[Client]:
        """Return all publishers. Every fourth gateway is an old one, with MQTT 3.1.1."""
        gateways = [
            Client(gateway(floor), 4 if floor % 4 == 3 else 5, (status(floor), encoded(state="offline", at=None), True))
            for floor in range(1, self.floors + 1)
        ]
        nodes = [Client(plant.node(number), 5, (*plant.death(number), False)) for number in range(1, self.nodes + 1)]
        host = Client(plant.HOST, 5, (plant.HOST_STATE, plant.host_state(self.day, False, 0), True))
        services = ("facility", "booking-service", "access-control", "vibration-probe", "sparkplug-curator")
        return [*gateways, *nodes, host, *(Client(name) for name in services)]

    def first_values(self) -> Iterator[Event]:
        """Give the messages that all devices publish when they are switched on, at the start."""
        yield Message(0, plant.HOST, plant.HOST_STATE, plant.host_state(self.day, True, 0))
        for floor in range(1, self.floors + 1):
            yield Message(0, gateway(floor), status(floor), self._online(0))
        for room in self._rooms():
            yield from rooms.first_values(room, self.day)
        for number in range(1, self.nodes + 1):
            yield from plant.births(number, self.day)

    def hour(self, hour: int) -> list[Event]:
        """Return the events of an hour (0 to 23), in order. A gateway without a connection publishes nothing."""
        begin, end = hour * HOUR, (hour + 1) * HOUR
        found: list[Message] = []
        for room in self._rooms():
            found += rooms.hourly(room, self.day, hour)
        for number in range(1, self.nodes + 1):
            found += plant.hourly(number, self.day, hour)
        outages = self._outages()
        away = {gateway(floor): outage for floor, outage in outages.items()}
        present: list[Event] = [event for event in found if not _covers(away.get(event.client), event.at)]
        for floor, outage in outages.items():
            if begin <= outage.begin < end:
                present.append(Lost(outage.begin, gateway(floor)))
            if begin <= outage.end < end:
                online = Message(outage.end, gateway(floor), status(floor), self._online(outage.end))
                present += [Back(outage.end, gateway(floor)), online]
        return sorted(present, key=lambda event: event.at)

    def _outages(self) -> dict[int, _Outage]:
        """Return the outage of each floor whose gateway loses its connection. If several do, one does not come back."""
        unreliable = [floor for floor in range(1, self.floors + 1) if floor % _UNRELIABLE == 2]
        begins = {floor: (8 + floor % 9) * HOUR + 1000 for floor in unreliable}
        return {
            floor: _Outage(begin, HOURS * HOUR if floor == unreliable[-1] != unreliable[0] else begin + _OUTAGE)
            for floor, begin in begins.items()
        }

    def _online(self, at: int) -> bytes:
        return encoded(state="online", at=self.day.clock(at))

    def _rooms(self) -> Iterator[Room]:
        for number in range(1, self.rooms + 1):
            floor = 1 + (number - 1) * self.floors // self.rooms
            yield Room(number, f"hq/f{floor:02}/r{number:04}", gateway(floor))


@frozen
class _Outage:
    """The outage of a gateway: from the second ``begin`` of the day to just before ``end``."""

    begin: int
    end: int


def gateway(floor: int) -> str:
    """Return the Client Identifier of a floor's gateway."""
    return f"gateway-f{floor:02}"


def status(floor: int) -> str:
    """Return the topic of a gateway's state, online or offline."""
    return f"hq/f{floor:02}/gateway/status"


def _covers(outage: _Outage | None, at: int) -> bool:
    return outage is not None and outage.begin <= at < outage.end
