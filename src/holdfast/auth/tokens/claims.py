"""The rules for the claims of a token whose signature is right: its times, its issuer, its user and its groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from holdfast.auth.interfaces import Accepted, Credentials
from holdfast.auth.names import name_problem

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
