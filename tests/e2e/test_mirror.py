"""The mirror of the examples equals the retained messages, however often the broker is killed."""

from __future__ import annotations

import contextlib
import itertools
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from examples.mirror import mirror
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.processes import PATIENCE, BrokerProcess, lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

TOPICS = 60
BURST = 150
#: every so many messages one clears its topic
CLEARED = 7

State = dict[str, bytes]


def stored(port: int) -> State:
    """Return the retained messages, as a new subscriber gets them."""
    client = RawClient(port)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("$replay/end"), p.SubscriptionRequest("m/#"))))
    found: State = {}
    for packet in client.packets():
        if isinstance(packet, p.Publish):
            if packet.topic == "$replay/end":
                break
            found[packet.topic] = packet.payload
    client.close()
    return found


class Writer:
    """Sets and clears topics with every QoS, many at once, on one connection after another."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self._numbers = itertools.count(1)
        self._chance = random.Random(seed)

    def burst(self, port: int) -> None:
        """Publish, and wait until everything is stored, or the connection ends."""
        with contextlib.suppress(OSError, StopIteration):
            client = RawClient(port, self.name)
            open_: set[int] = set()
            packets: list[p.Packet] = []
            for number in itertools.islice(self._numbers, BURST):
                qos = self._chance.randrange(3)
                payload = b"" if number % CLEARED == 0 else b"%d of %s" % (number, self.name.encode())
                identifier = number % 60_000 + 1 if qos else 0
                open_ |= {identifier} - {0}
                topic = f"m/{self._chance.randrange(TOPICS)}"
                packets.append(p.Publish(topic, payload, qos, True, False, identifier))
            client.send(*packets, p.Pingreq())
            answered = False
            for packet in client.packets():
                if isinstance(packet, p.Pubrec):
                    client.send(p.Pubrel(packet.packet_identifier))
                elif isinstance(packet, p.Puback | p.Pubcomp):
                    open_.discard(packet.packet_identifier)
                answered |= isinstance(packet, p.Pingresp)
                if answered and not open_:
                    break
            client.close()


class Copy:
    """A running mirror. ``markers`` has what it knew at each marker, and whether everything was replayed."""

    def __init__(self, port: int) -> None:
        self.state: State = {}
        self.markers: queue.Queue[tuple[str, State]] = queue.Queue()
        self._client = mirror("127.0.0.1", port, "m/#", self.state, self._exact)
        self._client.reconnect_delay_set(1, 1)
        self._client.loop_start()

    def _exact(self, since: str) -> None:
        self.markers.put((since, dict(self.state)))

    def next_marker(self) -> tuple[str, State]:
        """Return what the mirror knew at the next marker."""
        return self.markers.get(timeout=PATIENCE)

    def end(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()

    def becomes(self, wanted: State) -> None:
        """Wait until the mirror has exactly these messages."""
        deadline = time.monotonic() + PATIENCE
        while self.state.copy() != wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.state == wanted


@pytest.fixture
def broker(broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...]) -> BrokerProcess:
    """A broker that keeps its port."""
    return broker_in(*storage, "--listen", f"tcp:{lasting_port()}:interface=127.0.0.1", listen=False).start()


@pytest.fixture
def copy(broker: BrokerProcess) -> Iterator[Copy]:
    """A mirror of the broker."""
    copy = Copy(broker.port)
    yield copy
    copy.end()


def restart_often(broker: BrokerProcess, copy: Copy, times: int) -> None:
    """Kill the broker in the midst of its work, or stop it; compare at the marker, and again after changes.

    After kill -9, everything is replayed: the mirror may know messages that were never committed. After a stop, only
    the changes are.
    """
    writers = [Writer(f"w{number}", number) for number in range(2)]
    chance = random.Random(times)
    copy.next_marker()
    for number in range(times):
        at_work = [threading.Thread(target=writer.burst, args=(broker.port,)) for writer in writers]
        for thread in at_work:
            thread.start()
        time.sleep(chance.random() / 20)
        is_stopped = number % 4 == 2
        if is_stopped:
            assert broker.stop() == (0, "")
        else:
            broker.kill()
        for thread in at_work:
            thread.join(PATIENCE)
        broker.start()
        if number % 2:  # changes race with the replay
            writers[0].burst(broker.port)
            copy.next_marker()
        else:
            assert copy.next_marker() == ("delta" if is_stopped else "full", stored(broker.port))
        copy.becomes(stored(broker.port))
    assert copy.markers.empty()


def test_a_mirror_stays_exact_through_kills(broker: BrokerProcess, copy: Copy) -> None:
    """What was sent live and lost by kill -9 is not in the mirror either."""
    restart_often(broker, copy, 3)


@pytest.mark.nightly
def test_a_mirror_stays_exact_through_a_hundred_kills(broker: BrokerProcess, copy: Copy) -> None:
    """The same with a hundred, and a third as many stops."""
    restart_often(broker, copy, 134)
