"""The verifier of a user: enough to check the proof of a password, but not the password itself.

Its text is ``SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY``, as in Postgres's table ``pg_authid``.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, b64encode

from attrs import frozen
from scramp import ScramException, ScramMechanism
from scramp.utils import saslprep

from holdfast.auth.scram.iterations import DEFAULT_ITERATIONS, ITERATIONS
from holdfast.auth.user_file import InvalidUser

METHOD = "SCRAM-SHA-256"

NEW_SALT_BYTES = 16
_SALT_BYTES = range(12, 64 + 1)
_KEY_BYTES = 32
_LONGEST_NAME = 255

_ALLOWED = f"{METHOD}$ITERATIONS:SALT$STOREDKEY:SERVERKEY as written by: holdfast scram set"
_VERIFIER = re.compile(
    rf"{METHOD}\$([0-9]{{1,9}}):([A-Za-z0-9+/]+={{0,2}})\$([A-Za-z0-9+/]+={{0,2}}):([A-Za-z0-9+/]+={{0,2}})"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@frozen(repr=False)
class Verifier:
    """Iteration count and salt, which every client may know, and the two secret keys."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        salt, stored, server = (b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return f"{METHOD}${self.iterations}:{salt}${stored}:{server}"


def parsed(text: str) -> Verifier:
    """Return a verifier from its text. Raises InvalidUser, whose text never shows a secret."""
    match = _VERIFIER.fullmatch(text)
    if match is None:
        raise InvalidUser(f"found no {METHOD} verifier after the name; allowed: NAME:{_ALLOWED}")
    iterations = int(match[1])
    if iterations not in ITERATIONS:
        raise InvalidUser(f"found {iterations} iterations; allowed: {ITERATIONS.start} to {ITERATIONS.stop - 1}")
    try:
        salt, stored_key, server_key = (b64decode(part, validate=True) for part in match.groups()[1:])
    except ValueError:
        raise InvalidUser(f"found invalid base64; allowed: NAME:{_ALLOWED}") from None
    if len(salt) not in _SALT_BYTES:
        raise InvalidUser(
            f"found a salt of {len(salt)} bytes; allowed: {_SALT_BYTES.start} to {_SALT_BYTES.stop - 1}, in base64"
        )
    if {len(stored_key), len(server_key)} != {_KEY_BYTES}:
        raise InvalidUser(f"found a key of another length; allowed: keys of {_KEY_BYTES} bytes, in base64")
    return Verifier(iterations, salt, stored_key, server_key)


def new_verifier(password: str, iterations: int = DEFAULT_ITERATIONS) -> Verifier:
    """Return a verifier of a password, with a new salt. Raises InvalidUser."""
    if not _saslprep(password, "password"):
        raise InvalidUser("a password has at least one character")
    salt, stored_key, server_key, count = ScramMechanism(METHOD).make_auth_info(
        password, iteration_count=iterations, salt=secrets.token_bytes(NEW_SALT_BYTES)
    )
    return Verifier(count, salt, stored_key, server_key)


def prepared(username: str) -> str:
    """Return a user name in the form that SCRAM compares [RFC 4013]. Raises InvalidUser."""
    if _CONTROL.search(username):
        raise InvalidUser("a user name has no control characters")
    # SASLprep does not change printable ASCII. Skipping it saves most of the time of a large file.
    name = username if username.isascii() else _saslprep(username, "user name")
    if not name or name != name.strip() or name.startswith("#") or ":" in name:
        raise InvalidUser(
            "a user name has at least one character, no space at its ends, no colon, and no # at its start"
        )
    if len(name.encode()) > _LONGEST_NAME:
        raise InvalidUser(f"a user name has at most {_LONGEST_NAME} bytes of UTF-8")
    return name


def _saslprep(text: str, name: str) -> str:
    try:
        prepared = saslprep(text)
    except ScramException as error:
        raise InvalidUser(
            f"this {name} has characters that SASLprep (RFC 4013) does not allow: {error.args[0]}"
        ) from None
    assert isinstance(prepared, str)
    return prepared
