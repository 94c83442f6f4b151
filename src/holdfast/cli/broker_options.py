"""The options that name a broker's database: the same for every command, and the broker's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from holdfast.config import Config


def broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options ``--config``, ``--data-dir`` and ``--storage`` to a command."""
    for add in (
        click.option("--storage", help="The database, sqlite:////absolute/path; overrides storage.url."),
        click.option("--data-dir", help="The folder of the database and its lock; overrides node.data_dir."),
        click.option("--config", type=click.Path(path_type=Path), help="The broker's configuration file."),
    ):
        command = add(command)
    return command


def load_config(config: Path | None, data_dir: str | None, storage: str | None, allow_anonymous: bool = True) -> Config:
    """Return the configuration of a broker that is started with these options. Raises ConfigError.

    Most commands do not know whether the broker runs with ``--allow-anonymous``, so they take its configuration as if
    it did. Without ``allow_anonymous``, the listeners are as the file has them.
    """
    from holdfast.config import default, load

    loaded = default() if config is None else load(config, allow_anonymous=allow_anonymous)
    return loaded.override([], data_dir, storage, allow_anonymous=allow_anonymous, cwd=Path.cwd())
