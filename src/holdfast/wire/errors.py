"""The two ways in which a peer's bytes can be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.wire.reasons import ReasonCode

if TYPE_CHECKING:
    from holdfast.wire.properties import Properties


class WireError(Exception):
    """The peer broke the rules: ``reason`` is what to answer.

    Of a CONNECT, ``protocol_version`` is its level, and ``asked`` its properties, as far as they were read.
    """

    default_reason = ReasonCode.UNSPECIFIED_ERROR

    def __init__(self, message: str, reason: ReasonCode | None = None, protocol_version: int | None = None) -> None:
        super().__init__(message)
        self.reason = self.default_reason if reason is None else reason
        self.protocol_version = protocol_version
        self.asked: Properties | None = None


class MalformedPacket(WireError):
    """The bytes cannot be parsed according to the standard [MQTT5-1.2]."""

    default_reason = ReasonCode.MALFORMED_PACKET


class ProtocolError(WireError):
    """The packet can be parsed but contains or does what the standard does not allow [MQTT5-1.2]."""

    default_reason = ReasonCode.PROTOCOL_ERROR
