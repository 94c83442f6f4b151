"""The simulated devices: clients that publish the day, and set the broker's clock.

How it works. Events within ``_TOGETHER`` seconds are published together. The clock first shows the time of the last
one, and stands still until the broker has acknowledged all of them. So the broker's times depend only on the seed and
the start, and it stores each message 0 to ``_TOGETHER`` seconds after its event. Only expiries have the times of the
broker's sweeps, which run in real time.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from examples.building.clock import DayClock
from examples.building.day import Client
from examples.building.events import Back, Day, Event, Lost, Message

#: Seconds without an answer after which the day fails.
_PATIENCE = 60.0
#: The unacknowledged messages of one client; the broker allows 1000.
_IN_FLIGHT = 200
#: The most seconds between events that are published together.
_TOGETHER = 60
#: The clients that only subscribe, with their Topic Filters. Their Sessions outlast the day.
_READERS = {
    "dashboard": ("hq/+/+/climate/#", "hq/+/gateway/status"),
    "energy-report": ("hq/+/+/meter/energy",),
    "historian": ("#",),
    "night-watch": ("hq/+/+/window/+/contact", "hq/+/+/smoke/status"),
    "scada-view": ("spBv1.0/#", "$share/views/hq/#"),
}
_WEEK = 7 * 86_400


class Unanswered(Exception):
    """The broker does not answer, or refuses a request; the text says which one."""


class Devices:
    """All clients of a building on a day. ``counts`` has the numbers of messages by kind, and of lost connections."""

    def __init__(self, port: int, clients: Sequence[Client], day: Day, clock: DayClock) -> None:
        self.counts: Counter[str] = Counter()
        self._day = day
        self._clock = clock
        self._witness = _Witness(port, {one.will[0]: one.will[1] for one in clients if one.will and one.will[2]})
        self._devices = {client.client_id: _Device(client, port) for client in clients}

    def play(self, events: Iterable[Event]) -> None:
        """Play events in order, as fast as the broker acknowledges them. Raises :class:`Unanswered`."""
        for together in _groups(events):
            self._clock.set(self._day.milliseconds(together[-1].at))
            for event in together:
                self._play(event)
            for client_id in {event.client for event in together}:
                self._devices[client_id].settle()

    def _play(self, event: Event) -> None:
        device = self._devices[event.client]
        match event:
            case Message():
                device.publish(event)
                self.counts[event.kind.value] += 1
            case Lost():
                device.settle()
                device.lose()
                self._witness.await_will()
                self.counts["connections lost, each with a Will"] += 1
            case Back():
                device.connect()

    def end(self) -> None:
        """Disconnect all clients; their Wills are not published."""
        for device in self._devices.values():
            device.end()
        self._witness.end()


def _groups(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Yield the events that are published together, in their order."""
    together: list[Event] = []
    for event in events:
        if together and event.at - together[0].at > _TOGETHER:
            yield together
            together = []
        together.append(event)
    if together:
        yield together


