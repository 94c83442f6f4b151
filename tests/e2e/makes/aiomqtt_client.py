"""aiomqtt: paho-mqtt's packets, driven by asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import aiomqtt
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY

from tests.e2e.makes import event_loop, paho_properties
from tests.e2e.makes.face import Message, Options, RealClient


class AiomqttClient(RealClient):
    """One ``aiomqtt.Client`` and the task that reads its messages."""

    name = "aiomqtt"

    _client: aiomqtt.Client
    _reader: asyncio.Task[None]

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        event_loop.run(self._connect(options))

    async def _connect(self, options: Options) -> None:
        clean = not options.persistent
        will = options.will
        self._client = aiomqtt.Client(
            "127.0.0.1",
            options.port,
            identifier=options.client_id,
            protocol=aiomqtt.ProtocolVersion(options.version),
            clean_session=None if options.version == 5 else clean,
            clean_start=clean if options.version == 5 else MQTT_CLEAN_START_FIRST_ONLY,
            properties=paho_properties.of_connect(options),
            will=None if will is None else aiomqtt.Will(will.topic, will.payload, will.qos, will.retain),
        )
        await self._client.__aenter__()
        self._reader = asyncio.create_task(self._read())
        if options.topic_filters:
            await self._client.subscribe([(topic_filter, options.qos) for topic_filter in options.topic_filters])

    async def _read(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):  # this means that the Network Connection has ended
            async for message in self._client.messages:
                assert isinstance(message.payload, bytes)
                self._arrived.put(
                    paho_properties.arrived(
                        message.topic.value, message.payload, message.qos, message.retain, message.properties
                    )
                )

    def publish(self, message: Message) -> None:
        """Publish, and wait for PUBACK or PUBCOMP."""
        event_loop.run(
            self._client.publish(
                message.topic,
                message.payload,
                message.qos,
                message.retain,
                paho_properties.of_publish(message),
            )
        )

    def _disconnect(self) -> None:
        event_loop.run(self._client.__aexit__(None, None, None))

    def _abort(self) -> None:
        connection = self._client._client.socket()
        assert isinstance(connection, socket.socket)
        connection.shutdown(socket.SHUT_RDWR)
        event_loop.run(self._ended())

    async def _ended(self) -> None:
        await self._reader
