"""Failures of commands: one message on standard error and an exit status, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from holdfast.cli.reporting import say
from holdfast.exit_status import ExitStatus


class Failed(Exception):
    """The command cannot do its work. The message tells the reason and the remedy."""


@contextmanager
def explained() -> Iterator[None]:
    """Print a failure of the command, and end it with the status of a failure."""
    try:
        yield
    except (click.Abort, click.ClickException, click.exceptions.Exit):
        raise  # Click's own business, such as the end after --help
    except _told() as error:
        # Only a configuration has several problems, and a line for each.
        _fail(*map(str, getattr(error, "problems", (error,))))
    except BrokenPipeError:  # the reader of standard output, such as head, has closed it
        sys.stdout = None  # else Python complains when it flushes stdout at its end
        raise SystemExit(ExitStatus.FAILED) from None
    except UnicodeEncodeError as error:  # Python keeps the bytes of such arguments as surrogates
        if error.reason != "surrogates not allowed":
            raise
        _fail(f"an argument has bytes that are not UTF-8: {os.fsencode(error.object[error.start : error.end])!r}")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        name = error.filename
        _fail(f"{os.fsdecode(name)}: {reason}" if isinstance(name, str | bytes | os.PathLike) else reason)


def _told() -> tuple[type[Exception], ...]:
    """Return the errors whose text is the message. Python asks only after an error, so a command imports none of them
    without need.
    """
    from holdfast.access.interfaces import Inaccessible
    from holdfast.config import ConfigError
    from holdfast.storage.errors import StoreUnusable
    from holdfast.storage.lock import DirectoryUnusable

    return (ConfigError, DirectoryUnusable, Failed, Inaccessible, StoreUnusable)


def _fail(*messages: str) -> NoReturn:
    for message in messages:
        say(message)
    raise SystemExit(ExitStatus.FAILED)
