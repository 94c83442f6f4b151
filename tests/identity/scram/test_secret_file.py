"""A persistent secret is made once, and only the broker's user can read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.config import ConfigError
from holdfast.identity.scram import persistent_secret


def test_a_secret_is_made_once_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "data" / "secret"
    made = persistent_secret(path)
    assert len(made) == 64
    assert persistent_secret(path) == made == path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]
    assert persistent_secret(tmp_path / "other") != made


def test_of_two_processes_the_faster_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    link = os.link

    def late(source: str, target: Path) -> None:
        target.write_bytes(b"x" * 64)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert persistent_secret(path) == b"x" * 64
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_secret_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"short")
    with pytest.raises(ConfigError) as caught:
        persistent_secret(path)
    assert str(caught.value) == f"{path}: has 5 bytes instead of 64; remove the file, and the broker makes a new one"


def test_a_folder_that_cannot_be_made_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(ConfigError) as caught:
        persistent_secret(tmp_path / "data" / "secret")
    assert str(caught.value).startswith(f"{tmp_path}/data/secret: cannot be made: ")
