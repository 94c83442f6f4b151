"""Sealed datagrams: only members can make and read them, and none counts twice.

How it works. All members have one secret. Each process makes a random *salt* and, from the secret, the name of the
cluster, its node number, its incarnation and the salt, a key of its own (HKDF). No two processes share a key, so they
need not agree on nonces: a nonce is the target and a count. A sealed datagram is

    version | origin | target | incarnation | salt | count | ciphertext and tag (ChaCha20-Poly1305)

All before the ciphertext is authenticated with it, so a datagram for node 2 is none for node 3. The opener keeps the
salt of the newest incarnation of each origin, and which counts it has seen: the newest one, and which of the
:data:`_WINDOW` before it. NATS may deliver out of order when a connection changes; older ones are refused.

    3:41 from node 3        opened
    3:43, 3:42              opened
    3:42 once more          refused as repeated
    incarnation 4 of node 3 opened; from then on, everything of incarnation 3 is refused as old

A process that has just begun knows no incarnation. It opens datagrams that an older one of their target has got, and
:mod:`.links` drops them, since they name the target's incarnation.

Nothing is remembered of a datagram that does not open: strangers cost the time of one HKDF, and no memory.
"""

from __future__ import annotations

import os
from struct import Struct

from attrs import define
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

#: bytes of the shortest secret
SHORTEST_SECRET = 32

_VERSION = 1
_SALT = 16
#: version, origin, target, incarnation, salt, count
_HEAD = Struct(f">BBBQ{_SALT}sQ")
_NONCE = Struct(">IQ")
#: bytes that a sealed datagram has more
OVERHEAD = _HEAD.size + 16
#: counts before the newest one that are told apart
_WINDOW = 1024
_SEEN = (1 << _WINDOW) - 1


def _key(secret: bytes, cluster: str, origin: int, incarnation: int, salt: bytes) -> ChaCha20Poly1305:
    info = b"holdfast cluster, bus\0%d\0%d\0%b" % (origin, incarnation, cluster.encode())
    return ChaCha20Poly1305(HKDF(SHA256(), 32, salt, info).derive(secret))


def sign_of(secret: bytes, cluster: str) -> int:
    """Return 64 bits that tell whether two members have the same secret, and nothing else about it."""
    info = b"holdfast cluster, sign\0%b" % cluster.encode()
    return int.from_bytes(HKDF(SHA256(), 8, None, info).derive(secret), "big")


class Sealer:
    """Seals the datagrams of this process. Raises ValueError if the secret is too short."""

    def __init__(self, secret: bytes, cluster: str, node: int, incarnation: int) -> None:
        if len(secret) < SHORTEST_SECRET:
            raise ValueError(f"the secret has {len(secret)} bytes; at least {SHORTEST_SECRET} are needed")
        self._node = node
        self._incarnation = incarnation
        self._salt = os.urandom(_SALT)
        self._key = _key(secret, cluster, node, incarnation, self._salt)
        self._counts: dict[int, int] = {}

    def seal(self, target: int, datagram: bytes) -> bytes:
        """Return the datagram as only its target opens it."""
        count = self._counts[target] = self._counts.get(target, 0) + 1
        head = _HEAD.pack(_VERSION, self._node, target, self._incarnation, self._salt, count)
        return head + self._key.encrypt(_NONCE.pack(target, count), datagram, head)


@define(eq=False)
class _Origin:
    """The newest known process of a node. Bit n of ``seen`` is set if ``newest`` - n was opened."""

    incarnation: int
    salt: bytes
    key: ChaCha20Poly1305
    newest: int = 0
    seen: int = 0


class Opener:
    """Opens datagrams for this node, each once. It counts those that it refuses."""

    def __init__(self, secret: bytes, cluster: str, node: int) -> None:
        self._secret = secret
        self._cluster = cluster
        self._node = node
        self._origins: dict[int, _Origin] = {}
        #: datagrams that are none of a member for this node, those of older processes, and those that came before
        self.unknown = self.old = self.repeated = 0

    def open(self, sealed: bytes) -> tuple[int, bytes] | None:
        """Return the origin and its datagram; None if it is refused."""
        if len(sealed) < OVERHEAD:
            self.unknown += 1
            return None
        head = sealed[: _HEAD.size]
        version, node, target, incarnation, salt, count = _HEAD.unpack(head)
        if version != _VERSION or target != self._node or node == self._node:
            self.unknown += 1
            return None
        origin = self._origins.get(node)
        if origin is None or origin.salt != salt or origin.incarnation != incarnation:
            if origin is not None and incarnation <= origin.incarnation:
                self.old += 1
                return None
            origin = _Origin(incarnation, salt, _key(self._secret, self._cluster, node, incarnation, salt))
        elif _is_seen(origin, count):
            self.repeated += 1
            return None
        try:
            datagram = origin.key.decrypt(_NONCE.pack(target, count), sealed[_HEAD.size :], head)
        except InvalidTag:
            self.unknown += 1
            return None
        self._origins[node] = origin
        _note(origin, count)
        return node, datagram


def _is_seen(origin: _Origin, count: int) -> bool:
    """Tell whether this count was opened, or is too old to know."""
    behind = origin.newest - count
    return behind >= 0 and (behind >= _WINDOW or bool(origin.seen >> behind & 1))


def _note(origin: _Origin, count: int) -> None:
    ahead = count - origin.newest
    if ahead > 0:
        origin.newest = count
        origin.seen = (origin.seen << min(ahead, _WINDOW)) & _SEEN | 1
    else:
        origin.seen |= 1 << -ahead
