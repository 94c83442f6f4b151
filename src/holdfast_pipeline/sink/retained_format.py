"""``format("retained")`` with its writer: Spark knows one class for reading and writing a format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from holdfast_pipeline.sources.options import Options
from holdfast_pipeline.sources.retained import RetainedSource

if TYPE_CHECKING:
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
