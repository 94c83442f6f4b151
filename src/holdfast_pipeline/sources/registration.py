"""Registering formats in a session when they are needed.

The first registration in a session takes a second: Spark then starts a Python process that looks for other formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_registered: WeakKeyDictionary[SparkSession, dict[str, type[DataSource]]] = WeakKeyDictionary()


def register_once(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a format known to a session, unless it knows that class or one that extends it."""
    known = _registered.setdefault(spark, {})
    if not issubclass(known.get(source.name(), object), source):
        spark.dataSource.register(source)
        known[source.name()] = source
