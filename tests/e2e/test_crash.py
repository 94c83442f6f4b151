"""PUBACK means stored: kill -9 loses no acknowledged message, and brings no cleared one back."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.faults.storm import retained
from tests.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

WINDOW = 200
TOPICS = 500


class Storm(threading.Thread):
    """Publishes increasing values and clears to its own topics with QoS 1; notes the acknowledged ones."""

    def __init__(self, port: int, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.sent: dict[int, tuple[str, int]] = {}
        self.acknowledged: dict[str, int] = {}
        self.published: dict[str, int] = {}
        self._client = RawClient(port, name)
        self._prefix = name
        self._random = random.Random(seed)
        self._sequence = 0
        self.enough = threading.Event()

    def run(self) -> None:
        free = list(range(1, WINDOW + 1))
        try:
            self._send(free)
            for packet in self._client.packets():
                assert isinstance(packet, p.Puback)
                topic, value = self.sent.pop(packet.packet_identifier)
                self.acknowledged[topic] = max(value, self.acknowledged.get(topic, 0))
                free.append(packet.packet_identifier)
                if self._sequence > 3 * WINDOW:
                    self.enough.set()
                if len(free) > WINDOW // 4:
                    self._send(free)
        except OSError:
            return

    def _send(self, free: list[int]) -> None:
        packets = []
        while free:
            identifier = free.pop()
            self._sequence += 1
            topic = f"{self._prefix}/{self._random.randrange(TOPICS)}"
            payload = b"" if self._sequence % 10 == 0 else b"%d" % self._sequence
            self.sent[identifier] = (topic, self._sequence)
            self.published[topic] = self._sequence
            packets.append(p.Publish(topic, payload, 1, True, False, identifier))
        self._client.send(*packets)


@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.nightly)])
def test_kills_during_a_storm_lose_nothing_acknowledged(
    broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...], kills: int
) -> None:
    """After each kill -9, every topic has the value acknowledged last, or a later one."""
    broker = broker_in(*storage).start()
    acknowledged: dict[str, int] = {}
    total = 0
    for cycle in range(kills):
        storms = [Storm(broker.port, f"{cycle}-{number}", cycle * 10 + number) for number in range(3)]
        for storm in storms:
            storm.start()
        for storm in storms:
            assert storm.enough.wait(60)
        broker.kill()
        for storm in storms:
            storm.join(60)
            assert not storm.is_alive()
        broker.start()
        found = retained(broker.port)
        for storm in storms:
            for topic, value in storm.acknowledged.items():
                total += 1
                possible = storm.published[topic]
                kept = found.get(topic)
                if kept is None:  # cleared by the last acknowledged message, or by a later one
                    assert value % 10 == 0 or possible > value, (topic, value)
                else:
                    assert value <= kept <= possible, (topic, value, kept)
        for topic, value in acknowledged.items():  # the values of earlier cycles have not changed
            assert found.get(topic, 0) == value
        acknowledged.update({topic: found.get(topic, 0) for storm in storms for topic in storm.published})
    assert total > 1000


def test_a_retained_message_survives_a_stop(broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...]) -> None:
    """This is true of QoS 0, 1 and 2, after SIGTERM."""
    broker = broker_in(*storage).start()
    client = RawClient(broker.port, "c", 5)
    for qos in (0, 1, 2):
        client.send(p.Publish(f"kept/{qos}", b"1", qos, True, False, qos))
    client.send(p.Pingreq())
    for packet in client.packets():
        if isinstance(packet, p.Pubrec):
            client.send(p.Pubrel(packet.packet_identifier))
        elif isinstance(packet, p.Pubcomp):
            break
    assert broker.stop()[0] == 0
    broker.start()
    assert set(retained(broker.port)) == {"kept/0", "kept/1", "kept/2"}
