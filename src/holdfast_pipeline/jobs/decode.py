"""Decode payloads: good payloads become a table with typed columns, bad ones go to a folder with the reason.

How it works: a Python function (``decoding/typed_rows.py``) decodes each message in the executors, and returns its
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

from holdfast_pipeline.choices import DATA, MANIFEST, SAMPLE, TABLE_FORMS
from holdfast_pipeline.decoding.catalog import Catalog, Entry
from holdfast_pipeline.decoding.messages import Messages, schema_of
from holdfast_pipeline.decoding.plain_formats import VARIED, Decoder
from holdfast_pipeline.decoding.typed_rows import DecodeFunction, relaxed
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder, begin_overwriting, require_overwritable
from holdfast_pipeline.output.table_files import checksum, table_maker, write_files
from holdfast_pipeline.progress import phase
from holdfast_pipeline.sources.ranges import topic_pattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The folder of the payloads that could not be decoded.
BAD = "bad"
_MOST_REASONS = 10
#: The column of the unit of a value.
_UNIT = "unit"
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


@frozen
class DecodedTables:
    """The figures of all ``tables`` of a catalogue, by their names. A message counts in each table with its topic."""

    messages: int
    bad: int
    rows: int
    tables: Mapping[str, Decoded]


def decode(
    spark: SparkSession,
    messages: Messages,
    decoder: Decoder,
    out: Folder,
    patterns: Sequence[str] = (),
    sample: int = SAMPLE,
    overwrite: bool = False,
    form: str = TABLE_FORMS[0],
) -> Decoded:
    """Decode the messages whose topics match a pattern (by default the decoder's own) to ``out``.

    ``sample`` is the number of messages from which a schema is inferred, if the decoder has none. ``form`` is one of
    ``TABLE_FORMS``. Raises :class:`PipelineError`, but never because of a payload.
    """
    wanted = tuple(topic_pattern(text) for text in patterns or decoder.patterns)
    if not wanted:
        raise PipelineError("say which topics to decode by a pattern, as in site/{site}/dev/{device}/temp")
    return decode_entry(spark, messages, Entry("", wanted, decoder), out, sample, overwrite, form)


def decode_entry(
    spark: SparkSession,
    messages: Messages,
    entry: Entry,
    out: Folder,
    sample: int = SAMPLE,
    overwrite: bool = False,
    form: str = TABLE_FORMS[0],
) -> Decoded:
    """Decode the messages of one entry of a catalogue to ``out``. Raises :class:`PipelineError` as :func:`decode`."""
    table = _Table(spark, messages, entry, sample, form)
    begin_overwriting(out, overwrite, names=(DATA, BAD))
    result = table.write(out)
    out.write_json(MANIFEST, asdict(result))
    return result


def decode_all(
    spark: SparkSession,
    messages: Messages,
    catalog: Catalog,
    out: Folder,
    sample: int = SAMPLE,
    overwrite: bool = False,
    form: str = TABLE_FORMS[0],
) -> DecodedTables:
    """Decode the messages of each entry of a catalogue to a folder with its name in ``out``.

    Only ``out`` has a manifest: a result is complete with all its tables. Raises :class:`PipelineError` as
    :func:`decode`, before anything is written where an entry cannot be used.
    """
    tables = {entry.name: _Table(spark, messages, entry, sample, form) for entry in catalog.entries}
    folders = {name: Folder(out.below(name)) for name in tables}
    require_tables_overwritable(out, catalog, overwrite)
    for folder in (out, *folders.values()):
        folder.remove(MANIFEST)
    found = {name: table.write(folders[name]) for name, table in tables.items()}
    result = DecodedTables(
        sum(each.messages for each in found.values()),
        sum(each.bad for each in found.values()),
        sum(each.rows for each in found.values()),
        found,
    )
    out.write_json(MANIFEST, asdict(result))
    return result


def require_tables_overwritable(out: Folder, catalog: Catalog, overwrite: bool) -> None:
    """Require that a job may overwrite the tables of a catalogue in ``out``. Raises :class:`PipelineError`."""
    require_overwritable(out, overwrite, names=())
    for entry in catalog.entries:
        require_overwritable(Folder(out.below(entry.name)), overwrite, names=(DATA, BAD))


class _Table:
    """The table of an entry. Raises :class:`PipelineError` if the messages cannot be read as it says."""

    def __init__(self, spark: SparkSession, messages: Messages, entry: Entry, sample: int, form: str) -> None:
        self._spark = spark
        self._messages = messages
        self._entry = entry
        self._frame = messages.matching(entry.patterns)
        levels = [name for name in self._frame.columns if name not in ("topic", "payload", *messages.about)]
        self._fixed = ("topic", *levels, *messages.about)
        self._schema = schema_of(entry.rows, self._frame, sample)
        if entry.rows.schema is not None:
            _check_names(levels, self._schema)
        self._make_table = table_maker(form)
        self._decoding = _portable(DecodeFunction(entry.rows, self._schema))

    def write(self, out: Folder) -> Decoded:
        """Write its rows, and the bad payloads."""
        decoding, fixed, messages = self._decoding, self._fixed, self._messages
        found = self._frame.withColumn("decoded", F.udf(decoding, decoding.result, useArrow=False)("topic", "payload"))
        # Only bad payloads are written: the others need no memory.
        found = found.withColumn("payload", F.when(F.col("decoded.reason").isNotNull(), F.col("payload"))).persist()
        try:
            with phase("decoding"):
                count, bad = found.agg(F.count("*"), F.count("decoded.reason")).collect()[0]
                reasons = _reasons(found) if bad else {}
            rows = _named(found.where("decoded.reason is null"), fixed, self._schema)
            rows = self._entry.rows.complete(rows, messages.order)
            if self._entry.unit is not None:
                rows = rows.withColumn(_UNIT, F.lit(self._entry.unit))
            with phase("writing"):
                write_files(rows, out, DATA)
                self._make_table(out, DATA)
            rest = found.where("decoded.reason is not null").select(
                *fixed, F.col("decoded.reason").alias("reason"), "payload"
            )
            with phase("writing bad payloads"):
                write_files(rest, out, BAD, "json")
        finally:
            found.unpersist()
        with phase("reading the files again"):
            written, total = _described(self._spark, out, relaxed(rows.schema))
        return Decoded(
            tuple(pattern.text for pattern in self._entry.patterns), count, bad, written, reasons,
            _ddl(rows.schema), messages.taken_at, messages.last_seq, total,
        )  # fmt: skip


def _check_names(levels: Sequence[str], schema: StructType) -> None:
    """Raise :class:`PipelineError` for a level with the name of a field in the schema."""
    fields = {name.lower() for name in schema.names}
    for name in levels:
        if name.lower() in fields:
            raise PipelineError(f"{{{name}}} in the pattern has the name of a field; choose another name, or +")


def _reasons(found: DataFrame) -> dict[str, int]:
    """Return the most frequent kinds of reasons with their counts: of each kind, the most frequent reason."""
    reason = F.col("decoded.reason")
    each = found.where(reason.isNotNull()).groupBy(reason.alias("reason")).agg(F.count("*").alias("count"))
    most = each.groupBy(F.regexp_replace("reason", VARIED, "")).agg(
        F.max_by("reason", F.struct("count", "reason")).alias("reason"), F.sum("count").alias("times")
    )
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
    row: Any = frame.agg(F.count("*"), checksum([_quoted(name) for name in schema.names])).collect()[0]
    return row[0], row[1]


def _ddl(schema: StructType) -> str:
    """Return a schema as Spark's DDL."""
    return ", ".join(f"{_quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields)


def _quoted(name: str) -> str:
    """Return the name of a column in quotes: without them, a dot in it would mean a field of a struct."""
    return f"`{name.replace('`', '``')}`"
