"""The authentication method that asks a service over HTTP, and the answers that it remembers."""

from __future__ import annotations

import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.identity.chain import password_of, unavailable, wrong
from holdfast.identity.http_client import Answer, Busy, HTTPClient, RequestFailed
from holdfast.identity.interfaces import IGNORED, Accepted, Credentials, Denied, IAuthenticationMethod, Verdict
from holdfast.wire.reasons import ReasonCode

# Asks a service over HTTP whether a Client may connect: one POST with a JSON object, answered as EMQX expects it.
#
# The body has the same fields for every Client, and each value is a JSON string or number: nothing that a Client sends
# becomes a part of the URL, of a header, or of the structure of the body. A Client without a User Name or without a
# Password is not asked about: a service that compares an absent password with an unknown user's finds them equal.
#
# Only an answer that is wholly as described admits. Anything else (an error, a redirect, another media type, a field of
# another type) is a failure of the service, and not of the Client: Server unavailable.


#: the answer may tell how long it is remembered, up to so many seconds
LONGEST_MEMORY = 86400.0
_MOST_GROUPS = 256
_LAST_TIME = 2**53


class _Unusable(ValueError):
    """The answer is not as described. The text is a clause for the log."""


@frozen(kw_only=True)
class ServiceOptions:
    """Headers of the request, seconds that an acceptance is remembered, and the group of a user with is_superuser."""

    headers: Mapping[str, str] = {}
    memory: float = 0.0
    superuser_group: str = "administrators"


@implementer(IAuthenticationMethod)
class ServiceMethod:
    """Judges credentials by asking the service. ``now`` returns milliseconds since the epoch."""

    def __init__(
        self, client: HTTPClient, options: ServiceOptions, remembered: RememberedAnswers, now: Callable[[], int]
    ) -> None:
        self._client = client
        self._options = options
        self._headers = {**options.headers, "Content-Type": "application/json", "Accept": "application/json"}
        self._remembered = remembered
        self._now = now

    def judge(self, credentials: Credentials) -> Verdict | Deferred[Verdict]:
        """Return the remembered identity, or the verdict of the service later."""
        body = request_body(credentials)
        if body is None:
            return IGNORED
        known = self._remembered.find(body)
        if known is not None and not self._has_ended(known):
            return known
        answer = self._client.request(b"POST", self._headers, body)
        judged: Deferred[Verdict] = answer.addCallback(self._judged, credentials, body)
        return judged.addErrback(_failed)

    def forget(self) -> None:
        """Ask the service about every Client again."""
        self._remembered.clear()

    def _has_ended(self, accepted: Accepted) -> bool:
        return accepted.expires_at is not None and accepted.expires_at <= self._now() / 1000

    def _judged(self, answer: Answer, credentials: Credentials, body: bytes) -> Verdict:
        username = credentials.username or ""
        if answer.status == 204:
            return self._accepted(Accepted(username), self._options.memory, body)
        if answer.status != 200:
            raise _Unusable(f"the status {answer.status}")
        if answer.media_type != "application/json":
            raise _Unusable("a media type other than application/json")
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise _Unusable("a body that is not JSON") from None
        if not isinstance(found, dict):
            raise _Unusable("a body that is no JSON object")
        match found.get("result"):
            case "ignore":
                return IGNORED
            case "deny":
                return wrong("the service denies it")
            case "allow":
                memory = _seconds(found, "ttl", LONGEST_MEMORY)
                memory = self._options.memory if memory is None else memory
                return self._accepted(
                    Accepted(username, self._groups(found), _seconds(found, "expire_at", _LAST_TIME)), memory, body
                )
        raise _Unusable('no result "allow", "deny" or "ignore"')

    def _accepted(self, accepted: Accepted, memory: float, body: bytes) -> Verdict:
        if self._has_ended(accepted):
            return wrong("the service admits it until a time that is over (expire_at)")
        self._remembered.remember(body, accepted, memory)
        return accepted

    def _groups(self, found: dict[str, object]) -> frozenset[str]:
        groups = found.get("groups", [])
        if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
            raise _Unusable("groups that are not a list of strings")
        if len(groups) > _MOST_GROUPS:
            raise _Unusable(f"more than {_MOST_GROUPS} groups")
        superuser = found.get("is_superuser", False)
        if not isinstance(superuser, bool):
            raise _Unusable("an is_superuser that is neither true nor false")
        return frozenset([*groups, self._options.superuser_group] if superuser else groups)


def request_body(credentials: Credentials) -> bytes | None:
    """Return the body of the request. None without a User Name and a Password, or if the Password is not UTF-8.

    It has all that the service is told, so it is also what an answer is remembered by.
    """
    said = password_of(credentials)
    if said is None:
        return None
    username, password = said
    certificate = credentials.certificate
    try:
        fields = {
            "username": username,
            "password": password.decode(),
            "clientid": credentials.client_id,
            "peerhost": credentials.address,
            "listener": credentials.listener,
            "proto_ver": credentials.protocol_version,
            "cert_common_name": None if certificate is None else certificate.common_name,
            "cert_subject": None if certificate is None else certificate.subject,
        }
    except UnicodeDecodeError:
        return None
    return json.dumps(fields).encode("ascii")


def _failed(failure: Failure) -> Verdict:
    if failure.check(Busy):
        return Denied(ReasonCode.SERVER_BUSY, str(failure.value))
    if failure.check(RequestFailed):
        return unavailable(f"the service gives {failure.value}")
    if failure.check(_Unusable):
        return unavailable(f"the service answers with {failure.value}")
    raise failure.value or TypeError("a failure without an error")


def _seconds(found: dict[str, object], name: str, most: float) -> float | None:
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LAST_TIME:
        raise _Unusable(f"{name} that is not a number of seconds")
    return float(min(value, most))


# Remembers for a while which requests were answered with an acceptance.
#
# The key is a digest of the whole body of the request, with a key of this process: two Clients that differ in any field
# never share an answer, and no password is kept. The number of entries is bounded; the one used longest ago goes first.


class RememberedAnswers:
    """Acceptances by the body of their request. ``seconds`` returns the time."""

    def __init__(self, most: int, seconds: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._key = secrets.token_bytes(32)
        self._entries: OrderedDict[bytes, tuple[float, Accepted]] = OrderedDict()

    def find(self, body: bytes) -> Accepted | None:
        """Return the acceptance of this very request, None if there is none or its time is over."""
        digest = self._digest(body)
        found = self._entries.get(digest)
        if found is None:
            return None
        until, accepted = found
        if self._seconds() >= until:
            del self._entries[digest]
            return None
        self._entries.move_to_end(digest)
        return accepted

    def remember(self, body: bytes, accepted: Accepted, seconds: float) -> None:
        """Remember an acceptance for some seconds; not at all for 0 seconds."""
        if seconds <= 0:
            return
        self._entries[self._digest(body)] = self._seconds() + seconds, accepted
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget all: users may have been removed."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _digest(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")
