"""Kill -9 in the middle of QoS 1 and QoS 2 exchanges: the Sessions of both sides complete them."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable

import pytest

from tests.paho import PahoClient
from tests.processes import PATIENCE, BrokerProcess, lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

WINDOW = 40
KILLS = 5
END = b"that is all"


def lasting(port: int, version: int, client_id: str) -> PahoClient:
    """Return a client with a Session that reconnects when the test says so.

    Otherwise it would try while the broker is away. After the second try paho 2.2 forgets that it has sent PUBREL, and
    sends PUBLISH again. The standard forbids this, since the broker cannot distinguish it from a new message.
    """
    return PahoClient(port, version, client_id, clean=False, expiry=600, comes_back=False)


class Publisher:
    """Publishes numbers with one QoS, always :data:`WINDOW` at a time, until the test stops it.

    All but the first are published from paho's own thread when an exchange is completed, so that they leave in order.
    """

    def __init__(self, port: int, version: int, qos: int) -> None:
        self.topic = f"crash/{qos}"
        self.published = 0
        self.completed = 0  #: PUBACK or PUBCOMP has come
        self._qos = qos
        self._stopping = False
        self._progress = threading.Condition()
        self.paho = lasting(port, version, f"publisher-{qos}")
        self.paho.client.on_publish = lambda *_: self._on_completed()
        self._publish()

    def _publish(self) -> None:
        self.published += 1
        self.paho.client.publish(self.topic, b"%d" % self.published, self._qos)

    def _on_completed(self) -> None:
        with self._progress:
            self.completed += 1
            self._progress.notify()
        while not self._stopping and self.published - self.completed < WINDOW:
            self._publish()

    def reach(self, completed: int) -> None:
        """Wait until this many exchanges are completed."""
        with self._progress:
            assert self._progress.wait_for(lambda: self.completed >= completed, PATIENCE)

    def finish(self) -> None:
        """Stop publishing; wait until every exchange is completed, then send the subscriber the last message."""
        self._stopping = True
        with self._progress:
            assert self._progress.wait_for(lambda: self.completed == self.published, PATIENCE)
        self.paho.publish(self.topic, END, self._qos)
        self.paho.close()


def received(subscriber: PahoClient, topics: set[str]) -> dict[str, list[int]]:
    """Return the numbers that came on each topic, until each has had its last message."""
    numbers: dict[str, list[int]] = {topic: [] for topic in topics}
    going_on = set(topics)
    while going_on:
        message = subscriber.next_message()
        if message.payload == END:
            going_on.discard(message.topic)
        else:
            numbers[message.topic].append(int(message.payload))
    return numbers


@pytest.mark.parametrize("version", [4, 5])
def test_acknowledged_messages_arrive_despite_kills(
    broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...], version: int
) -> None:
    """QoS 1: at least once, and the first time in order. QoS 2: exactly once, in order."""
    port = lasting_port()
    broker = broker_in(*storage, "--listen", f"tcp:{port}:interface=127.0.0.1", listen=False).start()
    subscriber = lasting(port, version, "subscriber")
    subscriber.subscribe("crash/#", qos=2)
    publishers = [Publisher(port, version, qos) for qos in (1, 2)]
    chance = random.Random(version)
    for _ in itertools.repeat(None, KILLS):
        one = chance.choice(publishers)
        one.reach(one.completed + chance.randrange(1, 200))
        broker.kill()
        broker.start()
        for client in (subscriber, *(publisher.paho for publisher in publishers)):
            client.reconnect()
            assert client.session_present
    for publisher in publishers:
        publisher.finish()
    numbers = received(subscriber, {publisher.topic for publisher in publishers})
    subscriber.close()
    for publisher in publishers:
        assert publisher.completed > KILLS
        came = numbers[publisher.topic]
        if publisher.topic == "crash/1":
            came = list(dict.fromkeys(came))
        assert came == list(range(1, publisher.published + 1))
    assert broker.stop() == (0, "")
    assert "Traceback" not in "\n".join(broker.lines)
