"""The keys that verify tokens, and their sources: the configuration, a file, a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import field, frozen
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, SECP521R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from jwt import PyJWK, PyJWTError
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.config.toml import ConfigError, without_mark
from holdfast.identity.http_client import Answer, HTTPClient, RequestFailed
from holdfast.identity.user_files import contents, file_state
from holdfast.watch.log import LastingFailure

# Keys that verify signatures, each with the algorithms that it may be used for.
#
# The algorithm is chosen by the key, never by the token alone: a token that names HS256 is not verified with a public
# RSA key as the secret, whatever it says, and there is no key for the algorithm ``none``.


#: a set with more keys is refused
MOST_KEYS = 100

#: bits of an RSA key: fewer are unsafe, and more take longer than a packet may
_RSA_BITS = range(2048, 8192 + 1)
#: algorithms with a secret, and the least bytes of the secret [RFC 7518, 3.2]
_SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
_CURVES: dict[str, str] = {SECP256R1.name: "ES256", SECP384R1.name: "ES384", SECP521R1.name: "ES512"}
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")


class UnusableKey(ValueError):
    """A key or a set of keys cannot be used. The text says why, and shows no secret."""


@frozen
class Key:
    """A key, the algorithms that it may verify, and its Key ID if it is one of a set."""

    value: Any = field(repr=False)
    algorithms: frozenset[str]
    kid: str | None = None


def secret_key(secret: bytes, allowed: Collection[str]) -> Key:
    """Return the key of a shared secret. ``allowed`` are the configured algorithms, all if it is empty.

    Raises UnusableKey.
    """
    if b"-----BEGIN" in secret:
        raise UnusableKey("this is a key in PEM, not a shared secret; a public key belongs in public_key")
    fitting = [name for name, least in _SECRET_BYTES.items() if len(secret) >= least]
    if not fitting:
        raise UnusableKey(
            f"the secret has {len(secret)} bytes; allowed: 32 or more for HS256, 48 for HS384, 64 for HS512"
        )
    return Key(secret, _among(fitting, allowed, "a shared secret of this length"))


def pem_key(pem: bytes, allowed: Collection[str]) -> Key:
    """Return the key of a public key or a certificate in PEM. Raises UnusableKey."""
    if b"PRIVATE KEY-----" in pem:
        raise UnusableKey("this is a private key; only the issuer of tokens may have it; name its public key")
    try:
        if b"-----BEGIN CERTIFICATE-----" in pem:
            return _public_key(load_pem_x509_certificate(pem).public_key(), allowed, None)
        return _public_key(load_pem_public_key(pem), allowed, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if isinstance(error, UnusableKey):
            raise
        raise UnusableKey("this is no public key in PEM (-----BEGIN PUBLIC KEY-----)") from None


def key_set(document: bytes, allowed: Collection[str]) -> Sequence[Key]:
    """Return the keys of a JSON Web Key Set [RFC 7517] that verify signatures. Raises UnusableKey if there is none.

    Keys of other uses and unknown types are left out, as the standard has it, and so are secrets: a set of keys is
    public.
    """
    try:
        found = json.loads(document)
    except (ValueError, RecursionError):
        raise UnusableKey("this is not JSON") from None
    entries = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise UnusableKey('this is no JSON Web Key Set: {"keys": [...]}')
    if len(entries) > MOST_KEYS:
        raise UnusableKey(f"found {len(entries)} keys; allowed: {MOST_KEYS}")
    keys: list[Key] = []
    why = "it is empty"
    for entry in entries:
        try:
            keys.append(_key_of(entry, allowed))
        except UnusableKey as unusable:
            why = str(unusable)
    if not keys:
        raise UnusableKey(f"no key of the set can be used: {why}")
    kids = [key.kid for key in keys]
    if len(set(kids)) < len(kids):
        raise UnusableKey("two keys have the same Key ID (kid), or none")
    return keys


def _key_of(entry: object, allowed: Collection[str]) -> Key:
    if not isinstance(entry, dict):
        raise UnusableKey("a key is no JSON object")
    if entry.get("kty") == "oct":
        raise UnusableKey("a key is a shared secret (kty oct); name it in secret")
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise UnusableKey("a key is not for signatures")
    kid = entry.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise UnusableKey("a Key ID (kid) is no string")
    try:
        value = PyJWK(entry).key
    except (PyJWTError, ValueError, TypeError, KeyError, NotImplementedError, UnsupportedAlgorithm):
        raise UnusableKey("a key has an unknown type or is damaged") from None
    if hasattr(value, "public_key"):
        raise UnusableKey("a key is private; only the issuer of tokens may have it")
    key = _public_key(value, allowed, kid)
    named = entry.get("alg")
    if named is None:
        return key
    if not isinstance(named, str) or named not in key.algorithms:
        raise UnusableKey("the algorithm (alg) of a key is not allowed, or does not fit it")
    return Key(value, frozenset((named,)), kid)


def _public_key(value: object, allowed: Collection[str], kid: str | None) -> Key:
    match value:
        case RSAPublicKey():
            if value.key_size not in _RSA_BITS:
                raise UnusableKey(
                    f"the RSA key has {value.key_size} bits; allowed: {_RSA_BITS.start} to {_RSA_BITS.stop - 1}"
                )
            return Key(value, _among(_RSA, allowed, "an RSA key"), kid)
        case EllipticCurvePublicKey() if value.curve.name in _CURVES:
            return Key(value, _among([_CURVES[value.curve.name]], allowed, f"a key of {value.curve.name}"), kid)
        case Ed25519PublicKey() | Ed448PublicKey():
            return Key(value, _among(["EdDSA"], allowed, "an Edwards-curve key"), kid)
    raise UnusableKey("the key is of no known type; allowed: RSA, EC (P-256, P-384, P-521), Ed25519 and Ed448")


def _among(fitting: Collection[str], allowed: Collection[str], what: str) -> frozenset[str]:
    found = frozenset(fitting) & frozenset(allowed) if allowed else frozenset(fitting)
    if not found:
        raise UnusableKey(f"none of the configured algorithms fits {what}, which takes {', '.join(fitting)}")
    return found


# Where the keys for tokens come from: the configuration, or a file that may change while the broker runs.


#: bytes of a file or an answer with keys
LONGEST_DOCUMENT = 256 * 1024


@frozen
class NoKeys:
    """There are no keys now, so no token can be judged; ``explanation`` is a clause for the log."""

    explanation: str


class KeyRing:
    """The known keys: one without a Key ID, or a set."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._only = keys[0] if len(keys) == 1 else None
        self._by_kid = {key.kid: key for key in keys if key.kid is not None}

    def knows(self, kid: str | None) -> bool:
        """Tell whether there is a key for this Key ID. A single key without one is the key for all."""
        return self._find(kid) is not None

    def key(self, kid: str | None, algorithm: object) -> Key | None:
        """Return the key for a token with this Key ID and algorithm, None if there is none. It never tries several."""
        key = self._find(kid)
        return key if key is not None and algorithm in key.algorithms else None

    def _find(self, kid: str | None) -> Key | None:
        if kid is None:
            return self._only
        found = self._by_kid.get(kid)
        if found is None and self._only is not None and self._only.kid is None:
            return self._only
        return found


