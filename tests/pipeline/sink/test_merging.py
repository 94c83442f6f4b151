"""The database that an import is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_pipeline.sink import Target


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target(None, "own.toml"), ("None", "{folder}/own.toml")),
        (Target(None, "/etc/own.toml"), ("None", "/etc/own.toml")),
        (Target("sqlite:///data/holdfast.db", None), ("sqlite:///{folder}/data/holdfast.db", "None")),
        (Target("postgresql+psycopg://host/name", None), ("postgresql+psycopg://host/name", "None")),
    ],
)
def test_a_target_for_processes_with_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Target, expected: tuple[str, str]
) -> None:
    """Spark's Python processes beside a server are not in the user's folder."""
    monkeypatch.chdir(tmp_path)
    found = target.anywhere()
    assert (str(found.storage), str(found.config)) == tuple(each.format(folder=tmp_path) for each in expected)
