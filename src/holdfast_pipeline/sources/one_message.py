"""Errors of the formats as one message, without the stack trace of Spark's Python worker.

How it works. Spark calls a format in Python workers. A worker reports an exception as text with its stack trace, unless
``SPARK_HIDE_TRACEBACK`` is set; then it ends. The wrappers here set that variable while a :class:`PipelineError` leaves
a format: its text says all that a user needs. Other exceptions keep their stack traces.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from holdfast_pipeline.errors import PipelineError

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
