"""The file of SCRAM users: a line ``NAME:VERIFIER`` for each. The broker reads it again after each change."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from twisted.logger import Logger

from holdfast.auth.verifier import InvalidUser, Verifier, parsed, prepared
from holdfast.config.problems import ConfigError, ConfigProblem
from holdfast.config.toml.file import display_name


class UsersFile:
    """The users of a file, up to date while the broker runs."""

    _log = Logger()

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ConfigError with all problems."""
        self._path = path
        # Before the reading: a change in between is seen at the next call.
        self._seen = _state(path)
        self._users = self._read()

    def users(self) -> Mapping[str, Verifier]:
        """Return the present users of the file: another mapping after each change.

        While the file has problems, the users from before the change count; the log tells the first problem.
        """
        state = _state(self._path)
        if state != self._seen:
            # Noted first, so that a file with problems is read and logged once, not for each client.
            self._seen = state
            try:
                self._users = self._read()
                self._log.info("{path}: read again, {count} users", path=self._path, count=len(self._users))
            except ConfigError as error:
                self._log.error(
                    "{problem} ({count} problems in all; until they are solved, the users before the change count)",
                    problem=error.problems[0],
                    count=len(error.problems),
                )
        return self._users

    def _read(self) -> Mapping[str, Verifier]:
        name = display_name(self._path)
        content, mode = contents(self._path, name)
        if mode & stat.S_IRWXO:
            raise problem(name, None, f"every user of this machine may read or write it; run: chmod o= {name}")
        return {user: verifier for user, verifier, _ in entries(content, name)}


def contents(path: Path, name: str) -> tuple[bytes, int]:
    """Return the bytes of a file and its mode. Raises ConfigError."""
    try:
        with open(path, "rb", opener=_opened) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise problem(name, None, "this is not a regular file")
            return file.read(), mode
    except FileNotFoundError:
        raise problem(name, None, "there is no such file; create it with: holdfast scram set FILE USERNAME") from None
    except OSError as error:
        raise problem(name, None, f"cannot be read: {error.strerror}") from None


def entries(content: bytes, name: str) -> Iterator[tuple[str, Verifier, int]]:
    """Yield each user with its line number. At the end, raises ConfigError with all invalid lines."""
    problems = []
    lines: dict[str, int] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            entry = _entry(line)
            if entry is None:
                continue
            earlier = lines.setdefault(entry[0], number)
            if earlier != number:
                raise InvalidUser(f"the user of line {earlier} again; allowed: one line for each user")
            yield *entry, number
        except InvalidUser as unusable:
            problems.append(ConfigProblem(name, number, "", str(unusable)))
    if problems:
        raise ConfigError(problems)


def problem(name: str, line: int | None, message: str) -> ConfigError:
    """Return the error of a single problem."""
    return ConfigError([ConfigProblem(name, line, "", message)])


def _entry(line: bytes) -> tuple[str, Verifier] | None:
    """Parse a line; None for an empty one or a comment. A message never shows the line: it may have a secret."""
    try:
        text = line.decode().strip(" \t\r")
    except UnicodeDecodeError:
        raise InvalidUser("this is not UTF-8; save the file in that encoding") from None
    if not text or text.startswith("#"):
        return None
    username, _, verifier = text.partition(":")
    return prepared(username), parsed(verifier)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # so that a pipe without a writer is refused, and not waited for


def _state(path: Path) -> object:
    """Return a value that changes when the file changes."""
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns
