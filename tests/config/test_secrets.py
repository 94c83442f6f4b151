"""Secrets stand outside of the configuration, and are never shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.options import InvalidValue
from holdfast.config.secrets import LONGEST, Secret, SecretSource, UnusableSecret


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(b"s3cret\n")
    path.chmod(0o640)
    return path


@pytest.mark.parametrize("text", ["file:secret", "file:/etc/x", "env:TOKEN", "credential:jwt.key"])
def test_a_place_is_read_and_shown_as_it_is_written(text: str) -> None:
    assert str(SecretSource().read(text)) == text


def test_an_empty_string_is_no_secret() -> None:
    assert SecretSource().read("") is None


@given(st.one_of(st.text(), st.integers(), st.binary(), st.lists(st.text()), st.just("file:~/x"), st.just("hunter2")))
def test_a_wrong_value_is_not_shown(value: object) -> None:
    """The operator may have written the secret itself."""
    marked = f"{value}hunter2" if isinstance(value, str) else value
    if isinstance(marked, str) and marked.startswith(("file:", "env:", "credential:")):
        return
    with pytest.raises(InvalidValue) as error:
        SecretSource().read(marked)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("name", ["../etc/shadow", "a/b", ".hidden", ""])
def test_a_credential_is_no_path(name: str) -> None:
    with pytest.raises(InvalidValue):
        SecretSource().read(f"credential:{name}")


def test_the_mark_of_an_editor_is_no_part_of_a_secret(secret_file: Path) -> None:
    secret_file.write_bytes(b"\xef\xbb\xbfs3cret\r\n")
    assert Secret("file", "secret").read(secret_file.parent, {}) == b"s3cret"


def test_an_invisible_character_in_a_secret_is_told_but_not_the_secret(secret_file: Path) -> None:
    secret_file.write_text("s3cret\u200b\n")
    with pytest.raises(UnusableSecret, match=r"U\+200B") as raised:
        Secret("file", "secret").read(secret_file.parent, {})
    assert "s3cret" not in str(raised.value)


def test_a_secret_of_random_bytes_is_taken_as_it_is(secret_file: Path) -> None:
    secret_file.write_bytes(b"\xff\xe2\x80\x8b\x00")
    assert Secret("file", "secret").read(secret_file.parent, {}) == b"\xff\xe2\x80\x8b\x00"


def test_the_three_places(secret_file: Path) -> None:
    folder = secret_file.parent
    environment = {"TOKEN": "s3cret", "CREDENTIALS_DIRECTORY": str(folder)}
    for secret in (Secret("file", "secret"), Secret("env", "TOKEN"), Secret("credential", "secret")):
        assert secret.read(folder, environment) == b"s3cret"


def test_only_the_last_line_break_is_left_out(secret_file: Path) -> None:
    secret_file.write_bytes(b" a\n\nb \r\n")
    assert Secret("file", "secret").read(secret_file.parent, {}) == b" a\n\nb "


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        (Secret("file", "none"), "cannot be read: No such file"),
        (Secret("file", "."), "cannot be read: Is a directory"),
        (Secret("file", "pipe"), "not a regular file"),
        (Secret("file", "open"), "every user of this machine"),
        (Secret("file", "long"), "more than 65536 bytes"),
        (Secret("file", "empty"), "is empty"),
        (Secret("env", "NONE"), "the environment variable NONE is not set"),
        (Secret("env", "EMPTY"), "is empty"),
        (Secret("credential", "x"), "CREDENTIALS_DIRECTORY is not set; it is set for a unit"),
    ],
)
def test_a_secret_that_cannot_be_read_is_an_error(tmp_path: Path, secret: Secret, why: str) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, content, mode in (("open", b"x", 0o644), ("long", b"x" * (LONGEST + 1), 0o600), ("empty", b"\n", 0o600)):
        path = tmp_path / name
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(UnusableSecret, match=why):
        secret.read(tmp_path, {"EMPTY": ""})
