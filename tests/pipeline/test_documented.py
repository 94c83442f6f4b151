"""The operator's page names the fields that ``--json`` prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from attrs import fields

from holdfast_pipeline.filters import FilterDeliveries
from holdfast_pipeline.jobs.asof import Manifest
from holdfast_pipeline.jobs.check import CheckResult
from holdfast_pipeline.jobs.decode import Decoded, DecodedTables
from holdfast_pipeline.jobs.imports import Imported
from holdfast_pipeline.jobs.report import Tree
from holdfast_pipeline.jobs.rollup import RolledUp
from holdfast_pipeline.jobs.sync import Synced
from holdfast_pipeline.sample.recording import Written
from holdfast_pipeline.shapes import ShapesFound

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline" / "running.md"


@pytest.mark.parametrize(
    ("command", "result", "more"),
    [
        ("asof", Manifest, ()),
        ("import", Imported, ()),
        ("check", CheckResult, ("failed", "gone")),
        ("decode", Decoded, ()),
        ("decode --catalog", DecodedTables, ()),
        ("sync", Synced, ()),
        ("rollup", RolledUp, ()),
        ("sample", Written, ("kind", "place", "told")),
        ("report --only shapes", ShapesFound, ()),
        ("report --only tree", Tree, ()),
        ("report --only filters", FilterDeliveries, ("messages", "bytes", "flow")),
    ],
)
def test_the_page_names_the_fields_of_a_result(command: str, result: Any, more: tuple[str, ...]) -> None:
    """All fields, in their order, and no others."""
    table = _PAGE.read_text(encoding="utf-8").partition("| command | fields |")[2].partition("\n\n")[0]
    named = dict(row.strip("| ").split(" | ") for row in table.splitlines()[2:])
    (told,) = (fields_told for commands, fields_told in named.items() if f"`{command}`" in commands)
    assert re.findall(r"`(\w+)`", told) == [*(field.name for field in fields(result)), *more]
