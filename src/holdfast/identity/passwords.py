"""The authentication methods by password: logins, what they remember, and the time that unknown users take."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.config.toml import ConfigError
from holdfast.core.terminal import counted
from holdfast.identity import hashes as user_files
from holdfast.identity.hashes import Busy, HashingThreads, HashParameters, is_weaker, new_hash, nobodys_hash, verify
from holdfast.identity.interfaces import (
    IGNORED,
    Accepted,
    Credentials,
    Denied,
    IAuthenticationMethod,
    Principal,
    Verdict,
)
from holdfast.identity.user_files import file_state
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.wire.reasons import ReasonCode

# The authentication method of a password file: User Name and Password against the hashes in it.
#
# How it works. The users are kept in memory. The file is looked at with each login, and every few seconds, and read
# again in a thread after a change; a file with problems changes nothing. Users who are gone then, or have another
# password, are revoked: their clients are to be disconnected (``on_revoked``). A hash that is less work than the
# configured one is replaced when its user logs in, since only then the password is known. Such hashes are written
# together, a few seconds later, and their users are not revoked.


#: seconds between two looks at the file while nobody logs in
LOOK_INTERVAL = 2.0
#: seconds for which new hashes are collected before they are written
COLLECTING_SECONDS = 5.0

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
            self._writing = self._reactor.callLater(COLLECTING_SECONDS, self._write)

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


# Logins with a password, wherever its hash is stored: one hash in a thread, or none if the login is remembered.


_NO_GROUPS: frozenset[str] = frozenset()

#: is told of a user whose stored hash is less work than the parameters ask for: User Name, Password and hash
Weaker = Callable[[str, bytes, str], object]


def too_busy() -> Denied:
    """Return the verdict on a password that cannot be verified now."""
    return Denied(ReasonCode.SERVER_BUSY, "too many passwords wait to be verified")


class Logins:
    """Compares passwords with stored hashes, for one method. ``method`` is its configured name."""

    def __init__(
        self, method: str, threads: HashingThreads, verified: VerifiedCredentials, parameters: HashParameters
    ) -> None:
        self.method = method
        self._threads = threads
        self._verified = verified
        #: the work of new hashes; stored hashes of less work are weaker ones
        self.parameters = parameters

    def compare(
        self,
        username: str,
        password: bytes,
        stored: str,
        groups: frozenset[str] = _NO_GROUPS,
        weaker: Weaker | None = None,
    ) -> Verdict | Deferred[Verdict]:
        """Return the verdict on a user with this hash and these groups."""
        if self._verified.knows(self.method, username, password, stored):
            return Accepted(username, groups)
        try:
            right = self._threads.run(partial(verify, stored, password))
        except Busy:
            return too_busy()
        return right.addCallback(self._compared, username, password, stored, groups, weaker)

    def new_hash(self, password: bytes) -> Deferred[str]:
        """Compute a hash with the configured parameters. Raises Busy."""
        return self._threads.run(partial(new_hash, password, self.parameters))

    def remember(self, username: str, password: bytes, stored: str) -> None:
        """Remember that this stored hash has verified these credentials."""
        self._verified.add(self.method, username, password, stored)

    def _compared(
        self, right: bool, username: str, password: bytes, stored: str, groups: frozenset[str], weaker: Weaker | None
    ) -> Verdict:
        if not right:
            return Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD, f"the password is wrong (authentication.{self.method})")
        self.remember(username, password, stored)
        if weaker is not None and is_weaker(stored, self.parameters):
            weaker(username, password, stored)
        return Accepted(username, groups)


# Remembers which credentials have been verified, so that a client that returns costs no hash.
#
# Neither a password nor anything to guess it from is kept: a digest with a key of this process stands for the user, the
# password and the hash that has verified it. So a digest is worthless without the process's memory, and as soon as the
# user's hash changes. That is why it needs no time of expiry: a client that was connected for weeks, and returns with
# all others after an outage, costs no hash either.


MOST_CREDENTIALS = 100_000


class VerifiedCredentials:
    """At most ``most`` verified credentials, of which the least recently used are forgotten. One takes 170 bytes."""

    def __init__(self, most: int = MOST_CREDENTIALS) -> None:
        self._most = most
        self._key = secrets.token_bytes(32)
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of credentials."""
        return len(self._digests)

    def add(self, method: str, username: str, password: bytes, stored: str) -> None:
        """Remember that this stored hash has verified these credentials."""
        digest = self._digest(method, username, password, stored)
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        while len(self._digests) > self._most:
            self._digests.popitem(last=False)

    def knows(self, method: str, username: str, password: bytes, stored: str) -> bool:
        """Tell whether these credentials have been verified with this stored hash."""
        digest = self._digest(method, username, password, stored)
        if digest not in self._digests:
            return False
        self._digests.move_to_end(digest)
        return True

    def _digest(self, method: str, username: str, password: bytes, stored: str) -> bytes:
        parts = (method.encode(), username.encode(), password, stored.encode())
        lengths = b"".join(len(part).to_bytes(4, "big") for part in parts)  # so that no two cases have the same bytes
        return hmac.digest(self._key, lengths + b"".join(parts), "sha256")


# Unknown users take as long as known ones: else the time would tell a stranger which users exist.
#
# A wrong password of a known user costs one hash. So this method, the last one of a chain, computes one hash for a user
# whom no method knows: with the salt and the parameters of some user of the file, always the same one for the same
# name. So an unknown name takes neither another time than known ones, nor another time with each try.


class StoredHashes(Protocol):
    """Users with hashes."""

    def stored_like(self, number: int) -> str | None:
        """Return the hash of some user, the same for the same number and users; None if there are no users."""


@implementer(IAuthenticationMethod)
class UnknownUsers:
    """Spends the time of a wrong password, and denies. Credentials without a password cost no method any time."""

    def __init__(self, sources: Sequence[StoredHashes], threads: HashingThreads, parameters: HashParameters) -> None:
        self._sources = sources
        self._threads = threads
        self._nobodys = nobodys_hash(parameters)
        self._key = secrets.token_bytes(32)

    def judge(self, credentials: Credentials) -> Verdict | Deferred[Verdict]:
        """Deny a user whom no method knows, after one hash."""
        if credentials.username is None or credentials.password is None:
            return IGNORED
        digest = hmac.digest(self._key, credentials.username.encode(), "sha256")
        number = int.from_bytes(digest[1:9], "big")
        stored = self._sources[digest[0] % len(self._sources)].stored_like(number) or self._nobodys
        try:
            compared = self._threads.run(partial(verify, stored, credentials.password))
        except Busy:
            return too_busy()
        return compared.addCallback(_denied)


def _denied(_right: bool) -> Verdict:
    """Deny, even if the password is right: it is another user's."""
    return Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "no authentication method knows this user")
