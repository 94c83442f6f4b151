"""The tables that ``sync`` keeps, read in Spark without the packages for Delta and Iceberg, which are not on PyPI.

The log of a table names its Parquet files, and Spark reads these.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.delta import delta_package, explained
from holdfast_pipeline.output.folder import Folder, usual_uri
from holdfast_pipeline.output.iceberg import explained as iceberg_explained
from holdfast_pipeline.output.iceberg import require_iceberg, storage_of
from holdfast_pipeline.sources.coverage import COVERAGE, read_coverage
from holdfast_pipeline.sources.topic_patterns import pattern

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.table import StaticTable
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

#: The tables of a lake: each change of the history, the retained messages, and the recorded messages without RETAIN.
CHANGES, CURRENT, TELEMETRY = "changes", "current", "telemetry"
#: The mark of the last change that a table has, or counts.
SEQ = "holdfast.seq"
#: The column that divides ``changes`` and ``telemetry`` into folders: the day in UTC.
PARTITION = "date"
_PATTERN = re.compile(r"[\[\]{}*?\\]")
_S3 = re.compile(r"^s3://")


class Lake:
    """The tables in a folder at their present versions, and what part of the history they have.

    Raises :class:`PipelineError` if there is no lake, or if it has no retained messages yet.
    """

    def __init__(self, path: str) -> None:
        folder = self._folder = Folder(path)
        coverage = read_coverage(folder)
        if coverage is None:
            raise PipelineError(
                f"{path}: is no lake: it has no {COVERAGE}; make one, or bring it up to date: "
                "holdfast-pipeline sync --to"
            )
        #: The path or the URI of the folder.
        self.name = folder.uri
        self.coverage = coverage
        self._tables: dict[str, _DeltaFiles | _IcebergFiles] = {}
        self._table(CHANGES)
        if self._table(CURRENT).mark(SEQ) is None:
            raise PipelineError(
                f"{path}: has no retained messages yet; run holdfast-pipeline sync again once the broker has "
                "written the baseline of its history"
            )

    @property
    def current_seq(self) -> int:
        """The last change that the table of retained messages has."""
        return self.last_of(CURRENT)

    def last_of(self, table: str) -> int:
        """Return the last position that a table has. Raises :class:`PipelineError` if the lake has no such table."""
        return self._table(table).mark(SEQ) or 0

    def _table(self, name: str) -> _DeltaFiles | _IcebergFiles:
        if name not in self._tables:  # not every lake has the telemetry
            version = self.coverage.versions.get(name)
            self._tables[name] = _DeltaFiles(self._folder.below(name)) if version is None else _IcebergFiles(version)
        return self._tables[name]

    def rows(self, table: str) -> int:
        """Return the number of rows of a table."""
        return self._table(table).count()

    def read(
        self, spark: SparkSession, table: str, columns: Sequence[str], topic_filter: str, where: SparkColumn
    ) -> DataFrame:  # fmt: skip
        """Return the rows of a table whose topics match a Topic Filter ("" for all topics), under a condition."""
        frame = self._table(table).frame(spark).where(where)
        if topic_filter:
            # The database's search by Topic Filter does not exist for files: Java matches a regular expression instead.
            frame = frame.where(F.col("topic").rlike(rf"\A(?:{pattern(topic_filter)})\z"))
        return frame.select(*columns)


def read_delta(spark: SparkSession, path: str) -> DataFrame:
    """Return the newest version of a Delta table, such as ``/lake/current`` or ``s3://bucket/lake/current``.

    A commit during the read changes nothing. Vacuum may delete the files later. Raises :class:`PipelineError` if there
    is no table.
    """
    return _DeltaFiles(Folder(path).uri).frame(spark)


class _DeltaFiles:
    """The newest version of a Delta table."""

    def __init__(self, path: str) -> None:
        self._root, lake = usual_uri(path), delta_package()
        with explained(self._root):
            if not lake.DeltaTable.is_deltatable(self._root):
                raise PipelineError(f"{path}: is not a Delta table; make one: holdfast-pipeline sync --to")
            self._table: DeltaTable = lake.DeltaTable(self._root)

    def mark(self, name: str) -> int | None:
        with explained(self._root):
            return self._table.transaction_version(name)

    def count(self) -> int:
        with explained(self._root):
            return self._table.count()

    def frame(self, spark: SparkSession) -> DataFrame:
        with explained(self._root):
            # The package gives encoded URIs, but Spark takes paths as they are, except for patterns.
            paths = [unquote(path) for path in pa.table(self._table.get_add_actions())["path"].to_pylist()]
            schema = StructType.fromJson(json.loads(self._table.schema().to_json()))  # Delta uses Spark's own form
        return _read(spark, schema, [f"{self._root}/{path}" for path in paths], self._root)


class _IcebergFiles:
    """The version of an Iceberg table that a metadata file tells."""

    def __init__(self, metadata: str) -> None:
        require_iceberg()
        from pyiceberg.table import StaticTable

        self._name = metadata
        with iceberg_explained(metadata):
            self._table: StaticTable = StaticTable.from_metadata(metadata, storage_of(os.environ))

    def mark(self, name: str) -> int | None:
        found = self._table.properties.get(name)
        return None if found is None else int(found)

    def count(self) -> int:
        with iceberg_explained(self._name):
            return int(self._table.scan().count())

    def frame(self, spark: SparkSession) -> DataFrame:
        with iceberg_explained(self._name):
            tasks = list(self._table.scan().plan_files())
            schema = from_arrow_schema(self._table.schema().as_arrow())
        if any(task.delete_files for task in tasks):
            raise PipelineError(
                f"{self._name}: another program has marked rows as deleted; have it write the files anew "
                "(rewrite_data_files)"
            )
        return _read(spark, schema, [task.file.file_path for task in tasks], None)


def _read(spark: SparkSession, schema: StructType, files: Sequence[str], base: str | None) -> DataFrame:
    """Return the rows of Parquet files, with the values in the names of the folders below ``base``."""
    if not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema)
    if base is not None:
        reader = reader.option("basePath", _S3.sub("s3a://", base))
    return reader.parquet(*(escaped(_S3.sub("s3a://", file)) for file in files))


def escaped(path: str) -> str:
    """Return a path as Spark takes it: as it is, except for the signs of patterns."""
    return _PATTERN.sub(r"\\\g<0>", path)
