"""An issuer of tokens, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import get_default_algorithms

SECRET = b"a shared secret of this broker and of the issuer of tokens, 64 b"
NOW = 1_800_000_000


@cache
def private_key(kind: str) -> Any:
    """Return the same private key for each use of a kind, such as ``RSA`` or ``P-256``."""
    match kind:
        case "RSA":
            return rsa.generate_private_key(65537, 2048)
        case "weak RSA":
            return rsa.generate_private_key(65537, 1024)
        case "P-256":
            return ec.generate_private_key(ec.SECP256R1())
        case "P-384":
            return ec.generate_private_key(ec.SECP384R1())
        case "P-521":
            return ec.generate_private_key(ec.SECP521R1())
        case "secp256k1":
            return ec.generate_private_key(ec.SECP256K1())
        case "Ed448":
            return ed448.Ed448PrivateKey.generate()
    return ed25519.Ed25519PrivateKey.generate()


def pem(kind: str) -> bytes:
    """Return a public key."""
    found: bytes = private_key(kind).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def jwk(kind: str, kid: str | None = None, **fields: object) -> dict[str, object]:
    """Return a public key as an entry of a JSON Web Key Set."""
    algorithm = {"RSA": "RS256", "weak RSA": "RS256", "Ed25519": "EdDSA", "Ed448": "EdDSA"}.get(kind, "ES256")
    entry = json.loads(get_default_algorithms()[algorithm].to_jwk(private_key(kind).public_key()))
    return {**entry, **({} if kid is None else {"kid": kid}), **fields}


def jwks(*entries: Mapping[str, object]) -> bytes:
    """Return a JSON Web Key Set."""
    return json.dumps({"keys": entries}).encode()


def token(
    claims: Mapping[str, object] | None = None, key: Any = SECRET, algorithm: str = "HS256", **headers: object
) -> bytes:
    """Return a token for the user alice that expires a minute after NOW, with these claims besides."""
    filled = {"sub": "alice", "exp": NOW + 60, **(claims or {})}
    payload = {name: value for name, value in filled.items() if value is not None}
    return jwt.api_jws.encode(json.dumps(payload).encode(), key, algorithm, headers=headers).encode()
