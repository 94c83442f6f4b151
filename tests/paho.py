"""A blocking client for tests, on paho-mqtt: the same calls for MQTT 3.1.1 and 5.0."""

from __future__ import annotations

import queue
import time
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.processes import PATIENCE

Seen = tuple[str, bytes, int, bool]


class PahoClient:
    """Connects on creation; collects the received messages."""

    def __init__(
        self,
        port: int,
        version: int = 4,
        client_id: str = "",
        clean: bool = True,
        expiry: int = 0,
        will: tuple[str, bytes, int, bool] | None = None,
        receive_maximum: int | None = None,
        comes_back: bool = True,
    ) -> None:
        self.version = version
        self._arrived: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
        self._subscribed: queue.Queue[tuple[int, Any]] = queue.Queue()
        self._connected: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self.disconnected: queue.Queue[Any] = queue.Queue()
        extra: dict[str, Any] = {} if version == 5 else {"clean_session": clean}
        self.client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=MQTTProtocolVersion(version),
            reconnect_on_failure=comes_back,
            **extra,
        )
        self.client.max_inflight_messages_set(1000)
        self.client.on_message = lambda _c, _u, message: self._arrived.put(message)
        self.client.on_subscribe = lambda _c, _u, mid, codes, _p: self._subscribed.put((mid, codes))
        self.client.on_connect = lambda _c, _u, flags, code, _p: self._connected.put((flags, code))
        self.client.on_disconnect = lambda _c, _u, _f, code, _p: self.disconnected.put(code)
        if will is not None:
            self.client.will_set(*will)
        options: dict[str, Any] = {}
        if version == 5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = expiry
            if receive_maximum is not None:
                properties.ReceiveMaximum = receive_maximum
            options = {"clean_start": clean, "properties": properties}
        self.client.connect("127.0.0.1", port, **options)
        self.client.loop_start()
        self._await_connack()

    def _await_connack(self) -> None:
        flags, code = self._connected.get(timeout=PATIENCE)
        assert not code.is_failure, code
        self.session_present = flags.session_present

    def reconnect(self) -> None:
        """Connect again after a loss of the connection, and resume messages in flight. Needs ``comes_back`` false."""
        self.client.loop_stop()
        self.client.reconnect()
        self.client.loop_start()
        self._await_connack()

    def subscribe(self, *filters: str, qos: int = 0, handling: int = 0, **options: Any) -> list[int]:
        """Subscribe in one packet; return the granted codes."""
        if self.version == 5:
            wanted: Any = [(f, SubscribeOptions(qos=qos, retainHandling=handling, **options)) for f in filters]
        else:
            wanted = [(f, qos) for f in filters]
        self.client.subscribe(wanted)
        _, codes = self._subscribed.get(timeout=PATIENCE)
        return [code.value for code in codes]

    def publish(self, topic: str, payload: bytes | str = b"", qos: int = 1, retain: bool = False, **more: Any) -> None:
        """Publish and wait until it is acknowledged (QoS 0: sent)."""
        self.client.publish(topic, payload, qos, retain, **more).wait_for_publish(PATIENCE)

    def next_message(self) -> mqtt.MQTTMessage:
        """Return the next message, waiting for it."""
        return self._arrived.get(timeout=PATIENCE)

    def messages(self, count: int) -> list[Seen]:
        """Return the next ``count`` messages as topic, payload, QoS, RETAIN."""
        return [(m.topic, bytes(m.payload), m.qos, m.retain) for m in (self.next_message() for _ in range(count))]

    def quiet(self, seconds: float = 0.3) -> bool:
        """Tell whether no message arrives for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self._arrived.empty():
                return False
            time.sleep(0.02)
        return True

    def close(self) -> None:
        """Disconnect."""
        self.client.disconnect()
        self.client.loop_stop()

    def drop(self) -> None:
        """Lose the connection without DISCONNECT."""
        socket = self.client.socket()
        self.client.loop_stop()
        if socket is not None:
            socket.close()
