"""Decoders by the name of their format: built-in ones, those of other packages, and those with schemas in files.

A registry has schemas of Avro and Protobuf by name, and by their number in payloads::

    [registry.reading]
    file = "reading.avsc"
    id = 7

    [registry.status]
    file = "plant.desc"
    message = "plant.v1.Status"
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from holdfast.config.options import FilePath, Integer, Section, Text, option
from holdfast_pipeline.choices import DECODERS
from holdfast_pipeline.decoding.avro import AvroMessages, AvroSchema, avro_schema
from holdfast_pipeline.decoding.plain_formats import NUMBERS, Decoder, JsonDocuments, NumberDecoder
from holdfast_pipeline.decoding.protobuf import ProtobufMessages, ProtobufType, protobuf_type
from holdfast_pipeline.decoding.sparkplug import Sparkplug
from holdfast_pipeline.errors import PipelineError

JSON, NUMBER, SPARKPLUG, AVRO, PROTOBUF = DECODERS
#: The frames that payloads of Avro and Protobuf may have.
FRAMES = ("none", "confluent")
#: The group of the entry points. Each names a class or a function that is called without arguments.
GROUP = "holdfast.decoders"
_PLAIN: dict[str, type[Decoder]] = {NUMBER: NumberDecoder, SPARKPLUG: Sparkplug}
_LARGEST_FILE = 16 << 20


class WrongKey(PipelineError):
    """A key of a catalogue has a value that cannot be used; ``path`` leads to it."""

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.path = path


def decoder_of(name: str, schema: str | None = None) -> Decoder:
    """Return the decoder of a format without schema files; only JSON takes a ``schema``.

    Raises :class:`PipelineError`.
    """
    if name == JSON:
        return JsonDocuments(schema)
    if schema is not None:
        raise PipelineError(f"the format {name} has a schema of its own; only {JSON} takes one")
    return _PLAIN[name]() if name in _PLAIN else _installed(name)


def _installed(name: str) -> Decoder:
    known = entry_points(group=GROUP)
    found = [point for point in known if point.name == name]
    if not found:
        names = sorted({*DECODERS, *known.names})
        raise PipelineError(
            f"there is no format {name!r}; the formats are: {', '.join(names)}. For another one, install its package "
            "beside holdfast"
        )
    if len({point.value for point in found}) > 1:
        raise PipelineError(f"format {name}: several packages have it: {', '.join(_shown(one) for one in found)}")
    return _made(found[0])


def _made(point: EntryPoint) -> Decoder:
    try:
        decoder = point.load()()
    except Exception as error:  # - an import of another package may raise anything
        raise PipelineError(f"format {point.name}: {_shown(point)} failed: {type(error).__name__}: {error}") from error
    if not isinstance(decoder, Decoder):
        raise PipelineError(f"format {point.name}: {_shown(point)} is not a holdfast_pipeline.decoding.Decoder")
    return decoder


def _shown(point: EntryPoint) -> str:
    return f"{point.value} of {point.dist.name}" if point.dist is not None else point.value


@frozen
class RegistryOptions(Section):
    """A schema of the registry."""

    file: str = option(
        FilePath(),
        "",
        help="The file: an Avro schema (.avsc), or a descriptor set of Protobuf. It is beside the catalogue.",
        effect="Payloads are read by another schema.",
        example="reading.avsc",
    )
    message: str = option(
        Text(allowed="the full name of a message, such as plant.v1.Status"),
        "",
        help="The full name of a Protobuf message; without it, the file is an Avro schema.",
        effect="Payloads are read as other messages.",
        example="plant.v1.Status",
    )
    id: int | None = option(
        Integer(0, NUMBERS[-1], words={"none": None}),
        "none",
        help="The number of the schema in payloads with a frame.",
        effect="Other payloads are read by this schema.",
        example=7,
    )


@define
class SchemaRegistry:
    """The schemas of a catalogue in ``folder``: by name, and by their numbers in payloads with a frame.

    ``contents`` are the files of the registry, to notice that one has changed.
    """

    folder: Path
    avro: dict[str, AvroSchema] = field(factory=dict)
    protobuf: dict[str, ProtobufType] = field(factory=dict)
    avro_numbers: dict[int, AvroSchema] = field(factory=dict)
    protobuf_numbers: dict[int, ProtobufType] = field(factory=dict)
    contents: list[bytes] = field(factory=list)

    def decoder(self, form: str, name: str, frame: str) -> Decoder:
        """Return the decoder of payloads of a schema. Raises :class:`PipelineError`."""
        known: Mapping[str, Any] = self.avro if form == AVRO else self.protobuf
        if name not in known:
            names = ", ".join(known) or "there is none"
            raise PipelineError(f"found {name!r}; allowed: the {form} schemas in [registry.NAME]: {names}")
        return self.made(form, known[name], frame)

    def made(self, form: str, schema: Any, frame: str) -> Decoder:
        """Return the decoder of payloads of a schema that was read."""
        if form == AVRO:
            return AvroMessages(schema, self.avro_numbers if frame != FRAMES[0] else None)
        return ProtobufMessages(schema, self.protobuf_numbers if frame != FRAMES[0] else None)

    def schema_in(self, content: bytes, message: str) -> Any:
        """Return the schema in a file: a Protobuf message by its name, or without one an Avro schema."""
        return protobuf_type(content, message) if message else avro_schema(content)

    def content(self, file: str) -> bytes:
        """Return the content of a file, whose name is relative to the folder. Raises :class:`PipelineError`."""
        path = self.folder / file
        try:
            with path.open("rb") as opened:
                text = opened.read(_LARGEST_FILE + 1)
        except OSError as error:
            raise PipelineError(f"{path} cannot be read ({error.strerror})") from error
        if len(text) > _LARGEST_FILE:
            raise PipelineError(f"{path} has more than {_LARGEST_FILE >> 20} MB")
        return text


def registry_of(folder: Path, options: Mapping[str, RegistryOptions]) -> SchemaRegistry:
    """Read the files of a registry. Raises :class:`WrongKey`."""
    found = SchemaRegistry(folder)
    numbers: dict[int, str] = {}
    for name, each in options.items():
        path = ("registry", name)
        if not each.file:
            raise WrongKey(path, "has no file; allowed: file, for Protobuf with message, and id")
        if each.id is not None and numbers.setdefault(each.id, name) != name:
            raise WrongKey((*path, "id"), f"registry.{numbers[each.id]} has the number {each.id}, too")
        try:
            content = found.content(each.file)
        except PipelineError as error:
            raise WrongKey((*path, "file"), str(error)) from error
        try:
            schema = found.schema_in(content, each.message)
        except PipelineError as error:
            raise WrongKey((*path, "file"), f"{folder / each.file} {error}") from error
        found.contents.append(content)
        (found.protobuf if each.message else found.avro)[name] = schema
        if each.id is not None:
            (found.protobuf_numbers if each.message else found.avro_numbers)[each.id] = schema
    return found
