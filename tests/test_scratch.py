"""The files of the tests go to memory, where it has room and is not refused."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests import scratch
from tests.scratch import use_memory


@pytest.fixture(autouse=True)
def _unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "")  # restored at the end
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    monkeypatch.setattr(scratch, "_ROOM", 0)


def test_temporary_files_are_in_a_new_folder(tmp_path: Path) -> None:
    """Also those of processes that a test starts."""
    use_memory(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(folder)


def test_a_folder_that_the_user_names_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example to keep the files on a disk."""
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    use_memory(tmp_path)
    assert os.environ["TMPDIR"] == "/var/tmp"
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a system without such a folder an error."""
    monkeypatch.setattr(scratch, "_ROOM", 1 << 62)
    use_memory(tmp_path)
    use_memory(tmp_path / "missing")
    assert "TMPDIR" not in os.environ
    assert list(tmp_path.iterdir()) == []


def test_folders_of_ended_runs_are_removed(tmp_path: Path) -> None:
    """Those of runs that go on stay."""
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    left, going = tmp_path / f"hf-{ended.pid}", tmp_path / f"hf-{os.getppid()}"
    for folder in (left, going):
        folder.mkdir()
        (folder / "file").touch()
    use_memory(tmp_path)
    assert not left.exists()
    assert (going / "file").exists()
