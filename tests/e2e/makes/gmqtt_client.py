"""gmqtt: asyncio, with its own implementation of the standards."""

from __future__ import annotations

import asyncio
from typing import Any

import gmqtt
from gmqtt.storage import PersistentStorage

from tests.e2e.makes import event_loop
from tests.e2e.makes.face import Message, Options, RealClient
from tests.e2e.makes.paho_properties import EXPIRY


class GmqttClient(RealClient):
    """One ``gmqtt.Client``."""

    name = "gmqtt"

    _client: Any
    _unacknowledged: Any
    _subscribed: asyncio.Future[tuple[int, ...]]

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        event_loop.run(self._connect(options))

    async def _connect(self, options: Options) -> None:
        self._unacknowledged = PersistentStorage()
        self._subscribed = asyncio.get_running_loop().create_future()
        will = options.will
        lasting = {"session_expiry_interval": EXPIRY} if options.persistent and options.version == 5 else {}
        self._client = gmqtt.Client(
            options.client_id,
            clean_session=not options.persistent,
            will_message=will and gmqtt.Message(will.topic, will.payload, will.qos, will.retain),
            persistent_storage=self._unacknowledged,
            **lasting,
        )
        self._client.reconnect_retries = -2  # 0 would be once, -1 for ever
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda _client, _mid, codes, _properties: self._subscribed.set_result(codes)
        await self._client.connect("127.0.0.1", options.port, version=options.version)
        if options.topic_filters:
            self._client.subscribe([gmqtt.Subscription(one, options.qos) for one in options.topic_filters])
            assert max(await self._subscribed) < 128

    def _on_message(self, _client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> None:
        self._arrived.put(
            Message(
                topic,
                bytes(payload),
                qos,
                bool(properties["retain"]),
                tuple(properties.get("user_property", ())),
                *properties.get("response_topic", [""]),
                *properties.get("correlation_data", [b""]),
            )
        )

    def publish(self, message: Message) -> None:
        """Publish, and wait for PUBACK or PUBCOMP."""
        event_loop.run(self._publish(message))

    async def _publish(self, message: Message) -> None:
        properties: dict[str, Any] = {}
        if message.user_properties:
            properties["user_property"] = list(message.user_properties)
        if message.response_topic:
            properties["response_topic"] = message.response_topic
        if message.correlation_data:
            properties["correlation_data"] = message.correlation_data
        self._client.publish(message.topic, message.payload, message.qos, message.retain, **properties)
        await self._unacknowledged.wait_empty()

    def _disconnect(self) -> None:
        event_loop.run(self._client.disconnect())

    def _abort(self) -> None:
        event_loop.run(self._aborted())

    async def _aborted(self) -> None:
        self._client._connection._transport.abort()
