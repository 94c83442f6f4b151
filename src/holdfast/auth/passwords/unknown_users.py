"""Unknown users take as long as known ones: else the time would tell a stranger which users exist.

A wrong password of a known user costs one hash. So this method, the last one of a chain, computes one hash for a user
whom no method knows: with the salt and the parameters of some user of the file, always the same one for the same name.
So an unknown name takes neither another time than known ones, nor another time with each try.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.auth.interfaces import IGNORED, Credentials, Denied, IAuthenticationMethod, Verdict
from holdfast.auth.passwords.hashes import HashParameters, nobodys_hash, verify
from holdfast.auth.passwords.hashing_threads import Busy, HashingThreads
from holdfast.auth.passwords.logins import too_busy
from holdfast.wire.reasons import ReasonCode


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
