"""What is told about users who do not exist, so that nobody can find out which do."""

from __future__ import annotations

import hmac
import secrets
from bisect import bisect
from collections.abc import Mapping

from holdfast.auth.verifier import DEFAULT_ITERATIONS, NEW_SALT_BYTES, Verifier


class UnknownUserVerifiers:
    """Verifiers of unknown users: salt and iteration count like those of one of the users, and no password fits.

    They follow from the name and a key that lasts: as with a real user, asking again gives the same answer, also after
    a restart and, but for few names, after a change to the users.
    """

    def __init__(self, users: Mapping[str, Verifier], key: bytes) -> None:
        self._key = key
        shapes = {name: (user.iterations, len(user.salt)) for name, user in users.items()}
        # A ring: each unknown name looks like the user that is next to it, whoever else comes and goes.
        self._ring = sorted((self._digest(name), shape) for name, shape in shapes.items())

    def verifier(self, username: str) -> Verifier:
        """Return the verifier of an unknown user."""
        place = self._digest(username)
        iterations, salt_bytes = DEFAULT_ITERATIONS, NEW_SALT_BYTES
        if self._ring:
            _, (iterations, salt_bytes) = self._ring[bisect(self._ring, (place,)) % len(self._ring)]
        salt = hmac.digest(self._key, place, "sha512")[:salt_bytes]
        return Verifier(iterations, salt, secrets.token_bytes(32), secrets.token_bytes(32))

    def _digest(self, name: str) -> bytes:
        return hmac.digest(self._key, name.encode(), "sha512")
