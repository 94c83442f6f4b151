"""The dbt project of the examples."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import jinja2
import pytest
from deltalake import DeltaTable

from holdfast_pipeline.sources.lake import CHANGES, CURRENT
from tests.docs.pages import ROOT, blocks
from tests.pipeline.commands import BIN
from tests.pipeline.pasted.conftest import Lake

_PROJECT = ROOT / "examples" / "dbt"
_PAGE = ROOT / "docs" / "pipeline" / "dbt.md"
#: The models, each after those that it refers to.
_MODELS = ("temperatures", "temperatures_by_hour", "stale_sensors")
_REF = re.compile(r"ref\('(\w+)'\)")
#: The release of dbt that `make nightly` tests, in an environment of its own: its other packages are older than ours.
_DBT = ("--from", "dbt-core==1.9.10", "--with", "dbt-duckdb==1.9.6")


def require_results(database: Any) -> None:
    """Look at the tables of the models, in the time zone of UTC."""
    database.execute("SET TimeZone = 'UTC'")
    first = datetime(2023, 11, 14, 22, tzinfo=UTC).replace(tzinfo=None)
    hours = database.execute("SELECT * FROM temperatures_by_hour ORDER BY floor, hour").fetchall()
    assert hours[0] == ("f01", first, 2, 20.0)
    assert [(floor, count, degrees) for floor, _, count, degrees in hours] == [
        ("f01", 2, 20.0), ("f01", 1, 21.0), ("f01", 1, 22.5), ("f02", 1, 20.0), ("f02", 1, 21.0), ("f02", 1, 22.5)
    ]  # fmt: skip
    assert database.execute("SELECT floor, room FROM stale_sensors").fetchall() == [("f01", "r0001")]


def test_the_models_give_the_rows_of_the_building(lake: Lake) -> None:
    """DuckDB runs them with the tables of the lake in place of dbt's sources; ``make nightly`` runs dbt itself."""
    assert {path.stem for path in (_PROJECT / "models").glob("*.sql")} == set(_MODELS)
    with duckdb.connect() as database:
        for name in (CHANGES, CURRENT):
            database.register(name, DeltaTable(lake.folder / name).to_pyarrow_dataset())
        for place, model in enumerate(_MODELS):
            template = (_PROJECT / "models" / f"{model}.sql").read_text()
            assert set(_REF.findall(template)) <= set(_MODELS[:place])
            query = jinja2.Template(template).render(ref=str, source=lambda _source, table: table)
            database.execute(f"CREATE TABLE {model} AS {query}")
        require_results(database)


def test_the_project_names_the_tables_of_the_lake_and_the_page_its_files() -> None:
    sources = (_PROJECT / "models" / "sources.yml").read_text()
    assert re.findall(r"delta_table_path: \"\{\{ env_var\('LAKE'\) \}\}/(\w+)\"", sources) == [CHANGES, CURRENT]
    page = _PAGE.read_text(encoding="utf-8")
    for name in re.findall(r"^\| `([\w./]+)` \|", page, re.MULTILINE):
        assert (_PROJECT / name).is_file()
    (query,) = (block.text for block in blocks(_PAGE) if block.language == "sql")
    assert query == (_PROJECT / "models" / "temperatures.sql").read_text()


@pytest.mark.e2e
@pytest.mark.nightly
def test_dbt_builds_the_project(lake: Lake, tmp_path: Path) -> None:
    """With all tests of the project; dbt and its packages come from the registry."""
    project = tmp_path / "dbt"
    shutil.copytree(_PROJECT, project)
    ours = ("--with", f"duckdb=={duckdb.__version__}", "--with", f"deltalake[pyarrow]=={deltalake.__version__}")
    done = subprocess.run(
        [str(BIN / "uv"), "tool", "run", "-q", *_DBT, *ours, "dbt", "--no-use-colors", "build", "--profiles-dir", "."],
        cwd=project, env={**os.environ, "LAKE": str(lake.folder), "DO_NOT_TRACK": "1"}, text=True, check=False,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS=8 WARN=0 ERROR=0" in done.stdout
    with duckdb.connect(project / "building.duckdb", read_only=True) as database:
        require_results(database)
