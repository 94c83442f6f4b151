"""Databases that an import creates."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.retained.records import line_of
from holdfast_pipeline.cli.root import main
from holdfast_pipeline.database import check, create_missing
from holdfast_pipeline.errors import PipelineError
from tests import postgres
from tests.pipeline.stores import MAKES, message


@pytest.mark.parametrize("make", MAKES)
def test_a_missing_or_empty_database_gets_the_schema_once(make: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/data/holdfast.db" if make == "sqlite" else postgres.empty_database()
    assert create_missing(url, make_folder=True) is not None
    check(url)
    assert create_missing(url, make_folder=True) is None


def test_only_the_owner_reads_a_created_file(tmp_path: Path) -> None:
    """As for a file that a broker creates."""
    create_missing(f"sqlite:///{tmp_path}/data/holdfast.db", make_folder=True)
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data" / "holdfast.db").stat().st_mode) == 0o600


def test_a_mistyped_folder_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"there is no folder .*tpyo; create the folder, or name"):
        create_missing(f"sqlite:///{tmp_path}/tpyo/holdfast.db", make_folder=False)
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("these are my notes " * 10)
    with pytest.raises(PipelineError, match=r"notes\.db"):
        create_missing(f"sqlite:///{tmp_path}/notes.db", make_folder=True)
    assert (tmp_path / "notes.db").read_text().startswith("these are my notes")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_an_import_creates_the_database_of_a_configuration(tmp_path: Path) -> None:
    """It says so on standard error, once: the next import finds it. A wrong source creates nothing."""
    config, source = tmp_path / "holdfast.toml", tmp_path / "in.ndjson"
    config.write_text('[node]\ndata_dir = "data"\n')
    arguments = ["import", str(source), "--format", "ndjson", "--config", str(config), "--json"]
    assert CliRunner().invoke(main, arguments).exit_code == 1
    assert not (tmp_path / "data").exists()
    source.write_bytes(line_of(message("t/1")))
    first, second = (CliRunner().invoke(main, arguments) for _ in range(2))
    assert (first.exit_code, json.loads(first.stdout)["imported"]) == (0, 1)
    assert first.stderr == f"{tmp_path}/data/holdfast.db: there was no database; it is created\n"
    assert (second.exit_code, json.loads(second.stdout)["unchanged"], second.stderr) == (0, 1, "")