class _Device:
    def __init__(self, client: Client, port: int) -> None:
        self._who = client
        self._port = port
        self._in_flight = 0
        self._acknowledgement = threading.Condition()
        self._refused: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.connect()

    def connect(self) -> None:
        """Connect, with the Will. Raises :class:`Unanswered`."""
        self._client = _client(self._who.client_id, self._who.version)
        self._client.max_inflight_messages_set(_IN_FLIGHT)
        self._client.on_publish = self._acknowledged
        if self._who.will is not None:
            topic, payload, retained = self._who.will
            self._client.will_set(topic, payload, 1, retained)
        _connected(self._client, self._port)

    def publish(self, message: Message) -> None:
        """Publish, as soon as fewer than 200 messages are unacknowledged."""
        self._wait(_IN_FLIGHT - 1)
        properties = None
        if message.expires is not None or message.content_type is not None:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            if message.expires is not None:
                properties.MessageExpiryInterval = message.expires
            if message.content_type is not None:
                properties.ContentType = message.content_type
        with self._acknowledgement:
            self._in_flight += 1
        self._client.publish(message.topic, message.payload, message.qos, True, properties)

    def settle(self) -> None:
        """Wait until all messages are acknowledged."""
        self._wait(0)

    def lose(self) -> None:
        """Close the connection without DISCONNECT, like a power failure."""
        self._client.loop_stop()
        socket = self._client.socket()
        if socket is not None:
            socket.close()

    def end(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()

    def _acknowledged(self, _client: Any, _user: Any, _mid: int, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._refused.put(str(reason))
        with self._acknowledgement:
            self._in_flight -= 1
            self._acknowledgement.notify()

    def _wait(self, most: int) -> None:
        """Wait until at most so many messages are unacknowledged. Raises :class:`Unanswered`."""
        with self._acknowledgement:
            if not self._acknowledgement.wait_for(lambda: self._in_flight <= most, _PATIENCE):
                raise Unanswered(
                    f"{self._who.client_id}: {self._in_flight} messages are unacknowledged after {_PATIENCE:g} seconds"
                )
        if not self._refused.empty():
            raise Unanswered(f"{self._who.client_id}: a message was refused: {self._refused.get()}")


class _Witness:
    """A client that receives the Wills, so that the clock waits for each of them."""

    def __init__(self, port: int, wills: Mapping[str, bytes]) -> None:
        """Subscribe to topics of Wills with these payloads. Raises :class:`Unanswered`."""
        self._published: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._client = _client("witness", 5)

        def received(_client: Any, _user: Any, message: mqtt.MQTTMessage) -> None:
            if message.payload == wills[message.topic]:
                self._published.put(message.topic)

        self._client.on_message = received
        _connected(self._client, port)
        _subscribed(self._client, "witness", [(topic, SubscribeOptions(qos=1)) for topic in wills])

    def await_will(self) -> None:
        """Wait for the next Will. Raises :class:`Unanswered`."""
        try:
            self._published.get(timeout=_PATIENCE)
        except queue.Empty:
            raise Unanswered(f"a connection was lost, but no Will came for {_PATIENCE:g} seconds") from None

    def end(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()


def leave_sessions(port: int) -> int:
    """Let the readers subscribe and disconnect; return the number of subscriptions in their Sessions.

    Raises :class:`Unanswered`.
    """
    for client_id, filters in _READERS.items():
        client = _client(client_id, 5)
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _WEEK
        _connected(client, port, properties)
        _subscribed(client, client_id, [(one, SubscribeOptions(qos=0)) for one in filters])
        client.disconnect()
        client.loop_stop()
    return sum(map(len, _READERS.values()))


def _client(client_id: str, version: int) -> mqtt.Client:
    return mqtt.Client(
        CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion(version), reconnect_on_failure=False
    )


def _subscribed(client: mqtt.Client, client_id: str, filters: Sequence[tuple[str, SubscribeOptions]]) -> None:
    granted: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.on_subscribe = lambda _client, _user, _mid, codes, _properties: granted.put(codes)
    client.subscribe(list(filters))
    try:
        granted.get(timeout=_PATIENCE)
    except queue.Empty:
        raise Unanswered(f"{client_id}: no SUBACK for {_PATIENCE:g} seconds") from None


def _connected(client: mqtt.Client, port: int, properties: Properties | None = None) -> None:
    connected: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.on_connect = lambda _client, _user, _flags, reason, _properties: connected.put(reason)
    client.connect("127.0.0.1", port, properties=properties)
    client.loop_start()
    try:
        reason = connected.get(timeout=_PATIENCE)
    except queue.Empty:
        raise Unanswered(f"no CONNACK for {_PATIENCE:g} seconds") from None
    if reason.is_failure:
        raise Unanswered(f"the broker refuses the connection: {reason}")
