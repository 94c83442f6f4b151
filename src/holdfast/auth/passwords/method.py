"""The authentication method of a password file: User Name and Password against the hashes in it.

How it works. The users are kept in memory. The file is looked at with each login, and every few seconds, and read again
in a thread after a change; a file with problems changes nothing. Users who are gone then, or have another password, are
revoked: their clients are to be disconnected (``on_revoked``). A hash that is less work than the configured one is
replaced when its user logs in, since only then the password is known. Such hashes are written together, a few seconds
later, and their users are not revoked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.auth.interfaces import IGNORED, Credentials, IAuthenticationMethod, Principal, Verdict
from holdfast.auth.passwords import users as user_files
from holdfast.auth.passwords.hashes import HashParameters
from holdfast.auth.passwords.hashing_threads import Busy, HashingThreads
from holdfast.auth.passwords.logins import Logins
from holdfast.auth.passwords.verified import VerifiedCredentials
from holdfast.auth.user_file import file_state
from holdfast.config.problems import ConfigError
from holdfast.scheduling.periodic import PeriodicJob
from holdfast.terminal_text import counted

#: seconds between two looks at the file while nobody logs in
LOOK_INTERVAL = 2.0
#: seconds for which new hashes are collected before they are written
COLLECTING = 5.0

#: tells whether a Principal is revoked
Matching = Callable[[Principal], bool]


@frozen
class Changes:
    """The users of a file that were added, removed, and have another hash than before."""

    added: frozenset[str]
    removed: frozenset[str]
    changed: frozenset[str]


@implementer(IAuthenticationMethod)
class PasswordFile(Service):
    """A password file. ``name`` is the configured name of the method; with ``rehash``, weaker hashes are replaced."""

    _log = Logger()

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        threads: HashingThreads,
        verified: VerifiedCredentials,
        parameters: HashParameters,
        rehash: bool,
        reactor: Any,
        in_thread: Callable[..., Deferred[Any]] = deferToThread,
    ) -> None:
        """Read the file. Raises ConfigError with all problems."""
        self.method_name = name
        self._path = path
        self._logins = Logins(name, threads, verified, parameters)
        self._rehash = rehash
        self._reactor = reactor
        self._in_thread = in_thread
        self._seen = file_state(path)  # before the reading: a change in between is seen at the next look
        self._users: Mapping[str, str] = {}
        self._names: list[str] = []
        self._renewed: dict[str, tuple[str, str]] = {}
        self._writing: IDelayedCall | None = None
        self._reading: list[Deferred[None]] | None = None
        self._revoked: list[Callable[[Matching], object]] = []
        self._job = PeriodicJob(
            self._look, name=f"the look at {path}", interval=LOOK_INTERVAL, clock=reactor, foreseen=(ConfigError,)
        )
        self._take(user_files.read(path))

    # --- logins

    def judge(self, credentials: Credentials) -> Verdict | Deferred[Verdict]:
        """Compare User Name and Password with the file. Ignores a user who is not in it."""
        if credentials.username is None or credentials.password is None:
            return IGNORED
        if self._reading is not None or file_state(self._path) != self._seen:
            return self._look().addCallback(lambda _: self._judge(credentials))
        return self._judge(credentials)

    def _judge(self, credentials: Credentials) -> Verdict | Deferred[Verdict]:
        username, password = credentials.username, credentials.password
        assert username is not None
        assert password is not None
        stored = self._users.get(username)
        if stored is None:
            return IGNORED
        return self._logins.compare(username, password, stored, weaker=self._renew if self._rehash else None)

    def stored_like(self, number: int) -> str | None:
        """Return the hash of some user, the same for the same number and users; None if there are no users."""
        return self._users[self._names[number % len(self._names)]] if self._names else None

    # --- changes of the file

    def on_revoked(self, callback: Callable[[Matching], object]) -> None:
        """Call this whenever users are removed or have another password, with a function that tells them."""
        self._revoked.append(callback)

    def prepare(self, parameters: HashParameters, rehash: bool) -> Callable[[], object]:
        """Read the file, in any thread. Return what takes its users and these options, in the reactor's thread.

        Raises ConfigError with all problems.
        """
        state = file_state(self._path)
        read = user_files.read(self._path)

        def take() -> None:
            self._logins.parameters, self._rehash, self._seen = parameters, rehash, state
            self._take(read)

        return take

    @property
    def users(self) -> Mapping[str, str]:
        """The present users and their hashes."""
        return self._users

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def _look(self) -> Deferred[None]:
        """Read the file if it has changed. Problems in the file are no failure: the users from before count then.

        Whoever waits may cancel the returned Deferred. The reading goes on: a client that leaves hides no change.
        """
        state = file_state(self._path)
        if self._reading is None and state == self._seen:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        if self._reading is not None:
            self._reading.append(waiting)
            return waiting
        self._seen = state  # a file with problems is read and logged once
        self._reading = [waiting]
        reading = self._in_thread(user_files.read, self._path)
        reading.addCallbacks(self._read_again, self._unusable, callbackArgs=(state,)).addBoth(self._end)
        return waiting

    def _read_again(self, read: tuple[dict[str, str], bool], state: object) -> None:
        if self._seen is not state:  # a reload has taken the file meanwhile, perhaps a newer one
            return
        changes = self._take(read)
        self._log.info(
            "{path}: read again, {users} ({added} added, {removed} removed, {changed} changed)",
            path=self._path, users=counted(len(self._users), "user"), count=len(self._users),
            added=len(changes.added), removed=len(changes.removed),
            changed=len(changes.changed),
        )  # fmt: skip

    def _unusable(self, failure: Failure) -> None:
        problems = failure.value.problems if isinstance(failure.value, ConfigError) else [failure.getErrorMessage()]
        self._log.error(
            "{problem} ({problems} in all; until they are solved, the users before the change count)",
            problem=problems[0], problems=counted(len(problems), "problem"), count=len(problems),
        )  # fmt: skip

    def _end(self, result: Any) -> Any:
        waiting, self._reading = self._reading or [], None
        for each in waiting:
            each.callback(result)  # a Failure calls the errbacks
        return result

    def _take(self, read: tuple[dict[str, str], bool]) -> Changes:
        """Take the users of the file; revoke those who are gone or have another password."""
        old, (new, readable) = self._users, read
        if readable:
            self._log.warn(
                "{path}: every user of this machine may read the hashes, and try passwords; run: chmod o= {path}",
                path=self._path,
            )
        changed = frozenset(
            user
            for user in old.keys() & new.keys()
            if new[user] not in (old[user], self._renewed.get(user, ("", ""))[1])
        )
        changes = Changes(frozenset(new.keys() - old.keys()), frozenset(old.keys() - new.keys()), changed)
        self._users, self._names = new, list(new)
        self._renewed = {user: (was, now) for user, (was, now) in self._renewed.items() if new.get(user) == was}
        revoked = changes.removed | changes.changed
        if revoked:
            for callback in self._revoked:
                callback(lambda principal: principal.method == self.method_name and principal.username in revoked)
        return changes

    # --- better hashes

    def _renew(self, username: str, password: bytes, stored: str) -> None:
        """Compute a hash with the configured parameters, and write it soon; if the threads are busy, do not."""
        if username in self._renewed:
            return
        try:
            made = self._logins.new_hash(password)
        except Busy:
            return
        self._renewed[username] = (stored, "")  # one at a time
        made.addCallback(self._made, username, password, stored).addErrback(self._not_made, username)

    def _made(self, new: str, username: str, password: bytes, stored: str) -> None:
        if self._users.get(username) != stored:
            self._renewed.pop(username, None)
            return
        self._renewed[username] = (stored, new)
        self._logins.remember(username, password, new)
        if self._writing is None and self.running:
            self._writing = self._reactor.callLater(COLLECTING, self._write)

    def _not_made(self, failure: Failure, username: str) -> None:
        self._renewed.pop(username, None)
        self._log.failure("{path}: a better hash could not be made", failure, path=self._path)

    def _write(self) -> Deferred[None]:
        """Write the new hashes that were collected, and read the file again."""
        self._writing = None
        ready = {user: (was, now) for user, (was, now) in self._renewed.items() if now}
        if not (ready and self._rehash):
            return succeed(None)
        written = self._in_thread(user_files.replace_hashes, self._path, ready)
        return written.addCallbacks(lambda _: self._look(), self._not_written)

    def _not_written(self, failure: Failure) -> None:
        """Go on with the old hashes, and say so once."""
        self._rehash = False
        self._renewed.clear()
        self._log.warn(
            "{path}: better hashes of passwords cannot be written, so the present ones stay: {error}",
            path=self._path, error=failure.getErrorMessage(),
        )  # fmt: skip

    # --- the service

    def startService(self) -> None:
        """Begin to look at the file."""
        Service.startService(self)
        self._job.start(LOOK_INTERVAL)

    def stopService(self) -> Deferred[None]:
        """Write the hashes that were collected; look no more."""
        Service.stopService(self)
        self._job.stop()
        if self._writing is None:
            return succeed(None)
        self._writing.cancel()
        return self._write()
