"""A lake as a source: what part of the history it has, and its tables.

The log of a table names its Parquet files, and Spark reads these.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from attrs import asdict, evolve, field, frozen
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from holdfast.changes.api import HistoryUnavailable, Moment, Period, check_recorded
from holdfast.core.topics import EVERY_TOPIC
from holdfast.core.units import date_of
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.delta import delta_package, explained
from holdfast_pipeline.output.folder import Folder, usual_uri
from holdfast_pipeline.output.iceberg import explained as iceberg_explained
from holdfast_pipeline.output.iceberg import require_iceberg, storage_of
from holdfast_pipeline.sources.ranges import pattern

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.table import StaticTable
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession


# What a lake knows of the history: the file ``coverage.json`` beside the tables that ``sync`` keeps.
#
# How it works. The file is written after the rows. So rows that a killed run has added do not count yet, and the next
# run finds them again. Periods come from the database, and keep the ``complete_since`` and ``depths`` of their first
# run: the database may forget entries later, and then answers for less, but the lake still has them. Example: a
# period from 10:00 was read at 11:00; at 12:00 the database has forgotten everything before 11:30; the lake still
# answers for 10:00.
#
# If the database has forgotten entries of a period before they were read, the lake may have a message without the
# entry that cleared it. So the period is ``cut``: the lake answers for its moments before the gap only. The file says
# so before the table gets the rows behind the gap.

COVERAGE = "coverage.json"


@frozen
class Coverage:
    """A lake has all entries up to ``last_seq``, whose time is ``last_at``, and they were read at ``read_at``.

    Both times are in milliseconds since the epoch. Of the periods with a first position in ``cut``, entries are
    missing: each answers for moments before the time there, None for none. ``versions`` has the metadata files of
    Iceberg tables by their names: readers need no catalogue.
    """

    last_seq: int = 0
    last_at: int = 0
    read_at: int = 0
    periods: list[Period] = field(factory=list)
    cut: dict[int, int | None] = field(factory=dict)
    versions: dict[str, str] = field(factory=dict)

    def without(self, periods: Iterable[Period], since_here: bool = True) -> Coverage:
        """Return the coverage if entries after ``last_seq`` are missing from periods.

        Without ``since_here`` entries before may be missing, too.
        """
        until = self.last_at if since_here else None
        return evolve(self, cut={**{one.first_seq: until for one in periods}, **self.cut})

    def extended(
        self, periods: Sequence[Period], last_seq: int, last_at: int, read_at: int
    ) -> Coverage:  # fmt: skip
        """Return the coverage once the lake has all entries up to ``last_seq``; the database has these periods."""
        known = {one.first_seq: one for one in self.periods}
        for period in periods:
            if period.first_seq > last_seq:
                continue
            before = known.get(period.first_seq)
            since = before.complete_since if before and before.complete_since is not None else period.complete_since
            depths = before.depths if before and before.depths is not None else period.depths
            known[period.first_seq] = evolve(period, complete_since=since, depths=depths)
        there = {period.first_seq for period in periods}
        for first, one in known.items():
            if first not in there and one.ended_at is None:  # the database has forgotten it with its end
                known[first] = evolve(one, ended_at=self.last_at)
        return Coverage(last_seq, last_at, read_at, [known[first] for first in sorted(known)], self.cut, self.versions)

    def only_read_since(self, before: Coverage, most: int) -> bool:
        """Tell whether only the time of the last read differs from an earlier coverage, by less than ``most`` ms."""
        return self.read_at - before.read_at < most and evolve(self, read_at=before.read_at) == before

    @property
    def present(self) -> Period:
        """The period that goes on. Raises :class:`PipelineError` if there is none, or while its baseline is written."""
        last = next(iter(self.periods[-1:]), None)
        if last is None or last.ended_at is not None:
            raise PipelineError("the lake does not know what is retained now: the broker records no changes")
        if last.complete_since is None:
            raise PipelineError(
                "the lake does not know what is retained now: the broker writes the baseline of its history; run "
                "holdfast-pipeline sync again soon"
            )
        return last

    def moment(self, at: int, topic_filter: str = EVERY_TOPIC) -> Moment:
        """Find a time (milliseconds since the epoch).

        Raises :class:`PipelineError` for a time that is not covered, or at which the lake knows no topic of the Topic
        Filter.
        """
        for number, period in reversed(list(enumerate(self.periods))):
            if at < self._end(period) and period.answers_for(at):
                following = self.periods[number + 1 :]
                last = min([self.last_seq, *(other.first_seq - 1 for other in following)])
                return recorded(
                    Moment(at, period.first_seq, last, period.hidden_at(at), period.rules), period, topic_filter
                )
        raise PipelineError(f"the lake does not cover {date_of(at)}; it covers {self._shown()}")

    def _end(self, period: Period) -> int:
        """Return the first moment that the lake does not answer for in a period."""
        ended = self.last_at if period.ended_at is None else min(self.last_at, period.ended_at)
        cut = self.cut.get(period.first_seq, ended)
        return 0 if cut is None else min(cut, ended)

    def _shown(self) -> str:
        spans = [
            f"the time from {date_of(since)} to before {date_of(self._end(period))}"
            for period in self.periods
            if (since := period.since) is not None and since < self._end(period)
        ]
        return " and ".join(spans) or "no time yet"


def recorded(moment: Moment, period: Period, topic_filter: str) -> Moment:
    """Return the moment. Raises :class:`PipelineError` if its period knows no topic of the Topic Filter then."""
    try:
        check_recorded(period, moment.at, topic_filter)
    except HistoryUnavailable as error:
        raise PipelineError(str(error)) from error
    return moment


def read_coverage(lake: Folder) -> Coverage | None:
    """Return the coverage of a lake; None without one. Raises :class:`PipelineError`."""
    content = lake.read_json(COVERAGE)
    if content is None:
        return None
    try:
        return _coverage_in(content)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise PipelineError(f"{lake.below(COVERAGE)}: is not the coverage of a lake ({error})") from error


def write_coverage(lake: Folder, coverage: Coverage) -> None:
    """Write the coverage of a lake, after its rows. Raises :class:`PipelineError`."""
    lake.write_json(COVERAGE, asdict(coverage))


def _coverage_in(content: Any) -> Coverage:
    periods = [Period(**period) for period in content["periods"]]
    cut = {int(first): until for first, until in content["cut"].items()}
    known = content.get("versions", {})
    return Coverage(content["last_seq"], content["last_at"], content["read_at"], periods, cut, known)


#: The tables of a lake: each change of the history, the retained messages, and the recorded messages without RETAIN.
CHANGES, CURRENT, TELEMETRY = "changes", "current", "telemetry"
#: The mark of the last change that a table has, or counts.
SEQ = "holdfast.seq"
#: The column that divides ``changes`` and ``telemetry`` into folders: the day in UTC.
PARTITION = "date"
_PATTERN = re.compile(r"[\[\]{}*?\\]")
_S3 = re.compile(r"^s3://")
_SLASHES = re.compile(r"(?<!:)/+")


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
            version, place = self.coverage.versions.get(name), self._folder.below(name)
            self._tables[name] = _DeltaFiles(place) if version is None else _IcebergFiles(version, place)
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
    """The version of an Iceberg table that a metadata file tells. Raises :class:`PipelineError`.

    Iceberg names each file by its full path. So in a copy of a lake the names lead to the files of the original, which
    go on changing.
    """

    def __init__(self, metadata: str, place: str) -> None:
        require_iceberg()
        from pyiceberg.table import StaticTable

        self._name = metadata
        with iceberg_explained(metadata):
            if not _is_below(metadata, place):
                raise PipelineError(
                    f"{place}: is a copy: its files are named as {metadata}; read the lake there, or move this one to "
                    "that place"
                )
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


def _is_below(file: str, folder: str) -> bool:
    inner, outer = _local(file), _local(folder)
    if inner is not None and outer is not None:
        return inner.is_relative_to(outer)
    if inner is not None or outer is not None:
        return False
    return _SLASHES.sub("/", usual_uri(file)).startswith(_SLASHES.sub("/", f"{usual_uri(folder)}/"))


def _local(name: str) -> Path | None:
    """Return a path, or that of a ``file`` URI; None for another URI."""
    if name.startswith("file:"):
        name = unquote(urlsplit(name).path)
    return None if "://" in name else Path(name).resolve()


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
