"""A Client that publishes numbers, and receives the messages of other Clients with No Local."""

from __future__ import annotations

import asyncio
from hashlib import sha256

from attrs import evolve

from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.e2e.never_stale.ledger import Ledger
from tests.e2e.never_stale.plan import Habit, Kind
from tests.e2e.never_stale.subscriber import Conduct, Subscriber
from tests.e2e.never_stale.witness import Violation

#: PUBLISH packets in flight, which is less than the broker's Receive Maximum
_WINDOW = 500


class Publisher(Subscriber):
    """Stays connected from beginning to end. Only with MQTT 5 it numbers its clears and receives messages."""

    def __init__(
        self, client_id: str, prefix: str, version: int, node: int, port: int, ledger: Ledger, conduct: Conduct
    ) -> None:
        super().__init__(
            client_id,
            prefix,
            Habit(version, False, 65_535, 1 << 18, False, False, told=True),
            node,
            port,
            ledger,
            conduct,
        )
        self._in_flight: dict[int, int] = {}
        self._conditional: dict[int, bool] = {}  #: whether the conditions hold, by Packet Identifier
        self._progress = asyncio.Event()

    @property
    def _no_local(self) -> bool:
        return self.habit.version == 5

    async def publish(self, topic: str, kind: Kind, qos: int, padding: int = 0, condition: bool | None = None) -> None:
        """Publish the next value; wait only for a place in the window.

        With a ``condition`` that does not hold, the value has to be refused. Where nobody knows, it has no condition.
        """
        while len(self._in_flight) >= _WINDOW and self.link is not None:
            self._progress.clear()
            await self._progress.wait()
        link = self.link
        if link is None:
            return
        v5 = link.version == 5
        asked = self._condition(topic, condition) if kind is not Kind.PASSING and qos else ()
        if asked and not condition:
            value = self.ledger.refuse()
        else:
            value = self.ledger.publish(topic, kind, qos, self.client_id, self.node, v5).value
        number = b"%d" % value
        properties = Properties(user_properties=asked)
        if kind is Kind.CLEAR and v5:
            properties = evolve(properties, correlation_data=number)
        elif kind is Kind.EXPIRING and v5:
            properties = evolve(properties, message_expiry_interval=1)
        payload = b"" if kind is Kind.CLEAR else (number + b" ").ljust(padding)
        if kind is not Kind.PASSING and (condition or not asked):
            self.ledger.payloads[topic] = payload
        identifier = 0
        if qos:
            identifier = next(self._packet_identifiers)
            while identifier in self._in_flight or identifier in self._asked:
                identifier = next(self._packet_identifiers)
            self._in_flight[identifier] = value
            if asked:
                self._conditional[identifier] = bool(condition)
        link.send(p.Publish(topic, payload, qos, kind is not Kind.PASSING, False, identifier, properties))

    def _condition(self, topic: str, holds: bool | None) -> tuple[tuple[str, str], ...]:
        """Return conditions that hold, or that do not hold; none where nobody knows."""
        if holds is None or self.habit.version < 5 or not self.ledger.is_certain(topic, self.node):
            return ()
        present = self.ledger.payloads[topic] if self.ledger.newest[topic].kind is Kind.SET else None
        if (present is None) == holds:
            return (("holdfast-if-absent", ""),)
        return (("holdfast-if-payload-sha256", sha256(present or b"another").hexdigest()),)

    def _decided(self, packet: p.Puback | p.Pubrec) -> None:
        """Judge the decision about a conditional message."""
        expected = self._conditional.pop(packet.packet_identifier)
        value = self._in_flight[packet.packet_identifier]
        told = dict(packet.properties.user_properties)
        if (packet.reason_code == 0x83) is expected or "holdfast-revision" not in told:
            self._conduct.complain(Violation(f"{self.client_id}: value {value}, expected {expected}: {packet}"))
        elif expected:
            topic = self.ledger.publications[value].topic
            if not self.ledger.revisions.told(topic, value, int(told["holdfast-revision"])):
                self._conduct.complain(Violation(f"{self.client_id}: revisions of {topic} out of order: {packet}"))

    async def decided(self) -> None:
        """Wait for the decisions about all conditional messages."""
        while self._conditional and self.link is not None:
            self._progress.clear()
            await self._progress.wait()

    async def settle(self, marker: str) -> None:
        """Publish to the topic ``marker``, and wait until everything published before is stored."""
        published = set(self.ledger.publications)
        await self.publish(marker, Kind.SET, 1)
        while self._in_flight and self.link is not None:
            self._progress.clear()
            await self._progress.wait()
        for value in published:
            if self.ledger.publications[value].publisher == self.client_id:
                self.ledger.accept(value, True)

    def _acknowledged(self, packet: p.Packet) -> None:
        self._progress.set()
        refused = False
        if isinstance(packet, p.Puback | p.Pubrec) and packet.packet_identifier in self._conditional:
            refused = not self._conditional[packet.packet_identifier]
            self._decided(packet)
        match packet:
            case p.Puback() | p.Pubrec() if refused:
                del self._in_flight[packet.packet_identifier]
            case p.Puback() | p.Pubrec() if packet.reason_code >= 0x80:
                self._conduct.complain(Violation(f"{self.client_id}: {packet}"))
            case p.Puback():
                self.ledger.accept(self._in_flight.pop(packet.packet_identifier), True)
            case p.Pubrec():
                self.ledger.accept(self._in_flight[packet.packet_identifier], True)
                assert self.link is not None
                self.link.send(p.Pubrel(packet.packet_identifier))
            case p.Pubcomp():
                del self._in_flight[packet.packet_identifier]
            case _:
                super()._acknowledged(packet)

    def _ended_by_broker(self, last_words: str) -> None:
        super()._ended_by_broker(last_words)
        self._progress.set()
