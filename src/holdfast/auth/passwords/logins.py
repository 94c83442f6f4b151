"""Logins with a password, wherever its hash is stored: one hash in a thread, or none if the login is remembered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred

from holdfast.auth.interfaces import Accepted, Denied, Verdict
from holdfast.auth.passwords.hashes import HashParameters, is_weaker, new_hash, verify
from holdfast.auth.passwords.hashing_threads import Busy, HashingThreads
from holdfast.auth.passwords.verified import VerifiedCredentials
from holdfast.wire.reasons import ReasonCode

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
