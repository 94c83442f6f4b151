"""Gives a command access to the retained messages of the broker that its options name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import Any

import click

from holdfast.access.interfaces import Access, Inaccessible
from holdfast.access.opening import access_to
from holdfast.cli.broker_options import broker_options, fail, load_config
from holdfast.config import Config, ConfigError
from holdfast.storage.errors import StoreUnusable
from holdfast.storage.lock import DirectoryUnusable


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its access as first argument, and print a failure in one line on standard error."""
    return _with(command, lambda access, _config: (access,))


def with_access_and_config(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same, and give the command the broker's configuration as second argument."""
    return _with(command, lambda access, config: (access, config))


def _with(command: Callable[..., None], given: Callable[[Access, Config], tuple[object, ...]]) -> Callable[..., None]:
    def run(
        context: click.Context, config: Path | None, data_dir: str | None, storage: str | None, **options: Any
    ) -> None:
        try:
            loaded = load_config(config, data_dir, storage)
            with access_to(loaded) as access:
                command(*given(access, loaded), **options)
        except (ConfigError, DirectoryUnusable, StoreUnusable, Inaccessible) as error:
            fail(context, error)
        except BrokenPipeError:  # the reader of standard output, such as head, has closed it
            sys.stdout = None  # else Python complains when it flushes stdout at its end
            context.exit(1)
        except OSError as error:
            fail(context, Inaccessible(f"{error.filename or 'a file'}: {error.strerror}"))

    update_wrapper(run, command)
    return broker_options(click.pass_context(run))
