"""Decoding without Spark: topic patterns, numbers, JSON and its types, Protocol Buffers, Sparkplug."""

from __future__ import annotations

import json
import math
import pickle
import tracemalloc
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast_pipeline.decoding import BadPayload, Decoder
from holdfast_pipeline.decoding.avro import AvroMessages, avro_schema
from holdfast_pipeline.decoding.plain_formats import JsonDocuments, NumberDecoder, alike, inferred, objects
from holdfast_pipeline.decoding.protobuf import Value, WireType, fields
from holdfast_pipeline.decoding.sparkplug import MOST_METRICS, Sparkplug, read
from holdfast_pipeline.decoding.typed_rows import MOST_ROWS, DecodeFunction, row_of
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.ranges import topic_pattern
from tests.pipeline.decoding import tahu


def test_a_pattern_is_a_topic_filter_with_names() -> None:
    """A name stands for a level, counted from 0. + and # keep their meaning."""
    found = topic_pattern("site/{site}/+/{device}/#")
    assert (found.topic_filter, found.levels) == ("site/+/+/+/#", {"site": 1, "device": 3})
    assert topic_pattern("/{a}").topic_filter == "/+"


@pytest.mark.parametrize("text", ["", "a/#/b", "a+", "{a", "{}", "{1}", "{a b}", "x{a}", "{a}/{A}", "a/{b}{c}", "\0"])
def test_an_invalid_pattern_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(PipelineError):
        topic_pattern(text)


@pytest.mark.parametrize(
    ("payload", "value", "state"),
    [
        (b"21.5", 21.5, None), (b" -3 \n", -3.0, None), (b"+.5e-3", 0.0005, None), (b"7.", 7.0, None),
        (b"ON", 1.0, True), (b"off", 0.0, False), (b"True", 1.0, True), (b"FALSE", 0.0, False), (b"-0", -0.0, None),
    ],
)  # fmt: skip
def test_numbers_and_switches(payload: bytes, value: float, state: bool | None) -> None:
    assert NumberDecoder().decode("t", payload) == [{"value": value, "state": state}]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"21,5", "has a comma"),
        (b"1,234.5", "has a comma"),
        (b"1.234,5", "has a comma"),
        (b"1 234,5", "has a comma"),
        (b"1_000", "is not a number alone"),
        (b"nan", "is not a number that a table compares"),
        (b"-Infinity", "is not a number that a table compares"),
        (b"0x1F", "is not a number alone"),
        ("٣".encode(), "is not a number"),
        (b"21.5 C", "is not a number alone"),
        (b"1.2.3", "is not a number"),
        (b"--1", "is not a number"),
        (b".", "is not a number"),
        (b"e5", "is not a number"),
        (b"1e400", "is too large"),
        (b" ", "is blank"),
        (b"\xff", "not text in UTF-8"),
        (b"1" * 65, "65 bytes are too many"),
        (b"yes", "is not a number such as"),
        (b'{"t": 21.5}', "looks like JSON; the format json reads it"),
        ("\N{BYTE ORDER MARK}1".encode(), "is not a number"),
        (b"1\x00", "is not a number"),
    ],
)
def test_an_ambiguous_number_is_bad(payload: bytes, reason: str) -> None:
    with pytest.raises(BadPayload, match=reason):
        NumberDecoder().decode("t", payload)


def test_reasons_that_differ_only_in_values_are_one_kind() -> None:
    """Whatever quotes the values have; each cause is a kind of its own."""
    payloads = [b"warm", b"it's", b'"a"', b"21.5 C", b"-3 W", b"nan", b"21,5", b"{", b"1e400", b"2" * 65, b"3" * 66]
    kinds = []
    for payload in payloads:
        with pytest.raises(BadPayload) as raised:
            NumberDecoder().decode("t", payload)
        kinds.append(alike(str(raised.value)))
    assert [kinds.index(kind) for kind in kinds] == [0, 0, 0, 3, 3, 5, 6, 7, 8, 9, 9]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_read_exactly(value: float) -> None:
    (row,) = NumberDecoder().decode("t", repr(value).encode())
    assert row["value"] == value


