"""Eclipse paho-mqtt."""

from __future__ import annotations

import queue
import socket
from contextlib import suppress

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.e2e.makes import paho_properties
from tests.e2e.makes.face import Message, Options, RealClient
from tests.processes import PATIENCE


class PahoRealClient(RealClient):
    """One ``paho.mqtt.client.Client`` with its thread."""

    name = "paho"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        clean = not options.persistent
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            options.client_id,
            clean_session=None if options.version == 5 else clean,
            protocol=MQTTProtocolVersion(options.version),
            reconnect_on_failure=False,
            transport="websockets" if options.websocket else "tcp",
        )
        if options.websocket:
            self._client.ws_set_options(options.websocket)
        if options.will is not None:
            self._client.will_set(options.will.topic, options.will.payload, options.will.qos, options.will.retain)
        connected: queue.Queue[bool] = queue.Queue()
        subscribed: queue.Queue[bool] = queue.Queue()
        self._client.on_connect = lambda _c, _u, _f, code, _p: connected.put(not code.is_failure)
        self._client.on_subscribe = lambda _c, _u, _m, codes, _p: subscribed.put(
            not any(code.is_failure for code in codes)
        )
        self._client.on_message = self._on_message
        self._client.connect(
            "127.0.0.1",
            options.port,
            clean_start=clean if options.version == 5 else mqtt.MQTT_CLEAN_START_FIRST_ONLY,
            properties=paho_properties.of_connect(options),
        )
        self._client.loop_start()
        assert connected.get(timeout=PATIENCE)
        if options.topic_filters:
            self._client.subscribe([(topic_filter, options.qos) for topic_filter in options.topic_filters])
            assert subscribed.get(timeout=PATIENCE)

    def _on_message(self, _client: mqtt.Client, _userdata: object, message: mqtt.MQTTMessage) -> None:
        self._arrived.put(
            paho_properties.arrived(
                message.topic, bytes(message.payload), message.qos, message.retain, message.properties
            )
        )

    def publish(self, message: Message) -> None:
        """Publish, and wait for PUBACK or PUBCOMP."""
        published = self._client.publish(
            message.topic, message.payload, message.qos, message.retain, paho_properties.of_publish(message)
        )
        published.wait_for_publish(PATIENCE)
        assert published.is_published()

    def _disconnect(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _abort(self) -> None:
        connection = self._client.socket()
        connection = getattr(connection, "_socket", connection)  # within paho's wrapper for WebSocket
        if connection is not None:
            assert isinstance(connection, socket.socket)
            with suppress(OSError):  # the broker has closed it, and the thread is about to notice
                connection.shutdown(socket.SHUT_RDWR)  # the thread notices this at once
        self._client.loop_stop()
