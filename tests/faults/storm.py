"""Kill -9 while clients publish: afterwards all acknowledged messages exist, and all cleared ones are gone."""

from __future__ import annotations

import contextlib
import random
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

from attrs import define, field

from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.faults.results import Result
from tests.processes import PATIENCE, BrokerProcess

WINDOW = 50
TOPICS = 40
#: every seventh value is a clear
CLEARED = 7
END = b"that is all"


@define(eq=False)
class Publisher:
    """Publishes increasing numbers with QoS 1 and 2, at most :data:`WINDOW` at a time, on one connection after another.

    ``topic_of`` gives a number's topic. A number is ``acknowledged`` with PUBACK or PUBREC.
    """

    name: str
    topic_of: Callable[[int], str]
    retained: bool
    number: int = 0
    acknowledged: set[int] = field(factory=set)
    progress: threading.Event = field(factory=threading.Event)

    def run(self, port: int) -> None:
        """Publish until the connection is closed."""
        with contextlib.suppress(OSError):
            client = RawClient(port, self.name)
            self._exchange(client)

    def _exchange(self, client: RawClient) -> None:
        on_the_way: dict[int, int] = {}
        free = list(range(1, WINDOW + 1))
        self._publish(client, free, on_the_way)
        for packet in client.packets():
            match packet:
                case p.Puback() | p.Pubcomp():
                    number = on_the_way.pop(packet.packet_identifier)
                    free.append(packet.packet_identifier)
                    if isinstance(packet, p.Puback):
                        self.acknowledged.add(number)
                case p.Pubrec():
                    self.acknowledged.add(on_the_way[packet.packet_identifier])
                    client.send(p.Pubrel(packet.packet_identifier))
            self.progress.set()
            if len(free) > WINDOW // 5:
                self._publish(client, free, on_the_way)

    def _publish(self, client: RawClient, free: list[int], on_the_way: dict[int, int]) -> None:
        packets = []
        while free:
            identifier = free.pop()
            self.number += 1
            on_the_way[identifier] = self.number
            payload = b"" if self.retained and self.number % CLEARED == 0 else b"%d" % self.number
            qos = 1 + self.number % 2
            packets.append(p.Publish(self.topic_of(self.number), payload, qos, self.retained, False, identifier))
        client.send(*packets)


@define(eq=False)
class Subscriber:
    """Has a Session that outlives its connections, and collects the received numbers."""

    name: str
    topic: str
    numbers: set[int] = field(factory=set)
    ended: threading.Event = field(factory=threading.Event)

    def subscribe(self, port: int) -> None:
        """Begin the Session."""
        client = RawClient(port, self.name, clean=False)
        client.send(p.Subscribe(1, (p.SubscriptionRequest(self.topic, 1),)))
        assert isinstance(next(client.packets()), p.Suback)
        client.close()

    def run(self, port: int) -> None:
        """Receive until the connection is closed or the last message has arrived."""
        with contextlib.suppress(OSError):
            client = RawClient(port, self.name, clean=False)
            for packet in client.packets():
                if not isinstance(packet, p.Publish):
                    continue
                client.send(p.Puback(packet.packet_identifier))
                if packet.payload == END:
                    self.ended.set()
                    return
                self.numbers.add(int(packet.payload))


@define
class Kept:
    """The number that must at least be retained in each topic of a publisher: acknowledged or found before."""

    publisher: Publisher
    least: dict[str, int] = field(factory=dict)

    def wrongs(self, found: dict[str, int]) -> tuple[list[str], list[str]]:
        """Return the lost values, and the cleared values that are retained again."""
        lost: list[str] = []
        resurrected: list[str] = []
        published: dict[str, list[int]] = {}
        for number in range(1, self.publisher.number + 1):
            published.setdefault(self.publisher.topic_of(number), []).append(number)
        for number in self.publisher.acknowledged:
            topic = self.publisher.topic_of(number)
            self.least[topic] = max(number, self.least.get(topic, 0))
        for topic, numbers in published.items():
            least = self.least.get(topic, 0)
            value = found.get(topic)
            clears = [number for number in numbers if number % CLEARED == 0 and number >= least]
            if value is None and least and not clears:
                lost.append(f"{topic}: no message is retained, but {least} was acknowledged")
            elif value is not None and value < least:
                wrong = resurrected if least % CLEARED == 0 else lost
                wrong.append(f"{topic}: {value} is retained, but {least} was acknowledged")
            elif value is not None and value not in numbers:
                lost.append(f"{topic}: {value} is retained, but was never published")
            self.least[topic] = max(least, value if value is not None else clears[0] if clears else 0)
        return lost, resurrected


