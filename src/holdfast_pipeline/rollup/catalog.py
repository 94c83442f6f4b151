"""The catalogue of values: a TOML file that says which payloads contain which values, in which unit.

version = 1

[values.temperature]
pattern = "hq/{floor}/{room}/climate"
path = "$.t"
unit = "°C"
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from holdfast_pipeline.decoding.decode_function import DecodeFunction
from holdfast_pipeline.decoding.decoder import Decoder
from holdfast_pipeline.decoding.registry import decoder_of
from holdfast_pipeline.decoding.schemas import parsed
from holdfast_pipeline.decoding.topic_patterns import TopicPattern, topic_pattern
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.rollup import json_path
from holdfast_pipeline.rollup.schema_registry import AVRO, FRAMES, PROTOBUF, SchemaRegistry, read_registry
from holdfast_pipeline.rollup.sparkplug_values import VALUE as SPARKPLUG_VALUE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_KEYS: dict[str, type | tuple[type, ...]] = {
    "pattern": (str, list), "format": str, "path": str, "unit": str, "schema": str, "frame": str, "time": str,
    "time_unit": str, "metric": str,
}  # fmt: skip
_JSON, _NUMBER, _SPARKPLUG = "json", "number", "sparkplug"
#: Formats whose rows have the value in a place of their own.
_VALUE_PATHS = {_NUMBER: "$.value", _SPARKPLUG: f"$.{SPARKPLUG_VALUE}"}
#: Microseconds of the units in which a payload may tell its time as a number.
TIME_UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}
_MOST_VALUES = 10_000


@frozen
class ValueKind:
    """One kind of value: its ``name`` and ``unit``, the topics, and where it is in a payload.

    ``time`` is the path of the value's own time, None if the time of the message counts; a number there is in
    ``time_unit`` microseconds. ``checked`` compares a payload with a given schema first. ``metric`` is the name of a
    metric of Sparkplug, None for all other formats.
    """

    name: str
    unit: str | None
    patterns: tuple[TopicPattern, ...]
    decoder: Decoder
    checked: DecodeFunction | None
    path: json_path.Path
    time: json_path.Path | None
    time_unit: int
    metric: str | None = None


@frozen
class Catalog:
    """The kinds of values. A changed file needs a higher ``version``; ``fingerprint`` tells two contents apart."""

    version: int
    fingerprint: int
    kinds: tuple[ValueKind, ...]

    @property
    def levels(self) -> list[str]:
        """The names of all named levels, in order."""
        return list(dict.fromkeys(name for kind in self.kinds for pattern in kind.patterns for name in pattern.levels))


def read_catalog(path: Path) -> Catalog:
    """Read a catalogue. Raises :class:`PipelineError`, which names the file and the key."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PipelineError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PipelineError(f"{path}: is not TOML ({error})") from error
    try:
        return _catalog(content, path.parent)
    except PipelineError as error:
        raise PipelineError(f"{path}: {error}") from error


def _catalog(content: Mapping[str, Any], folder: Path) -> Catalog:
    _require_known("", content, ("version", "values", "registry"))
    version = content.get("version")
    if type(version) is not int or not 1 <= version < 2**31:
        raise PipelineError(
            f"version: found {version!r}; write a whole number from 1 on, and raise it with each change"
        )
    values = content.get("values")
    if not isinstance(values, dict) or not 1 <= len(values) <= _MOST_VALUES:
        raise PipelineError(f"values: name 1 to {_MOST_VALUES} kinds of values, each as a table [values.NAME]")
    registry = read_registry(folder, content.get("registry", {}))
    kinds = tuple(_kind(name, found, registry) for name, found in values.items())
    named = {name.lower(): name for kind in kinds for pattern in kind.patterns for name in pattern.levels}
    for kind in kinds:
        for pattern in kind.patterns:
            for level in pattern.levels:
                if level.lower() in RESERVED or named[level.lower()] != level:
                    raise PipelineError(
                        f"values.{kind.name}.pattern: {{{level}}} has the name of another column; choose another name"
                    )
    digest = hashlib.sha256(repr(sorted(_flat(content).items())).encode())
    for file in registry.contents:
        digest.update(hashlib.sha256(file).digest())
    return Catalog(version, int.from_bytes(digest.digest()[:7], "big"), kinds)


