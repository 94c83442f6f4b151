"""Reloads: all parts prepare the new configuration, then all take it in one turn of the reactor, or none does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen
from twisted.internet.defer import Deferred, DeferredLock, fail, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.admin.api.configs import NotWritable
from holdfast.config import Config, ConfigError, ConfigProblem
from holdfast.config.differences import Difference, differences, keep_until_restart
from holdfast.config.document import FileState, exposure_problems, file_states
from holdfast.config.options import TakesEffect
from holdfast.scheduling.waiting import as_deferred

# A part of the broker that takes another configuration in two steps: first what may fail, then what may not.


def nothing() -> None:
    """Do nothing."""


@frozen(kw_only=True)
class Change:
    """What one part has prepared.

    ``begin`` opens what can be opened only in the reactor's thread; raises ConfigError. ``commit``, in the same turn,
    puts the new configuration into effect, and never fails. ``abandon`` closes what was opened, if another part has a
    problem.
    """

    begin: Callable[[], None] = nothing
    commit: Callable[[], None] = nothing
    abandon: Callable[[], None] = nothing


#: A part of the broker whose configuration can change: it takes the running configuration and the new one. It builds
#: everything that the new one needs, and changes nothing. It is called in a thread, so that reading files and compiling
#: rules keeps no client waiting. Raises ConfigError with all problems.
Part = Callable[[Config, Config], Change]


# What a reload has done, as JSON and as lines for the log.


@frozen(kw_only=True)
class Outcome:
    """What a reload has done. With ``problems``, nothing was changed.

    ``changed`` is in effect, ``restart`` needs a restart; both are without values that may be secret. ``files`` were
    read again because they have changed. ``revoked`` counts the clients and subscriptions that have ended. ``warnings``
    tell what is protected no longer.
    """

    changed: Sequence[Difference] = ()
    restart: Sequence[Difference] = ()
    files: Sequence[str] = ()
    problems: Sequence[ConfigProblem] = ()
    #: settings that were changed through the API, and are those of the file again
    reset: Sequence[str] = ()
    revoked: Mapping[str, int] = field(factory=dict)
    warnings: Sequence[str] = ()

    @property
    def not_plain(self) -> list[str]:
        """The keys of options that may name a file, a server or a secret."""
        return [each.key for each in (*self.changed, *self.restart) if not each.is_plain]

    def as_json(self) -> dict[str, Any]:
        """Return the outcome for the API."""
        return {
            "changed": [{**_values(each), "takes_effect": each.takes_effect.value} for each in self.changed],
            "restart": [_values(each) for each in self.restart],
            "files": list(self.files),
            "reset": list(self.reset),
            "problems": [str(problem) for problem in self.problems],
            "revoked": dict(self.revoked),
            "warnings": list(self.warnings),
        }


def lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines that tell an outcome, given as JSON."""
    yield from content["problems"]
    if content["problems"]:
        yield "nothing was changed"
        return
    for each in content["changed"]:
        later = f" ({each['takes_effect']})" if each["takes_effect"] == TakesEffect.CONNECTING.value else ""
        yield f"{each['key']}: {_change(each)}{later}"
    for file in content["files"]:
        yield f"{file}: read again"
    for name in content["reset"]:
        yield f"retainer.{name}: the value of the API has ended, that of the file is in effect"
    for each in content["restart"]:
        yield f"{each['key']}: {_change(each)} needs a restart of the broker"
    for name, count in content["revoked"].items():
        if count:
            yield f"{count} {name} ended"
    for warning in content["warnings"]:
        yield f"warning: {warning}"
    if not any(content[name] for name in ("changed", "files", "reset", "restart")):
        yield "nothing has changed"


def _values(difference: Difference) -> dict[str, Any]:
    return {"key": difference.key, "old": difference.old, "new": difference.new}


def _change(values: Mapping[str, Any]) -> str:
    old, new = values["old"], values["new"]
    if old is None and new is None:
        return "changed"
    if old is None:
        return f"added ({_text(new)})"
    if new is None:
        return f"removed (was {_text(old)})"
    return f"{_text(old)} -> {_text(new)}"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# What a changed configuration protects no longer: the operator is warned, since a table may be lost by mistake.


def lost_protection(running: Config, config: Config) -> Iterator[str]:
    """Yield a sentence for each protection that the running configuration has, and the new one does not have."""
    if running.authentication.is_configured and not config.authentication.is_configured:
        yield "no authentication is configured any more: clients do not prove who they are, and all of them are guests"
    if running.authorization.is_configured and not config.authorization.is_configured:
        beyond = ", except that only administrators may read $SYS/#" if config.authentication.is_configured else ""
        yield f"no rules are configured any more: all clients may publish to and subscribe to all topics{beyond}"


