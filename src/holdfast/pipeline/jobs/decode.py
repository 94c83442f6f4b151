"""Decoding payloads: typed columns as Parquet, and what could not be decoded aside, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import asdict, frozen
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql.types import StructType

from holdfast.pipeline.decoding.decode_function import DecodeFunction, relaxed
from holdfast.pipeline.decoding.decoder import Decoder
from holdfast.pipeline.decoding.messages import Messages
from holdfast.pipeline.decoding.topic_patterns import TopicPattern, topic_pattern
from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.output.checksum import checksum
from holdfast.pipeline.output.folder import Folder
from holdfast.pipeline.output.names import DATA, MANIFEST
from holdfast.pipeline.output.overwriting import begin_overwriting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The folder of the payloads that could not be decoded, and what their lines have beside place and time.
BAD = "bad"
#: Messages that a schema is inferred from, and the bytes of the longest payload among them.
SAMPLE = 1000
_LONGEST_SAMPLED = 64 << 10
_MOST_REASONS = 10
#: What in a reason may be another one each time.
_VALUE = r"""'[^']*'|"[^"]*"|\d+"""
#: Stands before a field whose name is a column anyway.
_PREFIX = "payload_"


@frozen
class Decoded:
    """What was decoded: so many ``messages``, of which ``bad`` ones could not be, to so many ``rows``.

    ``reasons`` are examples of the most frequent ones with their counts; ``schema`` is that of all columns, as Spark's
    DDL. The messages are those of ``taken_at`` (milliseconds since the epoch), up to the entry ``last_seq`` of the
    history.
    """

    patterns: tuple[str, ...]
    messages: int
    bad: int
    rows: int
    reasons: Mapping[str, int]
    schema: str
    taken_at: int
    last_seq: int
    checksum: str


def decode(
    spark: SparkSession,
    messages: Messages,
    decoder: Decoder,
    out: Folder,
    patterns: Sequence[str] = (),
    sample: int = SAMPLE,
    overwrite: bool = False,
) -> Decoded:
    """Decode the messages whose topics match a pattern (by default the decoder's own) to ``out``.

    ``sample`` is the number of messages that a schema is inferred from, where the decoder has none. Raises
    :class:`PipelineError`; no payload is a reason to.
    """
    wanted = wanted_by(decoder, patterns)
    frame = messages.matching(wanted)
    levels = [name for name in frame.columns if name not in ("topic", "payload", *messages.about)]
    fixed = ("topic", *levels, *messages.about)
    schema = schema_of(decoder, frame, sample)
    if decoder.schema is not None:
        _check_names(levels, schema)
    decoding = _portable(DecodeFunction(decoder, schema))
    begin_overwriting(out, overwrite, names=(DATA, BAD))
    found = frame.withColumn("decoded", F.udf(decoding, decoding.result, useArrow=False)("topic", "payload"))
    # The payload is needed no more, unless it is bad.
    found = found.withColumn("payload", F.when(F.col("decoded.reason").isNotNull(), F.col("payload"))).persist()
    try:
        count, bad = found.agg(F.count("*"), F.count("decoded.reason")).collect()[0]
        reasons = _reasons(found)
        rows = _named(found.where("decoded.reason is null"), fixed, schema)
        rows = decoder.complete(rows, messages.order)
        _write(rows, out, DATA, "parquet")
        rest = found.where("decoded.reason is not null").select(
            *fixed, F.col("decoded.reason").alias("reason"), "payload"
        )
        _write(rest, out, BAD, "json")
    finally:
        found.unpersist()
    written, total = _described(spark, out, relaxed(rows.schema))
    result = Decoded(
        tuple(pattern.text for pattern in wanted), count, bad, written, reasons,
        ddl(rows.schema), messages.taken_at, messages.last_seq, total,
    )  # fmt: skip
    out.write_json(MANIFEST, asdict(result))
    return result


def wanted_by(decoder: Decoder, patterns: Sequence[str]) -> list[TopicPattern]:
    """Return which topics are to be decoded. Raises :class:`PipelineError`."""
    wanted = [topic_pattern(text) for text in patterns or decoder.patterns]
    if not wanted:
        raise PipelineError("say which topics to decode by a pattern, as in site/{site}/dev/{device}/temp")
    return wanted


