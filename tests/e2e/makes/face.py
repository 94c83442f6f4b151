"""What a test asks of a real client, whatever its make."""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod

from attrs import frozen

#: seconds any single step may take on a slow machine
PATIENCE = 30.0


@frozen(order=True)
class Message:
    """An Application Message as it is published, or as it has arrived."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    user_properties: tuple[tuple[str, str], ...] = ()
    response_topic: str = ""
    correlation_data: bytes = b""


@frozen
class Options:
    """How a client connects, and to what it subscribes before anything else."""

    port: int
    version: int
    client_id: str
    topic_filters: tuple[str, ...] = ()
    qos: int = 2
    persistent: bool = False  #: the Session is resumed if there is one, and outlives the Network Connection
    will: Message | None = None


class RealClient(ABC):
    """Connects and subscribes on creation; collects what arrives."""

    name: str
    asks_for_its_will = False  #: says goodbye with Reason Code 0x04

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
        """Say goodbye, if the client is still connected."""
        if not self._gone:
            self._gone = True
            self._disconnect()

    def drop(self) -> None:
        """Vanish without a word."""
        self._gone = True
        self._abort()
