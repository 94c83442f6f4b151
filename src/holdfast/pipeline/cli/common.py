"""What every command has in common: which database, how results are told, and what a failure looks like."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click

from holdfast.pipeline.database.connection import check
from holdfast.pipeline.sources.options import url_of
from holdfast.pipeline.spark.console import Chatter
from holdfast.pipeline.spark.failure_text import reason
from holdfast.pipeline.spark.session import leave, session
from holdfast.pipeline.spark.signals import Ended, Ending

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The exit statuses: the job failed; it did its work, and found what its user should look into.
FAILED = 1
FOUND = 3
_VERBOSE = "holdfast.pipeline.verbose"


def database(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which database is meant."""
    command = click.option("--config", help="The broker's configuration file, which names its database.")(command)
    return click.option("--storage", help="The database: sqlite:////absolute/path or postgresql+psycopg://...")(command)


def machine(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say what is on the console."""
    command = click.option(
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_note,
        help="Show all that Spark says, and where it fails.",
    )(command)
    return click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")(command)


def _note(context: click.Context, _option: click.Parameter, value: bool) -> None:
    context.meta[_VERBOSE] = value


@contextmanager
def running(name: str) -> Iterator[Callable[[], SparkSession]]:
    """Give what starts the session of a command; what goes wrong is told in a line, with exit status 1.

    What can be refused without Spark is looked at before it is started, which takes seconds.
    """
    ending = ending_of()
    verbose = click.get_current_context().meta.get(_VERBOSE, False)
    chatter = None if verbose else Chatter()
    if chatter is not None:  # py4j logs, with a traceback, what a session that ends has interrupted
        logging.getLogger().addHandler(logging.NullHandler())
    try:
        with ExitStack() as kept:
            yield lambda: kept.enter_context(session(f"holdfast-pipeline {name}", chatter, ending.listen))
    except (Exception, Ended, KeyboardInterrupt) as error:
        if chatter is not None:
            chatter.wipe()
        # Whatever else goes wrong then. Spark has a handler of its own for a moment, which raises KeyboardInterrupt.
        if ending.forced or isinstance(error, KeyboardInterrupt):
            leave(error)
            raise Ended from error
        if verbose or isinstance(error, (click.ClickException, ModuleNotFoundError)):
            raise
        fail(reason(error, chatter.lines if chatter else ()))
    if chatter is not None:
        chatter.wipe()


def require_database(storage: str | None, config: str | None) -> None:
    """Raise :class:`PipelineError` unless these say which database is meant, and it can be read."""
    check(url_of(storage, config))


def ending_of() -> Ending:
    """Return the signals that end the command that runs."""
    return click.get_current_context().ensure_object(Ending)


def fail(message: str) -> NoReturn:
    """Say what is wrong, and end with status 1."""
    click.echo(message, err=True)
    raise SystemExit(FAILED)


def tell(result: Mapping[str, Any], as_json: bool, sentence: str) -> None:
    """Print what was done: for people a sentence, for machines a line of JSON."""
    click.echo(json.dumps(result, ensure_ascii=False) if as_json else sentence)