def schema_of(**types: DataType) -> StructType:
    """Return a schema."""
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize(
    ("usual", "outlier", "kind"),
    [
        (21.5, "unavailable", DoubleType()), (3, {"a": 1}, LongType()), (True, 1, BooleanType()),
        ([1], "none", ArrayType(LongType())), ({"a": 1}, [1], schema_of(a=LongType())),
        ({"a": 1}, {"a": "x"}, schema_of(a=LongType())), ("on", 1, StringType()),
    ],
)  # fmt: skip
def test_an_outlier_does_not_change_a_type(usual: Any, outlier: Any, kind: DataType) -> None:
    """One payload in twenty is an outlier, also if it comes first; the payload is bad, unless the type is text."""
    for payloads in ([outlier, *[usual] * 19], [*[usual] * 30, None, outlier]):
        schema = inferred([{"x": value} for value in payloads])
        assert schema == schema_of(x=kind)
    assert inferred([{"x": value} for value in (outlier, *[usual] * 18)]) == schema_of(
        x=schema_of(a=StringType()) if isinstance(outlier, dict) and isinstance(usual, dict) else StringType()
    )
    row = row_of(schema_of(x=kind), False)
    row({"x": usual})
    if kind != StringType():
        with pytest.raises(BadPayload, match="x"):
            row({"x": outlier})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], LongType()), ([1, 2.5], DoubleType()), ([1, None], LongType()), ([None], StringType()),
        ([1, "a"], StringType()), ([True, 1], StringType()), ([2**63], DecimalType(38, 0)), ([10**38], DoubleType()),
        ([2**63, 0.5], DoubleType()), ([[]], ArrayType(StringType())), ([[], [1], [2.5]], ArrayType(DoubleType())),
        ([{}], StringType()), ([{}, {"a": 1}], schema_of(a=LongType())), ([[1], {"a": 1}], StringType()),
        ([{"a": 1}, {"b": [{"c": None}]}], schema_of(a=LongType(), b=ArrayType(schema_of(c=StringType())))),
        ([{"a": 1, "A": 2.5}], schema_of(a=LongType())),
    ],
)  # fmt: skip
def test_the_inferred_type_is_the_narrowest_for_all_values(values: list[Any], kind: DataType) -> None:
    """If no other type fits, it is text, in JSON."""
    schema = inferred([{"x": value} for value in values])
    assert schema == schema_of(x=kind)
    if values != [{"a": 1, "A": 2.5}]:
        for value in values:
            row_of(schema, False)({"x": value})


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"v": 1e400}', "the number 1e400 is too large for 64 bits"),
        (b'{"v": [-1e400]}', "the number -1e400 is too large for 64 bits"),
        (b'{"v": %s}' % (b"9" * 5000), "a number has too many digits"),
        (b'{"v": 1, "w": {"a": 1, "a": 2}}', "the field 'a' occurs twice in one object"),
        (b'{"v": 1, "V": 2}', "the field 'V' differs from the column 'v' only in upper and lower case"),
        (b'{"v": 1, "": 2}', "a field has the empty name, which no column can have"),
        (b'{"v": 1, "\\u0000": 2}', "has a name that no column can have"),
        (b'{"": 2}', "a field has the empty name, which no column can have"),
    ],
)
def test_json_that_no_table_can_hold_is_bad_for_its_true_reason(payload: bytes, reason: str) -> None:
    """Also if the schema was inferred from this payload: nothing is changed, dropped, or blamed on the sample."""
    decoder = JsonDocuments()
    convert = row_of(decoder.infer([b'{"v": 1}', payload]), False)
    with pytest.raises(BadPayload, match=reason):
        [convert(row) for row in decoder.decode("t", payload)]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner), max_leaves=12
)


@given(st.lists(st.dictionaries(st.sampled_from("xyz"), VALUES), max_size=5))
def test_a_sample_fits_its_inferred_schema(rows: list[Mapping[str, Any]]) -> None:
    """Exceptions are names that differ in case, too many names, and lone surrogates."""
    payload = json.dumps(rows).encode()
    decoder = JsonDocuments()
    schema = decoder.infer([payload])
    assume(not any("\\ud" in json.dumps(row) for row in rows))
    found, reason = DecodeFunction(decoder, schema)("t", payload)
    assert reason is None
    assert found is not None
    assert len(found) == len(rows)


