"""The notebook of the examples."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.pages import ROOT, blocks
from tests.pipeline.pasted.conftest import Lake

_NOTEBOOK = ROOT / "examples" / "notebook" / "building.ipynb"
_PAGE = ROOT / "docs" / "pipeline" / "notebook.md"


def test_the_notebook_has_the_cells_of_the_page_and_no_output() -> None:
    cells = nbformat.read(_NOTEBOOK, 4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [cell.source for cell in code] == [
        block.text.strip() for block in blocks(_PAGE) if block.language == "python"
    ]
    assert not any(cell.outputs for cell in code)


@pytest.mark.e2e
def test_the_notebook_finds_the_faults_of_the_building(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a real kernel: each cell shows a table, the last two name the broken lamps and the silent sensor."""
    monkeypatch.setenv("LAKE", str(lake.folder))
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(_NOTEBOOK, 4)
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    day, warmest, lamps, silent = (
        "".join(output["text"] for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")
        for cell in notebook.cells
        if cell.cell_type == "code"
    )
    assert "│    22 │      6 │" in day
    assert "22.5" in warmest
    assert [topic for topic in ("r0002/light/1", "r0002/light/2", "r0003/light/3") if topic in lamps] == [
        "r0002/light/2",
        "r0003/light/3",
    ]
    assert [room for room in ("r0001", "r0002", "r0003") if room in silent] == ["r0001"]
