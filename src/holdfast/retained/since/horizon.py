"""Tokens of the stored changes: up to which turn a client knows them, and in which epoch the token was made.

A token is opaque to clients: base64url of 17 bytes.

    byte 0        the version
    bytes 1..8    the epoch: random, new at each start of each node
    bytes 9..16   the horizon: every change of a turn at or below it was visible when the token was made

The version differs from that of :mod:`holdfast.retained.changes.token`, so neither reads the other's tokens.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from struct import Struct

from attrs import frozen

_VERSION = 2
_FORMAT = Struct(">B8sQ")
#: the characters of a token
LENGTH = 23


class BadToken(ValueError):
    """A text is no token of the stored changes."""


@frozen
class Horizon:
    """A turn up to which every change is known. ``epoch`` has 8 bytes; ``turn`` is from 0 to 2**63 - 1."""

    epoch: bytes
    turn: int

    @property
    def token(self) -> str:
        """The token."""
        return _text(_FORMAT.pack(_VERSION, self.epoch, self.turn))


def horizon_of(token: str) -> Horizon:
    """Return the horizon in a token. Raises :class:`BadToken`."""
    if len(token) != LENGTH:
        raise BadToken(f"a token has {LENGTH} characters: copy it unchanged")
    try:
        packed = urlsafe_b64decode(token.encode("ascii") + b"=")
    except (Error, ValueError):
        raise BadToken("this is no token: copy it unchanged") from None
    if len(packed) != _FORMAT.size or _text(packed) != token:
        raise BadToken("this is no token: copy it unchanged")
    version, epoch, turn = _FORMAT.unpack(packed)
    if version != _VERSION or turn >= 2**63:
        raise BadToken("the token is of another version of the broker")
    return Horizon(epoch, turn)


def _text(packed: bytes) -> str:
    return urlsafe_b64encode(packed).rstrip(b"=").decode()
