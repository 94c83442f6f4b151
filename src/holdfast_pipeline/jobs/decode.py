"""Decode payloads: good payloads become typed columns in Parquet, bad payloads go to a folder with the reason.

How it works: a Python function (``decoding/decode_function.py``) decodes each message in the executors, and returns its
rows or the reason against them. The result is kept, because it is used four times: for the counts, the reasons, the
good rows and the bad payloads. Decoding twice would take twice as long, and a decoder may answer differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import asdict, frozen
from pyspark import cloudpickle
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.types import StructType

from holdfast_pipeline.choices import SAMPLE
from holdfast_pipeline.decoding.decode_function import DecodeFunction, relaxed
from holdfast_pipeline.decoding.decoder import Decoder
from holdfast_pipeline.decoding.messages import Messages
from holdfast_pipeline.decoding.schemas import ddl, quoted, schema_of
from holdfast_pipeline.decoding.topic_patterns import TopicPattern, topic_pattern
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.checksum import checksum
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.names import DATA, MANIFEST
from holdfast_pipeline.output.overwriting import begin_overwriting
from holdfast_pipeline.output.table_files import write_files
from holdfast_pipeline.progress.phases import phase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The folder of the payloads that could not be decoded.
BAD = "bad"
_MOST_REASONS = 10
#: The parts in which two reasons of the same kind may differ: quoted values and numbers.
_VALUE = r"""'[^']*'|"[^"]*"|\d+"""
#: The prefix of a field whose name another column has already.
_PREFIX = "payload_"


@frozen
class Decoded:
    """The figures of a decoding: all ``messages``, the ``bad`` ones among them, and the ``rows`` of the good ones.

    ``reasons`` has an example of each of the most frequent reasons, with its count. ``schema`` is the schema of all
    columns, as Spark's DDL. The messages are those of ``taken_at`` (milliseconds since the epoch), up to the entry
    ``last_seq`` of the history.
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

    ``sample`` is the number of messages from which a schema is inferred, if the decoder has none. Raises
    :class:`PipelineError`, but never because of a payload.
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
    # Only bad payloads are written: the others need no memory.
    found = found.withColumn("payload", F.when(F.col("decoded.reason").isNotNull(), F.col("payload"))).persist()
    try:
        with phase("decoding"):
            count, bad = found.agg(F.count("*"), F.count("decoded.reason")).collect()[0]
            reasons = _reasons(found)
        rows = _named(found.where("decoded.reason is null"), fixed, schema)
        rows = decoder.complete(rows, messages.order)
        with phase("writing"):
            write_files(rows, out, DATA)
        rest = found.where("decoded.reason is not null").select(
            *fixed, F.col("decoded.reason").alias("reason"), "payload"
        )
        with phase("writing bad payloads"):
            write_files(rest, out, BAD, "json")
    finally:
        found.unpersist()
    with phase("reading the files again"):
        written, total = _described(spark, out, relaxed(rows.schema))
    result = Decoded(
        tuple(pattern.text for pattern in wanted), count, bad, written, reasons,
        ddl(rows.schema), messages.taken_at, messages.last_seq, total,
    )  # fmt: skip
    out.write_json(MANIFEST, asdict(result))
    return result


def wanted_by(decoder: Decoder, patterns: Sequence[str]) -> list[TopicPattern]:
    """Return the patterns of the topics to decode. Raises :class:`PipelineError`."""
    wanted = [topic_pattern(text) for text in patterns or decoder.patterns]
    if not wanted:
        raise PipelineError("say which topics to decode by a pattern, as in site/{site}/dev/{device}/temp")
    return wanted


def _check_names(levels: Sequence[str], schema: StructType) -> None:
    """Raise :class:`PipelineError` for a level with the name of a field in the schema."""
    fields = {name.lower() for name in schema.names}
    for name in levels:
        if name.lower() in fields:
            raise PipelineError(f"{{{name}}} in the pattern has the name of a field; choose another name, or +")


def _reasons(found: DataFrame) -> dict[str, int]:
    """Return the most frequent reasons with their counts. Reasons that differ only in values count as one."""
    alike = F.regexp_replace("decoded.reason", _VALUE, "")
    counted = found.where("decoded.reason is not null").groupBy(alike.alias("alike"))
    most = counted.agg(F.min("decoded.reason").alias("reason"), F.count("*").alias("times"))
    rows = most.orderBy(F.desc("times"), "reason").limit(_MOST_REASONS).collect()
    return {row.reason: row.times for row in rows}


def _portable(decoding: DecodeFunction) -> DecodeFunction:
    """Check that Spark can pickle the decoder, to send it to the executors. Raises :class:`PipelineError`."""
    dumps: Any = cloudpickle.dumps
    try:
        dumps(decoding)
    except Exception as error:  # - the objects of a decoder may raise anything while they are pickled
        raise PipelineError(
            f"the decoder cannot be sent to the executors: {error}; let it hold only objects that can be pickled"
        ) from error
    return decoding


def _named(found: DataFrame, fixed: Sequence[str], schema: StructType) -> DataFrame:
    """Return the decoded rows, with the fields as columns. A field whose name is taken gets a prefix."""
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


def _described(spark: SparkSession, out: Folder, schema: StructType) -> tuple[int, str]:
    """Return the number of the written rows, and their checksum."""
    frame = spark.read.schema(schema).parquet(out.below(DATA))
    row: Any = frame.agg(F.count("*"), checksum([quoted(name) for name in schema.names])).collect()[0]
    return row[0], row[1]
