"""The tables that ``sync`` keeps, read in Spark: without Delta's own package for Spark, which is not on PyPI."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import StructType

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.delta import delta_package, explained
from holdfast_pipeline.output.folder import Folder, usual_uri
from holdfast_pipeline.sources.coverage import COVERAGE, read_coverage
from holdfast_pipeline.sources.topic_patterns import pattern

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

#: The tables of a lake: each change of the history, and the retained messages.
CHANGES, CURRENT = "changes", "current"
#: The mark of the last change that a table has, or counts.
SEQ = "holdfast.seq"
#: The column that divides ``changes`` into folders: the day of a change in UTC.
PARTITION = "date"
_PATTERN = re.compile(r"[\[\]{}*?\\]")
_S3 = re.compile(r"^s3://")


class Lake:
    """The tables in a folder at their present versions, and what part of the history they have.

    Raises :class:`PipelineError` if there is no lake, or if it has no retained messages yet.
    """

    def __init__(self, path: str) -> None:
        folder = Folder(path)
        coverage = read_coverage(folder)
        if coverage is None:
            raise PipelineError(
                f"{path}: is no lake: it has no {COVERAGE}; make one, or bring it up to date: "
                "holdfast-pipeline sync --to"
            )
        #: The path or the URI of the folder.
        self.name = folder.uri
        self.coverage = coverage
        self._tables = {name: _opened(folder.below(name)) for name in (CHANGES, CURRENT)}
        with explained(self.name):
            if self._tables[CURRENT].transaction_version(SEQ) is None:
                raise PipelineError(
                    f"{path}: has no retained messages yet; run holdfast-pipeline sync again once the broker has "
                    "written the baseline of its history"
                )

    @property
    def current_seq(self) -> int:
        """The last change that the table of retained messages has."""
        with explained(self.name):
            return self._tables[CURRENT].transaction_version(SEQ) or 0

    def rows(self, table: str) -> int:
        """Return the number of rows of a table."""
        with explained(self.name):
            return self._tables[table].count()

    def read(
        self, spark: SparkSession, table: str, columns: Sequence[str], topic_filter: str, where: SparkColumn
    ) -> DataFrame:  # fmt: skip
        """Return the rows of a table whose topics match a Topic Filter ("" for all topics), under a condition."""
        frame = _frame(spark, self._tables[table], usual_uri(f"{self.name}/{table}")).where(where)
        if topic_filter:
            # The database's search by Topic Filter does not exist for files: Java matches a regular expression instead.
            frame = frame.where(F.col("topic").rlike(rf"\A(?:{pattern(topic_filter)})\z"))
        return frame.select(*columns)


def read_delta(spark: SparkSession, path: str) -> DataFrame:
    """Return the newest version of a Delta table, such as ``/lake/current`` or ``s3://bucket/lake/current``.

    The table's log names the files, and Spark reads these: a commit during the read changes nothing. Vacuum may delete
    them later. Raises :class:`PipelineError` if there is no table.
    """
    root = Folder(path).uri
    return _frame(spark, _opened(root), usual_uri(root))


def _opened(path: str) -> DeltaTable:
    uri, lake = usual_uri(path), delta_package()
    with explained(uri):
        if not lake.DeltaTable.is_deltatable(uri):
            raise PipelineError(f"{path}: is not a Delta table; make one: holdfast-pipeline sync --to")
        found: DeltaTable = lake.DeltaTable(uri)
        return found


def _frame(spark: SparkSession, table: DeltaTable, root: str) -> DataFrame:
    with explained(root):
        # The package gives encoded URIs, but Spark takes paths as they are, except for patterns.
        paths = [unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()]
        schema = StructType.fromJson(json.loads(table.schema().to_json()))  # Delta uses Spark's own form
    if not paths:
        return spark.createDataFrame([], schema)
    base = _S3.sub("s3a://", root)
    files = [_PATTERN.sub(r"\\\g<0>", f"{base}/{path}") for path in paths]
    return spark.read.schema(schema).option("basePath", base).parquet(*files)
