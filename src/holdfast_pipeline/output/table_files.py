"""Tables in files: Parquet, JSON, lines of text, tables of Delta or Iceberg; and a checksum of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from holdfast.retained.api import NO_PROPERTIES, RetainedMessage, csv_line_of, header, line_of, properties_in
from holdfast_pipeline.output import delta, iceberg
from holdfast_pipeline.output.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: The column of the lines.
LINE = "value"
_TIMES = ("stored_at", "expires_at")


def ndjson_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn retained messages into JSON objects, as ``holdfast retainer export`` writes and any import reads them."""
    for batch in batches:
        yield _lines([line_of(_message(row)) for row in batch.to_pylist()])


def csv_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn retained messages into lines of CSV that are safe to open in a spreadsheet, below a line of names."""
    yield _lines([header()])
    for batch in batches:
        yield _lines([csv_line_of(_message(row)) for row in batch.to_pylist()])


def _lines(lines: list[bytes]) -> pa.RecordBatch:
    # The writer adds the line feed.
    return pa.RecordBatch.from_pydict({LINE: pa.array([line[:-1].decode() for line in lines], pa.string())})


def _message(row: dict[str, Any]) -> RetainedMessage:
    properties = row["properties_json"]
    return RetainedMessage(
        row["topic"], row["payload"], row["qos"],
        NO_PROPERTIES if properties is None else properties_in(properties),
        row["client_id"], row["username"], row["stored_at"], row["expires_at"], row["revision"],
    )  # fmt: skip


#: The forms of retained messages that are lines of text, with the function that writes those of a task.
LINES = {"csv": csv_lines, "ndjson": ndjson_lines}


def table_maker(form: str) -> Callable[[Folder, str], None]:
    """Return the function that makes a table of the Parquet files in a folder; for other forms, it does nothing.

    Raises :class:`PipelineError` if its package is not installed.
    """
    if form == "delta":
        delta.delta_package()
        return delta.make_table
    if form == "iceberg":
        iceberg.require_iceberg()
        return iceberg.make_table
    return lambda _out, _name: None


def write_files(frame: DataFrame, out: Folder, name: str, form: str = "parquet") -> None:
    """Write a table to the folder ``name``, as Parquet or as JSON, one object a line."""
    # "static" replaces the whole folder. With "dynamic", which the session may have set, other days would stay.
    writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "static")
    writer.option("ignoreNullFields", "false").format(form).save(out.below(name))


def write_lines(messages: DataFrame, out: Folder, name: str, form: str) -> None:
    """Write retained messages to the folder ``name`` in a form of :data:`LINES`, in files that end in its name."""
    numbers = messages.withColumns({time: F.unix_millis(time) for time in _TIMES})
    write_files(numbers.mapInArrow(LINES[form], f"{LINE} string"), out, name, "text")
    for file in out.names(name):  # Spark's own writer of text knows one ending only
        if file.startswith("part-"):
            out.rename(f"{name}/{file}", f"{name}/{file.removesuffix('.txt')}.{form}")
        elif file.endswith(".crc"):  # the checksum of a file of the old name
            out.remove(f"{name}/{file}")


# A checksum of rows that depends neither on their order nor on files and partitions.


def fingerprint(columns: Sequence[str]) -> Column:
    """Return a hash of 64 bits over all columns of a row; NULL and an empty value give different hashes."""
    marked = [part for name in columns for part in (F.col(name), F.col(name).isNull())]
    return F.xxhash64(*marked)


def checksum(columns: Sequence[str]) -> Column:
    """Return the sum of all rows' fingerprints, as text."""
    return F.coalesce(F.sum(fingerprint(columns).cast("decimal(38,0)")), F.lit(0)).cast("string")
