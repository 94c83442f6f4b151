"""Values in Avro and Protobuf, by the schemas of a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast_pipeline.decoding.avro import AvroMessages, avro_schema
from holdfast_pipeline.decoding.catalog import Catalog, read_catalog
from holdfast_pipeline.decoding.plain_formats import BadPayload
from holdfast_pipeline.decoding.protobuf import ProtobufMessages, protobuf_type
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.rollup import BadValue, Decoding, Value
from tests.pipeline.rollup.schemas import READING, plant, status, write_schemas

CHANGED_AT = 1_700_000_000_000_000
PUBLISHED = {"origin": ChangeOrigin.PUBLISH.value, "changed_at": CHANGED_AT}
AT = datetime(2026, 11, 22, 12, tzinfo=UTC)
TEXT = """
version = 1

[registry.reading]
file = "reading.avsc"
id = 7

[registry.status]
file = "plant.desc"
message = "plant.v1.Status"
id = 8

[values.temperature]
pattern = "avro/{room}"
format = "avro"
schema = "reading"
path = "$.temperature"
time = "$.at"

[values.volts]
pattern = "protobuf/{room}"
format = "protobuf"
schema = "status"
path = "$.volts"
time = "$.at"
"""
FRAMED = TEXT.replace('schema = "reading"', 'schema = "reading"\nframe = "confluent"').replace(
    'schema = "status"', 'schema = "status"\nframe = "confluent"'
)


def catalog(folder: Path, text: str = TEXT) -> Catalog:
    """Read a catalogue beside the files of its registry."""
    write_schemas(folder)
    (folder / "values.toml").write_text(text)
    return read_catalog(folder / "values.toml")


def avro(record: Mapping[str, Any], schema: Any = READING) -> bytes:
    """Return a record in Avro's binary encoding."""
    stream = BytesIO()
    schemaless_writer(stream, avro_schema(json.dumps(schema).encode()), record)
    return stream.getvalue()


def framed(number: int, *parts: bytes) -> bytes:
    """Return a payload with the frame of a schema registry."""
    return b"\0" + number.to_bytes(4, "big") + b"".join(parts)


def decoded(found: Catalog, topic: str, payload: bytes) -> list[tuple[str, int, float | None] | str]:
    """Return names, times and values, or reasons."""
    change = {"op": ChangeKind.SET.value, "topic": topic, "payload": payload, "seq": 1, "revision": 0, **PUBLISHED}
    return [
        (each.entry.name, each.at, each.value) if isinstance(each, Value) else each.reason
        for each in Decoding(found).values(change, {})
        if isinstance(each, Value | BadValue)
    ]


def test_values_come_from_avro_and_protobuf(tmp_path: Path) -> None:
    """With their own times. A record without the value has none."""
    found, moment = catalog(tmp_path), round(AT.timestamp() * 1e6)
    assert decoded(found, "avro/a", avro({"at": AT, "temperature": 21.5})) == [("temperature", moment, 21.5)]
    assert decoded(found, "avro/a", avro({"at": AT, "temperature": None})) == []
    message = status(volts=229.5)
    message.at.FromDatetime(AT)
    assert decoded(found, "protobuf/a", message.SerializeToString()) == [("volts", moment, 229.5)]


