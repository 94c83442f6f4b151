"""``holdfast passwd``: adds, replaces, removes, verifies and lists users; no password is ever shown or an argument."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import main
from holdfast.config import ConfigError
from holdfast.identity.hashes import read, verify


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "passwords"


def run(*arguments: str | Path, typed: str | bytes = "") -> Result:
    return CliRunner().invoke(main, ["passwd", *map(str, arguments)], input=typed)


def test_a_user_is_added_and_gets_another_password(path: Path) -> None:
    result = run("add", path, "alice", typed="wonderland\nnot this\n")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{path}: alice was added\n", "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert verify(read(path)[0]["alice"], b"wonderland")
    result = run("add", path, "alice", "--json", typed="looking glass\r\n")
    assert json.loads(result.stdout) == {"file": str(path), "username": "alice", "added": False}
    assert list(read(path)[0]) == ["alice"]
    assert verify(read(path)[0]["alice"], b"looking glass")


def test_a_file_that_an_editor_has_marked_can_be_read_and_changed(path: Path) -> None:
    run("add", path, "alice", typed="\ufeffwonderland\r\n")
    assert verify(read(path)[0]["alice"], b"wonderland")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert list(read(path)[0]) == ["alice"]
    run("add", path, "bob", typed="builder\n")
    assert run("remove", path, "alice").exit_code == 0
    assert list(read(path)[0]) == ["bob"]


def test_an_invisible_character_in_a_name_is_refused(path: Path) -> None:
    result = run("add", path, "al\u200bice", typed="wonderland\n")
    assert result.exit_code == 2
    assert "U+200B" in result.stderr
    assert not path.exists()
    run("add", path, "alice", typed="wonderland\n")
    path.write_text(path.read_text() + path.read_text().replace("alice", "bo\u2060b"))
    with pytest.raises(ConfigError) as caught:
        read(path)
    [problem] = caught.value.problems
    assert (problem.line, "U+2060" in problem.message) == (2, True)


def test_on_a_terminal_the_password_is_asked_for_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.commands.passwd.is_terminal", lambda: True)
    result = run("add", path, "alice", typed="secret\nsecert\nsecret\nsecret\n")
    assert result.exit_code == 0
    assert "do not match" in result.output
    assert "secret" not in result.output
    assert verify(read(path)[0]["alice"], b"secret")


def test_a_password_is_right_or_wrong(path: Path) -> None:
    run("add", path, "alice", typed="wonderland")
    for user, typed, status, answer in (
        ("alice", "wonderland\n", 0, f"{path}: the password of alice is right\n"),
        ("alice", "other\n", 3, f"{path}: the password of alice is wrong\n"),
        ("bob", "wonderland\n", 3, f"{path}: there is no user bob\n"),
    ):
        result = run("verify", path, user, typed=typed)
        assert (result.exit_code, result.output) == (status, answer)
    found = json.loads(run("verify", path, "bob", "--json", typed="x").stdout)
    assert (found["known"], found["right"]) == (False, False)


def test_users_are_listed_and_removed(path: Path) -> None:
    subprocess.run(["mosquitto_passwd", "-c", "-b", str(path), "bob", "x"], check=True)
    run("add", path, "alice", typed="x")
    result = run("list", path)
    assert result.stdout == "alice  (argon2id, m 19456, t 2, p 1)\nbob  (PBKDF2-SHA512, iterations 101)\n"
    assert run("remove", path, "bob").stdout == f"{path}: bob was removed\n"
    assert json.loads(run("list", path, "--json").stdout) == {
        "username": "alice",
        "hash": "argon2id, m 19456, t 2, p 1",
    }
    result = run("remove", path, "bob")
    assert (result.exit_code, result.stderr) == (1, f"{path}: there is no user bob\n")


@pytest.mark.parametrize(
    ("user", "message"), [("", "at least one"), ("a:b", "no colon"), ("#a", "no #"), ("a\nb", "no control")]
)
def test_names_that_no_user_can_have(path: Path, user: str, message: str) -> None:
    result = run("add", path, user, typed="x")
    assert result.exit_code == 2
    assert message in result.stderr
    assert not path.exists()


@pytest.mark.parametrize(
    ("typed", "message"),
    [("", "at least one character"), ("\n", "at least one character"), ("x" * 65536, "at most 65535 bytes")],
)
def test_passwords_that_nobody_can_use(path: Path, typed: str, message: str) -> None:
    result = run("add", path, "alice", typed=typed)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not path.exists()


def test_a_file_with_mistakes_is_not_changed(path: Path) -> None:
    path.write_text("alice:plain\n")
    result = run("add", path, "bob", typed="x")
    assert result.exit_code == 1
    assert f"{path}:1: found no hash of a password after the name" in result.stderr
    assert path.read_text() == "alice:plain\n"
