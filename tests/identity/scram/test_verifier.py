"""Verifiers: making them from passwords, writing, reading, and refusing invalid ones."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from holdfast.identity.scram import Verifier, new_verifier, parsed, prepared
from holdfast.identity.user_files import InvalidUser

KEY = base64.b64encode(bytes(32)).decode()
SALT = base64.b64encode(bytes(16)).decode()
RIGHT = f"SCRAM-SHA-256$4096:{SALT}${KEY}:{KEY}"


def test_a_written_verifier_is_read_unchanged() -> None:
    verifier = Verifier(4096, bytes(16), bytes(32), bytes(32))
    assert str(verifier) == RIGHT
    assert parsed(RIGHT) == verifier


def test_the_representation_has_no_secrets() -> None:
    assert KEY not in repr(parsed(RIGHT))


def test_a_new_verifier_follows_rfc_5802() -> None:
    verifier = new_verifier("pencil", 5000)
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", verifier.salt, 5000)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert (verifier.iterations, len(verifier.salt)) == (5000, 16)
    assert verifier.stored_key == hashlib.sha256(client_key).digest()
    assert verifier.server_key == hmac.digest(salted, b"Server Key", "sha256")
    assert new_verifier("pencil", 5000).salt != verifier.salt


def test_a_password_is_prepared() -> None:
    """Other spaces and composed characters count as their plain forms [RFC 4013]."""
    verifier = new_verifier("\u00a0\u2168\u00ad", 4096)
    salted = hashlib.pbkdf2_hmac("sha256", b" IX", verifier.salt, 4096)
    assert verifier.server_key == hmac.digest(salted, b"Server Key", "sha256")


@pytest.mark.parametrize(
    ("password", "message"),
    [
        ("", "a password has at least one character"),
        ("\u00ad", "a password has at least one character"),
        ("a\x00b", "this password has characters that SASLprep (RFC 4013) does not allow: control"),
        ("\ue000", "this password has characters that SASLprep (RFC 4013) does not allow: private use"),
        ("\u0627a", "this password has characters that SASLprep (RFC 4013) does not allow: malformed bidi"),
    ],
)
def test_a_password_that_cannot_be_prepared(password: str, message: str) -> None:
    with pytest.raises(InvalidUser) as caught:
        new_verifier(password, 4096)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "same"), [("user", "user"), ("a b", "a b"), ("\u00aa", "a"), ("I\u00adX", "IX"), ("e\u0301", "\u00e9")]
)
def test_a_user_name_is_prepared(name: str, same: str) -> None:
    assert prepared(name) == same
    assert prepared(same) == same


@pytest.mark.parametrize("name", ["", " a", "a ", "#a", "a:b", "a\nb", "a\x7f", "\x85", "\ufe55", "\u00ad", "\ue000"])
def test_a_user_name_the_file_cannot_hold(name: str) -> None:
    """Also a name that becomes invalid by its preparation."""
    with pytest.raises(InvalidUser):
        prepared(name)


def test_a_user_name_has_a_limit() -> None:
    assert prepared("\u00e9" * 127)
    with pytest.raises(InvalidUser, match="at most 255 bytes"):
        prepared("\u00e9" * 128)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            "found no SCRAM-SHA-256 verifier after the name; allowed: NAME:SCRAM-",
        ),
        ("pencil", "found no SCRAM-SHA-256 verifier"),
        (RIGHT.replace("256", "1"), "found no SCRAM-SHA-256 verifier"),
        (f"{RIGHT} ", "found no SCRAM-SHA-256 verifier"),
        (RIGHT.replace("4096", "4095"), "found 4095 iterations; allowed: 4096 to 10000000"),
        (RIGHT.replace("4096", "10000001"), "found 10000001 iterations; allowed: 4096 to 10000000"),
        (RIGHT.replace("4096", "9" * 10), "found no SCRAM-SHA-256 verifier"),
        (RIGHT.replace(SALT, "A" * 9), "found invalid base64"),
        (RIGHT.replace(SALT, "AAAA"), "found a salt of 3 bytes; allowed: 12 to 64, in base64"),
        (RIGHT.replace(SALT, "A" * 88), "found a salt of 66 bytes; allowed: 12 to 64, in base64"),
        (RIGHT[:-4], "found a key of another length; allowed: keys of 32 bytes"),
    ],
)
def test_an_invalid_verifier_is_refused_without_being_shown(text: str, message: str) -> None:
    with pytest.raises(InvalidUser) as caught:
        parsed(text)
    assert str(caught.value).startswith(message)
    assert "pencil" not in str(caught.value)
