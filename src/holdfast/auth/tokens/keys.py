"""Keys that verify signatures, each with the algorithms that it may be used for.

The algorithm is chosen by the key, never by the token alone: a token that names HS256 is not verified with a public RSA
key as the secret, whatever it says, and there is no key for the algorithm ``none``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from attrs import field, frozen
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, SECP521R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from jwt import PyJWK, PyJWTError

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
