"""Reading the entries in an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import DateType

from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.names import DATA
from holdfast_pipeline.sources.columns import HISTORY, struct_of
from holdfast_pipeline.sources.topic_patterns import pattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_archive(spark: SparkSession, folder: Folder, topic_filter: str = "") -> DataFrame:
    """Return the entries in an archive, compacted or not, each with its ``date``.

    Only topics that match the Topic Filter are read; "" means all topics.
    """
    schema = struct_of(HISTORY).add("date", DateType())
    frame = spark.read.schema(schema).parquet(folder.below(DATA))
    # The database's search by Topic Filter does not exist for files: Java matches a regular expression instead.
    return frame.where(F.col("topic").rlike(rf"\A(?:{pattern(topic_filter)})\z")) if topic_filter else frame
