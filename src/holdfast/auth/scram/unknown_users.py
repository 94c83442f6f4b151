"""The answers of SCRAM about users that do not exist.

Before a client proves its password, the server sends the salt and the iteration count of the user. If it sent an error
for an unknown user, everybody could find out the names of the users. So an unknown user gets a salt and a count too.
Asked twice, the server must answer the same, also after a restart; the counts must be as frequent as those of real
users; and adding a user must not change the answers for other names.

The users form a ring, in the order of a digest of their names. An unknown name has a position on the ring too, and
copies the iteration count of the next user; its salt is a digest of the position. A new user changes the answers for
few names only: those between its predecessor and itself.
"""

from __future__ import annotations

import hmac
import secrets
from bisect import bisect
from collections.abc import Mapping

from holdfast.auth.scram.iterations import DEFAULT_ITERATIONS
from holdfast.auth.scram.verifier import NEW_SALT_BYTES, Verifier


class UnknownUserVerifiers:
    """Makes verifiers of unknown users, which no password fits. They depend only on the name, the key and the users."""

    def __init__(self, users: Mapping[str, Verifier], key: bytes) -> None:
        self._key = key
        shapes = {name: (user.iterations, len(user.salt)) for name, user in users.items()}
        self._ring = sorted((self._digest(name), shape) for name, shape in shapes.items())

    def verifier(self, username: str) -> Verifier:
        """Return the verifier of an unknown user."""
        position = self._digest(username)
        iterations, salt_bytes = DEFAULT_ITERATIONS, NEW_SALT_BYTES
        if self._ring:
            _, (iterations, salt_bytes) = self._ring[bisect(self._ring, (position,)) % len(self._ring)]
        salt = hmac.digest(self._key, position, "sha512")[:salt_bytes]
        return Verifier(iterations, salt, secrets.token_bytes(32), secrets.token_bytes(32))

    def _digest(self, name: str) -> bytes:
        return hmac.digest(self._key, name.encode(), "sha512")
