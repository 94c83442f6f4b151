"""The database that a user names."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_pipeline.database import url_of


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_usual_ways_to_write_postgres_mean_the_same(scheme: str) -> None:
    """A lake knows its database by this URL."""
    assert url_of(f"{scheme}://me:secret@host/holdfast", None) == "postgresql+psycopg://me:secret@host/holdfast"


def test_a_relative_file_gets_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors have other working directories."""
    monkeypatch.chdir(tmp_path)
    assert url_of("sqlite:///a.db", None) == f"sqlite:///{tmp_path}/a.db"
