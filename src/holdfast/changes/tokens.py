"""Tokens: up to where a client knows the changes of retained messages. It keeps a token, and later goes on from there.

A token is opaque to clients: base64url of 17 or 33 bytes. It names one place, and the longer one names it in two ways:

    byte 0         the version, one for each length
    bytes 1..8     the epoch: random, new at each start of each node
    bytes 9..16    the turn: the client knows every change with a turn at or below it
    bytes 17..24   the memory of a broker: random, new whenever a broker begins to remember changes for ``/events``
    bytes 25..32   a position in that memory

Every change that is not certainly at or before the place comes after it, in both ways. So nothing is missing after a
token; a change may come twice. Both kinds of clients, of ``holdfast-replay-since`` and of ``/events``, may use both.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from struct import Struct

from attrs import frozen

_STORED = 2
_REMEMBERED = 3
_FORMATS = {_STORED: Struct(">B8sQ"), _REMEMBERED: Struct(">B8sQ8sQ")}
#: The characters of tokens.
TOKEN_LENGTHS = (23, 44)
NO_MEMORY = bytes(8)


class BadToken(ValueError):
    """A text is no token."""


@frozen
class Token:
    """A turn of the log up to which every change is known, and a position in a broker's memory.

    ``epoch`` and ``memory`` have 8 bytes. ``turn`` is from 0 to 2**63 - 1, ``position`` to 2**64 - 1.
    """

    epoch: bytes
    turn: int
    memory: bytes = NO_MEMORY
    position: int = 0

    @property
    def text(self) -> str:
        """What the client gets."""
        if self.memory == NO_MEMORY:
            return _text(_FORMATS[_STORED].pack(_STORED, self.epoch, self.turn))
        return _text(_FORMATS[_REMEMBERED].pack(_REMEMBERED, self.epoch, self.turn, self.memory, self.position))


def token_of(text: str) -> Token:
    """Return the token in a text. Raises :class:`BadToken`."""
    if len(text) not in TOKEN_LENGTHS:
        raise BadToken(f"a token has {TOKEN_LENGTHS[0]} or {TOKEN_LENGTHS[1]} characters: copy it unchanged")
    try:
        packed = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (Error, ValueError):
        raise BadToken("this is no token: copy it unchanged") from None
    if not packed or _text(packed) != text:
        raise BadToken("this is no token: copy it unchanged")
    form = _FORMATS.get(packed[0])
    if form is None or len(packed) != form.size:
        raise BadToken("the token is of another version of the broker")
    token = Token(*form.unpack(packed)[1:])
    if token.turn >= 2**63 or token.text != text:
        raise BadToken("this is no token: copy it unchanged")
    return token


def _text(packed: bytes) -> str:
    return urlsafe_b64encode(packed).rstrip(b"=").decode()
