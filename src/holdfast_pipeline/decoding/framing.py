"""The frame that schema registries put before a payload: a byte 0, then the number of the schema in four bytes.

Confluent's serializers write it, and those of compatible registries.
"""

from __future__ import annotations

from holdfast_pipeline.decoding.decoder import BadPayload

_LENGTH = 5
_MOST = 2**31 - 1
#: The numbers that a schema can have.
NUMBERS = range(_MOST + 1)


def unframed(payload: bytes) -> tuple[int, memoryview]:
    """Return the number of the schema, and what follows the frame. Raises :class:`BadPayload`."""
    if len(payload) < _LENGTH or payload[0] != 0:
        raise BadPayload("it does not begin with the frame of a schema registry: 0, and the number of the schema")
    return int.from_bytes(payload[1:_LENGTH], "big"), memoryview(payload)[_LENGTH:]
