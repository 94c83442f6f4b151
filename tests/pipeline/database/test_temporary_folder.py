"""Temporary folders are removed at the end, also after a kill."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest

from holdfast_pipeline import snapshot_of
from holdfast_pipeline.database import Source, remove_abandoned, temporary_folder
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.columns import RETAINED, named, struct_of
from holdfast_pipeline.sources.retained import RetainedSource
from holdfast_pipeline.sources.tables import read_here
from tests.pipeline.stores import database, message


def left_behind(parent: Path) -> Path:
    """Make the folder of a killed run: its lock is free."""
    with temporary_folder(str(parent)) as folder:
        copy = {each.name: each.read_bytes() for each in folder.iterdir()}
    folder.mkdir()
    for name, content in copy.items():
        (folder / name).write_bytes(content)
    (folder / "retained.db").write_bytes(b"a copy")
    (folder / "spark").mkdir()
    (folder / "spark" / "file").write_bytes(b"x")
    return folder


def test_a_folder_is_removed_at_the_end(tmp_path: Path) -> None:
    """With its files."""
    with temporary_folder(str(tmp_path)) as folder:
        (folder / "file").write_text("x")
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_folders_of_killed_runs_are_removed_and_others_stay(tmp_path: Path) -> None:
    """The next run in the same parent folder removes them."""
    dead, other = left_behind(tmp_path), tmp_path / "holdfast-other"
    other.mkdir()
    with temporary_folder(str(tmp_path)) as living:
        assert not dead.exists()
        with temporary_folder(str(tmp_path)):
            assert living.exists()
        remove_abandoned(tmp_path)
        assert living.exists()
    assert list(tmp_path.iterdir()) == [other]


def test_new_folders_and_symbolic_links_are_not_removed(tmp_path: Path) -> None:
    """A new folder has no lock yet."""
    dead = left_behind(tmp_path)
    kept = tmp_path / "elsewhere"
    dead.rename(kept)
    (tmp_path / "holdfast-snapshot-link").symlink_to(kept)
    (tmp_path / "holdfast-snapshot-new").mkdir()
    remove_abandoned(tmp_path)
    assert (kept / "retained.db").exists()
    assert (tmp_path / "holdfast-snapshot-new").exists()


def test_files_without_enough_space_are_reported_and_removed(tmp_path: Path) -> None:
    """The message names the folder and the option: for the rows of the database, and for a copy of it."""
    with database("sqlite", tmp_path) as filled:
        filled.put(*(message(f"t/{number}", os.urandom(5000)) for number in range(40)))
        (tmp_path / "copies").mkdir()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        try:
            with snapshot_of(filled.url, None, str(tmp_path / "copies")) as snapshot:
                source = snapshot.source
                assert isinstance(source, Source)
                assert source.held is not None
                payloads = named(RETAINED, ["payload"])
                reader: Any = RetainedSource({"storage": filled.url}).reader(struct_of(payloads))
                reader.source = source
                with pytest.raises(PipelineError, match=r"copies/.*: the rows .* cannot be written .*--snapshot-dir"):
                    read_here(reader, payloads, None, source.held.folder, most_rows=0)
                with pytest.raises(PipelineError, match=r"copies/.*: the copy .* failed .*--snapshot-dir"):
                    snapshot.options  # noqa: B018 - makes the copy
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert list((tmp_path / "copies").iterdir()) == []
        with (
            pytest.raises(PipelineError, match="nowhere: no folder can be made there"),
            snapshot_of(filled.url, None, str(tmp_path / "nowhere")),
        ):
            raise AssertionError("there was a folder")
