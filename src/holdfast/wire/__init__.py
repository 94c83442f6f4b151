"""MQTT Control Packets as bytes and as values.

``parser`` cuts a byte stream into packets and runs of packets (``runs``), ``decoding`` and ``encoding`` convert single
packets. No I/O, no clock; the only callback tells which topics a retained run may have.
"""

from holdfast.wire.datatypes import (
    EVERYTHING,
    MalformedPacket,
    ProtocolError,
    Reception,
    WireError,
    encode_variable_byte_integer,
    read_variable_byte_integer,
)
from holdfast.wire.encoding import encode, encode_publish
from holdfast.wire.parser import NO_TOPICS, PacketParser
from holdfast.wire.properties import NO_PROPERTIES, Properties
from holdfast.wire.property_codec import decode_properties, encode_properties
from holdfast.wire.reasons import ConnectReturnCode, ReasonCode, connect_return_code
from holdfast.wire.runs import KeptRun, KnownTopics, RetainedRun, Routes, Run, RunTaker, Single, TopicPool

__all__ = [
    "EVERYTHING",
    "NO_PROPERTIES",
    "NO_TOPICS",
    "ConnectReturnCode",
    "KeptRun",
    "KnownTopics",
    "MalformedPacket",
    "PacketParser",
    "Properties",
    "ProtocolError",
    "ReasonCode",
    "Reception",
    "RetainedRun",
    "Routes",
    "Run",
    "RunTaker",
    "Single",
    "TopicPool",
    "WireError",
    "connect_return_code",
    "decode_properties",
    "encode",
    "encode_properties",
    "encode_publish",
    "encode_variable_byte_integer",
    "read_variable_byte_integer",
]
