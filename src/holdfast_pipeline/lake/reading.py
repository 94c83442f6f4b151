"""Reading a Delta table in Spark without Delta's own package for Spark, which is not on PyPI."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.delta import delta_package, explained
from holdfast_pipeline.output.folder import Folder, usual_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_S3 = re.compile(r"^s3://")


def read_delta(spark: SparkSession, path: str) -> DataFrame:
    """Return the newest version of a Delta table, such as ``/lake/current`` or ``s3://bucket/lake/current``.

    The table's log names the files, and Spark reads these: a commit during the read changes nothing. Vacuum may delete
    them later. Raises :class:`PipelineError` if there is no table.
    """
    uri = usual_uri(Folder(path).uri)
    lake = delta_package()
    with explained(uri):
        if not lake.DeltaTable.is_deltatable(uri):
            raise PipelineError(f"{path}: is not a Delta table; make one: holdfast-pipeline sync --to")
        table = lake.DeltaTable(uri)
        files = [_S3.sub("s3a://", file) for file in table.file_uris()]
        schema = StructType.fromJson(json.loads(table.schema().to_json()))  # Delta uses Spark's own form
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", _S3.sub("s3a://", uri)).parquet(*files)