def test_inference_has_limits_of_fields_and_levels() -> None:
    """A thousand fields and sixteen levels. Further fields make a payload bad, and deeper values stay JSON."""
    assert len(inferred([{f"f{number}": 1 for number in range(5000)}])) == 1000
    wide = inferred([{f"f{number}": {f"g{place}": 1 for place in range(50)} for number in range(50)}])
    assert wide.simpleString().count("bigint") + len(wide) == 1000
    assert inferred([{"\ud800": 1, "": 1, "\0": 1, "x" * 256: 1, "y": 1}]) == schema_of(y=LongType())
    deep: Any = 1
    for _ in range(100):
        deep = {"a": deep}
    schema = inferred([deep])
    assert schema.simpleString().count("struct") == 16
    assert row_of(schema, False)(deep) is not None


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (DoubleType(), 3, 3.0), (LongType(), 3.0, 3), (DecimalType(5, 2), 1.1, Decimal("1.10")), (StringType(), 7, "7"),
        (StringType(), {"a": "ü"}, '{"a": "ü"}'), (BinaryType(), bytearray(b"x"), b"x"),
        (TimestampType(), "2026-01-31T13:05:00+01:00", datetime(2026, 1, 31, 12, 5, tzinfo=UTC)),
        (TimestampType(), "2026-01-31 13:05", datetime(2026, 1, 31, 13, 5, tzinfo=UTC)),
        (DateType(), "2026-01-31", date(2026, 1, 31)), (ArrayType(LongType()), [1, None], [1, None]),
        (schema_of(a=LongType()), {}, (None,)),
    ],
)  # fmt: skip
def test_values_are_converted_to_the_type_of_the_schema(kind: DataType, value: Any, expected: Any) -> None:
    assert row_of(schema_of(x=kind), False)({"x": value}) == (expected,)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (DoubleType(), "3", 'x: "3" is not a number'),
        (DoubleType(), True, "is not a number"),
        (LongType(), 3.5, "whole number"),
        (DoubleType(), 10**400, "does not fit the type"),
        (DoubleType(), math.nan, "does not fit the type"),
        (FloatType(), 1e39, "does not fit the type"),
        (ByteType(), 128, "does not fit 8 bits"),
        (LongType(), 2**63, "64 bits"),
        (LongType(), True, "whole number"),
        (LongType(), 1e300, "whole number"),
        (StringType(), "\ud800", "lone surrogate"),
        (StringType(), b"x", "is not text"),
        (DecimalType(3, 1), 100, "does not fit decimal"),
        (DecimalType(3, 1), 1.25, "more than 1 digits"),
        (TimestampType(), 1_700_000_000, "is not a time"),
        (TimestampType(), "soon", "is not a time"),
        (TimestampType(), "0001-01-01T00:00:00+14:00", "is not a time"),
        (DateType(), "31.1.2026", "is not a date"),
        (DateType(), datetime(2026, 1, 31), "is not a date"),
        (BinaryType(), "x", "is not a binary value"),
        (ArrayType(LongType()), "x", "is not an array"),
        (schema_of(a=LongType()), {"a": "b"}, r'x\.a: "b" is not a whole number'),
        (schema_of(a=LongType()), 1, "is not an object"),
        (schema_of(a=LongType()), {"b\x1b": 1}, r"x: the field 'b\\x1b' is not in the schema"),
    ],
)
def test_a_value_that_does_not_fit_is_bad_with_field_and_reason(kind: DataType, value: Any, reason: str) -> None:
    with pytest.raises(BadPayload, match=reason):
        row_of(schema_of(x=kind), False)({"x": value})


def test_values_of_other_formats_than_json_become_text() -> None:
    """Times, UUIDs and decimals as usual, also inside of JSON; there, bytes are in base64."""
    number = UUID(int=7)
    row = row_of(schema_of(x=StringType()), False)
    for value, text in (
        (datetime(2026, 1, 31, 13, tzinfo=UTC), "2026-01-31T13:00:00+00:00"), (time(13, 5), "13:05:00"),
        (number, str(number)), ({"at": date(2026, 1, 31), "raw": b"x", "n": Decimal("1.5")},
         '{"at": "2026-01-31", "raw": "eA==", "n": "1.5"}'),
    ):  # fmt: skip
        assert row({"x": value}) == (text,)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"]}, {"name": "b", "type": '
         '{"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["on"]}}}, {"name": "c", "type": "E"}]}',
         schema_of(a=IntegerType(), b=ArrayType(StringType()), c=StringType())),
        ('{"type": "long", "logicalType": "timestamp-micros"}', schema_of(value=TimestampType())),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}', schema_of(value=DecimalType(5, 2))),
        ('{"type": "map", "values": "int"}', schema_of(value=StringType())),
        ('["null", "int", "string"]', schema_of(value=StringType())),
        ('{"type": "fixed", "name": "F", "size": 2}', schema_of(value=BinaryType())),
    ],
)  # fmt: skip
def test_the_columns_of_avro_have_the_types_of_its_schema(schema: str, kind: StructType) -> None:
    assert AvroMessages(avro_schema(schema.encode())).schema == kind


