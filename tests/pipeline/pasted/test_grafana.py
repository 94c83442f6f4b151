"""The panel and the queries of the page about Grafana."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from holdfast_pipeline.cli.root import main
from holdfast_pipeline.rollup import LENGTHS
from tests.docs.pages import ROOT, blocks
from tests.pipeline.pasted.conftest import HOUR, Lake
from tests.pipeline.stores import NOW

_PAGE = ROOT / "docs" / "pipeline" / "grafana.md"
_CATALOG = ROOT / "examples" / "grafana" / "building.toml"
_FOLDER = "/srv/holdfast/lake/"
_QUERY = re.compile(r"\| `(SELECT [^`]*)` \|")


def panel() -> dict[str, Any]:
    """Return the panel of the page."""
    (text,) = (block.text for block in blocks(_PAGE) if block.language == "json")
    found: dict[str, Any] = json.loads(text)
    return found


def expanded(query: str, start: int, end: int) -> str:
    """Replace Grafana's macros as its DuckDB data source does, for a range in milliseconds since the epoch."""
    first, last = (f"'{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}'" for at in (start, end))
    query = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 >= {first} AND \1 <= {last}", query)
    query = query.replace("$__timeFrom()", first)
    assert "$" not in query
    return query


@pytest.fixture(scope="module")
def grafana(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for the queries: a macro stands for the extension ``delta``, which Grafana downloads."""
    out = tmp_path_factory.mktemp("rolled up")
    arguments = ["rollup", "--lake", str(lake.folder), "--catalog", str(_CATALOG), "--to", str(out)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for each in LENGTHS:
            connection.register(each.table, DeltaTable(out / each.table).to_pyarrow_table())
        connection.execute("CREATE MACRO delta_scan(folder) AS TABLE SELECT * FROM query_table(parse_filename(folder))")
        yield connection


def test_the_panel_has_a_line_for_each_floor(grafana: duckdb.DuckDBPyConnection) -> None:
    """Within the range of the dashboard, in the order of time."""
    (target,) = panel()["targets"]
    assert _FOLDER in target["rawSql"]
    shown = grafana.sql(expanded(target["rawSql"], NOW - HOUR, NOW + 4 * HOUR))
    assert shown.columns == ["time", "floor", "temperature"]
    rows = shown.fetchall()
    hours = [datetime(2023, 11, 14, 22, tzinfo=UTC), datetime(2023, 11, 15, 1, tzinfo=UTC)]
    assert [(time, floor) for time, floor, _ in rows] == [(hour, floor) for hour in hours for floor in ("f01", "f02")]
    assert rows[0][2] == pytest.approx(20.0)
    assert all(20.0 <= degrees <= 21.0 for _, _, degrees in rows)


def test_the_other_queries_run_and_one_finds_the_silent_sensor(grafana: duckdb.DuckDBPyConnection) -> None:
    queries = _QUERY.findall(_PAGE.read_text(encoding="utf-8"))
    assert len(queries) == 3
    results = [grafana.sql(expanded(query, NOW + 3 * HOUR, NOW + 10 * HOUR)).fetchall() for query in queries]
    assert [topic for topic, _ in results[-1]] == ["hq/f01/r0001/climate/temperature"]


def test_the_catalogue_has_the_values_that_the_page_asks_for() -> None:
    asked = set(re.findall(r"name = '(\w+)'", _PAGE.read_text(encoding="utf-8")))
    assert asked <= set(re.findall(r"^\[values\.(\w+)\]$", _CATALOG.read_text(encoding="utf-8"), re.MULTILINE))
    assert asked == {"temperature", "co2", "power"}
