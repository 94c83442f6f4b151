"""Parquet files that Spark has written: directly in a folder, or in a subfolder for each ``date``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

import pyarrow as pa
from attrs import frozen
from pyarrow import parquet

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder

#: The column that names subfolders: date=2026-11-21.
PARTITION = "date"
_TIME = pa.timestamp("us", "UTC")
_BATCH = 20_000


@frozen
class File:
    """A file: its ``path`` below the folder, size in bytes, time of writing (milliseconds), rows and columns.

    ``last_seq`` is the highest ``seq`` in it, None without such a column.
    """

    path: str
    size: int
    written_at: int
    rows: int
    columns: pa.Schema
    last_seq: int | None

    @property
    def day(self) -> str | None:
        """The ``date`` of its rows; None without subfolders."""
        name, named, value = self.path.partition("/")[0].partition("=")
        return value if named and name == PARTITION else None


def files_in(folder: Folder, name: str) -> list[File]:
    """Return the files in a subfolder, by path. Raises :class:`PipelineError` for an unreadable file."""
    return [_described(folder, name, *found) for found in folder.files(name, ".parquet")]


def columns_of(files: Sequence[File]) -> pa.Schema:
    """Return the columns of all rows, with the ``date`` of subfolders; times are in UTC, in microseconds.

    Raises :class:`PipelineError` if the files have different columns.
    """
    found = _usual(files[0].columns)
    for file in files:
        if _usual(file.columns) != found:
            raise PipelineError(f"{file.path}: has other columns than {files[0].path}; write all files again")
    return found.append(pa.field(PARTITION, pa.date32())) if files[0].day is not None else found


def batches_of(folder: Folder, name: str, files: Sequence[File], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read the rows of files with the columns of :func:`columns_of`, in batches."""
    for file in files:
        with folder.opened(f"{name}/{file.path}") as stream:
            for batch in parquet.ParquetFile(stream, coerce_int96_timestamp_unit="us").iter_batches(_BATCH):
                table = pa.Table.from_batches([batch])
                if file.day is not None:
                    day = pa.scalar(date.fromisoformat(file.day), pa.date32())
                    table = table.append_column(PARTITION, pa.repeat(day, len(table)))
                yield from table.cast(columns).to_batches()


def _described(folder: Folder, name: str, path: str, size: int, written_at: int) -> File:
    try:
        with folder.opened(f"{name}/{path}") as stream:
            found = parquet.ParquetFile(stream, coerce_int96_timestamp_unit="us")
            return File(path, size, written_at, found.metadata.num_rows, found.schema_arrow, _last_seq(found.metadata))
    except pa.ArrowException as error:
        raise PipelineError(f"{folder.below(name)}/{path}: is not a complete Parquet file ({error})") from error


def _last_seq(metadata: parquet.FileMetaData) -> int | None:
    """Return the highest ``seq``, from the file's own statistics."""
    names = metadata.schema.to_arrow_schema().names
    if "seq" not in names:
        return None
    column = names.index("seq")
    parts = (metadata.row_group(number).column(column).statistics for number in range(metadata.num_row_groups))
    return max((part.max for part in parts if part is not None and part.has_min_max), default=None)


def _usual(columns: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _usual_type(field.type)) for field in columns])


def _usual_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with its times in UTC: Spark's older form of times (INT96) has no zone."""
    if pa.types.is_timestamp(kind):
        return _TIME
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _usual_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _usual_type(field.type)) for field in kind])
    return kind
