"""The catalogue: a TOML file that says how the payloads of topics are read. ``decode`` and ``rollup`` take it.

    [values.temperature]
    pattern = "hq/{floor}/{room}/climate"
    path = "$.t"
    unit = "°C"

Each entry has topics and a format. With a value (``path``, ``metric``, or the format of numbers) ``rollup`` keeps its
figures; ``decode`` makes a table of each entry. The options of ``decode`` build a single entry. The reader of the
broker's configuration reads the file, so every mistake is told with its line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from holdfast.config import toml as toml_file
from holdfast.config.options import (
    Choice,
    FilePath,
    Integer,
    InvalidValue,
    Section,
    Text,
    invalid_value,
    named_tables,
    option,
)
from holdfast.config.reader import Reader
from holdfast.config.toml import ConfigError
from holdfast_pipeline.decoding.formats import (
    AVRO,
    FRAMES,
    JSON,
    NUMBER,
    PROTOBUF,
    SPARKPLUG,
    RegistryOptions,
    SchemaRegistry,
    WrongKey,
    decoder_of,
    registry_of,
)
from holdfast_pipeline.decoding.plain_formats import Decoder
from holdfast_pipeline.decoding.sparkplug import VALUE
from holdfast_pipeline.decoding.typed_rows import DecodeFunction, parsed
from holdfast_pipeline.decoding.values import TIME_UNITS, JsonPath, ValuePlace, ValueRows, json_path
from holdfast_pipeline.errors import PipelineError, text_of
from holdfast_pipeline.sources.ranges import TopicPattern, topic_pattern

_MOST_ENTRIES = 10_000
#: Bytes of a catalogue: enough for the most entries.
_LARGEST_FILE = 16 << 20
#: Formats whose schemas are in files.
_WITH_FILES = (AVRO, PROTOBUF)
#: Names of levels that are columns of roll-ups.
_RESERVED = {
    "date", "name", "topic", "unit", "at", "value", "seq", "revision", "part", "start", "first", "last", "min", "max",
    "mean", "count", "time_mean", "sum", "first_at", "last_at", "opening", "closing", "area", "known", "kept", "reason",
}  # fmt: skip


@frozen
class _Understood:
    """A text that a function understands, or "" for none."""

    allowed: str
    understand: Callable[[str], object]

    def read(self, value: object) -> object:
        """Return what the text means, None for none; raises InvalidValue."""
        text = Text(allowed=self.allowed).read(value)
        return _understood(self.understand, text) if text else None


@frozen
class _Patterns:
    """One or several Topic Filters with named levels; "" for none."""

    allowed: str = field(
        default="Topic Filters with named levels, as in site/{site}/temp, one or a list of them", init=False
    )

    def read(self, value: object) -> tuple[TopicPattern, ...]:
        """Return the patterns; raises InvalidValue."""
        texts: list[Any] = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts) or not texts:
            raise invalid_value(value, self.allowed)
        return () if texts == [""] else tuple(_understood(topic_pattern, text) for text in texts)


def _understood(understand: Callable[[str], Any], text: str) -> Any:
    try:
        return understand(text)
    except PipelineError as error:
        raise InvalidValue(str(error)) from None


_PATH = _Understood("a path, such as $.temperature, $.sensors[0].value or $['odd name']", json_path)


@frozen
class EntryOptions(Section):
    """The keys of an entry."""

    pattern: tuple[TopicPattern, ...] = option(
        _Patterns(),
        "",
        help="The topics. Each name becomes a column.",
        effect="Wider: more messages are read.",
        example="hq/{floor}/{room}/climate",
    )
    format: str = option(
        Text(allowed="the name of a format", empty=False),
        JSON,
        help="The format of the payloads.",
        effect="Payloads are read in another way.",
        example=NUMBER,
    )
    path: JsonPath | None = option(
        _PATH,
        "",
        help="The place of the value in a payload, or in each object of an array.",
        effect="Another value is taken; without it, all fields.",
        example="$.t",
    )
    unit: str = option(
        Text(allowed="a text, such as °C"),
        "",
        help="The unit of the value.",
        effect="Another text is in the column unit.",
        example="°C",
    )
    time: JsonPath | None = option(
        _PATH,
        "",
        help="The place of the value's own time.",
        effect="The value has this time, instead of that of the message.",
        example="$.at",
    )
    time_unit: str = option(
        Choice(tuple(TIME_UNITS)),
        "ms",
        help="The unit of times that are numbers.",
        effect="Times differ by this factor.",
        example="s",
    )
    metric: str = option(
        Text(allowed="the name of a metric, such as Inputs/Temperature"),
        "",
        help="The metric of Sparkplug that is the value.",
        effect="Another metric is taken; without it, all metrics.",
        example="Inputs/Temperature",
    )
    schema: str = option(
        Text(allowed="a text: fields and types for json, the name of a schema in the registry for avro and protobuf"),
        "",
        help="The schema of the payloads.",
        effect="Payloads that do not fit it are bad.",
        example="t double, at bigint",
    )
    schema_file: str = option(
        FilePath(),
        "",
        help="A file with the schema, beside the catalogue.",
        effect="Payloads that do not fit it are bad.",
        example="reading.avsc",
    )
    message: str = option(
        Text(allowed="the full name of a message, such as plant.v1.Status"),
        "",
        help="The Protobuf message in schema_file.",
        effect="Payloads are read as other messages.",
        example="plant.v1.Status",
    )
    frame: str = option(
        Choice(FRAMES),
        FRAMES[0],
        help="The frame before payloads of avro and protobuf.",
        effect="The number in a payload names its schema.",
        example=FRAMES[1],
    )


@frozen
class _CatalogFile(Section):
    version: int = option(
        Integer(1, 2**31 - 1),
        1,
        help="Raise it with each change of a value, for rollup.",
        effect="Higher: roll-ups are made anew.",
        example=2,
    )
    values: Mapping[str, EntryOptions] = field(factory=dict, metadata=named_tables(EntryOptions, "The entries."))
    registry: Mapping[str, RegistryOptions] = field(factory=dict, metadata=named_tables(RegistryOptions, "Schemas."))


@frozen
class Entry:
    """How the payloads of some topics are read.

    ``rows`` decodes the rows of its table. ``place`` is where its value is, None without one; ``unit`` is its unit.
    ``file`` is the content of its own schema file.
    """

    name: str
    patterns: tuple[TopicPattern, ...]
    rows: Decoder
    place: ValuePlace | None = None
    unit: str | None = None
    file: bytes = field(default=b"", repr=False)


@frozen
class Catalog:
    """The entries. A changed value needs a higher ``version``; ``fingerprint`` tells two contents apart."""

    name: str
    version: int
    fingerprint: int
    entries: tuple[Entry, ...]

    @property
    def valued(self) -> tuple[Entry, ...]:
        """The entries with a value."""
        return tuple(entry for entry in self.entries if entry.place is not None)

    @property
    def levels(self) -> list[str]:
        """The names of all named levels of the topics of values, in order."""
        return list(dict.fromkeys(name for entry in self.valued for each in entry.patterns for name in each.levels))


def entry_of(name: str, options: EntryOptions, registry: SchemaRegistry) -> Entry:
    """Return the entry with these options. Raises :class:`WrongKey`."""

    def wrong(key: str, message: str) -> WrongKey:
        return WrongKey(("values", name, key), message)

    form = options.format
    try:
        decoder, checked, file = _decoder(options, registry)
    except WrongKey as error:
        raise wrong(error.path[0], str(error)) from error
    except PipelineError as error:
        raise wrong("format", str(error)) from error
    if options.metric and form != SPARKPLUG:
        raise wrong("metric", f"the format {form} has no metrics; only {SPARKPLUG} has them")
    if options.path and form == SPARKPLUG and not options.metric:
        raise wrong("path", f"a message of {SPARKPLUG} has several metrics; name the one of the value by metric")
    if options.time and form == NUMBER:
        raise wrong("time", f"a payload of the format {NUMBER} is one number, without a time of its own")
    path = options.path or ((VALUE,) if form == NUMBER or options.metric else None)
    for key in ("unit", "time"):
        if getattr(options, key) and path is None:
            raise wrong(key, "is that of a value; name the place of the value by path, as in $.temperature")
    patterns = options.pattern or tuple(topic_pattern(text) for text in decoder.patterns)
    if not patterns:
        raise wrong("pattern", "say which topics to decode by a pattern, as in site/{site}/dev/{device}/temp")
    if path is None:
        return Entry(name, patterns, decoder, file=file)
    metric = options.metric or None
    place = ValuePlace(decoder, checked, path, options.time, TIME_UNITS[options.time_unit], metric)
    rows = ValueRows(place) if options.path or metric else decoder
    return Entry(name, patterns, rows, place, options.unit or None, file)


def entry_from(**given: Any) -> Entry:
    """Return the entry with these keys, written as in a catalogue. Raises :class:`PipelineError`."""
    reader = Reader(EntryOptions)
    options = reader.section(EntryOptions, given, ())
    if reader.problems:
        raise PipelineError("; ".join(f"{'.'.join(each.path)}: {each.message}" for each in reader.problems))
    return entry_of("", options, SchemaRegistry(Path()))


def _decoder(options: EntryOptions, registry: SchemaRegistry) -> tuple[Decoder, DecodeFunction | None, bytes]:
    """Return the decoder, what compares payloads with a given schema, and the content of the schema file.

    Raises :class:`WrongKey` with the key of an entry, or :class:`PipelineError` for its format.
    """
    form, content = options.format, b""
    if options.schema and options.schema_file:
        raise WrongKey(("schema_file",), "schema is there, too; allowed: one of them")
    if form not in _WITH_FILES and options.frame != FRAMES[0]:
        raise WrongKey(("frame",), f"the format {form} has no frame; only {AVRO} and {PROTOBUF} have one")
    if (form == PROTOBUF and options.schema_file != "") != (options.message != ""):
        raise WrongKey(("message",), f"name the message in the schema_file of {PROTOBUF}, and of no other format")
    if options.schema_file:
        try:
            content = registry.content(options.schema_file)
        except PipelineError as error:
            raise WrongKey(("schema_file",), str(error)) from error
    key = "schema_file" if options.schema_file else "schema"
    if form in _WITH_FILES:
        if not options.schema and not options.schema_file:
            raise WrongKey(
                ("schema",), f"the format {form} needs a schema; write schema_file, or schema with a name of [registry]"
            )
        try:
            if options.schema:
                return registry.decoder(form, options.schema, options.frame), None, b""
            return registry.made(form, registry.schema_in(content, options.message), options.frame), None, content
        except PipelineError as error:
            place = f"{registry.folder / options.schema_file} " if options.schema_file else ""
            raise WrongKey((key,), f"{place}{error}") from error
    text = content.decode(errors="replace").strip() if options.schema_file else options.schema
    try:
        checked = DecodeFunction(decoder_of(JSON, text), parsed(text)) if text and form == JSON else None
        return decoder_of(form, text or None), checked, content
    except PipelineError as error:
        raise WrongKey((key if text else "format",), str(error)) from error


def read_catalog(path: Path) -> Catalog:
    """Read a catalogue. Raises :class:`PipelineError`, which names the file, the lines and the keys."""
    try:
        content, origin = toml_file.read(path, _LARGEST_FILE)
    except ConfigError as error:
        raise PipelineError(text_of(error.problems)) from error
    reader = Reader(_CatalogFile)
    found = reader.section(_CatalogFile, content, ())
    problems = [origin.problem(each.path, each.message) for each in reader.problems]
    if not problems and not 1 <= len(found.values) <= _MOST_ENTRIES:
        problems.append(
            origin.problem(
                ("values",),
                f"found {len(found.values)} entries; allowed: 1 to {_MOST_ENTRIES}, each a table [values.NAME]",
            )
        )
    entries: list[Entry] = []
    if not problems:
        wrong: list[WrongKey] = []
        registry = SchemaRegistry(path.parent)
        try:
            registry = registry_of(path.parent, found.registry)
        except WrongKey as error:
            wrong.append(error)
        for name, options in found.values.items() if not wrong else ():
            try:
                entries.append(entry_of(name, options, registry))
            except WrongKey as error:
                wrong.append(error)
        wrong += _wrong_levels(entries)
        problems = [origin.problem(each.path, str(each)) for each in wrong]
    if problems:
        raise PipelineError(text_of(problems))
    made = Catalog(str(path), found.version, 0, tuple(entries))
    return evolve(made, fingerprint=_fingerprint(content, made.valued, registry))


def _wrong_levels(entries: Collection[Entry]) -> Iterable[WrongKey]:
    """Give an error for each named level of a value's topics that has the name of another column."""
    valued = [entry for entry in entries if entry.place is not None]
    named = {name.lower(): name for entry in valued for each in entry.patterns for name in each.levels}
    for entry in valued:
        for each in entry.patterns:
            for level in each.levels:
                if level.lower() in _RESERVED or named[level.lower()] != level:
                    yield WrongKey(
                        ("values", entry.name, "pattern"),
                        f"{{{level}}} has the name of another column; choose another name",
                    )


def _fingerprint(content: Mapping[str, Any], valued: Collection[Entry], registry: SchemaRegistry) -> int:
    """Return a number for all that decides the values, of 56 bits. Entries without a value may change."""
    names = {entry.name for entry in valued}
    told = {name: options for name, options in content["values"].items() if name in names}
    flat = _flat({"values": told, "registry": content.get("registry", {})})
    digest = hashlib.sha256(repr(sorted(flat.items())).encode())
    for file in (*registry.contents, *(entry.file for entry in valued if entry.file)):
        digest.update(hashlib.sha256(file).digest())
    return int.from_bytes(digest.digest()[:7], "big")


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = repr(value)
    return found
