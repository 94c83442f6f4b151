"""The authentication method of the users in the database: User Name and Password against the stored hashes."""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.accounts.users import Users
from holdfast.auth.interfaces import IGNORED, Credentials, IAuthenticationMethod, Verdict
from holdfast.auth.passwords.hashing_threads import Busy
from holdfast.auth.passwords.logins import Logins


@implementer(IAuthenticationMethod)
class DatabaseUsers:
    """The users in the database. With ``rehash``, weaker hashes are replaced when their users log in."""

    _log = Logger()

    def __init__(self, users: Users, logins: Logins, *, rehash: bool) -> None:
        self._users = users
        self._logins = logins
        self._rehash = rehash
        self._renewing: set[str] = set()

    def judge(self, credentials: Credentials) -> Verdict | Deferred[Verdict]:
        """Compare User Name and Password with the stored hash. Ignores a user who is not in the database."""
        if credentials.username is None or credentials.password is None:
            return IGNORED
        user = self._users.stored(credentials.username)
        if user is None:
            return IGNORED
        weaker = self._renew if self._rehash else None
        stored = user.password_hash
        return self._logins.compare(credentials.username, credentials.password, stored, user.groups, weaker)

    def stored_like(self, number: int) -> str | None:
        """Return the hash of some user, the same for the same number and users; None if there are no users."""
        return self._users.stored_like(number)

    def _renew(self, username: str, password: bytes, stored: str) -> None:
        """Compute a better hash and store it, unless the threads are busy."""
        if username in self._renewing:
            return
        try:
            made = self._logins.new_hash(password)
        except Busy:
            return
        self._renewing.add(username)
        made.addCallback(partial(self._made, username, password, stored)).addErrback(self._not_made)
        made.addCallback(lambda _: self._renewing.discard(username))

    def _made(self, username: str, password: bytes, stored: str, new: str) -> Deferred[None]:
        done = self._users.rehash(username, stored, new)
        return done.addCallback(lambda _: self._logins.remember(username, password, new))

    def _not_made(self, failure: Failure) -> None:
        """Go on with the old hashes, and say so once."""
        self._rehash = False
        self._log.warn(
            "authentication.{name}: better hashes of passwords cannot be stored, so the present ones stay: {error}",
            name=self._logins.method, error=failure.getErrorMessage(),
        )  # fmt: skip
