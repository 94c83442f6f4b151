"""A key verifies signatures of its own algorithms, and of no others."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.identity.token_keys import MOST_KEYS, UnusableKey, key_set, pem_key, secret_key
from tests.identity.tokens.issuing import jwk, jwks, pem, private_key

RSA = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}


@pytest.mark.parametrize(
    ("kind", "algorithms"),
    [
        ("RSA", RSA),
        ("P-256", {"ES256"}),
        ("P-384", {"ES384"}),
        ("P-521", {"ES512"}),
        ("Ed25519", {"EdDSA"}),
        ("Ed448", {"EdDSA"}),
    ],
)
def test_the_type_of_a_key_decides_its_algorithms(kind: str, algorithms: set[str]) -> None:
    assert pem_key(pem(kind), ()).algorithms == algorithms
    (key,) = key_set(jwks(jwk(kind, "k", **({"alg": "EdDSA"} if kind == "Ed448" else {}))), ())
    assert key.algorithms == algorithms
    assert key.kid == "k"


@pytest.mark.parametrize(
    ("length", "algorithms"),
    [(32, {"HS256"}), (48, {"HS256", "HS384"}), (64, {"HS256", "HS384", "HS512"})],
)
def test_a_secret_is_as_long_as_its_algorithm_asks(length: int, algorithms: set[str]) -> None:
    """RFC 7518, 3.2."""
    assert secret_key(b"x" * length, ()).algorithms == algorithms


def test_the_configured_algorithms_narrow_those_of_the_key() -> None:
    assert pem_key(pem("RSA"), ("RS256", "ES256")).algorithms == {"RS256"}
    with pytest.raises(UnusableKey, match="none of the configured algorithms fits an RSA key"):
        pem_key(pem("RSA"), ("HS256", "ES256"))
    with pytest.raises(UnusableKey, match="fits a shared secret"):
        secret_key(b"x" * 32, ("RS256", "HS512"))


def test_a_key_set_may_narrow_them_too() -> None:
    (key,) = key_set(jwks(jwk("RSA", alg="RS256")), ())
    assert key.algorithms == {"RS256"}
    for wrong in ("HS256", "none", "ES256", "RSA-OAEP", 5):
        with pytest.raises(UnusableKey):
            key_set(jwks(jwk("RSA", alg=wrong)), ())


def test_the_secret_is_never_shown() -> None:
    assert "xxxx" not in repr(secret_key(b"x" * 32, ()))


@pytest.mark.parametrize(
    ("secret", "why"),
    [(b"short", "has 5 bytes; allowed: 32 or more"), (pem("RSA"), "a key in PEM, not a shared secret")],
    ids=["short", "public key"],
)
def test_a_secret_that_is_none_is_refused(secret: bytes, why: str) -> None:
    """A public key as a secret would let everyone sign tokens with it."""
    with pytest.raises(UnusableKey, match=why):
        secret_key(secret, ())


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (pem("weak RSA"), "has 1024 bits"),
        (pem("secp256k1"), "no known type"),
        (b"-----BEGIN PRIVATE KEY-----", "this is a private key"),
        (b"", "no public key in PEM"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "no public key in PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no public key in PEM"),
    ],
    ids=["weak", "another curve", "private", "empty", "not a key", "certificate"],  # the keys differ in each process
)
def test_a_public_key_that_is_none_is_refused(document: bytes, why: str) -> None:
    with pytest.raises(UnusableKey, match=why):
        pem_key(document, ())


def test_keys_for_other_uses_are_left_out() -> None:
    found = key_set(
        jwks(
            jwk("RSA", "encryption", use="enc"),
            jwk("P-384", "wrapping", key_ops=["wrapKey"]),
            {"kty": "unknown", "kid": "new"},
            {"kty": "oct", "k": "AAAA", "kid": "secret"},
            jwk("P-256", "good", use="sig", key_ops=["verify"]),
        ),
        (),
    )
    assert [key.kid for key in found] == ["good"]


def test_a_private_key_in_a_set_is_refused() -> None:
    from jwt.algorithms import RSAAlgorithm

    entry = json.loads(RSAAlgorithm.to_jwk(private_key("RSA"))) | {"key_ops": ["sign", "verify"]}
    with pytest.raises(UnusableKey, match="a key is private"):
        key_set(jwks(entry), ())


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"", "not JSON"),
        (b"[" * 100000, "not JSON"),
        (b"[]", "no JSON Web Key Set"),
        (b'{"keys": {}}', "no JSON Web Key Set"),
        (jwks(), "no key of the set can be used: it is empty"),
        (jwks(jwk("RSA", "a"), jwk("P-256", "a")), "two keys have the same Key ID"),
        (jwks(jwk("RSA"), jwk("P-256")), "two keys have the same Key ID"),
        (jwks(*[{}] * (MOST_KEYS + 1)), "found 101 keys"),
    ],
)
def test_a_set_that_cannot_be_used_is_refused(document: bytes, why: str) -> None:
    with pytest.raises(UnusableKey, match=why):
        key_set(document, ())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.sampled_from(["kty", "n", "e", "x", "y", "crv", "alg", "kid", "use", "key_ops", "k"]), json_values
    )
)
def test_whatever_a_key_is_it_is_used_or_refused(fields: dict[str, object]) -> None:
    for entry in (fields, {**jwk("RSA"), **fields}, {**jwk("P-256"), **fields}):
        try:
            key_set(jwks(entry), ())
        except UnusableKey:
            continue
