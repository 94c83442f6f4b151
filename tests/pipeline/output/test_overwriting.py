"""Jobs overwrite only their own output."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_pipeline.cli.root import main
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import (
    Folder,
    begin_overwriting,
    require_overwritable,
)
from holdfast_pipeline.spark import SparkProcess
from tests.storage.doubles import fresh_file


def filled(folder: Path, *files: str) -> Folder:
    """Put empty files into a folder."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return Folder(str(folder))


def test_foreign_files_stay(tmp_path: Path) -> None:
    """For example the database in ``data`` of a broker's folder."""
    out = filled(tmp_path, "data/holdfast.db", "data/.hidden")
    with pytest.raises(PipelineError, match=r"data: contains holdfast\.db, which would be lost .* name another folder"):
        require_overwritable(out, True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".hidden", "data", "holdfast.db"]


def test_an_empty_or_missing_folder_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "empty/data").mkdir(parents=True)
    for name in ("empty", "new/below"):
        require_overwritable(Folder(str(tmp_path / name)), True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    """Before anything is read for it."""
    out = Folder(str(tmp_path / "file" / "below"))
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match=r"file/below: cannot be used \(Not a directory\)$"):
        require_overwritable(out, True)


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


def test_an_empty_folder_name_is_refused() -> None:
    """It may come from an unset variable, and would mean the current folder."""
    for name in ("", " "):
        with pytest.raises(PipelineError, match="this name is empty"):
            Folder(name)


@pytest.mark.parametrize(
    ("command", "status", "told"),
    [
        ("asof --out OUT --filter a/#/b", 2, "'#' stands alone in the last level"),
        ("asof --out OUT --filter $share/g/a", 2, "is a shared subscription, not a Topic Filter; write 'a'"),
        ("asof --out FILE/below", 1, "FILE/below: cannot be used (Not a directory)"),
        ("asof noon --out OUT", 2, "'noon' is not a time"),
        ("asof 1h --lake OUT --out OUT", 2, "--storage and --lake exclude each other"),
        ("report --only filters --filters OUT", 1, "the Topic Filters cannot be read"),
        ("report", 2, "name either the page (--out) or a part of it to print (--only)"),
        ("report --out OUT --stale never", 2, "stale: found 'never'"),
        ("report --out FILE", 1, "FILE: is a file; name a folder"),
        ("decode --out OUT --format nothing", 2, "there is no format 'nothing'"),
        ("decode --out OUT --format json", 2, "say which topics to decode by a pattern"),
        ("import OUT/nothing --format ndjson", 1, "there is no such file or folder"),
        ("import FILE --format ndjson --rejects FILE", 1, "FILE: is a file; name a folder"),
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


@pytest.mark.parametrize(
    "command", ["asof --out out", "asof 1h --out out", "report --out out", "report --only tree", "check"]
)
def test_a_missing_database_is_reported_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(SparkProcess, "start", None)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*command.split(), "--storage", f"sqlite:///{tmp_path}/none.db"])
    assert result.exit_code == 1
    assert "none.db: there is no such file" in result.stderr
