"""An error is explained in one line, taken from many lines of Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkRuntimeError

from holdfast_pipeline.spark.process import failure_text

WORKER = """An error occurred while calling o77.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    data_source = pickleSer._read_with_length(infile)
{}
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:583)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
NOWHERE = {"PATH": ""}
NOT_STARTED = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("holdfast_pipeline.errors.PipelineError: a.db: is damaged", "a.db: is damaged"),
        ("ModuleNotFoundError: No module named 'holdfast'", "the executors run a Python without holdfast: install"),
        ('java.io.IOException: Cannot run program "/x/python3": error=2, No such file or directory', "the executors"),
        (
            "java.io.IOException: No space left on device",
            "No space left on device: free some space",
        ),
        ("ValueError: what nobody thought of", "what nobody thought of"),
    ],
)
def test_the_explaining_line_is_found(last: str, told: str) -> None:
    """No line of a stack trace is part of it."""
    line = failure_text(RuntimeError(WORKER.format(last)), [], NOWHERE)
    assert line.startswith(told)
    assert "\n" not in line


def test_an_error_without_python_is_explained_by_its_first_line() -> None:
    """It comes from Spark itself."""
    assert failure_text(RuntimeError("[PATH_NOT_FOUND] Path does not exist: x.\n\tat y"), [], NOWHERE) == (
        "[PATH_NOT_FOUND] Path does not exist: x."
    )
    assert failure_text(MemoryError(), [], NOWHERE) == "MemoryError"


def test_a_failed_start_is_explained_by_java_s_problem() -> None:
    """Even if Spark's output has another explanation."""
    assert failure_text(NOT_STARTED, [], NOWHERE).startswith("PATH has no java; ")
    said = [
        "WARNING: Using incubator modules",
        'Exception in thread "main" org.apache.spark.SparkException: Master must',
    ]
    fake = {"JAVA_HOME": "/nonexistent"}
    assert failure_text(NOT_STARTED, said, fake).startswith("JAVA_HOME is /nonexistent, which has no bin/java")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            'Exception in thread "main" org.apache.spark.SparkException: Master must start with spark',
            "Master must start",
        ),
        ("Error: Unrecognized option: --bogus", "Unrecognized option: --bogus"),
        ("Nothing of the kind", "it does not tell why; --verbose shows all of its output"),
    ],
)
def test_the_explanation_in_spark_s_output_is_quoted(line: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first explanation counts."""
    monkeypatch.setattr("holdfast_pipeline.spark.process.java_problem", lambda _environment: None)
    assert failure_text(NOT_STARTED, ["WARNING: Using incubator modules", line, "\tat x"], {}).startswith(
        f"Spark did not start: {told}"
    )


def test_a_master_that_does_not_answer_is_reported() -> None:
    """Only Spark's log mentions it."""
    said = ["26/11/21 15:00:00 ERROR StandaloneSchedulerBackend: Reason: All masters are unresponsive! Giving up."]
    error = RuntimeError("An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.\n: x")
    assert failure_text(error, said, NOWHERE).startswith("the master does not answer: ")


def test_a_stream_that_failed_on_a_full_disk_is_explained_by_spark_s_log() -> None:
    """The error itself does not name the cause."""
    said = ["26/11/21 18:42:46 ERROR Executor: x", "java.io.IOException: No space left on device", "\tat y"]
    error = RuntimeError("[STREAM_FAILED] Query [id = 1] terminated with exception: [TASK_WRITE_FAILED] Task failed")
    assert failure_text(error, said, NOWHERE).startswith("No space left on device: free some")
    assert failure_text(error, [], NOWHERE).startswith("[STREAM_FAILED]")
