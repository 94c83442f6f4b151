"""MQTT 5 properties in the form of paho-mqtt, which aiomqtt uses, too."""

from __future__ import annotations

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.e2e.makes.face import Message, Options

#: seconds a persistent Session of an MQTT 5 client outlives its Network Connection
EXPIRY = 600


def of_connect(options: Options) -> Properties | None:
    """Return the properties of CONNECT."""
    if options.version < 5:
        return None
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = EXPIRY if options.persistent else 0
    return properties


def of_publish(message: Message) -> Properties | None:
    """Return the properties of PUBLISH, or None without properties."""
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if message.user_properties:
        properties.UserProperty = list(message.user_properties)
    if message.response_topic:
        properties.ResponseTopic = message.response_topic
    if message.correlation_data:
        properties.CorrelationData = message.correlation_data
    return None if properties.isEmpty() else properties  # type: ignore[no-untyped-call]


def arrived(topic: str, payload: bytes, qos: int, retain: bool, properties: Properties | None) -> Message:
    """Return a received message."""
    return Message(
        topic,
        payload,
        qos,
        retain,
        tuple(getattr(properties, "UserProperty", ())),
        getattr(properties, "ResponseTopic", ""),
        getattr(properties, "CorrelationData", b""),
    )
