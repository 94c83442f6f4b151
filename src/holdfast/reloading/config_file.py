"""The configuration file of a running broker, replaced as a whole: checked before, and put back if the reload fails.

How it works. The new text is written beside the file, as ``NAME.new``, with the mode and the owner of the file. All
that a reload would check is checked with it. Then the old text is kept as ``NAME.bak``, ``NAME.new`` takes the place of
the file in one step, and the broker reloads. If it refuses after all, such as because a port is in use, the old text
takes its place again. So at every moment there is one whole file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, DeferredLock, inlineCallbacks

from holdfast.config import Config
from holdfast.reloading.outcome import Outcome
from holdfast.reloading.reloads import Reloads, Run


class NotWritable(Exception):
    """The configuration cannot be written. The text says why."""


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

    @inlineCallbacks
    def _put(self, path: Path, text: bytes, by: str, dry_run: bool) -> Generator[Deferred[Any], Any, Outcome]:
        new = path.with_name(path.name + ".new")
        old = yield self._run(partial(_content, path))
        yield self._run(partial(_write, new, text, path))
        try:
            outcome: Outcome = yield self._reloads.check(partial(self._read, new))
            if outcome.problems or dry_run:
                return _named(outcome, new, path)
            yield self._run(partial(_replace, path, new, old))
        finally:
            yield self._run(partial(new.unlink, missing_ok=True))
        done = False
        try:
            outcome = yield self._reloads.reload(by)
            done = not outcome.problems
        finally:
            if not done:
                yield self._run(partial(_put_back, path, old))
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
