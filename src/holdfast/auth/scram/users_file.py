"""The file of SCRAM users: a line ``NAME:VERIFIER`` for each. The broker reads it again after each change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from twisted.logger import Logger

from holdfast.auth.editing import remove_line, set_line
from holdfast.auth.scram.verifier import Verifier, parsed, prepared
from holdfast.auth.user_file import UserFormat, file_state, gone_or_changed, read_users
from holdfast.config.problems import ConfigError
from holdfast.terminal_text import counted


def _parsed(username: str, verifier: str) -> tuple[str, Verifier]:
    return prepared(username), parsed(verifier)


_FORMAT = UserFormat(_parsed, "create it with: holdfast scram set FILE USERNAME")


class UsersFile:
    """The users of a file, up to date while the broker runs."""

    _log = Logger()

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ConfigError with all problems."""
        self._path = path
        # Before the reading: a change in between is seen at the next call.
        self._seen = file_state(path)
        #: the users of the last reading
        self.known: Mapping[str, Verifier] = read_users(self._path, _FORMAT)
        self._gone: set[str] = set()

    def users(self) -> Mapping[str, Verifier]:
        """Return the present users of the file: another mapping after each change.

        While the file has problems, the users from before the change count; the log tells the first problem.
        """
        state = file_state(self._path)
        if state != self._seen:
            # Noted first, so that a file with problems is read and logged once, not for each client.
            self._seen = state
            try:
                before, self.known = self.known, read_users(self._path, _FORMAT)
                self._gone.update(gone_or_changed(before, self.known))
                self._log.info(
                    "{path}: read again, {users}",
                    path=self._path,
                    users=counted(len(self.known), "user"),
                    count=len(self.known),
                )
            except ConfigError as error:
                self._log.error(
                    "{problem} ({problems} in all; until they are solved, the users before the change count)",
                    problem=error.problems[0],
                    problems=counted(len(error.problems), "problem"),
                    count=len(error.problems),
                )
        return self.known

    def take_gone(self) -> frozenset[str]:
        """Return the users of whom a reading has found another verifier or none, since the call before.

        A user who was added, has logged in and was changed between two calls is among them: the login read the file.
        """
        gone = frozenset(self._gone)
        self._gone.clear()
        return gone


def set_user(path: Path, username: str, verifier: Verifier) -> bool:
    """Write a user to a file, and create the file if there is none; False if the user is new.

    Raises ConfigError if the file cannot be used; then the file is unchanged.
    """
    return set_line(path, username, str(verifier), _FORMAT)


def remove_user(path: Path, username: str) -> bool:
    """Remove a user from a file; False if there is no user of this name. Raises ConfigError."""
    return remove_line(path, username, _FORMAT)
