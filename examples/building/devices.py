"""The simulated devices: clients that wait for acknowledgements, so that no queue overflows."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from examples.building.day import Client
from examples.building.events import Back, Event, Lost, Message

#: Seconds without an answer after which the day fails.
_PATIENCE = 60.0
#: The unacknowledged messages of one client; the broker allows 1000.
_IN_FLIGHT = 200
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
    """All clients of a building. ``counts`` has the numbers of messages by kind, and of lost connections."""

    def __init__(self, port: int, clients: Iterable[Client]) -> None:
        self.counts: Counter[str] = Counter()
        self._port = port
        self._devices = {client.client_id: _Device(client, port) for client in clients}

    def play(self, events: Iterable[Event]) -> None:
        """Play events, in order for each client, as fast as the broker acknowledges them.

        Raises :class:`Unanswered`.
        """
        for event in events:
            device = self._devices[event.client]
            match event:
                case Message():
                    device.publish(event)
                    self.counts[event.kind.value] += 1
                case Lost():
                    device.settle()
                    device.lose()
                    self.counts["connections lost, each with a Will"] += 1
                case Back():
                    device.connect()

    def settle(self) -> None:
        """Wait until all messages are acknowledged. Raises :class:`Unanswered`."""
        for device in self._devices.values():
            device.settle()

    def end(self) -> None:
        """Disconnect all clients; their Wills are not published."""
        for device in self._devices.values():
            device.end()


class _Device:
    def __init__(self, client: Client, port: int) -> None:
        self._who = client
        self._port = port
        self._window = threading.BoundedSemaphore(_IN_FLIGHT)
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
        if not self._window.acquire(timeout=_PATIENCE):
            raise Unanswered(f"{self._who.client_id}: no acknowledgement for {_PATIENCE:g} seconds")
        self._check()
        properties = None
        if message.expires is not None or message.content_type is not None:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            if message.expires is not None:
                properties.MessageExpiryInterval = message.expires
            if message.content_type is not None:
                properties.ContentType = message.content_type
        self._client.publish(message.topic, message.payload, message.qos, True, properties)

    def settle(self) -> None:
        """Wait until all messages are acknowledged."""
        deadline = time.monotonic() + _PATIENCE
        for taken in range(_IN_FLIGHT):
            if not self._window.acquire(timeout=max(0.0, deadline - time.monotonic())):
                raise Unanswered(f"{self._who.client_id}: {_IN_FLIGHT - taken} messages are not acknowledged")
        self._window.release(_IN_FLIGHT)
        self._check()

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
        self._window.release()

    def _check(self) -> None:
        if not self._refused.empty():
            raise Unanswered(f"{self._who.client_id}: a message was refused: {self._refused.get()}")


def leave_sessions(port: int) -> int:
    """Let the readers subscribe and disconnect; return the number of subscriptions in their Sessions.

    Raises :class:`Unanswered`.
    """
    for client_id, filters in _READERS.items():
        client = _client(client_id, 5)
        granted: queue.SimpleQueue[Any] = queue.SimpleQueue()
        client.on_subscribe = lambda _client, _user, _mid, codes, _properties, granted=granted: granted.put(codes)  # type: ignore[misc]
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _WEEK
        _connected(client, port, properties)
        client.subscribe([(one, SubscribeOptions(qos=0)) for one in filters])
        try:
            granted.get(timeout=_PATIENCE)
        except queue.Empty:
            raise Unanswered(f"{client_id}: no SUBACK for {_PATIENCE:g} seconds") from None
        client.disconnect()
        client.loop_stop()
    return sum(map(len, _READERS.values()))


def _client(client_id: str, version: int) -> mqtt.Client:
    return mqtt.Client(
        CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion(version), reconnect_on_failure=False
    )


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
