"""Changing the file of users: one line at a time, atomically, without changing other lines."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from holdfast.config import ConfigError
from holdfast.identity.scram import UsersFile, Verifier, remove_user, set_user

ONE = Verifier(4096, bytes(16), bytes(32), bytes(32))
TWO = Verifier(5000, bytes(16), bytes(32), bytes(32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.scram"


def test_only_the_owner_can_use_a_new_file(path: Path) -> None:
    assert not set_user(path, "alice", ONE)
    assert path.read_text() == f"alice:{ONE}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_all_other_lines_of_the_file_stay(path: Path) -> None:
    path.write_text(f"# staff\n\nalice:{ONE}\r\n \u00aalbert:{ONE}\nbob:{ONE}")
    assert set_user(path, "albert", TWO)
    assert not set_user(path, "zoe", TWO)
    assert remove_user(path, "alice")
    assert not remove_user(path, "alice")
    assert path.read_bytes() == f"# staff\n\nalbert:{TWO}\nbob:{ONE}\nzoe:{TWO}\n".encode()


def test_removing_does_not_make_a_file(path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        remove_user(path, "alice")
    assert not path.exists()


def test_a_file_with_mistakes_is_not_changed(path: Path) -> None:
    path.write_text("alice\nbob\n")
    for change in (partial(set_user, path, "zoe", ONE), partial(remove_user, path, "alice")):
        with pytest.raises(ConfigError, match=rf"{path}:1: .*\n{path}:2: "):
            change()
    assert path.read_text() == "alice\nbob\n"


def test_a_rewritten_file_keeps_reading_by_its_group_but_not_by_others(path: Path) -> None:
    path.touch()
    path.chmod(0o664)
    set_user(path, "alice", ONE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_keeps_its_owner(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The superuser changes the file of the broker's user."""
    path.touch()
    given: list[tuple[int, int]] = []
    actual = os.fstat
    monkeypatch.setattr(os, "fstat", lambda fd: os.stat_result((actual(fd).st_mode, 0, 0, 0, 1234, 5678, 0, 0, 0, 0)))
    monkeypatch.setattr(os, "fchown", lambda _fd, uid, gid: given.append((uid, gid)))
    set_user(path, "alice", ONE)
    assert given == [(path.stat().st_uid, path.stat().st_gid)]


def test_a_file_that_root_creates_belongs_to_the_owner_of_its_folder(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the broker can read the file that root made in the broker's folder."""
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda _fd, uid, gid: given.append((uid, gid)))
    set_user(path, "alice", ONE)
    assert given == [(path.parent.stat().st_uid, path.parent.stat().st_gid)]


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "users"
    path.symlink_to(target)
    set_user(path, "alice", ONE)
    assert path.is_symlink()
    assert target.read_text() == f"alice:{ONE}\n"


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    set_user(path, "alice", ONE)

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(ConfigError) as caught:
            set_user(path, "bob", ONE)
    assert str(caught.value) == f"{path}: cannot be written: No space left on device"
    assert list(UsersFile(path).users()) == ["alice"]
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_folder_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        set_user(tmp_path / "gone" / "users", "alice", ONE)


def test_concurrent_commands_lose_no_user(path: Path) -> None:
    command = (
        "import sys; from pathlib import Path; from holdfast.identity.scram import set_user;"
        "from holdfast.identity.scram import Verifier;"
        "[set_user(Path(sys.argv[1]), sys.argv[2] + str(n), Verifier(4096, bytes(16), bytes(32), bytes(32)))"
        " for n in range(20)]"
    )
    running = [subprocess.Popen([sys.executable, "-c", command, str(path), name]) for name in "abcd"]
    assert [process.wait(60) for process in running] == [0] * 4
    assert len(UsersFile(path).users()) == 80