class IKeys(Protocol):
    """A source of keys."""

    def ring(self, kid: str | None) -> KeyRing | NoKeys | Deferred[KeyRing | NoKeys]:
        """Return the keys to judge a token with this Key ID, at once or later."""


class FixedKeys:
    """Keys that never change."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._ring = KeyRing(keys)

    def ring(self, kid: str | None) -> KeyRing:
        """Return the keys."""
        return self._ring


class FileKeys:
    """Keys in a file. After a change it is read again; while it cannot be used, the keys before the change count."""

    _log = Logger()

    def __init__(self, path: Path, parse: Callable[[bytes], Sequence[Key]]) -> None:
        """Read the file. Raises UnusableKey."""
        self._path = path
        self._parse = parse
        self._seen = file_state(path)
        self._ring = self._read()

    def ring(self, kid: str | None) -> KeyRing:
        """Return the present keys of the file."""
        state = file_state(self._path)
        if state != self._seen:
            self._seen = state  # noted first, so that a file with a problem is read and logged once
            try:
                self._ring = self._read()
                self._log.info("{path}: the keys are read again", path=self._path)
            except UnusableKey as unusable:
                self._log.error(
                    "{path}: {problem}; the keys before the change count", path=self._path, problem=unusable
                )
        return self._ring

    def _read(self) -> KeyRing:
        try:
            content, _ = contents(self._path, "", "it has the keys for tokens")
        except ConfigError as error:
            raise UnusableKey(error.problems[0].message) from None
        if len(content) > LONGEST_DOCUMENT:
            raise UnusableKey(f"the file has more than {LONGEST_DOCUMENT} bytes")
        return KeyRing(self._parse(without_mark(content)))


# The keys that a server publishes as a JSON Web Key Set, fetched when a token needs them.
#
# How it works. There is no timer. A token asks for the keys, and their age decides:
#
#     no keys yet, or older than ``keep``       the token waits for a fetch; without keys it cannot be judged
#     older than ``refresh``                    a fetch begins; the present keys judge the token meanwhile
#     the Key ID of the token is unknown        the token waits for a fetch, since the issuer may have new keys
#     otherwise                                 the present keys judge it
#
# All tokens that wait share one fetch. A fetch begins at the earliest :data:`FETCH_PAUSE` seconds after the one
# before, so that tokens with invented Key IDs cost the server nothing; such a token is then judged by the present keys,
# and denied. A fetch that fails leaves the present keys, for at most ``keep`` seconds: a key that the issuer has
# withdrawn must not count for ever.


#: seconds between the beginnings of two fetches
FETCH_PAUSE = 30.0

_ACCEPTED = {"Accept": "application/json, application/jwk-set+json"}


@frozen
class Freshness:
    """Seconds after which keys are fetched again, and after which they do not count any more."""

    refresh: float = 300.0
    keep: float = 86400.0


class ServedKeys:
    """The keys of one server. ``parse`` makes keys of its document, and raises UnusableKey."""

    def __init__(
        self,
        client: HTTPClient,
        parse: Callable[[bytes], Sequence[Key]],
        clock: IReactorTime,
        url: str,
        freshness: Freshness = Freshness(),
    ) -> None:
        self._client = client
        self._parse = parse
        self._clock = clock
        self._freshness = freshness
        self._ring: KeyRing | None = None
        self._fetched_at = 0.0
        self._begun_at: float | None = None
        self._waiting: list[Deferred[None]] | None = None  #: None while no fetch is under way
        self._failures = LastingFailure(
            f"fetching the keys for tokens from {url}", "and is tried again", (RequestFailed, UnusableKey)
        )

    def ring(self, kid: str | None) -> KeyRing | NoKeys | Deferred[KeyRing | NoKeys]:
        """Return the keys to judge a token with this Key ID, at once or after a fetch."""
        ring = self._present()
        if ring is not None and ring.knows(kid):
            if self._clock.seconds() - self._fetched_at >= self._freshness.refresh:
                self._fetch()
            return ring
        waiting = self._fetch()
        if waiting is None:
            return self._outcome()
        fetched: Deferred[None] = Deferred(lambda one: waiting.remove(one) if one in waiting else None)
        waiting.append(fetched)
        return fetched.addCallback(lambda _: self._outcome())

    def _present(self) -> KeyRing | None:
        """Return the keys that count now."""
        if self._ring is not None and self._clock.seconds() - self._fetched_at >= self._freshness.keep:
            self._ring = None
        return self._ring

    def _outcome(self) -> KeyRing | NoKeys:
        ring = self._present()
        return ring if ring is not None else NoKeys("the keys for tokens could not be fetched")

    def _fetch(self) -> list[Deferred[None]] | None:
        """Begin a fetch, unless one is under way or began just before. Return who waits; None if there is no fetch."""
        now = self._clock.seconds()
        if self._waiting is not None:
            return self._waiting
        if self._begun_at is not None and now - self._begun_at < FETCH_PAUSE:
            return None
        self._begun_at = now
        waiting = self._waiting = []
        answer = self._client.request(b"GET", _ACCEPTED)
        answer.addCallback(self._take).addErrback(self._failed)
        answer.addCallback(lambda _: self._tell())
        return waiting if self._waiting is not None else None

    def _take(self, answer: Answer) -> None:
        if answer.status != 200:
            raise RequestFailed(f"the status {answer.status}")
        self._ring = KeyRing(self._parse(answer.body))
        self._fetched_at = self._clock.seconds()
        self._failures.succeeded()

    def _failed(self, failure: Failure) -> None:
        self._failures.failed(failure)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for each in waiting:
            each.callback(None)
