"""Spark's workers import PySpark as it is installed, with compiled modules; a user's choices win."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from holdfast_pipeline.spark.java import choose_worker_python, let_workers_find


def chosen(is_local: bool = True, **environment: str) -> str:
    choose_worker_python(environment, is_local)
    return environment["PYSPARK_PYTHON"]


def test_the_program_becomes_this_python_without_the_zip_files_of_spark(tmp_path: Path) -> None:
    own = [str(tmp_path / "own modules"), str(tmp_path / "*")]
    (tmp_path / "not a star").mkdir()
    zips = ["/opt/lib/pyspark.zip", "/opt/lib/py4j-0.10.9.9-src.zip", "/opt/jars/spark-core_2.13-4.3.0.jar"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*zips, *own])}
    let_workers_find(environment)
    printing = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], *sys.argv[1:], sep='\\n')"
    done = subprocess.run(
        [chosen(), "-c", printing, "an argument"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [sys.executable, os.pathsep.join(own), "an argument"]


def test_workers_have_no_zip_file_in_their_path(spark: SparkSession) -> None:
    path, found = spark.sparkContext.parallelize([0], 1).map(lambda _: (sys.path, pyspark.__file__)).first()
    assert not [each for each in path if each.endswith((".jar", "pyspark.zip", "-src.zip"))]
    assert found == pyspark.__file__


def test_another_python_is_used_if_the_user_chooses_one() -> None:
    assert chosen(PYSPARK_PYTHON="/opt/python") == "/opt/python"


def test_other_hosts_and_another_spark_get_this_python() -> None:
    assert chosen(is_local=False) == sys.executable
    assert chosen(SPARK_HOME="/opt/spark") == sys.executable
