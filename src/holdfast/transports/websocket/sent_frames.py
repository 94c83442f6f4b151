"""The frames that the broker sends: not masked, never compressed, each a whole message [RFC 6455, 5.2]."""

from __future__ import annotations

from holdfast.wire import ReasonCode

#: Bytes in one frame. Browsers hand a message over when it is complete, so a long piece is several messages.
LONGEST = 0xFFFF

_BINARY = 0x82
_CLOSE = 0x88
_PONG = 0x8A

_SHORT = 125
_TWO_BYTES = 126

#: the close codes for Reason Codes; all other failures are violations of a policy
_CODES = {
    ReasonCode.UNSPECIFIED_ERROR: 1011,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: 1011,
    ReasonCode.MALFORMED_PACKET: 1002,
    ReasonCode.PROTOCOL_ERROR: 1002,
    ReasonCode.PACKET_TOO_LARGE: 1009,
    ReasonCode.SERVER_SHUTTING_DOWN: 1001,
    ReasonCode.SERVER_BUSY: 1013,
    ReasonCode.SERVER_UNAVAILABLE: 1013,
}
_FIRST_FAILURE = 0x80
_NORMAL = 1000
_POLICY_VIOLATION = 1008


def close_code(reason: ReasonCode) -> int:
    """Return the close code of RFC 6455 and its registry that tells most of a Reason Code."""
    return _CODES.get(reason, _POLICY_VIOLATION) if reason >= _FIRST_FAILURE else _NORMAL


def binary(data: bytes) -> bytes:
    """Return data as one frame, or as several if it is long."""
    size = len(data)
    if size <= _SHORT:
        return bytes((_BINARY, size)) + data
    if size <= LONGEST:
        return bytes((_BINARY, _TWO_BYTES, size >> 8, size & 0xFF)) + data
    return b"".join(binary(data[start : start + LONGEST]) for start in range(0, size, LONGEST))


def pong(payload: bytes) -> bytes:
    """Return the answer to a ping."""
    return bytes((_PONG, len(payload))) + payload


def close(code: int | None, explanation: str = "") -> bytes:
    """Return a Close frame with this code, or with none. The explanation is cut where it is too long."""
    if code is None:
        return bytes((_CLOSE, 0))
    payload = (code.to_bytes(2, "big") + explanation.encode("ascii", "replace"))[:_SHORT]
    return bytes((_CLOSE, len(payload))) + payload
