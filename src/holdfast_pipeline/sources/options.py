"""The options of the formats, their registration, and their errors as one message."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.sql.datasource import DataSource
from pyspark.sql.utils import is_remote

from holdfast.core.topics import EVERY_TOPIC, MOST_LEVELS, InvalidTopicFilter, check_topic_filter, split_shared
from holdfast.core.units import ALLOWED, BadTime, moment_of
from holdfast_pipeline.database import url_of
from holdfast_pipeline.errors import PipelineError, WrongUsage
from holdfast_pipeline.sources.columns import Column, named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MOST_PARTITIONS = 10_000


class Options:
    """The options that one reader or writer was given. Raises :class:`PipelineError` for unknown options and values."""

    def __init__(self, format_name: str, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._format = format_name
        self._given = {name.lower(): value for name, value in given.items()}
        allowed = {"storage", "config", *(name.lower() for name in known), "path"}
        for name in self._given:
            if name not in allowed:
                raise PipelineError(
                    f"format {format_name}: there is no option {name!r}; the options are: "
                    f"{', '.join(('storage', 'config', *known))}"
                )

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return an option's text."""
        return self._given.get(name.lower(), default)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a whole number."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise PipelineError(f"format {self._format}: {name} is a number from {least} to {most}, not {text!r}")
        return value

    def moment(self, name: str, now: int) -> int | None:
        """Return a time in milliseconds since the epoch, as the commands accept it; None without the option."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return moment_of(text, now)
        except BadTime as error:
            raise PipelineError(
                f"format {self._format}: {name}: {text!r} is not a time; write it as {ALLOWED}"
            ) from error

    def partitions(self) -> int:
        """Return the number of partitions."""
        return self.number("partitions", 1, 1, _MOST_PARTITIONS)

    def columns(self, known: Sequence[Column]) -> tuple[Column, ...]:
        """Return the columns named in the option ``columns``, separated by commas; all columns without this option."""
        text = self.text("columns")
        return tuple(known) if text is None else named(known, [name.strip() for name in text.split(",")])

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        """Return one of the allowed words."""
        value = self._given.get(name.lower(), default)
        if value not in allowed:
            raise PipelineError(f"format {self._format}: {name} is one of {', '.join(allowed)}, not {value!r}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """Return true or false."""
        return self.choice(name, "true" if default else "false", ("true", "false")) == "true"

    def topic_filter(self) -> str:
        """Return the Topic Filter, "" for every topic."""
        found = self.text("filter") or EVERY_TOPIC
        check_filter(found)
        return found

    def url(self) -> str:
        """Return the database's URL, from ``storage`` or from the broker's file ``config``."""
        storage, config = self._given.get("storage"), self._given.get("config")
        return url_of(storage, config, f"format {self._format}: ")


def check_filter(topic_filter: str) -> None:
    """Raise :class:`PipelineError` for an invalid Topic Filter. "" is valid, and means every topic."""
    if topic_filter == EVERY_TOPIC:
        return
    try:
        group, inner = split_shared(topic_filter)
        check_topic_filter(inner, MOST_LEVELS)
    except InvalidTopicFilter as error:
        raise WrongUsage(f"filter {topic_filter!r}: {error}") from error
    if group is not None:
        raise WrongUsage(f"filter {topic_filter!r}: is a shared subscription, not a Topic Filter; write {inner!r}")


# Errors of the formats as one message, without the stack trace of Spark's Python worker.
#
# How it works. Spark calls a format in Python workers. A worker reports an exception as text with its stack trace,
# unless ``SPARK_HIDE_TRACEBACK`` is set; then it ends. The wrappers here set that variable while a
# :class:`PipelineError` leaves a format: its text says all that a user needs. Other exceptions keep their stack
# traces.

_HIDES = "SPARK_HIDE_TRACEBACK"
#: The methods that Spark calls.
_CALLED = (
    "schema", "reader", "streamReader", "writer", "streamWriter", "partitions", "read", "write", "commit",
    "initialOffset", "latestOffset", "prepareForTriggerAvailableNow", "reportLatestOffset",
)  # fmt: skip


class OneMessage:
    """Makes errors that leave a format, a reader or a writer one message."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name in _CALLED:
            method = cls.__dict__.get(name)
            if inspect.isfunction(method):
                setattr(cls, name, _generating(method) if inspect.isgeneratorfunction(method) else _calling(method))


@contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except PipelineError:
        os.environ[_HIDES] = "1"  # of a worker, which ends with this error
        raise


def _calling(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def called(*given: Any, **named: Any) -> Any:
        with _telling():
            return method(*given, **named)

    return called


def _generating(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @wraps(method)
    def called(*given: Any, **named: Any) -> Iterator[Any]:
        with _telling():
            yield from method(*given, **named)

    return called


# Registering formats in a session when they are needed.
#
# The first registration in a session takes a second: Spark then starts a Python process that looks for other formats.
# If this machine runs the tasks, and no setting names the Python of its workers, they get that of this process. Spark
# would take the first in ``PATH``, which may lack this package if no virtual environment is activated.

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
