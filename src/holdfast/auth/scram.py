"""The Authentication Method SCRAM-SHA-256 [RFC 5802, RFC 7677]: a password is proven without being sent."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping

from scramp import ScramException, ScramMechanism
from twisted.logger import Logger
from zope.interface import implementer

from holdfast.auth.users import METHOD, Verifier
from holdfast.interfaces import (
    Authenticated,
    AuthenticationStep,
    Challenge,
    Credentials,
    IAuthenticationExchange,
    IEnhancedAuthenticator,
    Principal,
)
from holdfast.wire.reasons import ReasonCode

#: bytes of the longest message accepted; preparing a longer User Name would keep other clients waiting
LONGEST_MESSAGE = 2048

_MECHANISM = ScramMechanism(METHOD)

#: what an unknown user of an empty file looks like: bytes of salt, iterations
_DEFAULT_SHAPE = (16, 15000)


@implementer(IEnhancedAuthenticator)
class ScramAuthenticator:
    """Knows users by their verifiers. Who does not know the password cannot tell which users there are.

    An unknown user's salt and iteration count follow from the name and a key of this process, and look like those of
    one of the users; its proof is checked like theirs, and always wrong.
    """

    def __init__(
        self, users: Mapping[str, Verifier], new_nonce: Callable[[], str] = secrets.token_hex, key: bytes | None = None
    ) -> None:
        self._users = users
        self._new_nonce = new_nonce
        self._key = secrets.token_bytes(64) if key is None else key
        self._shapes = [(len(user.salt), user.iterations) for user in users.values()] or [_DEFAULT_SHAPE]

    def begin(self, method: str, credentials: Credentials) -> ScramExchange | None:
        """Return a new exchange; only this one method is offered."""
        return ScramExchange(self, self._new_nonce(), credentials.client_id) if method == METHOD else None

    def verifier(self, username: str) -> Verifier:
        """Return the verifier of a prepared User Name, of an unknown one one that nothing matches."""
        digest = hmac.digest(self._key, username.encode(), "sha512")
        length, iterations = self._shapes[int.from_bytes(digest[:8], "big") % len(self._shapes)]
        salt = hmac.digest(self._key, digest, "sha512")[:length]
        unknown = Verifier(iterations, salt, secrets.token_bytes(32), secrets.token_bytes(32))
        return self._users.get(username, unknown)


@implementer(IAuthenticationExchange)
class ScramExchange:
    """Two messages from the Client, two from the Server: client-first, server-first, client-final, server-final."""

    _log = Logger()

    def __init__(self, authenticator: ScramAuthenticator, nonce: str, client_id: str) -> None:
        self._authenticator = authenticator
        self._client_id = client_id
        self._username = ""
        self._server = _MECHANISM.make_server(self._look_up, s_nonce=nonce)
        self._next = self._client_first

    def step(self, data: bytes | None) -> AuthenticationStep:
        """Take the Client's next message. Whatever is wrong with it is answered in the same way."""
        try:
            if data is None or len(data) > LONGEST_MESSAGE:
                raise ScramException("the message is missing or too long")
            return self._next(data.decode())
        except (ScramException, UnicodeDecodeError) as error:
            self._log.info(
                "{method} refuses {client!r} as {username!r}: {error}",
                method=METHOD,
                client=self._client_id,
                username=self._username,
                error=error,
            )
            return ReasonCode.NOT_AUTHORIZED

    def _client_first(self, message: str) -> AuthenticationStep:
        self._server.set_client_first(message)
        self._next = self._client_final
        return Challenge(self._server.get_server_first().encode())

    def _client_final(self, message: str) -> AuthenticationStep:
        self._server.set_client_final(message)
        data = self._server.get_server_final().encode()
        return Authenticated(Principal(self._client_id, self._username), data)

    def _look_up(self, username: str) -> tuple[bytes, bytes, bytes, int]:
        """Return salt, StoredKey, ServerKey and iteration count of a prepared User Name."""
        self._username = username
        verifier = self._authenticator.verifier(username)
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations
