"""Random tokens, kept as hashes only: a reader of the broker's memory learns none."""

from __future__ import annotations

import secrets
from hashlib import sha256

_BYTES = 32


def new_token() -> str:
    """Return 256 random bits as text for URLs and cookies."""
    return secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> bytes:
    """Return the hash under which a token is kept."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
