"""Registering formats in a session when they are needed.

The first registration in a session takes a second: Spark then starts a Python process that looks for other formats. If
this machine runs the tasks, and no setting names the Python of its workers, they get that of this process. Spark would
take the first in ``PATH``, which may lack this package if no virtual environment is activated.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql.datasource import DataSource
from pyspark.sql.utils import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The Python of the workers, unless a setting names another one.
_FIRST_IN_PATH = "python3"
_registered: WeakKeyDictionary[SparkSession, dict[str, type[DataSource]]] = WeakKeyDictionary()


def register_once(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a format known to a session, unless it knows that class or one that extends it."""
    known = _registered.setdefault(spark, {})
    if not known and not is_remote():
        context = spark.sparkContext
        if context.pythonExec == _FIRST_IN_PATH and runs_here(context.master or ""):
            context.pythonExec = sys.executable
    if not issubclass(known.get(source.name(), object), source):
        spark.dataSource.register(source)
        known[source.name()] = source


def runs_here(master: str) -> bool:
    """Tell whether a master runs its tasks on this machine: in its own process, or in executors beside it."""
    return master == "local" or master.startswith(("local[", "local-cluster["))
