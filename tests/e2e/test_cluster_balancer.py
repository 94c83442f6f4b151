"""Clients of other makers behind a balancer that gives them another member of the cluster at each connection.

They have lasting Sessions, and their connections end again and again while others publish. The promise: no message with
QoS 1 is lost, each with QoS 2 comes once.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt import publish
from paho.mqtt.enums import CallbackAPIVersion

from tests.e2e.balancer import Balancer
from tests.e2e.makes import needs_mosquitto, needs_mqttjs
from tests.e2e.test_cluster import member
from tests.processes import PATIENCE, BrokerProcess

__all__ = ["member"]
pytestmark = [pytest.mark.e2e]

Member = Callable[..., BrokerProcess]


class Follower:
    """A subscriber, which counts the messages by their numbers."""

    def __init__(self, name: str, port: int, qos: int) -> None:
        self.qos = qos
        self.got: Counter[int] = Counter()
        self.is_subscribed = threading.Event()

    def take(self, payload: str) -> None:
        """Count a message."""
        self.got[int(payload)] += 1

    def missing(self, count: int) -> list[int]:
        """Return the first messages that have not come."""
        return [number for number in range(count) if not self.got[number]][:10]

    def twice(self) -> list[int]:
        """Return the first messages that have come more than once."""
        return [number for number, times in self.got.items() if times > 1][:10]

    def end(self) -> None:
        """End the client."""


def paho(name: str) -> mqtt.Client:
    """Return a client of paho with a lasting Session, which connects again by itself."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, name, clean_session=False)
    client.reconnect_delay_set(0.1, 1)  # type: ignore[arg-type]
    return client


class PahoFollower(Follower):
    """A subscriber of paho."""

    def __init__(self, name: str, port: int, qos: int) -> None:
        super().__init__(name, port, qos)
        self._client = paho(name)
        self._client.on_message = lambda _c, _u, message: self.take(message.payload.decode())
        self._client.on_subscribe = lambda *_: self.is_subscribed.set()
        self._client.connect("127.0.0.1", port)
        self._client.subscribe(f"numbers/{qos}", qos)
        self._client.loop_start()

    def end(self) -> None:
        """End the client."""
        self._client.disconnect()
        self._client.loop_stop()