# Reloads: all parts prepare the new configuration, then all take it in one turn of the reactor, or none does.
#
# How it works. In a thread, the file is read, and each part builds what it needs: rules, users, certificates, keys. All
# problems are collected. Without any, the parts open what they must in the reactor's thread, such as ports, and then
# commit in the same turn: no client meets a broker with old permissions and new users. A commit only exchanges objects.
# After that, what the new configuration does not allow any more is ended in parts.
#
# Options that need a restart keep their running values, so that each later reload names them again. A reload that comes
# while one runs waits for it; all that wait are one.


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


# The configuration file of a running broker, replaced as a whole: checked before, and put back if the reload fails.
#
# How it works. The new text is written beside the file, as ``NAME.new``, with the mode and the owner of the file. All
# that a reload would check is checked with it. Then the old text is kept as ``NAME.bak``, ``NAME.new`` takes the place
# of the file in one step, and the broker reloads. If it refuses after all, such as because a port is in use, the old
# text takes its place again. So at every moment there is one whole file.


class ConfigFile:
    """The file of the configuration. ``read`` returns the configuration that a start with another file would have."""

    def __init__(self, reloads: Reloads, read: Callable[[Path], Config], run: Run) -> None:
        self._reloads = reloads
        self._read = read
        self._run = run
        self._lock = DeferredLock()

    def text(self) -> Deferred[bytes]:
        """Return the content. Fails with NotWritable."""
        return self._run(partial(_content, self._path()))

    def put(self, text: bytes, by: str, dry_run: bool) -> Deferred[Outcome]:
        """Replace the file and reload, as ``by`` wants; with ``dry_run``, only tell what that would do.

        If there are problems, the file is the old one, and nothing was changed. Fails with NotWritable.
        """
        path = self._path()
        return self._lock.run(self._put, path, text, by, dry_run)

    @as_deferred
    async def _put(self, path: Path, text: bytes, by: str, dry_run: bool) -> Outcome:
        new = path.with_name(path.name + ".new")
        old = await self._run(partial(_content, path))
        await self._run(partial(_write, new, text, path))
        try:
            outcome: Outcome = await self._reloads.check(partial(self._read, new))
            if outcome.problems or dry_run:
                return _named(outcome, new, path)
            await self._run(partial(_replace, path, new, old))
        finally:
            await self._run(partial(new.unlink, missing_ok=True))
        done = False
        try:
            outcome = await self._reloads.reload(by)
            done = not outcome.problems
        finally:
            if not done:
                await self._run(partial(_put_back, path, old))
        return outcome

    def _path(self) -> Path:
        """Return the file, without symbolic links: a link stays one."""
        file = self._reloads.config.file
        if file is None:
            raise NotWritable("the broker runs without a configuration file; start it with --config FILE")
        return Path(os.path.realpath(file))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _failed(path, "read", error) from None


def _write(path: Path, text: bytes, like: Path) -> None:
    """Write a new file with the mode and the owner of another one. Nobody else can read it meanwhile."""
    try:
        state = like.stat()
        if not os.access(like, os.W_OK):
            raise PermissionError(13, "the broker may not write it")
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            if (state.st_uid, state.st_gid) != (os.getuid(), os.getgid()):
                os.fchown(descriptor, state.st_uid, state.st_gid)
            os.fchmod(descriptor, state.st_mode & 0o7777)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise _failed(like, "replaced", error) from None


def _replace(path: Path, new: Path, old: bytes) -> None:
    backup = path.with_name(path.name + ".bak")
    unfinished = path.with_name(path.name + ".bak.new")
    _write(unfinished, old, path)
    try:
        unfinished.replace(backup)
        new.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise _failed(path, "replaced", error) from None


def _put_back(path: Path, old: bytes) -> None:
    again = path.with_name(path.name + ".old")
    _write(again, old, path)
    again.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _named(outcome: Outcome, new: Path, path: Path) -> Outcome:
    """Return an outcome whose problems name the file itself."""
    problems = [evolve(each, file=str(path)) if each.file == str(new) else each for each in outcome.problems]
    return evolve(outcome, problems=problems, files=[each for each in outcome.files if each != str(new)])


def _failed(path: Path, action: str, error: OSError) -> NotWritable:
    return NotWritable(f"{path}: cannot be {action}: {error.strerror or error}")
