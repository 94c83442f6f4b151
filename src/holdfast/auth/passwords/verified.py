"""Remembers which credentials have been verified, so that a client that returns costs no hash.

Neither a password nor anything to guess it from is kept: a digest with a key of this process stands for the user, the
password and the hash that has verified it. So a digest is worthless without the process's memory, and as soon as the
user's hash changes. That is why it needs no time of expiry: a client that was connected for weeks, and returns with all
others after an outage, costs no hash either.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict

MOST = 100_000


class VerifiedCredentials:
    """At most ``most`` verified credentials, of which the least recently used are forgotten. One takes 170 bytes."""

    def __init__(self, most: int = MOST) -> None:
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