def test_frames_tell_the_schema_that_a_payload_was_written_with(tmp_path: Path) -> None:
    """An older or newer record is read as the named schema says."""
    newer = {**READING, "fields": [{"name": "place", "type": "string"}, *READING["fields"]]}
    text = FRAMED + '[registry.newer]\nfile = "newer.avsc"\nid = 9\n'
    (tmp_path / "newer.avsc").write_text(json.dumps(newer))
    found, moment = catalog(tmp_path, text), round(AT.timestamp() * 1e6)
    record = {"at": AT, "temperature": 20.0}
    assert decoded(found, "avro/a", framed(7, avro(record))) == [("temperature", moment, 20.0)]
    payload = framed(9, avro({"place": "hall", **record}, newer))
    assert decoded(found, "avro/a", payload) == [("temperature", moment, 20.0)]
    message = status(volts=230.0)
    message.at.FromDatetime(AT)
    body = message.SerializeToString()
    assert decoded(found, "protobuf/a", framed(8, b"\x02\x02", body)) == [("volts", moment, 230.0)]


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        ("avro/a", b"", "it does not begin with the frame of a schema registry"),
        ("avro/a", b"\1\0\0\0\7", "it does not begin with the frame of a schema registry"),
        ("avro/a", framed(6, b"\0"), "it was written with the Avro schema 6, which the registry does not have"),
        ("avro/a", framed(7, b"\x02"), "this Avro is cut short"),
        ("avro/a", framed(7, b"\0\x04"), "this is not Avro of this schema: IndexError"),
        ("avro/a", framed(7, b"\0\0\0"), "this is not Avro of this schema: 1 bytes are left over"),
        ("protobuf/a", framed(9, b"\0"), "it was written with the protobuf schema 9, which"),
        ("protobuf/a", framed(8, b"\0"), "it is another message of the schema 8 than plant.v1.Status"),
        ("protobuf/a", framed(8, b"\x04\x02"), "this protobuf is cut short"),
        ("protobuf/a", framed(8), "this protobuf is cut short"),
        ("protobuf/a", framed(8, b"\x02\x02\xff"), "this is not protobuf of the type plant.v1.Status"),
    ],
)
def test_a_bad_payload_has_its_true_reason(tmp_path: Path, topic: str, payload: bytes, reason: str) -> None:
    (found,) = decoded(catalog(tmp_path, FRAMED), topic, payload)
    assert isinstance(found, str)
    assert found.startswith(reason)


@given(payload=st.binary(max_size=60))
def test_any_bytes_are_read_or_bad(payload: bytes) -> None:
    """No other exception, whatever a device sends."""
    schema, kind = avro_schema(json.dumps(READING).encode()), protobuf_type(plant(), "plant.v1.Status")
    for decoder in (
        AvroMessages(schema),
        AvroMessages(schema, {7: schema}),
        ProtobufMessages(kind),
        ProtobufMessages(kind, {7: kind}),
    ):
        for each in (payload, framed(7, payload)):
            with suppress(BadPayload):
                assert all(isinstance(row, Mapping) for row in decoder.decode("t", each))


def test_a_message_becomes_its_fields() -> None:
    """Those that may be absent, and are, are left out; a number that is 0 is there."""
    message = status(codes=[3, 4], limits={"high": 9})
    message.parts.add(amperes=0.5)
    kind = protobuf_type(plant(), "plant.v1.Status")
    assert list(ProtobufMessages(kind).decode("t", message.SerializeToString())) == [
        {"volts": 0.0, "parts": [{"amperes": 0.5}], "limits": {"high": 9}, "codes": [3, 4]}
    ]