def retained(port: int) -> dict[str, int]:
    """Return all retained messages, by a subscription to ``#``. No topic may arrive twice."""
    client = RawClient(port, "reader")
    client.send(p.Publish("~end", b"1", 1, True, False, 1), p.Subscribe(2, (p.SubscriptionRequest("#"),)))
    found: dict[str, int] = {}
    for packet in client.packets():
        if isinstance(packet, p.Publish) and packet.retain:
            if packet.topic == "~end":
                break
            assert packet.topic not in found
            found[packet.topic] = int(packet.payload)
    client.close()
    return found


def storm(directory: Path, store: str, options: tuple[str, ...], kills: int, seed: int = 1) -> Result:
    """Kill a broker ``kills`` times while four publishers and a subscriber are at work."""
    result = Result("kill -9 under load", store)
    chance = random.Random(seed)
    publishers = [
        Publisher(f"retainer-{name}", lambda number, name=name: f"kept/{name}/{number * 7 % TOPICS}", True)  # type: ignore[misc]
        for name in range(3)
    ]
    live = Publisher("live", lambda _: "live", False)
    subscriber = Subscriber("subscriber", "live")
    clients: list[Publisher | Subscriber] = [subscriber, *publishers, live]
    kept = [Kept(publisher) for publisher in publishers]
    broker = BrokerProcess(directory, *options)
    starts: list[float] = []
    lost = resurrected = 0
    try:
        for cycle in range(kills + 1):
            started = time.monotonic()
            broker.start()
            starts.append(time.monotonic() - started)
            if not cycle:
                subscriber.subscribe(broker.port)
            found = retained(broker.port)
            for each in kept:
                gone, back = each.wrongs(found)
                lost, resurrected = lost + len(gone), resurrected + len(back)
                result.broken += gone + back
            if cycle == kills:
                break
            threads = [threading.Thread(target=each.run, args=(broker.port,), daemon=True) for each in clients]
            for publisher in (*publishers, live):
                publisher.progress.clear()
            for thread in threads:
                thread.start()
            for publisher in (*publishers, live):
                result.expect(publisher.progress.wait(PATIENCE), f"{publisher.name}: no acknowledgement")
            time.sleep(chance.uniform(0, 0.4))
            broker.kill()
            result.tried += 1
            for thread in threads:
                thread.join(PATIENCE)
                result.expect(not thread.is_alive(), "a client does not notice that the broker was killed")
        missing = _missing(broker, live, subscriber)
        result.broken += missing
    finally:
        broker.end()
    result.figures = {
        "acknowledged": sum(len(one.acknowledged) for one in (*publishers, live)),
        "lost": lost + len(missing),
        "resurrected": resurrected,
        "start median": f"{statistics.median(starts):.2f} s",
        "start max": f"{max(starts):.2f} s",
    }
    return result


def _missing(broker: BrokerProcess, live: Publisher, subscriber: Subscriber) -> list[str]:
    """Return the live messages that were acknowledged and never received."""
    client = RawClient(broker.port, "the end")
    client.send(p.Publish("live", END, 1, False, False, 1))
    subscriber.run(broker.port)
    if not subscriber.ended.is_set():
        return ["the subscriber never received the last message"]
    return [f"live: {number} was acknowledged, but never received" for number in live.acknowledged - subscriber.numbers]
