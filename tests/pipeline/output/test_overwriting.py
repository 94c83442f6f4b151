"""Jobs overwrite only their own output."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_pipeline.cli.root import main
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.overwriting import (
    begin_overwriting,
    require_archive_target,
    require_compaction_target,
    require_overwritable,
    require_replaceable,
)
from holdfast_pipeline.spark import SparkProcess
from tests.storage.doubles import fresh_file

TABLE = partial(require_overwritable, overwrite=True)
CHECKS: tuple[Callable[[Folder], None], ...] = (TABLE, require_archive_target, require_compaction_target)


def filled(folder: Path, *files: str) -> Folder:
    """Put empty files into a folder."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return Folder(str(folder))


@pytest.mark.parametrize("check", CHECKS)
def test_foreign_files_stay(tmp_path: Path, check: Callable[[Folder], None]) -> None:
    """For example the database in ``data`` of a broker's folder."""
    out = filled(tmp_path, "data/holdfast.db", "data/.hidden")
    with pytest.raises(PipelineError, match=r"data: contains holdfast\.db, which would be lost .* name another folder"):
        check(out)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".hidden", "data", "holdfast.db"]


@pytest.mark.parametrize("check", CHECKS)
def test_an_empty_or_missing_folder_is_accepted(tmp_path: Path, check: Callable[[Folder], None]) -> None:
    (tmp_path / "empty/data").mkdir(parents=True)
    for name in ("empty", "new/below"):
        check(Folder(str(tmp_path / name)))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("check", CHECKS)
def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path, check: Callable[[Folder], None]) -> None:
    """Before anything is read for it."""
    out = Folder(str(tmp_path / "file" / "below"))
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match=r"file/below: cannot be used \(Not a directory\)$"):
        check(out)


def test_a_table_replaces_an_incomplete_table_and_with_overwrite_a_complete_one(tmp_path: Path) -> None:
    """The manifest is removed until the new table is complete."""
    out = filled(
        tmp_path, "data/part-0.parquet", "data/.part-0.parquet.crc", "data/_temporary/0/x", "data/_delta_log/0"
    )
    require_overwritable(out, False)
    filled(tmp_path, "manifest.json")
    with pytest.raises(PipelineError, match="holds a complete export; name another folder, or use --overwrite"):
        require_overwritable(out, False, "export")
    require_overwritable(out, True)
    assert out.has("manifest.json")
    begin_overwriting(out, True)
    assert not out.has("manifest.json")


@pytest.mark.parametrize("file", ["archive.json", "checkpoint/commits/0"])
def test_no_table_replaces_an_archive(tmp_path: Path, file: str) -> None:
    """Whether it is complete, incomplete or compacted: the database may have forgotten that history."""
    with pytest.raises(PipelineError, match="holds an archive of a history; name another folder"):
        require_overwritable(filled(tmp_path, file), True)


def test_an_archive_is_continued_but_not_started_in_a_compacted_one(tmp_path: Path) -> None:
    require_archive_target(filled(tmp_path / "begun", "checkpoint/metadata", "data/date=2026-11-21/part-0.parquet"))
    with pytest.raises(PipelineError, match="holds a compacted archive"):
        require_archive_target(filled(tmp_path / "done", "archive.json", "data/date=2026-11-21/part-0.parquet"))


def test_days_are_compacted_beside_others_and_not_into_an_archive(tmp_path: Path) -> None:
    require_compaction_target(filled(tmp_path / "cut", "data/date=2026-11-21/part-0.parquet", "data/_temporary/0"))
    require_compaction_target(filled(tmp_path / "done", "archive.json", "data/date=2026-11-21/part-0.parquet"))
    with pytest.raises(PipelineError, match="is an archive, to which archive adds"):
        require_compaction_target(filled(tmp_path / "bronze", "archive.json", "checkpoint/commits/0"))


def test_an_audit_replaces_only_its_own_subfolder(tmp_path: Path) -> None:
    """The folder may be that of an export, which stays complete."""
    out = filled(tmp_path, "manifest.json", "data/part-0.parquet", "differences/part-0.json")
    require_replaceable(out, "differences")
    assert out.has("manifest.json")
    with pytest.raises(PipelineError, match="differences: contains mine"):
        require_replaceable(filled(tmp_path, "differences/mine"), "differences")


def test_an_empty_folder_name_is_refused() -> None:
    """It may come from an unset variable, and would mean the current folder."""
    for name in ("", " "):
        with pytest.raises(PipelineError, match="this name is empty"):
            Folder(name)


@pytest.mark.parametrize(
    ("command", "status", "told"),
    [
        ("export --out OUT --filter a/#/b", 2, "'#' stands alone in the last level"),
        ("export --out OUT --filter $share/g/a", 2, "is a shared subscription, not a Topic Filter; write 'a'"),
        ("export --out FILE/below", 1, "FILE/below: cannot be used (Not a directory)"),
        ("asof noon --out OUT", 2, "'noon' is not a time"),
        ("asof 1h --archive OUT --out OUT", 2, "name either an archive (--archive) or a database"),
        ("audit --out FILE", 1, "FILE: is a file; name a folder"),
        ("tree --out FILE", 1, "FILE: is a file; name a folder"),
        ("filters --filters OUT", 1, "the Topic Filters cannot be read"),
        ("filters", 2, "name the Topic Filters"),
        ("report --out OUT --stale never", 2, "stale: found 'never'"),
        ("report --out FILE", 1, "FILE: is a file; name a folder"),
        ("decode --out OUT --format nothing", 2, "there is no format 'nothing'"),
        ("decode --out OUT --format json", 2, "say which topics to decode by a pattern"),
        ("import OUT/nothing --format ndjson", 1, "there is no such file or folder"),
        ("import FILE --format ndjson --rejects FILE", 1, "FILE: is a file; name a folder"),
        ("archive --out FILE", 1, "FILE: is a file; name a folder"),
    ],
)
def test_checks_without_spark_come_before_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, status: int, told: str
) -> None:
    """A start takes seconds, and a copy of the database perhaps minutes."""

    def started(*_arguments: object) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(SparkProcess, "start", started)
    url = f"sqlite:///{fresh_file(tmp_path)}"
    (tmp_path / "OUT").mkdir()
    (tmp_path / "FILE").touch()
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*command.split(), "--storage", url])
    assert (result.exit_code, result.stdout) == (status, "")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["export", "tree", "audit", "report", "filters", "archive", "asof"])
def test_a_missing_database_is_reported_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(SparkProcess, "start", None)
    more = {"filters": ["--filter", "#"], "asof": ["1h"]}.get(name, [])
    out = ["--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, [name, *more, *out, "--storage", f"sqlite:///{tmp_path}/none.db"])
    assert result.exit_code == 1
    assert "none.db: there is no such file" in result.stderr
