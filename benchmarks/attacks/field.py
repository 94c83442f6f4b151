"""The field of one attack: a broker of its own, the attackers, and the size of the attack."""

from __future__ import annotations

from typing import Any

from benchmarks.attacker import Attacker
from benchmarks.brokers import Broker
from holdfast.wire import Properties
from holdfast.wire import packets as p


class Field:
    """Makes attackers, and resets their connections at the end. ``size`` is 1, or less for a quick run."""

    def __init__(self, broker: Broker, size: float) -> None:
        self.broker = broker
        self.size = size
        self.attackers: list[Attacker] = []

    def attacker(self, client_id: str = "", **options: Any) -> Attacker:
        """Connect one more attacker."""
        attacker = Attacker(self.broker.port, client_id, **options)
        self.attackers.append(attacker)
        return attacker

    def many(self, number: int) -> int:
        """Return a number as large as the size of the attack allows, at least 1."""
        return max(1, round(number * self.size))

    def retain(self, topics: list[str], payload: bytes) -> None:
        """Publish retained messages with QoS 1."""
        publisher = Attacker(self.broker.port)
        for topic in topics:
            publisher.publish(p.Publish(topic, payload, 1, True, packet_identifier=1))
        publisher.vanish()

    def warm_up(self) -> None:
        """Let the broker do a little of everything once: the memory of the first times is no cost of an attack."""
        client = Attacker(self.broker.port, "warm", expiry=60)
        client.subscribe(["warm/#"])
        client.publish(p.Publish("other/warm", b"x" * 100, 1, True, packet_identifier=1), 300, 1)
        client.publish(p.Publish("other/warm", b"", 1, True, packet_identifier=1))
        client.send(p.Disconnect(0, Properties(session_expiry_interval=0)))
        client.vanish()

    def restart(self) -> None:
        """Restart the broker, so that the memory of the preparation does not count."""
        for attacker in self.attackers:
            attacker.vanish()
        self.attackers.clear()
        self.broker.restart()

    def leave(self) -> None:
        """Reset all connections."""
        for attacker in self.attackers:
            attacker.vanish()
