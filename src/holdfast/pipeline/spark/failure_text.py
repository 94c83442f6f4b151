"""What went wrong, in a line: our own words where they are somewhere in what Spark says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from holdfast.pipeline.spark.java import java_problem

_FULL = re.compile(r"(No space left on device)")
_FREE = "{0}: free some, or name another folder (spark.local.dir, --out)"
#: What the text of an error says, and what it means; the first that is found counts, where it is said last.
_MEANINGS = (
    (re.compile(r"PipelineError: (.*)"), "{0}"),
    (
        re.compile(r"No module named '?(holdfast|pyarrow|psycopg|attrs?|sqlalchemy|twisted)\b"),
        "the executors run a Python without {0}: install holdfast[pipeline] where they run, or send it to them "
        "(PYSPARK_PYTHON, spark.archives: see the documentation, Clusters)",
    ),
    (
        re.compile(r"Cannot run program \"([^\"]*)\".*No such file"),
        "the executors have no {0}: set PYSPARK_PYTHON to a Python that has holdfast[pipeline] where they run",
    ),
    (
        re.compile(r"\[PACKAGE_NOT_INSTALLED\] (\S+)"),
        "Spark Connect needs {0}, which is not installed: pip install 'holdfast[connect]'",
    ),
    (
        re.compile(r"(CONCURRENT_STREAM_LOG_UPDATE|Rename destination \S*/checkpoint/)"),
        "another run is adding to the same archive: let it end, then run this again",
    ),
    (_FULL, _FREE),
    (re.compile(r"(?m)^\s*(?:Caused by: )?(?:\w+\.)*\w*(?:Error|Exception): (?!Job aborted|Traceback)(\S.*)"), "{0}"),
)
_GATEWAY = "JAVA_GATEWAY_EXITED"
_UNRESPONSIVE = "All masters are unresponsive"
#: What Spark's start says of its failure.
_FAILED = re.compile(r"^(?:Error: |Exception in thread \S+ |Caused by: )?(?:[\w.$]+(?:Exception|Error): )?(.*)$")
_COMPLAINT = re.compile(r"^(Error\b|Exception\b|Caused by\b|Unrecognized|\S*spark\S*: )")
#: Characters of a line that was not written for this console.
_WIDTH = 400


def reason(error: BaseException, said: Sequence[str] = (), environment: Mapping[str, str] = os.environ) -> str:
    """Return what went wrong; ``said`` is what Spark's processes have said last, where that is known."""
    text = str(error)
    if _GATEWAY in text:
        return java_problem(environment) or f"Spark did not start: {_complaint(said)}"
    if any(_UNRESPONSIVE in line for line in said):
        return "the master does not answer: is it what MASTER, spark.master or --master should say, and does it run?"
    for pattern, meaning in _MEANINGS:
        found = pattern.findall(text)
        if found:
            return meaning.format(found[-1])[:_WIDTH]
    full = [found for line in said for found in _FULL.findall(line)]
    if full:  # a stream that fails does not say so itself
        return _FREE.format(full[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:_WIDTH] if lines else type(error).__name__


def _complaint(said: Sequence[str]) -> str:
    for line in said:
        if _COMPLAINT.match(line):
            match = _FAILED.match(line)
            return (match[1] if match else line)[:_WIDTH]
    return "it does not say why; --verbose shows all that it says"