def test_an_unsupported_type_in_the_schema_is_refused() -> None:
    with pytest.raises(PipelineError, match="map<string,bigint>"):
        row_of(schema_of(x=MapType(StringType(), LongType())), False)
    with pytest.raises(PipelineError, match="differ only in case"):
        row_of(schema_of(x=LongType(), X=LongType()), False)


@pytest.mark.parametrize("payload", [b"", b"{", b"[" * 100_000, b'{"a": Infinity}', b"1", b"[1]", b"\xff", b"1" * 5000])
def test_json_without_objects_is_bad(payload: bytes) -> None:
    """Deep nesting and long numbers raise nothing else."""
    with pytest.raises(BadPayload):
        objects(payload)


class Odd(Decoder):
    """A decoder that fails in several ways."""

    schema = schema_of(x=LongType())

    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Fail, or return too much."""
        if payload:
            return [{"x": 1 // int(payload)}]
        return ({"x": number} for number in iter(int, 1))


def test_an_exception_of_a_decoder_makes_the_payload_bad() -> None:
    """A decoder that never ends does, too. The function works after pickling."""
    assert isinstance(Odd.schema, StructType)
    rows: DecodeFunction = pickle.loads(pickle.dumps(DecodeFunction(Odd(), Odd.schema)))
    assert rows("t", b"1") == ([(1,)], None)
    assert rows("t", b"0") == (None, "the decoder failed: ZeroDivisionError: integer division or modulo by zero")
    assert rows("t", b"") == (None, f"it has more than {MOST_ROWS} rows")


def all_of(message: bytes) -> list[tuple[int, WireType, Value]]:
    """Return the fields of a message."""
    return list(fields(memoryview(message)))


def test_the_fields_of_all_wire_types_are_read() -> None:
    message = tahu.numeric(1, 300) + tahu.sized(2, b"ab") + b"\x19" + b"\1" * 8 + b"\x25" + b"\2" * 4
    found = [
        (number, wire, value if isinstance(value, int) else bytes(value)) for number, wire, value in all_of(message)
    ]
    assert found == [
        (1, WireType.VARINT, 300),
        (2, WireType.BYTES, b"ab"),
        (3, WireType.FIXED64, b"\1" * 8),
        (4, WireType.FIXED32, b"\2" * 4),
    ]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x08", "ends within a number"), (b"\x08\x80", "ends within a number"), (b"\x08" + b"\xff" * 10, "10 bytes"),
        (b"\x08" + b"\xff" * 9 + b"\x02", "more than 64 bits"), (b"\x00\x00", "no field 0"), (b"\x0b", "wire type 3"),
        (b"\x0a\x05abc", "a field has 5 bytes, only 3 are left"), (b"\x0a" + b"\xff" * 9 + b"\x01", "only 0 are left"),
        (b"\x0d\x01", "a field has 4 bytes"), (b"\x0f", "wire type 7"),
    ],
)  # fmt: skip
def test_invalid_protobuf_is_bad_with_reason_and_place(message: bytes, reason: str) -> None:
    with pytest.raises(BadPayload, match=reason):
        all_of(message)


#: Bytes that look like a payload for a while.
NEARLY = st.lists(
    st.sampled_from(
        [tahu.metric(name="a", alias=1, datatype=3, integer=5), tahu.metric(text="b"), b"\x0a", b"\x12\x7f"]
    )
    | st.builds(tahu.sized, st.integers(1, 20), st.binary(max_size=40))
    | st.builds(tahu.numeric, st.integers(1, 20), st.integers(0, 2**64 - 1))
    | st.binary(max_size=20)
).map(b"".join)


@given(st.binary(max_size=300) | NEARLY | NEARLY.map(lambda inner: tahu.payload(inner, inner)))
def test_arbitrary_bytes_are_a_payload_or_bad(payload: bytes) -> None:
    """The reader and the conversion raise nothing else, and take little memory."""
    tracemalloc.start()
    try:
        try:
            found = read(payload)
        except BadPayload:
            found = None
        assert found is None or len(found.metrics) <= MOST_METRICS
        # A metric takes two bytes at least, and a dictionary of some hundred.
        assert tracemalloc.get_traced_memory()[1] < 100_000 + 1000 * len(payload)
    finally:
        tracemalloc.stop()
    rows = list(decoded_or_bad(payload))
    assert all(isinstance(row, dict) for row in rows)


def decoded_or_bad(payload: bytes) -> Iterable[Mapping[str, Any]]:
    """Return the rows of a payload, none for a bad one."""
    try:
        return Sparkplug().decode("spBv1.0/g/NDATA/n", payload)
    except BadPayload:
        return []


def test_a_payload_with_too_many_metrics_is_bad() -> None:
    small = tahu.metric(alias=1)
    assert len(read(tahu.payload(*[small] * MOST_METRICS)).metrics) == MOST_METRICS
    with pytest.raises(BadPayload, match="more than 10000 metrics"):
        read(tahu.payload(*[small] * (MOST_METRICS + 1)))


def test_a_sparkplug_payload_is_a_row_for_each_metric() -> None:
    """A metric without a time has the time of the message. A message without metrics is a row, too."""
    whole = tahu.payload(tahu.metric(name="a", datatype=12, text="x"), b"\x10\x07\x18\x05", timestamp=1500, seq=9)
    first, second = Sparkplug().decode("spBv1.0/g/DDATA/n/d", whole)
    when = datetime.fromtimestamp(1.5, UTC)
    shared = {"type": "DDATA", "group": "g", "node": "n", "device": "d", "message_at": when, "message_seq": 9}
    assert first == shared | {"metric": "a", "datatype": "String", "text": "x", "measured_at": when}
    assert second == shared | {"metric": None, "alias": 7, "measured_at": datetime.fromtimestamp(0.005, UTC)}
    (death,) = Sparkplug().decode("spBv1.0/g/DDEATH/n/d", tahu.payload(seq=1))
    assert "metric" not in death


@pytest.mark.parametrize(
    ("topic", "payload", "row"),
    [
        ("spBv1.0/STATE/h", b'{"online": false, "timestamp": 0}',
         {"flag": False, "message_at": datetime.fromtimestamp(0, UTC)}),
        ("STATE/h", b"ONLINE", {"flag": True}),
    ],
)  # fmt: skip
def test_the_state_of_a_host_is_a_row(topic: str, payload: bytes, row: Mapping[str, Any]) -> None:
    """In the versions 3.0 and 2.2 of the standard."""
    assert Sparkplug().decode(topic, payload) == [{"type": "STATE", "host": "h", **row}]


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        ("spBv1.0/g/NDATA", b"", "the topic is neither spBv1.0/GROUP/TYPE/NODE"),
        ("a/b/NDATA/c", b"", "the topic is neither"),
        ("spBv1.0/g/XDATA/n", b"", "has an unknown type"),
        ("spBv1.0/g/NDATA/n/d", b"", "NDATA has no device"),
        ("spBv1.0/g/DDATA/n", b"", "device"),
        ("spBv1.0/STATE/h", b"on", "a STATE is JSON"),
        ("spBv1.0/STATE/h", b"{}", "has a field online"),
        ("spBv1.0/STATE/h", b'{"online": true, "timestamp": "x"}', "whole"),
        ("spBv1.0/g/NDATA/n", tahu.payload(tahu.metric(text="x")), "without a name and without an alias"),
        ("spBv1.0/g/NDATA/n", tahu.payload(tahu.metric(name="x", datatype=35)), "unknown datatype 35"),
        ("spBv1.0/g/NDATA/n", tahu.payload(timestamp=2**60), "after the year 9999"),
        ("spBv1.0/g/NDATA/n", tahu.payload(b"\x0a\x01\xff"), "not UTF-8"),
        ("spBv1.0/g/NDATA/n", tahu.sized(1, b"x"), "the field timestamp"),
        ("spBv1.0/g/NDATA/n", tahu.sized(4, b"SPBV1.0_COMPRESSED"), "is compressed"),
    ],
)
def test_invalid_sparkplug_is_bad_with_the_reason(topic: str, payload: bytes, reason: str) -> None:
    with pytest.raises(BadPayload, match=reason):
        Sparkplug().decode(topic, payload)
