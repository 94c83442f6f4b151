"""Gives a command access to the retained messages of the broker that its options name."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.broker_options import broker_options, load_config

if TYPE_CHECKING:
    from holdfast.access.interfaces import Access
    from holdfast.config import Config


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its access as first argument."""
    return _with(command, lambda access, _config: (access,))


def with_access_and_config(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same, and give the command the broker's configuration as second argument."""
    return _with(command, lambda access, config: (access, config))


def _with(command: Callable[..., None], given: Callable[[Access, Config], tuple[object, ...]]) -> Callable[..., None]:
    def run(config: Path | None, data_dir: str | None, storage: str | None, **options: Any) -> None:
        from holdfast.access.opening import access_to

        loaded = load_config(config, data_dir, storage)
        with access_to(loaded) as access:
            command(*given(access, loaded), **options)

    update_wrapper(run, command)
    return broker_options(run)
