"""Which broker is meant: the options that say so, the same for every command, and those of the broker itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click

from holdfast.config import Config, default, load


def place(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which database is meant; they are those of the broker."""
    for add in (
        click.option("--storage", help="The database, sqlite:////absolute/path; overrides storage.url."),
        click.option("--data-dir", help="The folder of the database and its lock; overrides node.data_dir."),
        click.option("--config", type=click.Path(path_type=Path), help="The broker's configuration file."),
    ):
        command = add(command)
    return command


def configured(config: Path | None, data_dir: str | None, storage: str | None) -> Config:
    """Return the broker's configuration, as its own options would make it. Raises ConfigError."""
    loaded = default() if config is None else load(config, allow_anonymous=True)
    return loaded.override([], data_dir, storage, allow_anonymous=True, cwd=Path.cwd())


def refuse(context: click.Context, error: Exception) -> NoReturn:
    """Say what is wrong, and end with status 1."""
    click.echo(str(error), err=True)
    context.exit(1)
