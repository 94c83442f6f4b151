"""Accepts Clients by a signed token in CONNECT: a JSON Web Token [RFC 7519].

How it works. A Password is taken for a token if it has three parts between dots, and the first is a JSON object that
names an algorithm. Anything else is a password for the next method. From then on the token is right or denied:

    the header names a key (kid)          a known key, else the keys are asked for again, rarely
    the header names an algorithm (alg)   one of that key's own
    the signature                         verified by that key
    the claims                            the operator's rules (claims.py)

The work is bounded: a token has at most 16 KB, its header 1 KB, and one signature is verified for each CONNECT. That
takes 50 to 120 microseconds with HS256, RS256, ES256 and Ed25519, and half a millisecond with ES384 and ES512. So no
thread is needed.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any

from jwt import InvalidTokenError, PyJWS
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.auth.interfaces import IGNORED, Credentials, IAuthenticationMethod, Verdict
from holdfast.auth.names import out_of_time, unavailable, wrong
from holdfast.auth.tokens.claims import ClaimRefused, ClaimRules, OutOfTime
from holdfast.auth.tokens.key_sources import IKeys, KeyRing, NoKeys
from holdfast.auth.tokens.keys import Key

#: bytes of a token, and of its encoded header
LONGEST_TOKEN, LONGEST_HEADER = 16384, 1024

_SHAPE = re.compile(rb"([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_WITHOUT_DETACHED = PyJWS(options={"enforce_minimum_key_length": True})


@implementer(IAuthenticationMethod)
class TokenMethod:
    """Judges the tokens in CONNECT.

    ``now`` returns milliseconds since the epoch. ``in_username``: the token is the User Name, not the Password.
    """

    def __init__(self, keys: IKeys, rules: ClaimRules, now: Callable[[], int], in_username: bool = False) -> None:
        self._keys = keys
        self._rules = rules
        self._now = now
        self._in_username = in_username

    def judge(self, credentials: Credentials) -> Verdict | Deferred[Verdict]:
        """Return the identity in the token, a denial, or IGNORED if there is no token."""
        token = self._token(credentials)
        shape = None if token is None else _SHAPE.fullmatch(token)
        if token is None or shape is None:
            return IGNORED
        if len(token) > LONGEST_TOKEN or len(shape[1]) > LONGEST_HEADER:
            return wrong(f"the token has more than {LONGEST_TOKEN} bytes, or its header more than {LONGEST_HEADER}")
        header = _header(shape[1])
        if header is None or not isinstance(header.get("alg"), str):
            return IGNORED
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            return wrong("the Key ID (kid) of the token is no string")
        ring = self._keys.ring(kid)
        if isinstance(ring, Deferred):
            return ring.addCallback(self._judged, token, header, credentials)
        return self._judged(ring, token, header, credentials)

    def _token(self, credentials: Credentials) -> bytes | None:
        if not self._in_username:
            return credentials.password
        return None if credentials.username is None else credentials.username.encode()

    def _judged(
        self, ring: KeyRing | NoKeys, token: bytes, header: dict[str, Any], credentials: Credentials
    ) -> Verdict:
        if isinstance(ring, NoKeys):
            return unavailable(ring.explanation)
        key = ring.key(header.get("kid"), header["alg"])
        if key is None:
            return wrong(
                "no key for the token: its Key ID (kid) is unknown, or its algorithm (alg) is not that of the key"
            )
        try:
            return self._rules.accepted(_claims(token, key), credentials, self._now() / 1000)
        except OutOfTime as refused:
            return out_of_time(f"the token is refused: {refused}")
        except ClaimRefused as refused:
            return wrong(f"the token is refused: {refused}")
        except InvalidTokenError as invalid:
            return wrong(f"the token is refused: {type(invalid).__name__}")


def _header(part: bytes) -> dict[str, Any] | None:
    """Return the header of what may be a token; None if it is none."""
    try:
        found = json.loads(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _claims(token: bytes, key: Key) -> dict[str, Any]:
    """Return the claims of a token after its signature is verified. Raises InvalidTokenError, ClaimRefused."""
    payload = _WITHOUT_DETACHED.decode(token, key.value, algorithms=sorted(key.algorithms))
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        raise ClaimRefused("its claims are not JSON") from None
    if not isinstance(claims, dict):
        raise ClaimRefused("its claims are no JSON object")
    return claims
