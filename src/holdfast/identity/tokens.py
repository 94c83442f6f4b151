"""The authentication method by signed token: a JSON Web Token [RFC 7519], its signature and its claims."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from jwt import InvalidTokenError, PyJWS
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.identity.chain import name_problem, out_of_time, unavailable, wrong
from holdfast.identity.interfaces import IGNORED, Accepted, Credentials, IAuthenticationMethod, Verdict
from holdfast.identity.token_keys import IKeys, Key, KeyRing, NoKeys

# Accepts Clients by a signed token in CONNECT: a JSON Web Token [RFC 7519].
#
# How it works. A Password is taken for a token if it has three parts between dots, and the first is a JSON object that
# names an algorithm. Anything else is a password for the next method. From then on the token is right or denied:
#
#     the header names a key (kid)          a known key, else the keys are asked for again, rarely
#     the header names an algorithm (alg)   one of that key's own
#     the signature                         verified by that key
#     the claims                            the operator's rules (below)
#
# The work is bounded: a token has at most 16 KB, its header 1 KB, and one signature is verified for each CONNECT. That
# takes 50 to 120 microseconds with HS256, RS256, ES256 and Ed25519, and half a millisecond with ES384 and ES512. So no
# thread is needed.


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


# The rules for the claims of a token whose signature is right: its times, its issuer, its user and its groups.


#: stand for the User Name and the Client Identifier in CONNECT
USER_NAME, CLIENT_IDENTIFIER = "%u", "%c"

#: a larger number is not a time in seconds
_LAST_TIME = 2**53

Claims = Mapping[str, Any]


class ClaimRefused(ValueError):
    """The claims of a token do not admit this Client. The text says why, and has nothing of the token."""


class OutOfTime(ClaimRefused):
    """The token is not valid yet, or not any more. Its signature is right, so nobody guesses."""


@frozen
class ClaimRules:
    """The rules of the operator.

    ``username_claim`` names the claim with the user name; if it is empty, the user is the User Name in CONNECT, and
    ``required`` ties it to the token. ``required`` maps claims to their values, where ``%u`` and ``%c`` stand for the
    Client's own names. ``leeway`` is in seconds.
    """

    username_claim: str = "sub"
    groups_claim: str = ""
    required: Mapping[str, object] = {}
    issuer: str = ""
    audience: tuple[str, ...] = ()
    leeway: float = 0.0
    requires_expiry: bool = True

    def accepted(self, claims: Claims, credentials: Credentials, now: float) -> Accepted:
        """Return the identity at this time (seconds since the epoch). Raises ClaimRefused."""
        expires_at = self._lifetime(claims, now)
        if self.issuer and claims.get("iss") != self.issuer:
            raise ClaimRefused("it has another issuer (iss)")
        self._check_audience(claims.get("aud"))
        for name, wanted in self.required.items():
            self._check(name, claim_of(claims, name), wanted, credentials)
        return Accepted(self._username(claims, credentials), self._groups(claims), expires_at)

    def _lifetime(self, claims: Claims, now: float) -> float | None:
        """Return the time at which the token expires, None if it never does."""
        begins, ends = _time(claims, "nbf"), _time(claims, "exp")
        if begins is not None and now < begins - self.leeway:
            raise OutOfTime("it is not valid yet (nbf)")
        if ends is None:
            if self.requires_expiry:
                raise ClaimRefused("it has no time of expiry (exp)")
            return None
        if now >= ends + self.leeway:
            raise OutOfTime("it has expired (exp)")
        return ends + self.leeway

    def _check_audience(self, found: object) -> None:
        """A token for somebody else is none for this broker [RFC 7519, 4.1.3]."""
        if not self.audience:
            if found is not None:
                raise ClaimRefused("it has an audience (aud), and the option audience is not set")
            return
        if not set(self.audience) & set(_texts(found)):
            raise ClaimRefused("it is for another audience (aud)")

    def _check(self, name: str, found: object, wanted: object, credentials: Credentials) -> None:
        if wanted in (USER_NAME, CLIENT_IDENTIFIER):
            said = credentials.username if wanted == USER_NAME else credentials.client_id
            if not said or not isinstance(found, str) or found != said:
                what = "User Name" if wanted == USER_NAME else "Client Identifier"
                raise ClaimRefused(f"its claim {name} is not the {what} of the client")
        elif not (_equal(found, wanted) or (isinstance(found, list) and any(_equal(one, wanted) for one in found))):
            raise ClaimRefused(f"its claim {name} has not the required value")

    def _username(self, claims: Claims, credentials: Credentials) -> str:
        if not self.username_claim:
            return credentials.username or ""
        name = claim_of(claims, self.username_claim)
        if not isinstance(name, str):
            raise ClaimRefused(f"it has no user name in the claim {self.username_claim}")
        problem = name_problem(name)
        if problem is not None:
            raise ClaimRefused(f"the user name in its claim {self.username_claim} {problem}")
        return name

    def _groups(self, claims: Claims) -> frozenset[str]:
        if not self.groups_claim:
            return frozenset()
        found = claim_of(claims, self.groups_claim)
        if found is None:
            return frozenset()
        if isinstance(found, str):  # as in the claim scope [RFC 8693, 4.2]
            return frozenset(found.split())
        if not isinstance(found, list) or not all(isinstance(group, str) for group in found):
            raise ClaimRefused(f"the groups in its claim {self.groups_claim} are not a list of strings")
        return frozenset(found)


def claim_of(claims: Claims, name: str) -> object:
    """Return a claim by its name, or by a dotted path such as ``realm_access.roles``; None if there is none."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return found


def _equal(found: object, wanted: object) -> bool:
    return type(found) is type(wanted) and found == wanted  # true is not 1


def _texts(found: object) -> list[str]:
    entries = found if isinstance(found, list) else [found]
    return [entry for entry in entries if isinstance(entry, str)]


def _time(claims: Claims, name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 <= found <= _LAST_TIME:  # nan, too
        raise ClaimRefused(f"its claim {name} is not a time in seconds")
    return float(found)
