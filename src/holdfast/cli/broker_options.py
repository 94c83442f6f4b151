"""The options that name a broker's database: the same for every command, and the broker's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click

from holdfast.config import Config, default, load


def broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options ``--config``, ``--data-dir`` and ``--storage`` to a command."""
    for add in (
        click.option("--storage", help="The database, sqlite:////absolute/path; overrides storage.url."),
        click.option("--data-dir", help="The folder of the database and its lock; overrides node.data_dir."),
        click.option("--config", type=click.Path(path_type=Path), help="The broker's configuration file."),
    ):
        command = add(command)
    return command


def load_config(config: Path | None, data_dir: str | None, storage: str | None) -> Config:
    """Return the configuration of a broker that is started with these options. Raises ConfigError."""
    loaded = default() if config is None else load(config, allow_anonymous=True)
    return loaded.override([], data_dir, storage, allow_anonymous=True, cwd=Path.cwd())


def fail(context: click.Context, error: Exception) -> NoReturn:
    """Print the error on standard error, and end with status 1."""
    click.echo(str(error), err=True)
    context.exit(1)
