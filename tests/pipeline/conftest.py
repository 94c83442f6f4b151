"""One Spark session for the tests of a process, and a database for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast_pipeline.spark import java_problem, prepare, register
from holdfast_pipeline.spark.java import choose_worker_python, let_workers_find
from tests.pipeline.java_classes import java_options, make_archive
from tests.pipeline.stores import MAKES, Filled, database
from tests.processes import unmeasured


@pytest.fixture(scope="session")
def java() -> None:
    """Skip tests without a Java that Spark can run. Prepare its start, which many tests then repeat."""
    problem = java_problem(os.environ)
    if problem is not None:
        pytest.skip(problem)
    make_archive()


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """A session with two tasks at once."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    let_workers_find(os.environ)
    choose_worker_python(os.environ, is_local=True)
    builder = SparkSession.builder.appName("holdfast tests").master("local[2]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.leafNodeDefaultParallelism": "2",
        # Tests are short: optimisations for long jobs only cost time.
        "spark.driver.extraJavaOptions": java_options(),
        "spark.driver.memory": "1g",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    with pytest.MonkeyPatch.context() as patched:  # Java and its Python workers inherit the environment of now
        for name in os.environ.keys() - unmeasured().keys():
            patched.delenv(name)
        session = builder.getOrCreate()
    prepare(session)
    register(session)
    yield session
    session.stop()


@pytest.fixture(params=MAKES)
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filled]:
    """An empty database, SQLite or Postgres."""
    with database(request.param, tmp_path) as found:
        yield found


@pytest.fixture(params=MAKES)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filled]:
    """An empty database with a history, SQLite or Postgres."""
    with database(request.param, tmp_path, recorded=True) as found:
        yield found
