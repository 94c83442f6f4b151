"""The interface of a real client for tests, the same for every make."""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod

from attrs import frozen

from tests.processes import PATIENCE

#: seconds any single step may take on a slow machine


@frozen(order=True)
class Message:
    """A published or received Application Message."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    user_properties: tuple[tuple[str, str], ...] = ()
    response_topic: str = ""
    correlation_data: bytes = b""


@frozen
class Options:
    """The options of a client's connection, and its first subscriptions."""

    port: int
    version: int
    client_id: str  #: empty for the default of this make, where it has one
    topic_filters: tuple[str, ...] = ()
    qos: int = 2
    persistent: bool = False  #: the Session is resumed if there is one, and outlives the Network Connection
    will: Message | None = None
    websocket: str = ""  #: the path of the WebSocket; empty for MQTT on a plain byte stream
    authority: str = ""  #: with TLS, the certificate of the authority, in PEM (MQTT.js with a WebSocket only)


class RealClient(ABC):
    """Connects and subscribes on creation; collects the received messages."""

    name: str
    asks_for_its_will = False  #: sends DISCONNECT with Reason Code 0x04

    def __init__(self, options: Options) -> None:
        self._arrived: queue.Queue[Message] = queue.Queue()
        self._gone = False

    @abstractmethod
    def publish(self, message: Message) -> None:
        """Publish, and return when the message is acknowledged (QoS 0: sent)."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Send DISCONNECT and close the Network Connection."""

    @abstractmethod
    def _abort(self) -> None:
        """Close the Network Connection without DISCONNECT, and do not come back."""

    def receive(self) -> Message:
        """Return the next message, waiting for it."""
        return self._arrived.get(timeout=PATIENCE)

    def close(self) -> None:
        """Send DISCONNECT if the client is still connected."""
        if not self._gone:
            self._gone = True
            self._disconnect()

    def drop(self) -> None:
        """Close the connection without DISCONNECT."""
        self._gone = True
        self._abort()
