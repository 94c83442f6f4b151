"""The Parquet files of a folder, as Spark writes them: in it, or by ``date`` in folders of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

import pyarrow as pa
from attrs import frozen
from pyarrow import parquet

from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.output.folder import Folder

#: The one column that folders are named by.
PARTITION = "date"
_TIME = pa.timestamp("us", "UTC")
_BATCH = 20_000


@frozen
class File:
    """A file: its ``path`` below the folder, its size in bytes, when it was written (milliseconds), its rows."""

    path: str
    size: int
    written_at: int
    rows: int
    columns: pa.Schema
    last_seq: int | None

    @property
    def day(self) -> str | None:
        """The ``date`` of its rows, None where folders are not named by it."""
        name, named, value = self.path.partition("/")[0].partition("=")
        return value if named and name == PARTITION else None


def files_in(folder: Folder, name: str) -> list[File]:
    """Return the files of a folder in it, by path. Raises :class:`PipelineError` for one that cannot be read."""
    return [_described(folder, name, *found) for found in folder.files(name, ".parquet")]


def columns_of(files: Sequence[File]) -> pa.Schema:
    """Return the columns of all rows, with the ``date`` of folders; times are those of UTC, to the microsecond.

    Raises :class:`PipelineError` where files have others than the first one.
    """
    found = _usual(files[0].columns)
    for file in files:
        if _usual(file.columns) != found:
            raise PipelineError(f"{file.path}: has other columns than {files[0].path}; write all of them anew")
    return found.append(pa.field(PARTITION, pa.date32())) if files[0].day is not None else found


def batches_of(folder: Folder, name: str, files: Sequence[File], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give the rows of files, as :func:`columns_of` has them, some thousands at a time."""
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
        raise PipelineError(f"{folder.below(name)}/{path}: is no whole Parquet file ({error})") from error


def _last_seq(metadata: parquet.FileMetaData) -> int | None:
    """Return the greatest place in the history, by what the file says of itself."""
    names = metadata.schema.to_arrow_schema().names
    if "seq" not in names:
        return None
    column = names.index("seq")
    parts = (metadata.row_group(number).column(column).statistics for number in range(metadata.num_row_groups))
    return max((part.max for part in parts if part is not None and part.has_min_max), default=None)


def _usual(columns: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _usual_type(field.type)) for field in columns])


def _usual_type(kind: pa.DataType) -> pa.DataType:
    """Spark's older form of times has no zone, and may not be told from others; all here are in UTC."""
    if pa.types.is_timestamp(kind):
        return _TIME
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _usual_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _usual_type(field.type)) for field in kind])
    return kind
