"""``format("retained")`` with its writer: Spark knows one class for reading and writing a format.

Spark makes the writer of a stream in the first batch. So an unknown option or a missing database would end a stream
after its start; :func:`write_stream` looks for them before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from holdfast_pipeline.sources.options import Options
from holdfast_pipeline.sources.registration import register_once
from holdfast_pipeline.sources.retained import RetainedSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from holdfast_pipeline.sink.stream_writer import RetainedStreamWriter
    from holdfast_pipeline.sink.writer import RetainedWriter


class RetainedFormat(RetainedSource):
    """The retained messages, which can also be written."""

    def writer(self, schema: StructType, overwrite: bool) -> RetainedWriter:
        """Return a writer of rows with these columns."""
        # Imported late: processes that only read would wait for the writer's imports.
        from holdfast_pipeline.sink.writer import OPTIONS, RetainedWriter

        return RetainedWriter(Options(self.name(), self.options, OPTIONS), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RetainedStreamWriter:
        """Return a writer of a stream of rows with these columns."""
        from holdfast_pipeline.sink.stream_writer import STREAM_OPTIONS, RetainedStreamWriter

        return RetainedStreamWriter(Options(self.name(), self.options, STREAM_OPTIONS), schema, overwrite)


def write_stream(stream: DataFrame, **options: str) -> DataStreamWriter:
    """Return ``stream.writeStream.format("retained")`` with these options, once all that it needs is there.

    Raises :class:`PipelineError` for unknown options and columns, and for a database that is missing, cannot be reached
    or has another schema.
    """
    from holdfast_pipeline.sink.stream_writer import STREAM_OPTIONS, RetainedStreamWriter

    RetainedStreamWriter(Options(RetainedFormat.name(), options, STREAM_OPTIONS), stream.schema, overwrite=False)
    register_once(stream.sparkSession, RetainedFormat)
    return stream.writeStream.format(RetainedFormat.name()).options(**options)
