"""What every command has in common: which database, how results are told, and what a failure looks like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from holdfast.pipeline.problem import PipelineError
from holdfast.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The exit statuses: the job failed; it did its work, and found what its user should look into.
FAILED = 1
FOUND = 3

_OURS = re.compile(r"PipelineError: (.*)")


def database(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which database is meant."""
    command = click.option("--config", help="The broker's configuration file, which names its database.")(command)
    return click.option("--storage", help="The database: sqlite:////absolute/path or postgresql+psycopg://...")(command)


def machine(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option to tell the result as JSON."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")(command)


@contextmanager
def running(name: str) -> Iterator[SparkSession]:
    """Give the session of a command; what goes wrong is told in a line, with exit status 1."""
    try:
        with session(f"holdfast-pipeline {name}") as spark:
            yield spark
    except PipelineError as error:
        fail(str(error))
    except (PySparkException, Py4JError) as error:
        fail(reason(error))


def reason(error: Exception) -> str:
    """Return what went wrong in Spark, without the traceback: our own words where they are in it."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    if "JAVA_GATEWAY_EXITED" in text:
        return "Spark needs Java 17 or newer: install openjdk-17-jre-headless, or set JAVA_HOME to where it is"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def fail(message: str) -> NoReturn:
    """Say what is wrong, and end with status 1."""
    click.echo(message, err=True)
    raise SystemExit(FAILED)


def tell(result: Mapping[str, Any], as_json: bool, sentence: str) -> None:
    """Print what was done: for people a sentence, for machines a line of JSON."""
    click.echo(json.dumps(result, ensure_ascii=False) if as_json else sentence)
