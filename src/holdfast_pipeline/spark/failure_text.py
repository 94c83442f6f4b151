"""An error of Spark in one line: this package's own message if Spark's text contains one.

Spark passes an error of a Python worker on as text, in the middle of Java's and Python's stack traces. So this is text
search; only errors that PySpark raises itself have a condition.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from pyspark.errors import PySparkException

from holdfast_pipeline.spark.java import java_problem

_DISK_FULL = re.compile(r"(No space left on device)")
_FREE_SPACE = "{0}: free some space, or name another folder (spark.local.dir, --out)"
#: Patterns and their messages. The first pattern that matches counts, and of its matches the last one.
_MESSAGES = (
    (re.compile(r"PipelineError: (.*)"), "{0}"),
    (
        re.compile(r"No module named '?(holdfast|pyarrow|psycopg|attrs?|sqlalchemy|twisted)\b"),
        "the executors run a Python without {0}: install holdfast[pipeline] on their hosts, or send it to them "
        "(PYSPARK_PYTHON, spark.archives: see the documentation, Clusters)",
    ),
    (
        re.compile(r"Cannot run program \"([^\"]*)\".*No such file"),
        "the executors have no {0}: set PYSPARK_PYTHON to a Python with holdfast[pipeline] on their hosts",
    ),
    (
        re.compile(r"\[PACKAGE_NOT_INSTALLED\] (\S+)"),
        "Spark Connect needs {0}, which is not installed: pip install 'holdfast[connect]'",
    ),
    (
        re.compile(r"(StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED)"),
        "the Spark Connect server does not answer: see holdfast-pipeline server status, or your SPARK_REMOTE",
    ),
    (_DISK_FULL, _FREE_SPACE),
    (re.compile(r"(?m)^\s*(?:Caused by: )?(?:\w+\.)*\w*(?:Error|Exception): (?!Job aborted|Traceback)(\S.*)"), "{0}"),
)
_NO_JAVA = "JAVA_GATEWAY_EXITED"
_NO_MASTER = "All masters are unresponsive"
#: Lines in which spark-submit and Java explain a failed start; the group is the explanation.
_EXPLANATION = re.compile(
    r"(?=Error\b|Exception\b|Caused by\b|Unrecognized|\S*spark\S*: )"
    r"(?:Error: |Exception in thread \S+ |Caused by: )?(?:[\w.$]+(?:Exception|Error): )?(.*)"
)
#: Longer texts are cut: they were not written for this console.
_MAX_LENGTH = 400


def failure_text(error: BaseException, output: Sequence[str] = (), environment: Mapping[str, str] = os.environ) -> str:
    """Explain an error in one line; ``output`` are the last lines of Spark's output."""
    text = str(error)
    if isinstance(error, PySparkException) and error.getCondition() == _NO_JAVA:
        return java_problem(environment) or f"Spark did not start: {_explanation(output)}"
    if any(_NO_MASTER in line for line in output):
        return "the master does not answer: check MASTER, spark.master or --master, and whether the master runs"
    for pattern, message in _MESSAGES:
        if found := pattern.findall(text):
            return message.format(found[-1])[:_MAX_LENGTH]
    if full := [found for line in output for found in _DISK_FULL.findall(line)]:
        return _FREE_SPACE.format(full[-1])  # the error of a failed stream does not contain this cause
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:_MAX_LENGTH] if lines else type(error).__name__


def _explanation(output: Sequence[str]) -> str:
    found = next((match[1] for line in output if (match := _EXPLANATION.match(line))), None)
    return (found or "it does not tell why; --verbose shows all of its output")[:_MAX_LENGTH]
