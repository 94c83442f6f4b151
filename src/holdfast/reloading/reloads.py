"""Reloads: all parts prepare the new configuration, then all take it in one turn of the reactor, or none does.

How it works. In a thread, the file is read, and each part builds what it needs: rules, users, certificates, keys. All
problems are collected. Without any, the parts open what they must in the reactor's thread, such as ports, and then
commit in the same turn: no client meets a broker with old permissions and new users. A commit only exchanges objects.
After that, what the new configuration does not allow any more is ended in portions.

Options that need a restart keep their running values, so that each later reload names them again. A reload that comes
while one runs waits for it; all that wait are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve, frozen
from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.config import Config, ConfigError, ConfigProblem
from holdfast.config.differences import differences, keep_until_restart
from holdfast.config.document import exposure_problems
from holdfast.config.named_files import FileState, file_states
from holdfast.reloading.lost_protection import lost_protection
from holdfast.reloading.outcome import Outcome, lines
from holdfast.reloading.part import Change, Part

#: runs a function in a thread
Run = Callable[[Callable[[], Any]], Deferred[Any]]
#: ends what a changed configuration does not allow any more; fires with counts by name
Revoke = Callable[[Config, Config], Deferred[Mapping[str, int]]]


class Stopping(Exception):
    """The broker stops, and reloads nothing any more."""


@frozen
class _Prepared:
    """A whole configuration that can be put into effect."""

    config: Config
    files: Mapping[Path, FileState]
    changes: Sequence[Change]
    outcome: Outcome


class Reloads:
    """Reloads the configuration of a running broker, which is ``config`` at the beginning.

    ``files`` has the states of its files before they were read. ``read`` returns the configuration as a start would;
    raises ConfigError. ``reset`` returns the settings that the API had changed, once the parts have committed. ``told``
    is called with True when a reload begins, with False when it has ended.
    """

    _log = Logger()

    def __init__(
        self,
        config: Config,
        *,
        read: Callable[[], Config],
        parts: Sequence[Part],
        revoke: Revoke,
        run: Run,
        environment: Mapping[str, str],
        files: Mapping[Path, FileState],
        told: Callable[[bool], None],
        reset: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.config = config
        self._read = read
        self._parts = parts
        self._revoke = revoke
        self._run = run
        self._environment = environment
        self._told = told
        self._reset = reset
        self._files = files
        self._waiting: list[Deferred[Outcome]] | None = None
        self._is_running = False
        self._is_over = False

    def stop(self) -> None:
        """Reload no more, because the broker stops. A reload under way changes nothing."""
        self._is_over = True

    def reload(self, by: str) -> Deferred[Outcome]:
        """Reload the configuration; ``by`` says in the log who wants it. Fires with what was done.

        Fails with :class:`Stopping`, and with an unexpected error.
        """
        if self._is_over:
            return fail(Stopping())
        if self._is_running:
            waiting: Deferred[Outcome] = Deferred()
            if self._waiting is None:
                self._waiting = []
            self._waiting.append(waiting)
            return waiting
        self._is_running = True
        self._log.info("the configuration is read again, as {by} wants", by=by)
        self._told(True)
        preparing = maybeDeferred(self._run, partial(self._prepare, self._read))
        done: Deferred[Outcome] = preparing.addCallback(self._commit)
        done.addErrback(self._unusable)
        return done.addBoth(self._ended)

    def check(self, read: Callable[[], Config]) -> Deferred[Outcome]:
        """Fire with what a reload of another configuration would do, without doing it. ``read`` raises ConfigError."""

        def prepare() -> Outcome:
            prepared = self._prepare(read)
            _abandon(prepared.changes)
            return prepared.outcome

        return maybeDeferred(self._run, prepare).addErrback(self._unusable)

    def _prepare(self, read_config: Callable[[], Config]) -> _Prepared:
        """Build everything, in a thread. Raises ConfigError with all problems."""
        running, read = self.config, read_config()
        config = keep_until_restart(running, read)
        changes: list[Change] = []
        problems: list[ConfigProblem] = list(exposure_problems(config)) if config != read else []
        try:
            files = file_states(config, self._environment)  # before the reading: a later change is seen the next time
            for part in self._parts:
                try:
                    changes.append(part(running, config))
                except ConfigError as error:
                    problems += error.problems
            if problems:
                raise ConfigError(problems)
        except BaseException:
            _abandon(changes)
            raise
        changed = [str(path) for path, state in files.items() if self._files.get(path, state) != state]
        outcome = Outcome(
            changed=differences(running, config),
            restart=differences(config, read),
            files=changed,
            warnings=tuple(lost_protection(running, config)),
        )
        return _Prepared(config, files, changes, outcome)

    def _commit(self, prepared: _Prepared) -> Deferred[Outcome]:
        if self._is_over:
            _abandon(prepared.changes)
            raise Stopping
        try:
            for change in prepared.changes:
                change.begin()
        except BaseException:
            _abandon(prepared.changes)
            raise
        for change in prepared.changes:
            change.commit()
        running, self.config, self._files = self.config, prepared.config, prepared.files
        outcome = evolve(prepared.outcome, reset=self._reset())
        return self._revoke(running, self.config).addCallback(lambda revoked: evolve(outcome, revoked=revoked))

    def _unusable(self, failure: Failure) -> Outcome:
        failure.trap(ConfigError)
        assert isinstance(failure.value, ConfigError)
        return Outcome(problems=failure.value.problems)

    def _ended(self, result: Outcome | Failure) -> Any:
        self._is_running = False
        self._told(False)
        if isinstance(result, Outcome):
            write = self._log.error if result.problems else self._log.info
            for line in lines(evolve(result, warnings=()).as_json()):
                write("reload: {line}", line=line)
            for warning in result.warnings:
                self._log.warn("reload: {warning}", warning=warning)
        elif not result.check(Stopping):
            self._log.failure("reload failed; restart the broker, since parts may have changed", result)
        waiting, self._waiting = self._waiting, None
        if waiting:
            following = self.reload("others who asked meanwhile")
            for each in waiting:
                following.addBoth(partial(_pass_on, each))
            following.addErrback(lambda _: None)  # each has been told
        return result


def _pass_on(waiting: Deferred[Outcome], result: Any) -> Any:
    waiting.callback(result)
    return result


def _abandon(changes: Sequence[Change]) -> None:
    for change in changes:
        change.abandon()