class ProcessFollower(Follower):
    """A subscriber that is a process, and tells the payloads in lines."""

    ready = "ready"

    def __init__(self, name: str, port: int, qos: int) -> None:
        super().__init__(name, port, qos)
        self._process = subprocess.Popen(
            self.command(name, port, qos), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def command(self, name: str, port: int, qos: int) -> Sequence[str]:
        """Return the command of the process."""
        raise NotImplementedError

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(self.ready):
                self.is_subscribed.set()
            elif line.strip().isdecimal():
                self.take(line)

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._reader.join()


class MqttJsFollower(ProcessFollower):
    """A subscriber of MQTT.js."""

    def command(self, name: str, port: int, qos: int) -> Sequence[str]:
        """Return the command of the process."""
        program = Path(__file__).parent / "mqttjs_following.js"
        options = {"host": "127.0.0.1", "port": port, "clientId": name}
        return ["node", str(program), json.dumps(options), json.dumps(f"numbers/{qos}"), str(qos)]


class MosquittoFollower(ProcessFollower):
    """A subscriber of libmosquitto. It connects again a second after each end.

    It does not report its subscription. So a retained message reports it.
    """

    def command(self, name: str, port: int, qos: int) -> Sequence[str]:
        """Return the command of the process."""
        publish.single(f"ready/{name}", self.ready, 1, True, hostname="127.0.0.1", port=port)
        where = ["-h", "127.0.0.1", "-p", str(port), "-i", name, "-c"]
        return ["mosquitto_sub", *where, "-q", str(qos), "-t", f"numbers/{qos}", "-t", f"ready/{name}", "-F", "%p"]


class Publisher:
    """Publishes numbers with one QoS through a balancer, by paho, which sends again what was not acknowledged."""

    def __init__(self, port: int, qos: int) -> None:
        self._qos = qos
        self._acknowledged = 0
        self._client = paho(f"publisher {qos}")
        self._client.on_publish = self._published
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def _published(self, *_: object) -> None:
        self._acknowledged += 1

    def publish(self, numbers: range) -> None:
        """Publish the next numbers. Without a connection they wait for the next one."""
        for number in numbers:
            self._client.publish(f"numbers/{self._qos}", b"%d" % number, self._qos)

    def is_acknowledged(self, count: int) -> bool:
        """Tell whether so many messages are acknowledged."""
        return self._acknowledged >= count

    def end(self) -> None:
        """End the client."""
        self._client.disconnect()
        self._client.loop_stop()


class Pair:
    """Two members, and a balancer of its own for each client: so each connection is to the other member."""

    def __init__(self, ports: Sequence[int], stack: ExitStack) -> None:
        self._ports = ports
        self._stack = stack
        self._balancers: list[Balancer] = []
        self.followers: list[Follower] = []
        self._publishers: list[Publisher] = []

    def _port(self) -> int:
        balancer = self._stack.enter_context(Balancer(self._ports))
        self._balancers.append(balancer)
        return balancer.port

    def follow(self, make: type[Follower], qos: int) -> None:
        """Let a client subscribe."""
        follower = make(f"{make.__name__} {qos}", self._port(), qos)
        self._stack.callback(follower.end)
        self.followers.append(follower)
        assert follower.is_subscribed.wait(PATIENCE)

    def publish(self, count: int, cuts: int) -> None:
        """Publish so many messages with each QoS, in parts; all connections end in the middle of each but the last."""
        publishers = [Publisher(self._port(), qos) for qos in (1, 2)]
        for publisher in publishers:
            self._stack.callback(publisher.end)
        part = count // (cuts + 1)
        for start in range(0, count, part):
            end = min(start + part, count)
            for publisher in publishers:
                publisher.publish(range(start, end))
            if end < count:
                self._wait_for_each(start + part // 3)
                for balancer in self._balancers:
                    balancer.cut()
            wait(lambda last=end: all(publisher.is_acknowledged(last) for publisher in publishers))  # type: ignore[misc]
        assert all(publisher.is_acknowledged(count) for publisher in publishers)

    def check(self, count: int) -> None:
        """Wait until all messages have come to all subscribers, and look what has come twice."""
        self._wait_for_each(count)
        for follower in self.followers:
            name = type(follower).__name__
            assert not follower.missing(count), f"{name} with QoS {follower.qos} has lost messages"
            if follower.qos == 2:
                assert not follower.twice(), f"{name} got messages twice"
        assert all(balancer.count > 1 for balancer in self._balancers)

    def _wait_for_each(self, count: int) -> None:
        wait(lambda: all(len(each.got) >= count for each in self.followers))


def wait(is_reached: Callable[[], bool]) -> None:
    """Wait until this is so, or for too long."""
    end = time.monotonic() + PATIENCE
    while not is_reached() and time.monotonic() < end:
        time.sleep(0.02)


@pytest.fixture
def pair(member: Member, url: str) -> Iterator[Pair]:
    """Two members behind balancers."""
    brokers = [member(1, url).start(), member(2, url).start()]
    with ExitStack() as stack:
        yield Pair([broker.port for broker in brokers], stack)
    assert [broker.stop() for broker in brokers] == [(0, ""), (0, "")]


def test_clients_change_the_member_at_each_connection(pair: Pair) -> None:
    """A few hundred messages, and subscribers of one maker."""
    pair.follow(PahoFollower, 1)
    pair.follow(PahoFollower, 2)
    pair.publish(count=300, cuts=4)
    pair.check(300)


@pytest.mark.nightly
@needs_mosquitto
@needs_mqttjs
def test_ten_thousand_messages_and_clients_of_three_makers(pair: Pair) -> None:
    """While all of them change the member twenty times."""
    for make in (PahoFollower, MqttJsFollower, MosquittoFollower):
        pair.follow(make, 1)
        pair.follow(make, 2)
    pair.publish(count=10_000, cuts=20)
    pair.check(10_000)
