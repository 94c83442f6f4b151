"""Tables that several queries follow: computed once, and kept by Spark.

A small one comes to the driver, which gives its rows to Spark again (:func:`given`). So the queries that follow do not
have the plan of its computation in theirs, which takes Spark longer than the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class KeptTable:
    """A table that Spark keeps. ``rows`` are those of a small one, None of another one. Threads may share it."""

    def __init__(self, frame: DataFrame, rows: pa.Table | None = None) -> None:
        self.rows = rows
        self._computed = frame
        self._kept: DataFrame | None = None
        self._lock = Lock()

    @property
    def frame(self) -> DataFrame:
        """The table for queries. Spark gets and keeps it when the first of them wants it."""
        with self._lock:
            if self._kept is None:
                self._kept = self._computed.persist() if self.rows is None else given(self.session, self.rows)
            return self._kept

    @property
    def session(self) -> SparkSession:
        """The session of the table."""
        return self._computed.sparkSession

    @cached_property
    def count(self) -> int:
        """The number of rows."""
        return self.frame.count() if self.rows is None else self.rows.num_rows

    def compute(self) -> None:
        """Have Spark compute the table now, unless it is small: then it has been."""
        self.count  # noqa: B018 - the count is kept

    def forget(self) -> None:
        """Let Spark keep it no longer."""
        if self._kept is not None and self.rows is None:
            _let_go(self._kept)


def given(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Give rows of the driver to Spark. Use it for few rows that several queries follow.

    They are one partition, so that Spark exchanges nothing to group them. Plans refer to them, and do not contain them:
    many rules of the planner would visit each row. Spark forgets them when its Java collects garbage. An executor of a
    cluster that is lost takes them with it: then the queries fail.
    """
    return spark.createDataFrame(rows).coalesce(1).localCheckpoint(eager=False)


@contextmanager
def kept_table(frame: DataFrame, is_small: bool) -> Iterator[KeptTable]:
    """Give a table while the block runs, with its rows if it is small."""
    table = KeptTable(frame, frame.toArrow() if is_small else None)
    try:
        yield table
    finally:
        table.forget()


@contextmanager
def kept_frame(frame: DataFrame, is_small: bool = False) -> Iterator[DataFrame]:
    """Have Spark keep a table while the block runs, computed when the first query needs it.

    A small one is in the plans of queries as in :func:`given`.
    """
    if is_small:
        yield frame.localCheckpoint(eager=False)
        return
    kept = frame.persist()
    try:
        yield kept
    finally:
        _let_go(kept)


def _let_go(kept: DataFrame) -> None:
    with suppress(PySparkException, Py4JError, OSError):  # a Spark that has ended keeps nothing
        kept.unpersist()
