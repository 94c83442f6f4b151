"""Running a command: its Spark process, its result on standard output, its failure in one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click

from holdfast.pipeline.cli.options import VERBOSE
from holdfast.pipeline.cli.signals import EndedBySignal, EndSignals
from holdfast.pipeline.spark import SparkProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The exit status of a failed job.
FAILED = 1
#: The exit status of a job that has finished, and has found something that the user should examine.
FOUND = 3


@contextmanager
def running(name: str) -> Iterator[Callable[[], SparkSession]]:
    """Give the function that starts Spark for a command. A failure becomes one line, and exit status 1.

    A command first makes all checks that need no Spark, because Spark takes seconds to start.
    """
    signals = end_signals()
    verbose = click.get_current_context().meta.get(VERBOSE, False)
    process = SparkProcess(f"holdfast-pipeline {name}", quiet=not verbose, on_start=signals.listen)
    try:
        with process:
            yield process.start
    except (Exception, EndedBySignal, KeyboardInterrupt) as error:
        # After a signal, any other exception is a result of the signal. While Spark starts, it handles SIGINT itself
        # for a moment, and raises KeyboardInterrupt.
        if signals.interrupted or isinstance(error, KeyboardInterrupt):
            process.kill(error)
            raise EndedBySignal from error
        if verbose or isinstance(error, (click.ClickException, ModuleNotFoundError)):
            raise
        fail(process.failure_text(error))


def end_signals() -> EndSignals:
    """Return the signals that end the running command."""
    return click.get_current_context().ensure_object(EndSignals)


def fail(message: str) -> NoReturn:
    """Print the message, and end with status 1."""
    click.echo(message, err=True)
    raise SystemExit(FAILED)


def print_result(result: Mapping[str, Any], as_json: bool, sentence: str) -> None:
    """Print the result: a sentence for people, or one line of JSON for programs."""
    click.echo(json.dumps(result, ensure_ascii=False) if as_json else sentence)
