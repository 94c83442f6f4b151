"""The two ways in which a peer's bytes can be wrong."""

from __future__ import annotations

from holdfast.wire.reasons import ReasonCode


class WireError(Exception):
    """The peer broke the rules: ``reason`` is what to answer, ``protocol_version`` a CONNECT's level if it was read."""

    default_reason = ReasonCode.UNSPECIFIED_ERROR

    def __init__(self, message: str, reason: ReasonCode | None = None, protocol_version: int | None = None) -> None:
        super().__init__(message)
        self.reason = self.default_reason if reason is None else reason
        self.protocol_version = protocol_version


class MalformedPacket(WireError):
    """The bytes cannot be parsed according to the standard [MQTT5-1.2]."""

    default_reason = ReasonCode.MALFORMED_PACKET


class ProtocolError(WireError):
    """The packet can be parsed but contains or does what the standard does not allow [MQTT5-1.2]."""

    default_reason = ReasonCode.PROTOCOL_ERROR
