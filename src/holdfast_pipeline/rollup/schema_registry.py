"""The registry of a catalogue: files with schemas of Avro and Protobuf, by name, and by their number in payloads.

[registry.reading]
file = "reading.avsc"
id = 7

[registry.status]
file = "plant.desc"
message = "plant.v1.Status"
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from holdfast_pipeline.decoding.avro import AvroMessages, AvroSchema, avro_schema
from holdfast_pipeline.decoding.decoder import Decoder
from holdfast_pipeline.decoding.framing import NUMBERS
from holdfast_pipeline.decoding.protobuf_messages import ProtobufMessages, ProtobufType, protobuf_type
from holdfast_pipeline.errors import PipelineError

AVRO, PROTOBUF = "avro", "protobuf"
#: The frames that payloads may have.
FRAMES = ("none", "confluent")
_KEYS: dict[str, type] = {"file": str, "message": str, "id": int}
_LARGEST_FILE = 16 << 20


@frozen
class SchemaRegistry:
    """The schemas by name and by number; ``contents`` are all files, to notice that one has changed."""

    avro: Mapping[str, AvroSchema]
    protobuf: Mapping[str, ProtobufType]
    avro_numbers: Mapping[int, AvroSchema]
    protobuf_numbers: Mapping[int, ProtobufType]
    contents: tuple[bytes, ...]

    def decoder(self, form: str, name: str | None, frame: str) -> Decoder:
        """Return the decoder of payloads of a schema. Raises :class:`PipelineError`."""
        known: Mapping[str, Any] = self.avro if form == AVRO else self.protobuf
        if name is None or name not in known:
            names = ", ".join(known) or "there is none"
            raise PipelineError(f"schema: found {name!r}; name one of the {form} schemas in [registry.NAME]: {names}")
        if form == AVRO:
            return AvroMessages(known[name], self.avro_numbers if frame != FRAMES[0] else None)
        return ProtobufMessages(known[name], self.protobuf_numbers if frame != FRAMES[0] else None)


def read_registry(folder: Path, content: Any) -> SchemaRegistry:
    """Read the files of a table ``registry``; their names are relative to ``folder``.

    Raises :class:`PipelineError`, which names the key and the file.
    """
    if not isinstance(content, dict):
        raise PipelineError("registry: write a table [registry.NAME] with file for each schema")
    numbers: dict[int, str] = {}
    avro: dict[str, AvroSchema] = {}
    protobuf: dict[str, ProtobufType] = {}
    avro_numbers: dict[int, AvroSchema] = {}
    protobuf_numbers: dict[int, ProtobufType] = {}
    contents = []
    for name, found in content.items():
        key = f"registry.{name}"
        _check(key, found)
        number = found.get("id")
        if number is not None and numbers.setdefault(number, name) != name:
            raise PipelineError(f"{key}.id: registry.{numbers[number]} has the number {number}, too")
        file = folder / found["file"]
        text = _content(key, file)
        contents.append(text)
        try:
            if "message" in found:
                protobuf[name] = protobuf_type(text, found["message"])
                protobuf_numbers |= {} if number is None else {number: protobuf[name]}
            else:
                avro[name] = avro_schema(text)
                avro_numbers |= {} if number is None else {number: avro[name]}
        except PipelineError as error:
            raise PipelineError(f"{key}: {file} {error}") from error
    return SchemaRegistry(avro, protobuf, avro_numbers, protobuf_numbers, tuple(contents))


def _check(key: str, found: Any) -> None:
    if not isinstance(found, dict) or "file" not in found:
        raise PipelineError(f"{key}: write a table [{key}] with file, and for Protobuf message")
    for name, value in found.items():
        if name not in _KEYS:
            raise PipelineError(f"{key}.{name}: is no key of a schema; allowed: {', '.join(_KEYS)}")
        if type(value) is not _KEYS[name]:
            kind = "a text in quotes" if _KEYS[name] is str else "a whole number"
            raise PipelineError(f"{key}.{name}: found {value!r}; write {kind}")
    if found.get("id", 0) not in NUMBERS:
        raise PipelineError(f"{key}.id: found {found['id']}; allowed: 0 to {NUMBERS[-1]}")


def _content(key: str, file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            text = opened.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise PipelineError(f"{key}.file: {file} cannot be read ({error.strerror})") from error
    if len(text) > _LARGEST_FILE:
        raise PipelineError(f"{key}.file: {file} has more than {_LARGEST_FILE >> 20} MB")
    return text
