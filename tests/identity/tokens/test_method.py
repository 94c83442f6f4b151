"""Tokens in CONNECT: accepted, denied, or left to the next method."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from holdfast.identity.interfaces import IGNORED, Accepted, Credentials, Denied, Verdict
from holdfast.identity.token_keys import FileKeys, FixedKeys, KeyRing, NoKeys, UnusableKey, key_set, pem_key, secret_key
from holdfast.identity.tokens import LONGEST_HEADER, LONGEST_TOKEN, ClaimRules, TokenMethod
from holdfast.wire.reasons import ReasonCode
from tests.identity.tokens.issuing import NOW, SECRET, jwk, jwks, pem, private_key, token

SHARED = FixedKeys([secret_key(SECRET, ())])
RULES = ClaimRules()


def method(keys: Any = SHARED, rules: ClaimRules = RULES, **options: Any) -> TokenMethod:
    return TokenMethod(keys, rules, lambda: NOW * 1000, **options)


def judged(password: bytes | None, by: TokenMethod | None = None, username: str | None = "alice") -> Verdict:
    verdict = (by or method()).judge(Credentials("c", username, password, "tls", 5))
    assert not isinstance(verdict, Deferred)
    return verdict


def denied(password: bytes, by: TokenMethod | None = None) -> str:
    """Return why a token is denied: always with the code of wrong credentials."""
    verdict = judged(password, by)
    assert isinstance(verdict, Denied)
    assert verdict.reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    return verdict.explanation


def unsigned(header: dict[str, object], claims: dict[str, object], signature: bytes = b"") -> bytes:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_token_with_a_shared_secret(algorithm: str) -> None:
    assert judged(token(algorithm=algorithm)) == Accepted("alice", expires_at=NOW + 60)


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        ("RSA", "RS256"), ("RSA", "RS512"), ("RSA", "PS256"), ("RSA", "PS384"), ("P-256", "ES256"), ("P-384", "ES384"),
        ("P-521", "ES512"), ("Ed25519", "EdDSA"), ("Ed448", "EdDSA"),
    ],
)  # fmt: skip
def test_a_token_with_a_key_pair(kind: str, algorithm: str) -> None:
    keys = FixedKeys([pem_key(pem(kind), ())])
    signed = token(key=private_key(kind), algorithm=algorithm)
    assert judged(signed, method(keys)) == Accepted("alice", expires_at=NOW + 60)
    header, _, signature = signed.split(b".")
    changed = b".".join([header, token({"sub": "admin"}).split(b".")[1], signature])
    assert "InvalidSignatureError" in denied(changed, method(keys))


def test_the_token_may_be_the_user_name() -> None:
    verdict = judged(None, method(in_username=True), token().decode())
    assert isinstance(verdict, Accepted)
    assert judged(token(), method(in_username=True), None) is IGNORED


@pytest.mark.parametrize(
    "password",
    [
        None,
        b"",
        b"secret",
        b"a.b",
        b"a.b.c",
        b"..",
        b"my.pass.word",
        b"a.b.c.d.e",
        "ä.ö.ü".encode(),
        b"\xff\xfe\xfd",
        unsigned({"no": "alg"}, {}),
        unsigned({"alg": None}, {}),
        unsigned({"alg": ["HS256"]}, {}),
        base64.urlsafe_b64encode(b"[" * 700).rstrip(b"=") + b".e30.e30",
        b"x" * 100000,
    ],
)
def test_another_password_is_left_to_the_next_method(password: bytes | None) -> None:
    assert judged(password) is IGNORED


def test_a_token_without_a_signature_is_denied() -> None:
    """The algorithm none, in all spellings, with and without something as its signature."""
    for name in ("none", "None", "NONE", "nOnE", ""):
        for signature in (b"", b"x"):
            assert "no key" in denied(unsigned({"alg": name}, {"sub": "admin", "exp": NOW + 60}, signature))


def test_a_public_key_is_no_shared_secret() -> None:
    """Else everyone who knows the public key could sign tokens (algorithm confusion)."""
    import hashlib
    import hmac

    for kind in ("RSA", "P-256", "Ed25519"):
        by = method(FixedKeys([pem_key(pem(kind), ())]))
        for name in ("HS256", "HS384", "HS512"):
            head = unsigned({"alg": name}, {"sub": "admin", "exp": NOW + 60}).rstrip(b".")
            signature = hmac.digest(pem(kind), head, getattr(hashlib, name.replace("HS", "sha")))
            assert "no key" in denied(head + b"." + base64.urlsafe_b64encode(signature).rstrip(b"="), by)


def test_an_algorithm_that_is_not_configured_is_denied() -> None:
    by = method(FixedKeys([secret_key(SECRET, ("HS512",))]))
    assert "no key" in denied(token(algorithm="HS256"), by)
    assert isinstance(judged(token(algorithm="HS512"), by), Accepted)


def test_the_key_id_names_the_key() -> None:
    ring = FixedKeys(key_set(jwks(jwk("RSA", "a"), jwk("P-256", "b")), ()))
    assert isinstance(judged(token(key=private_key("RSA"), algorithm="RS256", kid="a"), method(ring)), Accepted)
    assert isinstance(judged(token(key=private_key("P-256"), algorithm="ES256", kid="b"), method(ring)), Accepted)
    for kid in ("b", "c", ""):
        assert "no key" in denied(token(key=private_key("RSA"), algorithm="RS256", kid=kid), method(ring))
    assert "no key" in denied(token(key=private_key("RSA"), algorithm="RS256"), method(ring))


def test_a_single_key_of_a_set_counts_for_its_own_key_id_and_for_none() -> None:
    ring = FixedKeys(key_set(jwks(jwk("RSA", "a")), ()))
    assert isinstance(judged(token(key=private_key("RSA"), algorithm="RS256"), method(ring)), Accepted)
    assert "no key" in denied(token(key=private_key("RSA"), algorithm="RS256", kid="b"), method(ring))


def test_a_token_that_names_its_own_keys_is_judged_by_ours() -> None:
    """Headers such as jwk, jku and x5u are never followed."""
    other = private_key("P-256")
    headers: dict[str, object] = {
        "jwk": jwk("P-256"),
        "jku": "http://evil.example/keys",
        "x5u": "http://evil.example/certificate",
    }
    by = method(FixedKeys([pem_key(pem("RSA"), ())]))
    assert "no key" in denied(token({}, other, "ES256", **headers), by)


@pytest.mark.parametrize("headers", [{"crit": ["exp"]}, {"crit": ["b64"], "b64": False}, {"crit": []}, {"crit": "b64"}])
def test_a_token_with_unknown_critical_headers_is_denied(headers: dict[str, object]) -> None:
    import hashlib
    import hmac

    head = unsigned({"alg": "HS256", **headers}, {"sub": "alice", "exp": NOW + 60}).rstrip(b".")
    signature = base64.urlsafe_b64encode(hmac.digest(SECRET, head, hashlib.sha256)).rstrip(b"=")
    assert denied(head + b"." + signature)


def test_a_long_token_is_denied_before_it_is_decoded() -> None:
    fitting = token({"x": "y" * (LONGEST_TOKEN * 3 // 4 - 300)})
    assert len(fitting) <= LONGEST_TOKEN
    assert isinstance(judged(fitting), Accepted)
    assert "more than" in denied(token({"x": "y" * LONGEST_TOKEN}))
    assert "more than" in denied(token(kid="y" * LONGEST_HEADER))


def test_claims_that_are_no_object_are_denied() -> None:
    import jwt

    for payload in (b"[]", b"5", b"[" * 5000, b"\xff", b"", b"{"):
        signed = jwt.api_jws.encode(payload, SECRET, "HS256").encode()
        assert denied(signed) if payload else judged(signed) is IGNORED


def test_an_expired_token_is_denied() -> None:
    assert "has expired" in denied(token({"exp": NOW}))


@pytest.mark.parametrize(
    ("claims", "counts"),
    [({"exp": NOW}, False), ({"nbf": NOW + 60}, False), ({"exp": "soon"}, True), ({"aud": "x"}, True)],
)
def test_only_the_time_of_a_token_is_no_failed_login(claims: dict[str, object], counts: bool) -> None:
    """Its signature must be right: whoever makes up an expired token guesses."""
    verdict = judged(token(claims))
    assert isinstance(verdict, Denied)
    assert verdict.reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert verdict.counts is counts
    forged = judged(token(claims)[:-4] + b"AAAA")
    assert isinstance(forged, Denied)
    assert forged.counts


def test_nothing_of_the_token_is_logged() -> None:
    explanation = denied(token({"sub": "a+b", "mark": "SECRETMARK"}))
    assert "SECRETMARK" not in explanation
    assert "a+b" not in explanation


def test_without_keys_nothing_is_a_failed_login() -> None:
    @attrs.frozen
    class Away:
        def ring(self, kid: str | None) -> NoKeys:
            return NoKeys("the keys are away")

    verdict = judged(token(), method(Away()))
    assert verdict == Denied(ReasonCode.SERVER_UNAVAILABLE, "the keys are away")


def test_a_token_waits_for_its_keys() -> None:
    waiting: Deferred[KeyRing | NoKeys] = Deferred()

    @attrs.frozen
    class Later:
        def ring(self, kid: str | None) -> Deferred[KeyRing | NoKeys]:
            return waiting

    verdict = method(Later()).judge(Credentials("c", "alice", token(), "tls", 5))
    assert isinstance(verdict, Deferred)
    found: list[Verdict] = []
    verdict.addCallback(found.append)
    assert not found
    waiting.callback(SHARED.ring(None))
    assert found == [Accepted("alice", expires_at=NOW + 60)]


def test_a_file_of_keys_is_read_again_after_a_change(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(jwks(jwk("RSA", "old")))
    keys = FileKeys(path, lambda document: key_set(document, ()))
    by = method(keys)
    assert isinstance(judged(token(key=private_key("RSA"), algorithm="RS256", kid="old"), by), Accepted)
    path.write_bytes(jwks(jwk("P-256", "new")))
    assert isinstance(judged(token(key=private_key("P-256"), algorithm="ES256", kid="new"), by), Accepted)
    assert "no key" in denied(token(key=private_key("RSA"), algorithm="RS256", kid="old"), by)


@pytest.mark.parametrize("broken", [b"nothing", None])
def test_a_broken_file_of_keys_leaves_the_keys_before(tmp_path: Path, broken: bytes | None) -> None:
    path = tmp_path / "keys"
    path.write_bytes(jwks(jwk("RSA", "k")))
    by = method(FileKeys(path, lambda document: key_set(document, ())))
    if broken is None:
        path.unlink()
    else:
        path.write_bytes(broken)
    assert isinstance(judged(token(key=private_key("RSA"), algorithm="RS256", kid="k"), by), Accepted)


def test_a_broken_file_of_keys_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(UnusableKey, match="no such file"):
        FileKeys(tmp_path / "none", lambda document: key_set(document, ()))


@given(st.binary(max_size=60) | st.from_regex(rb"[A-Za-z0-9_-]{1,20}\.[A-Za-z0-9_-]{1,20}\.[A-Za-z0-9_-]{0,20}"))
def test_no_invented_password_is_accepted(password: bytes) -> None:
    assert not isinstance(judged(password), Accepted)


@given(st.data())
def test_no_changed_token_is_accepted(data: st.DataObject) -> None:
    good = token()
    position = data.draw(st.integers(0, len(good) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != good[position]))
    assert not isinstance(judged(good[:position] + bytes([other]) + good[position + 1 :]), Accepted)