def test_other_values_than_records_are_named_value() -> None:
    assert list(AvroMessages(avro_schema(b'"int"')).decode("t", b"\x0a")) == [{"value": 5}]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "is not JSON"),
        ('"nothing"', "is not an Avro schema: nothing is no type of it"),
        ('{"type": "record"}', "is not an Avro schema"),
        ('{"type": "array", "items": "null"}', "an array of items without any bytes"),
        (
            '{"type": "array", "items": {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]}}',
            "an array of items without any bytes",
        ),
        (
            '{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}',
            "contains itself, by L",
        ),
    ],
)
def test_schemas_that_cost_without_end_are_refused(schema: str, problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        avro_schema(schema.encode())


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('file = "reading.avsc"', 'file = "none.avsc"', "registry.reading.file: .*none.avsc cannot be read"),
        ('file = "reading.avsc"', 'file = "values.toml"', "registry.reading.file: .*values.toml is not JSON"),
        ('file = "reading.avsc"', "", "values.toml:4: registry.reading: has no file; allowed: file"),
        ("id = 7", "id = 8", "values.toml:11: registry.status.id: registry.reading has the number 8, too"),
        ("id = 7", "id = -1", "registry.reading.id: found -1; allowed: an integer from 0 to"),
        ("id = 7", 'id = "7"', 'registry.reading.id: found "7"; allowed: an integer from 0 to'),
        ("id = 7", "ids = 7", "registry.reading.ids: unknown key; did you mean registry.reading.id"),
        ('file = "plant.desc"', 'file = "reading.avsc"', "registry.status.file: .*is no complete descriptor set"),
        ("plant.v1.Status", "plant.v1.State", "has no message 'plant.v1.State'; it has: .*plant.v1.Status"),
        (
            'schema = "reading"',
            'schema = "status"',
            r"values.toml:16: values.temperature.schema: found 'status'; allowed: the avro schemas in",
        ),
        ('schema = "reading"', "", "values.temperature.schema: the format avro needs a schema; write schema_file"),
        (
            'schema = "reading"',
            'schema = "reading"\nframe = "x"',
            'values.temperature.frame: found "x"; allowed: "none" or "confluent"',
        ),
        (
            'format = "avro"\nschema = "reading"',
            'frame = "confluent"',
            "values.temperature.frame: the format json has no frame",
        ),
        ('schema = "status"', 'schema_file = "plant.desc"', "values.volts.message: name the message"),
        ('schema = "reading"', 'schema_file = "none.avsc"', "values.temperature.schema_file: .*none.avsc cannot be"),
        ('schema = "reading"', 'schema_file = "plant.desc"', "values.temperature.schema_file: .*plant.desc is not"),
        (
            'schema = "reading"',
            'schema = "reading"\nschema_file = "reading.avsc"',
            "values.temperature.schema_file: schema is there, too; allowed: one of them",
        ),
    ],
)
def test_each_mistake_in_a_registry_is_told(tmp_path: Path, before: str, after: str, problem: str) -> None:
    assert before in TEXT
    with pytest.raises(PipelineError, match=problem):
        catalog(tmp_path, TEXT.replace(before, after))


def test_an_entry_may_name_the_file_of_its_schema(tmp_path: Path) -> None:
    """Without a registry, beside the catalogue. Another file is another catalogue."""
    text = TEXT[TEXT.index("[values.temperature]") :]
    text = text.replace('schema = "reading"', 'schema_file = "reading.avsc"')
    text = text.replace('schema = "status"', 'schema_file = "plant.desc"\nmessage = "plant.v1.Status"')
    found, moment = catalog(tmp_path, text), round(AT.timestamp() * 1e6)
    assert decoded(found, "avro/a", avro({"at": AT, "temperature": 21.5})) == [("temperature", moment, 21.5)]
    message = status(volts=229.5)
    message.at.FromDatetime(AT)
    assert decoded(found, "protobuf/a", message.SerializeToString()) == [("volts", moment, 229.5)]
    (tmp_path / "reading.avsc").write_text(json.dumps({**READING, "doc": "more"}))
    assert read_catalog(tmp_path / "values.toml").fingerprint != found.fingerprint


def test_a_changed_schema_file_is_noticed(tmp_path: Path) -> None:
    """As a changed catalogue is: it needs a higher version."""
    before = catalog(tmp_path).fingerprint
    assert catalog(tmp_path).fingerprint == before
    fields = [*READING["fields"], {"name": "more", "type": "int", "default": 0}]
    (tmp_path / "reading.avsc").write_text(json.dumps({**READING, "fields": fields}))
    assert read_catalog(tmp_path / "values.toml").fingerprint != before


def test_the_time_of_a_message_counts_without_a_time_of_its_own(tmp_path: Path) -> None:
    found = catalog(tmp_path, TEXT.replace('time = "$.at"\n', ""))
    payload = status(volts=1.0).SerializeToString()
    assert decoded(found, "protobuf/a", payload) == [("volts", CHANGED_AT, 1.0)]
