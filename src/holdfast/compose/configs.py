"""Builds the calls about the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

from holdfast.admin.broker.configs import ConfigCalls
from holdfast.admin.routing.route import Route
from holdfast.config import Config, ConfigError, ConfigProblem
from holdfast.config.differences import differences, present_values
from holdfast.config.effects import TakesEffect
from holdfast.reloading.config_file import ConfigFile, NotWritable
from holdfast.reloading.outcome import Outcome
from holdfast.reloading.reloads import Reloads, Run


def compose_config_routes(reloads: Reloads, read: Callable[..., Config], reactor: Any) -> tuple[Route, ...]:
    """Return the calls. ``read`` returns the configuration as it is at a reload, of its file or of another one."""
    run = partial(deferToThreadPool, reactor, reactor.getThreadPool())
    return ConfigCalls(Configs(reloads, ConfigFile(reloads, read, run), read, run), NotWritable).routes


@frozen
class Configs:
    """The configuration of the broker, as the calls see it."""

    _reloads: Reloads
    _file: ConfigFile
    _read: Callable[..., Config]
    _run: Run

    @property
    def file(self) -> str | None:
        """The configuration file."""
        file = self._reloads.config.file
        return None if file is None else str(file)

    @property
    def writable(self) -> bool:
        """Whether the operator permits to write it."""
        return self._reloads.config.admin.config_writable

    def values(self) -> Iterable[tuple[str, object, TakesEffect, bool]]:
        """Return each option: its key, its value, when a change takes effect, and whether it is secret."""
        return present_values(self._reloads.config)

    def differing(self) -> Deferred[tuple[frozenset[str], Sequence[ConfigProblem]]]:
        """Fire with the keys that have another value in the file now, and the problems of the file."""
        running = self._reloads.config

        def compare() -> tuple[frozenset[str], Sequence[ConfigProblem]]:
            try:
                return frozenset(each.key for each in differences(running, self._read())), ()
            except ConfigError as error:
                return frozenset(), error.problems

        return self._run(compare)

    def text(self) -> Deferred[bytes]:
        """Fire with the content of the file."""
        return self._file.text()

    def put(self, text: bytes, by: str, dry_run: bool) -> Deferred[Outcome]:
        """Replace the file and reload; with ``dry_run``, only find the differences."""
        return self._file.put(text, by, dry_run)
