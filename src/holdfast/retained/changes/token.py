"""Tokens: places in the order of changes. A client keeps a token, and later continues from it.

A token is opaque to clients: base64url of 33 bytes. It names one place in two ways:

    byte 0         the version
    bytes 1..8     the recording of a broker: random, new whenever a broker begins to record
    bytes 9..16    a position in that recording
    bytes 17..24   the last entry of the history that is not after the place, 0 for none
    bytes 25..32   the revision of that entry, by which another database is noticed

Every change that is not certainly at or before the place comes after it, in both ways. So nothing is missing after a
token; a change may come twice.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from struct import Struct

from attrs import frozen

_VERSION = 1
_FORMAT = Struct(">B8sQQQ")
_NO_RECORDING = bytes(8)
#: The most characters of a token, of any version.
LONGEST_TOKEN = 128


class BadToken(ValueError):
    """A text is no token of this API."""


@frozen
class Head:
    """An entry of the history: its position, and its revision. 0 for none."""

    seq: int = 0
    revision: int = 0


NO_HEAD = Head()


@frozen
class Place:
    """The place in a token. Without a ``recording``, only the history knows the place."""

    recording: bytes = _NO_RECORDING
    position: int = 0
    head: Head = NO_HEAD

    @property
    def token(self) -> str:
        """The token."""
        head = self.head
        packed = _FORMAT.pack(_VERSION, self.recording, self.position, head.seq, head.revision)
        return urlsafe_b64encode(packed).rstrip(b"=").decode()


def place_of(token: str) -> Place:
    """Return the place in a token. Raises BadToken."""
    if not token or len(token) > LONGEST_TOKEN:
        raise BadToken(f"a token has 1 to {LONGEST_TOKEN} characters")
    try:
        packed = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
    except (Error, ValueError):
        raise BadToken("this is no token: copy it unchanged") from None
    if not packed:
        raise BadToken("this is no token: copy it unchanged")
    if packed[0] != _VERSION:
        raise BadToken("the token is of another version of the broker")
    if len(packed) != _FORMAT.size or urlsafe_b64encode(packed).rstrip(b"=").decode() != token:
        raise BadToken("this is no token: copy it unchanged")
    _, recording, position, seq, revision = _FORMAT.unpack(packed)
    return Place(recording, position, Head(seq, revision))
