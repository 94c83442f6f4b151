"""Staging areas: the broker that merges an import can read the files of the import."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.retained.staging import staging_area_for


def test_the_broker_s_user_can_read_what_root_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator runs `holdfast retainer import` as root; the broker runs as a user of its own."""
    owners: dict[str, tuple[int, int]] = {}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda path, user, group: owners.update({path.name: (user, group)}))
    area = staging_area_for(f"sqlite:///{tmp_path / 'holdfast.db'}", "job")
    area.open()
    area.put(0, [])
    (file,) = map(Path, area.prepare_merge([0])["files"])
    broker = (tmp_path.stat().st_uid, tmp_path.stat().st_gid)
    assert owners == {"staging": broker, file.parent.name: broker, "0.partial": broker}


def test_a_staging_area_leaves_nothing_behind(tmp_path: Path) -> None:
    area = staging_area_for(f"sqlite:///{tmp_path / 'holdfast.db'}", "job")
    area.open()
    area.put(0, [])
    area.drop()
    assert list((tmp_path / "staging").iterdir()) == []
