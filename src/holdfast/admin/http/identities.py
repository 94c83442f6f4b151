"""Identifies callers at the listener of the API: a program with a key, or a session of the dashboard."""

from __future__ import annotations

import hmac
from base64 import b64decode
from binascii import Error
from collections.abc import Callable
from typing import Any

from twisted.web import http

from holdfast.admin.address import CLIENTS_PATH
from holdfast.admin.call import Caller, Head, RefusedCall, Scope, Via, unauthorized
from holdfast.admin.callers import DashboardSessions
from holdfast.admin.http.request import Guards, is_on_loopback
from holdfast.identity.addresses import Peer
from holdfast.identity.api_keys import Keys, StoredKey
from holdfast.identity.failed_logins import IFailures

#: Seconds of the longest delay of a refusal: its connection stays open for them. Many clients wait no longer than 10
#: seconds, Prometheus among them. They are to see the refusal.
LONGEST_DELAY = 5.0
_SCOPES = {scope.value: scope for scope in Scope}

#: is told of each failed login: of whom, and the name that was claimed
ToldFailed = Callable[[Peer, str], None]


class Identities:
    """Tells the caller of each request.

    ``failures`` returns the counter of failed logins; ``failed`` gets each of them too. ``banned`` tells whether an
    address is banned: a connection that was there before the ban makes no further calls.
    """

    def __init__(
        self,
        guards: Guards,
        keys: Keys,
        sessions: DashboardSessions,
        failures: Callable[[], IFailures],
        failed: ToldFailed,
        banned: Callable[[Peer], bool],
    ) -> None:
        self._guards = guards
        self._keys = keys
        self._sessions = sessions
        self._failures = failures
        self._failed = failed
        self._banned = banned

    def identify(self, _channel: Any, head: Head) -> Caller:
        """Return the caller of a request. Raises RefusedCall if the request is refused as such."""
        self._check_ban(head.peer)
        self._guards.check(head)
        on_loopback = is_on_loopback(head)
        if head.path == CLIENTS_PATH:  # its handler verifies the credentials of an MQTT client
            return Caller(on_loopback=on_loopback)
        if head.authorization is not None:
            return self._by_key(head, on_loopback)
        if head.cookie is not None:
            session = self._sessions.find(head.cookie)
            if session is not None:
                if head.changes and not hmac.compare_digest(_bytes(head.csrf or ""), _bytes(session.csrf)):
                    raise RefusedCall(
                        http.FORBIDDEN, "BAD_CSRF_TOKEN",
                        "a change made with a cookie needs the header X-CSRF-Token",
                        field="X-CSRF-Token", allowed="csrf_token of GET /api/v5/session",
                    )  # fmt: skip
                return session.caller
        return Caller(on_loopback=on_loopback)

    def goes_on(self, _channel: Any, head: Head, caller: Caller) -> bool:
        """Tell whether a caller may still make a call that has begun. It is no login: nothing is counted."""
        if self._banned(head.peer):
            return False
        match caller.via:
            case Via.KEY:
                stored = self._keys.found(*_credentials(head.authorization or ""))
                return stored is not None and _caller_with(stored, caller.on_loopback) == caller
            case Via.SESSION:
                session = self._sessions.find(head.cookie or "")
                return session is not None and session.caller == caller
            case _:
                return True

    def wrong(self, peer: Peer, name: str, message: str) -> RefusedCall:
        """Count a failed login; return its refusal, whose delay grows with each failure."""
        delay = self._failures().failed(peer, name)
        self._failed(peer, name)
        return unauthorized(message, min(delay, LONGEST_DELAY))

    def right(self, peer: Peer, name: str) -> None:
        """Take back the failures of this address under this name, which is proven now.

        Raises RefusedCall if the address was banned meanwhile: guesses that were sent at one moment are worth no more
        than others.
        """
        self._check_ban(peer)
        self._failures().succeeded(peer, name)

    def _check_ban(self, peer: Peer) -> None:
        if self._banned(peer):
            raise RefusedCall(http.FORBIDDEN, "BANNED", "the address of this connection is banned")

    def _by_key(self, head: Head, on_loopback: bool) -> Caller:
        key, secret = _credentials(head.authorization or "")
        stored = self._keys.found(key, secret)
        name = f"key {key[:40]}"
        if stored is None:
            raise self.wrong(head.peer, name, "there is no such API key, or its secret is wrong, or it has expired")
        self.right(head.peer, name)
        return _caller_with(stored, on_loopback)


def _caller_with(stored: StoredKey, on_loopback: bool) -> Caller:
    scopes = frozenset(_SCOPES[scope] for scope in stored.scopes if scope in _SCOPES)
    return Caller(f"key {stored.name}", None, scopes, Via.KEY, on_loopback)


def _credentials(authorization: str) -> tuple[str, str]:
    """Return the key and the secret of a header Authorization. Raises RefusedCall."""
    kind, _, text = authorization.strip().partition(" ")
    text = text.strip()
    match kind.lower():
        case "basic":
            try:
                text = b64decode(text, validate=True).decode()
            except (Error, ValueError):
                text = ""
            key, found, secret = text.partition(":")
        case "bearer":
            key, found, secret = text.partition(":" if ":" in text else ".")
        case _:
            key, found, secret = "", "", ""
    if not (key and found and secret):
        raise unauthorized(
            "the header Authorization is Bearer KEY:SECRET, or Basic with the key as user name and the secret as"
            " password"
        )
    return key, secret


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