#: The columns of the tables beside the named levels.
RESERVED = {
    "date", "name", "topic", "unit", "at", "value", "seq", "revision", "part", "start", "first", "last", "min", "max",
    "mean", "count", "time_mean", "sum", "first_at", "last_at", "opening", "closing", "area", "known", "kept", "reason",
}  # fmt: skip


def _kind(name: str, found: Any, registry: SchemaRegistry) -> ValueKind:
    key = f"values.{name}"
    if not _NAME.match(name):
        raise PipelineError(f"{key}: a name has letters, digits and _, and begins with no digit")
    if not isinstance(found, dict):
        raise PipelineError(f"{key}: write a table [{key}] with pattern and path")
    _require_known(f"{key}.", found, tuple(_KEYS))
    for wanted, kinds in _KEYS.items():
        if wanted in found and not isinstance(found[wanted], kinds):
            raise PipelineError(f"{key}.{wanted}: found {found[wanted]!r}; write a text in quotes")
    texts = [found.get("pattern", [])] if isinstance(found.get("pattern"), str) else found.get("pattern", [])
    if not texts or not all(isinstance(text, str) for text in texts):
        raise PipelineError(f"{key}.pattern: name the topics by a pattern, as in site/{{site}}/dev/{{device}}/temp")
    unit = found.get("time_unit", "ms")
    if unit not in TIME_UNITS:
        raise PipelineError(f"{key}.time_unit: found {unit!r}; allowed: {', '.join(TIME_UNITS)}")
    form = found.get("format", _JSON)
    if (form == _SPARKPLUG) != ("metric" in found):
        raise PipelineError(
            f"{key}.metric: name the metric of {_SPARKPLUG}, as in Inputs/Temperature"
            if form == _SPARKPLUG
            else f"{key}.metric: the format {form} has no metrics; only {_SPARKPLUG} has them"
        )
    path = found.get("path", _VALUE_PATHS.get(form))
    if path is None:
        raise PipelineError(f"{key}.path: name the place of the value in the payload, as in $.temperature")
    try:
        decoder, schema = _decoder(form, found, registry)
        return ValueKind(
            name,
            found.get("unit"),
            tuple(topic_pattern(text) for text in texts),
            decoder,
            DecodeFunction(decoder, schema) if schema is not None else None,
            json_path.json_path(path),
            json_path.json_path(found["time"]) if "time" in found else None,
            TIME_UNITS[unit],
            found.get("metric"),
        )
    except PipelineError as error:
        raise PipelineError(f"{key}: {error}") from error


def _decoder(form: str, found: Mapping[str, Any], registry: SchemaRegistry) -> tuple[Decoder, StructType | None]:
    """Return the decoder of a format, and the schema that payloads are compared with."""
    frame = found.get("frame", FRAMES[0])
    if form in (AVRO, PROTOBUF):
        if frame not in FRAMES:
            raise PipelineError(f"frame: found {frame!r}; allowed: {', '.join(FRAMES)}")
        return registry.decoder(form, found.get("schema"), frame), None
    if "frame" in found:
        raise PipelineError(f"frame: the format {form} has no frame; only {AVRO} and {PROTOBUF} have one")
    schema = parsed(found["schema"]) if form == _JSON and "schema" in found else None
    return decoder_of(form, found.get("schema")), schema


def _require_known(prefix: str, found: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for key in found:
        if key not in allowed:
            raise PipelineError(f"{prefix}{key}: is no key of a catalogue; allowed: {', '.join(allowed)}")


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        elif prefix or key != "version":
            found[prefix + key] = repr(value)
    return found
