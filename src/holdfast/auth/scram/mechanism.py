"""The Authentication Method SCRAM-SHA-256 [RFC 5802, RFC 7677]: clients prove a password without sending it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from scramp import ScramException, ScramMechanism
from zope.interface import implementer

from holdfast.auth.interfaces import (
    Authenticated,
    AuthenticationStep,
    Challenge,
    Credentials,
    IAuthenticationExchange,
    IEnhancedAuthenticator,
    Principal,
)
from holdfast.auth.scram.unknown_users import UnknownUserVerifiers
from holdfast.auth.scram.verifier import METHOD, Verifier
from holdfast.log.client_log import client_text
from holdfast.wire.reasons import ReasonCode

#: bytes of the longest message: SASLprep of a longer User Name would block the reactor for too long
LONGEST_MESSAGE = 2048

_MECHANISM = ScramMechanism(METHOD)


@implementer(IEnhancedAuthenticator)
class ScramAuthenticator:
    """Authenticates users by their verifiers, and does not reveal to a stranger whether a user exists.

    ``users`` is called for each exchange, and returns another mapping after a change of the users. ``key`` is the
    secret for the verifiers of unknown users: with it, one could tell them from existing ones. ``name`` is the
    configured name of this method.
    """

    def __init__(
        self,
        users: Callable[[], Mapping[str, Verifier]],
        key: bytes,
        name: str = "",
        new_nonce: Callable[[], str] = secrets.token_hex,
    ) -> None:
        self._users = users
        self._key = key
        self._name = name
        self._new_nonce = new_nonce
        self._known = users()
        self._unknown_users = UnknownUserVerifiers(self._known, key)

    def begin(self, method: str, credentials: Credentials) -> ScramExchange | None:
        """Return a new exchange; None for any other method."""
        if method != METHOD:
            return None
        users = self._users()
        if users is not self._known:
            self._known, self._unknown_users = users, UnknownUserVerifiers(users, self._key)
        return ScramExchange(self.verifier, self._new_nonce(), credentials, self._name)

    def verifier(self, username: str) -> Verifier:
        """Return the verifier of a prepared User Name. The time does not tell whether the user exists."""
        # Computed for every user, also for existing ones, so that both take the same time.
        unknown = self._unknown_users.verifier(username)
        return self._known.get(username, unknown)


@implementer(IAuthenticationExchange)
class ScramExchange:
    """The four messages of SCRAM: client-first, server-first, client-final, server-final."""

    def __init__(self, verifier: Callable[[str], Verifier], nonce: str, credentials: Credentials, method: str) -> None:
        self._verifier = verifier
        self._credentials = credentials
        self._method = method
        self.username: str | None = None
        self.explanation = ""
        self._server = _MECHANISM.make_server(self._look_up, s_nonce=nonce)
        self._next = self._client_first

    def step(self, data: bytes | None) -> AuthenticationStep:
        """Take the Client's next message. Every fault has the same answer, which reveals nothing."""
        try:
            if data is None or len(data) > LONGEST_MESSAGE:
                raise ScramException("the message is missing or too long")
            return self._next(data.decode())
        except (ScramException, UnicodeDecodeError) as error:
            self.explanation = f"{METHOD} as {client_text(self.username or '')}: {error}"
            return ReasonCode.NOT_AUTHORIZED

    def _client_first(self, message: str) -> AuthenticationStep:
        self._server.set_client_first(message)
        self._next = self._client_final
        return Challenge(self._server.get_server_first().encode())

    def _client_final(self, message: str) -> AuthenticationStep:
        self._server.set_client_final(message)
        data = self._server.get_server_final().encode()
        shown = self._credentials
        principal = Principal(
            shown.client_id, self.username, listener=shown.listener, address=shown.address, method=self._method
        )
        return Authenticated(principal, data)

    def _look_up(self, username: str) -> tuple[bytes, bytes, bytes, int]:
        """Return salt, StoredKey, ServerKey and iteration count of a prepared User Name."""
        self.username = username
        verifier = self._verifier(username)
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations
