"""The Authentication Method SCRAM-SHA-256 [RFC 5802, RFC 7677]: clients prove a password without sending it."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import tempfile
from base64 import b64decode, b64encode
from bisect import bisect
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from attrs import frozen
from scramp import ScramException, ScramMechanism
from scramp.utils import saslprep
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from holdfast.config.toml import ConfigError, display_name
from holdfast.core.terminal import counted
from holdfast.identity.interfaces import (
    Authenticated,
    AuthenticationStep,
    Challenge,
    Credentials,
    IAuthenticationExchange,
    IEnhancedAuthenticator,
    Principal,
)
from holdfast.identity.scram_iterations import DEFAULT_ITERATIONS, ITERATIONS
from holdfast.identity.user_files import (
    InvalidUser,
    UserFormat,
    contents,
    file_state,
    gone_or_changed,
    problem,
    read_users,
    remove_line,
    set_line,
)
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.watch.log import client_text
from holdfast.wire.reasons import ReasonCode

# The verifier of a user: enough to check the proof of a password, but not the password itself.
#
# Its text is ``SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY``, as in Postgres's table ``pg_authid``.


METHOD = "SCRAM-SHA-256"

NEW_SALT_BYTES = 16
_SALT_BYTES = range(12, 64 + 1)
_KEY_BYTES = 32
_LONGEST_NAME = 255

_ALLOWED = f"{METHOD}$ITERATIONS:SALT$STOREDKEY:SERVERKEY as written by: holdfast scram set"
_VERIFIER = re.compile(
    rf"{METHOD}\$([0-9]{{1,9}}):([A-Za-z0-9+/]+={{0,2}})\$([A-Za-z0-9+/]+={{0,2}}):([A-Za-z0-9+/]+={{0,2}})"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@frozen(repr=False)
class Verifier:
    """Iteration count and salt, which every client may know, and the two secret keys."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        salt, stored, server = (b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return f"{METHOD}${self.iterations}:{salt}${stored}:{server}"


def parsed(text: str) -> Verifier:
    """Return a verifier from its text. Raises InvalidUser, whose text never shows a secret."""
    match = _VERIFIER.fullmatch(text)
    if match is None:
        raise InvalidUser(f"found no {METHOD} verifier after the name; allowed: NAME:{_ALLOWED}")
    iterations = int(match[1])
    if iterations not in ITERATIONS:
        raise InvalidUser(f"found {iterations} iterations; allowed: {ITERATIONS.start} to {ITERATIONS.stop - 1}")
    try:
        salt, stored_key, server_key = (b64decode(part, validate=True) for part in match.groups()[1:])
    except ValueError:
        raise InvalidUser(f"found invalid base64; allowed: NAME:{_ALLOWED}") from None
    if len(salt) not in _SALT_BYTES:
        raise InvalidUser(
            f"found a salt of {len(salt)} bytes; allowed: {_SALT_BYTES.start} to {_SALT_BYTES.stop - 1}, in base64"
        )
    if {len(stored_key), len(server_key)} != {_KEY_BYTES}:
        raise InvalidUser(f"found a key of another length; allowed: keys of {_KEY_BYTES} bytes, in base64")
    return Verifier(iterations, salt, stored_key, server_key)


def new_verifier(password: str, iterations: int = DEFAULT_ITERATIONS) -> Verifier:
    """Return a verifier of a password, with a new salt. Raises InvalidUser."""
    if not _saslprep(password, "password"):
        raise InvalidUser("a password has at least one character")
    salt, stored_key, server_key, count = ScramMechanism(METHOD).make_auth_info(
        password, iteration_count=iterations, salt=secrets.token_bytes(NEW_SALT_BYTES)
    )
    return Verifier(count, salt, stored_key, server_key)


def prepared(username: str) -> str:
    """Return a user name in the form that SCRAM compares [RFC 4013]. Raises InvalidUser."""
    if _CONTROL.search(username):
        raise InvalidUser("a user name has no control characters")
    # SASLprep does not change printable ASCII. Skipping it saves most of the time of a large file.
    name = username if username.isascii() else _saslprep(username, "user name")
    if not name or name != name.strip() or name.startswith("#") or ":" in name:
        raise InvalidUser(
            "a user name has at least one character, no space at its ends, no colon, and no # at its start"
        )
    if len(name.encode()) > _LONGEST_NAME:
        raise InvalidUser(f"a user name has at most {_LONGEST_NAME} bytes of UTF-8")
    return name


def _saslprep(text: str, name: str) -> str:
    try:
        prepared = saslprep(text)
    except ScramException as error:
        raise InvalidUser(
            f"this {name} has characters that SASLprep (RFC 4013) does not allow: {error.args[0]}"
        ) from None
    assert isinstance(prepared, str)
    return prepared


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


# The answers of SCRAM about users that do not exist.
#
# Before a client proves its password, the server sends the salt and the iteration count of the user. If it sent an
# error for an unknown user, everybody could find out the names of the users. So an unknown user gets a salt and a count
# too. Asked twice, the server must answer the same, also after a restart; the counts must be as frequent as those of
# real users; and adding a user must not change the answers for other names.
#
# The users form a ring, in the order of a digest of their names. An unknown name has a position on the ring too, and
# copies the iteration count of the next user; its salt is a digest of the position. A new user changes the answers for
# few names only: those between its predecessor and itself.


class UnknownUserVerifiers:
    """Makes verifiers of unknown users, which no password fits. They depend only on the name, the key and the users."""

    def __init__(self, users: Mapping[str, Verifier], key: bytes) -> None:
        self._key = key
        shapes = {name: (user.iterations, len(user.salt)) for name, user in users.items()}
        self._ring = sorted((self._digest(name), shape) for name, shape in shapes.items())

    def verifier(self, username: str) -> Verifier:
        """Return the verifier of an unknown user."""
        position = self._digest(username)
        iterations, salt_bytes = DEFAULT_ITERATIONS, NEW_SALT_BYTES
        if self._ring:
            _, (iterations, salt_bytes) = self._ring[bisect(self._ring, (position,)) % len(self._ring)]
        salt = hmac.digest(self._key, position, "sha512")[:salt_bytes]
        return Verifier(iterations, salt, secrets.token_bytes(32), secrets.token_bytes(32))

    def _digest(self, name: str) -> bytes:
        return hmac.digest(self._key, name.encode(), "sha512")


# A persistent secret of this broker: random bytes in a file.


_BYTES = 64


def persistent_secret(path: Path) -> bytes:
    """Return the secret in a file. A missing file is created (mode 0600), with its folder (0700).

    Raises ConfigError if the file cannot be created or read.
    """
    name = display_name(path)
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(path)
    except OSError as error:
        raise problem(name, None, f"cannot be made: {error.strerror}") from None
    secret, _ = contents(path, name, "start the broker again, and it makes a new one")
    if len(secret) != _BYTES:
        raise _damaged(name, len(secret))
    return secret


def _damaged(name: str, found: int) -> ConfigError:
    return problem(
        name, None, f"has {found} bytes instead of {_BYTES}; remove the file, and the broker makes a new one"
    )


def _make(path: Path) -> None:
    """Write the file as a whole, unless another process was faster: a link never replaces a file."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(os.urandom(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


# The file of SCRAM users: a line ``NAME:VERIFIER`` for each. The broker reads it again after each change.


def _parsed(username: str, verifier: str) -> tuple[str, Verifier]:
    return prepared(username), parsed(verifier)


_FORMAT = UserFormat(_parsed, "create it with: holdfast scram set FILE USERNAME")


class UsersFile:
    """The users of a file, up to date while the broker runs."""

    _log = Logger()

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ConfigError with all problems."""
        self._path = path
        # Before the reading: a change in between is seen at the next call.
        self._seen = file_state(path)
        #: the users of the last reading
        self.known: Mapping[str, Verifier] = read_users(self._path, _FORMAT)
        self._gone: set[str] = set()

    def users(self) -> Mapping[str, Verifier]:
        """Return the present users of the file: another mapping after each change.

        While the file has problems, the users from before the change count; the log tells the first problem.
        """
        state = file_state(self._path)
        if state != self._seen:
            # Noted first, so that a file with problems is read and logged once, not for each client.
            self._seen = state
            try:
                before, self.known = self.known, read_users(self._path, _FORMAT)
                self._gone.update(gone_or_changed(before, self.known))
                self._log.info(
                    "{path}: read again, {users}",
                    path=self._path,
                    users=counted(len(self.known), "user"),
                    count=len(self.known),
                )
            except ConfigError as error:
                self._log.error(
                    "{problem} ({problems} in all; until they are solved, the users before the change count)",
                    problem=error.problems[0],
                    problems=counted(len(error.problems), "problem"),
                    count=len(error.problems),
                )
        return self.known

    def take_gone(self) -> frozenset[str]:
        """Return the users of whom a reading has found another verifier or none, since the call before.

        A user who was added, has logged in and was changed between two calls is among them: the login read the file.
        """
        gone = frozenset(self._gone)
        self._gone.clear()
        return gone


def set_user(path: Path, username: str, verifier: Verifier) -> bool:
    """Write a user to a file, and create the file if there is none; False if the user is new.

    Raises ConfigError if the file cannot be used; then the file is unchanged.
    """
    return set_line(path, username, str(verifier), _FORMAT)


def remove_user(path: Path, username: str) -> bool:
    """Remove a user from a file; False if there is no user of this name. Raises ConfigError."""
    return remove_line(path, username, _FORMAT)


# Users of SCRAM who are gone from their file, or have another password there, are revoked.
#
# An exchange reads a changed file by itself, but clients that are connected begin none. So the files are looked at
# every few seconds, too. A look takes all changes that were read since the look before, also those that an exchange has
# read.


#: seconds between two looks at the files
LOOK_INTERVAL = 2.0


class Revocations(Service):
    """Looks at files of users, by the names of their methods. ``revoke`` takes what tells the revoked Principals."""

    def __init__(
        self,
        files: Mapping[str, UsersFile],
        clock: IReactorTime,
        revoke: Callable[[Callable[[Principal], bool]], object],
    ) -> None:
        self._files = files
        self._revoke = revoke
        self._job = PeriodicJob(self._look, name="the look at the users of SCRAM", interval=LOOK_INTERVAL, clock=clock)

    def startService(self) -> None:
        """Begin to look."""
        Service.startService(self)
        self._job.start(LOOK_INTERVAL)

    def stopService(self) -> None:
        """Look no more."""
        Service.stopService(self)
        self._job.stop()

    def _look(self) -> None:
        for name, file in self._files.items():
            file.users()
            gone = file.take_gone()
            if gone:
                self._revoke(_users_of(name, gone))


def _users_of(method: str, users: frozenset[str]) -> Callable[[Principal], bool]:
    return lambda principal: principal.method == method and principal.username in users
