"""``holdfast scram``: adds, changes and removes users, and reports this."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import main
from holdfast.identity.scram import UsersFile, Verifier
from tests.identity.scram.test_mechanism import keys


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.scram"


def run(*arguments: str | Path, typed: str | bytes = "") -> Result:
    return CliRunner().invoke(main, ["scram", *map(str, arguments)], input=typed)


def set_user(path: Path, name: str, password: str | bytes) -> Result:
    return run("set", path, name, "--password-stdin", "--iterations", "4096", typed=password)


def knows(path: Path, name: str, password: bytes) -> bool:
    verifier: Verifier = UsersFile(path).users()[name]
    return keys(password, verifier.salt, verifier.iterations)[1] == verifier.server_key


def test_a_user_is_added_and_gets_another_password(path: Path) -> None:
    result = set_user(path, "alice", "pencil\n")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{path}: alice was added\n", "")
    assert knows(path, "alice", b"pencil")
    result = set_user(path, "alice", "eraser")
    assert (result.exit_code, result.stdout) == (0, f"{path}: alice has a new password\n")
    assert knows(path, "alice", b"eraser")


@pytest.mark.parametrize("typed", ["pencil\n", "pencil\r\n", "pencil", "pencil\nnot this\n"])
def test_a_password_of_standard_input_ends_with_its_line(path: Path, typed: str) -> None:
    set_user(path, "alice", typed)
    assert knows(path, "alice", b"pencil")


def test_without_a_terminal_the_password_is_a_line_and_nobody_is_asked(path: Path) -> None:
    result = run("set", path, "alice", "--iterations", "4096", typed="pencil\nnot this\n")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{path}: alice was added\n", "")
    assert knows(path, "alice", b"pencil")


def test_the_mark_of_an_editor_is_no_part_of_a_password(path: Path) -> None:
    set_user(path, "alice", "\ufeffpencil\r\n")
    assert knows(path, "alice", b"pencil")


def test_a_password_is_asked_for_twice_and_not_shown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.commands.passwd.is_terminal", lambda: True)
    result = run("set", path, "alice", "--iterations", "4096", typed="pencil\npencli\npencil\npencil\n")
    assert result.exit_code == 0
    assert "pencil" not in result.output
    assert "do not match" in result.output
    assert knows(path, "alice", b"pencil")


def test_the_default_of_iterations_is_15000(path: Path) -> None:
    run("set", path, "alice", "--password-stdin", typed="pencil")
    assert UsersFile(path).users()["alice"].iterations == 15000


@pytest.mark.parametrize("iterations", ["4095", "10000001", "many"])
def test_iterations_have_limits(path: Path, iterations: str) -> None:
    result = run("set", path, "alice", "--password-stdin", "--iterations", iterations, typed="pencil")
    assert result.exit_code == 2
    assert not path.exists()


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (b"", "a password has at least one character\n"),
        (b"\n", "a password has at least one character\n"),
        (b"\xff\n", "the password is not UTF-8\n"),
        (b"a\x07\n", "this password has characters that SASLprep (RFC 4013) does not allow"),
    ],
)
def test_an_unusable_password_is_refused(path: Path, typed: bytes, message: str) -> None:
    result = set_user(path, "alice", typed)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(message)
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "a:b", "#a", " a"])
def test_an_unusable_user_name_is_refused(path: Path, name: str) -> None:
    result = set_user(path, name, "pencil")
    assert result.exit_code == 2
    assert "a user name has" in result.stderr


def test_a_user_is_removed(path: Path) -> None:
    set_user(path, "alice", "pencil")
    result = run("remove", path, "alice")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{path}: alice was removed\n", "")
    result = run("remove", path, "alice")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"{path}: there is no user alice\n")


def test_a_name_is_found_in_any_unicode_form(path: Path) -> None:
    set_user(path, "\u00e9", "pencil")
    assert run("remove", path, "e\u0301").exit_code == 0


@pytest.mark.parametrize("command", [("set", "--password-stdin"), ("remove",)])
def test_a_file_with_mistakes_is_refused_and_unchanged(path: Path, command: tuple[str, ...]) -> None:
    path.write_text("nonsense\n")
    result = run(command[0], path, "alice", *command[1:], typed="pencil")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"{path}:1: found no SCRAM-SHA-256 verifier")
    assert path.read_text() == "nonsense\n"
