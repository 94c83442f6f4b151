"""The errors in a peer's bytes: malformed packets and protocol errors [MQTT5-1.2], and excessive properties."""

from __future__ import annotations

from holdfast.wire.properties import Properties
from holdfast.wire.reasons import ReasonCode


class WireError(Exception):
    """The peer broke the rules. ``reason`` is the Reason Code of the answer.

    If the packet is a CONNECT, ``protocol_version`` is its protocol level and ``connect_properties`` are its
    properties. Both are None if the error came before them.
    """

    default_reason = ReasonCode.UNSPECIFIED_ERROR

    def __init__(self, message: str, reason: ReasonCode | None = None, protocol_version: int | None = None) -> None:
        super().__init__(message)
        self.reason = self.default_reason if reason is None else reason
        self.protocol_version = protocol_version
        self.connect_properties: Properties | None = None


class MalformedPacket(WireError):
    """The bytes cannot be parsed according to the standard [MQTT5-1.2]."""

    default_reason = ReasonCode.MALFORMED_PACKET


class ProtocolError(WireError):
    """The packet can be parsed but breaks another rule of the standard [MQTT5-1.2]."""

    default_reason = ReasonCode.PROTOCOL_ERROR


class ExcessiveProperties(WireError):
    """The packet has more properties than the receiver accepts. Where the packet ends is known all the same."""

    default_reason = ReasonCode.QUOTA_EXCEEDED
