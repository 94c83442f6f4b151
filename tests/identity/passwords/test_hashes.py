"""Hashes of passwords: our own, those of mosquitto and of bcrypt, and what a file may not ask of the broker."""

from __future__ import annotations

import hashlib
import subprocess
from base64 import b64encode
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.identity.hashes import HashParameters, checked, is_weaker, kind, new_hash, nobodys_hash, read, verify
from holdfast.identity.user_files import InvalidUser

CHEAP = HashParameters(64, 1)


def mosquitto_hash(path: Path, *options: str, password: str = "pa:ss w\u00f6rd") -> str:
    """Return the hash that mosquitto_passwd itself makes."""
    subprocess.run(["mosquitto_passwd", *options, "-c", "-b", str(path), "alice", password], check=True)
    return read(path)[0]["alice"]


@pytest.mark.parametrize("options", [(), ("-H", "sha512"), ("-H", "sha512-pbkdf2")])
def test_files_of_mosquitto_can_be_used_as_they_are(tmp_path: Path, options: tuple[str, ...]) -> None:
    stored = mosquitto_hash(tmp_path / "passwords", *options)
    assert checked(stored) == stored
    assert verify(stored, "pa:ss w\u00f6rd".encode())
    assert not verify(stored, b"pass")
    assert is_weaker(stored, HashParameters())


@settings(max_examples=20, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_hash_verifies_its_password_and_no_other(password: bytes, other: bytes) -> None:
    stored = new_hash(password, CHEAP)
    assert checked(stored) == stored
    assert verify(stored, password)
    assert verify(stored, other) is (password == other)
    assert new_hash(password, CHEAP) != stored


def test_bcrypt_counts_the_first_72_bytes_as_it_always_did() -> None:
    stored = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    assert checked(stored) == stored
    assert verify(stored, b"x" * 72)
    assert verify(stored, b"x" * 100)
    assert not verify(stored, b"x" * 71)
    assert not verify(stored, b"")
    assert is_weaker(stored, CHEAP)


def test_only_weaker_hashes_are_replaced() -> None:
    stored = new_hash(b"x", HashParameters(128, 2))
    assert is_weaker(stored, HashParameters(256, 2))
    assert not is_weaker(stored, HashParameters(128, 2))
    assert not is_weaker(stored, CHEAP)


def test_nobodys_hash_is_of_the_same_work_and_has_no_password() -> None:
    stored = nobodys_hash(CHEAP)
    assert checked(stored) == stored
    assert not is_weaker(stored, CHEAP)
    assert not verify(stored, b"")


def test_the_kind_of_a_hash_shows_its_work_and_no_secret(tmp_path: Path) -> None:
    assert kind(new_hash(b"x", CHEAP)) == "argon2id, m 64, t 1, p 1"
    assert kind(mosquitto_hash(tmp_path / "passwords")) == "PBKDF2-SHA512, iterations 101"


SALT, LONG = "c2FsdHNhbHRzYWx0c2E", b64encode(bytes(64)).decode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found no hash of a password after the name"),
        ("secret", "found no hash of a password after the name"),
        ("$5$abc$def", "found no hash of a password after the name"),
        ("$argon2i$v=19$m=64,t=1,p=1$" + SALT + "$" + SALT, "found no hash of a password after the name"),
        (f"$argon2id$v=19$m=2000000,t=1,p=1${SALT}${SALT}", "asks for a memory (m, KiB) of 2000000; allowed: 8 to 104"),
        (f"$argon2id$v=19$m=64,t=101,p=1${SALT}${SALT}", "asks for a number of passes (t) of 101; allowed: 1 to 100"),
        (f"$argon2id$v=19$m=64,t=1,p=0${SALT}${SALT}", "asks for a number of lanes (p) of 0; allowed: 1 to 16"),
        (f"$argon2id$v=19$m=64,t=1,p=1$c2E${SALT}", "the salt has 2 bytes; allowed: 8 to 128"),
        (f"$argon2id$v=19$m=64,t=1,p=1$ccccc${SALT}", "invalid base64"),
        (f"$7$100000000$c2FsdA==${LONG}", "asks for a number of iterations of 100000000; allowed: 1 to 10000000"),
        ("$7$101$c2FsdA==$c2hvcnQ=", "the hash has another length"),
        ("$6$c2FsdA==$c2hvcnQ=", "the hash has another length"),
        (f"$6$c2Fsd===${LONG}", "found no hash"),
        ("$2b$31$" + "a" * 21 + "O" + "a" * 31, "asks for a cost of 31; allowed: 4 to 17"),
        ("$2b$12$" + "a" * 52, "found no hash"),
        ("$2b$12$" + "a" * 53, "found no hash"),  # bits of the salt are left over
        (f"$argon2id$v=19$m=64,t=1,p=1${SALT[:-1]}F${SALT}", "invalid base64"),  # as here
        (f"$argon2id$v=19$m=31,t=1,p=4${SALT}${SALT}", "less memory (m) than 8 KiB for each lane"),
    ],
)
def test_a_hash_that_cannot_be_verified_or_costs_too_much_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidUser) as caught:
        checked(text)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_salted_hash_of_mosquitto_is_one_sha512_of_password_and_salt() -> None:
    stored = f"$6${b64encode(b'salt').decode()}${b64encode(hashlib.sha512(b'pwsalt').digest()).decode()}"
    assert verify(checked(stored), b"pw")