def schema_of(decoder: Decoder, frame: DataFrame, sample: int) -> StructType:
    """Return the schema of a decoder's rows, inferred from a sample where it has none. Raises :class:`PipelineError`.

    The sample is the same each time: the messages whose topics have the lowest hashes.
    """
    if isinstance(decoder.schema, StructType):
        return decoder.schema
    if decoder.schema is not None:
        return parsed(decoder.schema)
    sampled = frame.where(F.octet_length("payload") <= _LONGEST_SAMPLED)
    chosen = sampled.orderBy(F.xxhash64("topic", "payload"), "topic").limit(sample).select("payload").collect()
    return inferred_by(decoder, [bytes(row.payload) for row in chosen])


def inferred_by(decoder: Decoder, sample: Sequence[bytes]) -> StructType:
    """Return the schema that a decoder infers. Raises :class:`PipelineError` where it cannot."""
    try:
        return decoder.infer(sample)
    except Exception as error:  # - whatever the decoder does with payloads of strangers
        raise PipelineError(f"no schema could be inferred: {type(error).__name__}: {error}") from error


def parsed(text: str) -> StructType:
    """Return the schema that Spark's DDL describes. Raises :class:`PipelineError`."""
    try:
        found = StructType.fromDDL(text)
    except PySparkException as error:
        said = str(error).strip().splitlines()
        raise PipelineError(
            f"schema {text!r} is not understood ({said[0] if said else type(error).__name__}); "
            "write it as in: temperature double, unit string, tags array<string>"
        ) from error
    if not isinstance(found, StructType):
        raise PipelineError(f"schema {text!r} names no fields; write it as in: temperature double, unit string")
    return found


def ddl(schema: StructType) -> str:
    """Return a schema as Spark's DDL."""
    return ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields)


def quoted(name: str) -> str:
    """Return the name of a column as it is, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"


def _check_names(levels: Sequence[str], schema: StructType) -> None:
    """Raise :class:`PipelineError` for levels that have names of fields, where these are known beforehand."""
    fields = {name.lower() for name in schema.names}
    for name in levels:
        if name.lower() in fields:
            raise PipelineError(f"{{{name}}} in the pattern has the name of a field; choose another name, or +")


def _reasons(found: DataFrame) -> dict[str, int]:
    """Return the most frequent reasons, one for all that differ only in values and places, with their counts."""
    alike = F.regexp_replace("decoded.reason", _VALUE, "")
    counted = found.where("decoded.reason is not null").groupBy(alike.alias("alike"))
    most = counted.agg(F.min("decoded.reason").alias("reason"), F.count("*").alias("times"))
    rows = most.orderBy(F.desc("times"), "reason").limit(_MOST_REASONS).collect()
    return {row.reason: row.times for row in rows}


def _portable(decoding: DecodeFunction) -> DecodeFunction:
    """Make sure that it can be sent to the executors. Raises :class:`PipelineError`."""
    dumps: Any = cloudpickle.dumps
    try:
        dumps(decoding)
    except Exception as error:  # - whatever the decoder's objects do when they are pickled
        raise PipelineError(
            f"the decoder cannot be sent to the executors: {error}; keep what it holds to what can be pickled"
        ) from error
    return decoding


def _named(found: DataFrame, fixed: Sequence[str], schema: StructType) -> DataFrame:
    """Return a row for each that was decoded, with the fields as columns."""
    rows = found.select(*fixed, F.explode("decoded.rows").alias("row"))
    names = {name.lower() for name in (*fixed, *schema.names)}
    columns = []
    for field in schema.fields:
        name = field.name
        if name.lower() in {other.lower() for other in fixed}:
            name = _PREFIX + name
            while name.lower() in names:
                name = _PREFIX + name
            names.add(name.lower())
        columns.append(F.col("row").getField(field.name).alias(name))
    return rows.select(*fixed, *columns)


def _write(frame: DataFrame, out: Folder, name: str, form: str) -> None:
    writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "static")
    writer.option("ignoreNullFields", "false").format(form).save(out.below(name))


def _described(spark: SparkSession, out: Folder, schema: StructType) -> tuple[int, str]:
    """Return the number of rows that were written, and their checksum."""
    frame = spark.read.schema(schema).parquet(out.below(DATA))
    row: Any = frame.agg(F.count("*"), checksum([quoted(name) for name in schema.names])).collect()[0]
    return row[0], row[1]
