"""A registry of schemas for tests: the files that the page about roll-ups names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.timestamp_pb2 import Timestamp

from holdfast_pipeline.decoding.protobuf import protobuf_type

READING: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "temperature", "type": ["null", "double"], "default": None},
    ],
}


def _field(number: int, name: str, kind: int, **more: Any) -> FieldDescriptorProto:
    given = {"label": FieldDescriptorProto.LABEL_OPTIONAL, **more}
    return FieldDescriptorProto(number=number, name=name, type=kind, **given)


def plant() -> bytes:
    """Return the descriptor set of a file with the messages plant.v1.Header, Status and Status.Part."""
    part = DescriptorProto(name="Part", field=[_field(1, "amperes", FieldDescriptorProto.TYPE_FLOAT)])
    inside = DescriptorProto(
        name="LimitsEntry",
        field=[_field(1, "key", FieldDescriptorProto.TYPE_STRING), _field(2, "value", FieldDescriptorProto.TYPE_INT64)],
    )
    inside.options.map_entry = True
    message, repeated = FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.LABEL_REPEATED
    status = DescriptorProto(
        name="Status",
        field=[
            _field(1, "volts", FieldDescriptorProto.TYPE_DOUBLE),
            _field(2, "at", message, type_name=".google.protobuf.Timestamp"),
            _field(3, "parts", message, type_name=".plant.v1.Status.Part", label=repeated),
            _field(4, "limits", message, type_name=".plant.v1.Status.LimitsEntry", label=repeated),
            _field(5, "codes", FieldDescriptorProto.TYPE_INT32, label=repeated),
            _field(6, "spare", FieldDescriptorProto.TYPE_INT32, proto3_optional=True, oneof_index=0),
        ],
        nested_type=[part, inside],
    )
    status.oneof_decl.add(name="_spare")
    file = FileDescriptorProto(
        name="plant.proto", package="plant.v1", syntax="proto3", dependency=["google/protobuf/timestamp.proto"],
        message_type=[DescriptorProto(name="Header"), status],
    )  # fmt: skip
    time = FileDescriptorProto()
    Timestamp.DESCRIPTOR.file.CopyToProto(time)
    return bytes(FileDescriptorSet(file=[time, file]).SerializeToString())


def status(**fields: Any) -> Any:
    """Return a message plant.v1.Status."""
    return protobuf_type(plant(), "plant.v1.Status").make(**fields)


def write_schemas(folder: Path) -> None:
    """Write the files of the registry: reading.avsc, and plant.desc."""
    (folder / "reading.avsc").write_text(json.dumps(READING))
    (folder / "plant.desc").write_bytes(plant())
