"""The packages of Holdfast import one way, and the developers' page shows it."""

from __future__ import annotations

import runpy
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

DEVELOPER = Path(__file__).parents[1] / "docs" / "developer"
DRAW_ROOMS = runpy.run_path(str(DEVELOPER / "draw_rooms.py"))


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    built: grimp.ImportGraph = DRAW_ROOMS["build_graph"]()
    return built


def test_no_rooms_of_a_package_import_each_other_in_a_circle(graph: grimp.ImportGraph) -> None:
    """This includes imports for type checking only: a reader of a module must read those modules, too."""
    packages = [module for module in graph.modules if graph.find_children(module)]
    assert len(packages) > 20
    for package in packages:
        TopologicalSorter(DRAW_ROOMS["rooms_of"](package, graph)).prepare()  # raises CycleError, which names the rooms


def test_no_modules_of_a_room_import_each_other_in_a_circle(graph: grimp.ImportGraph) -> None:
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()


def test_the_picture_shows_the_imports_of_today() -> None:
    """If it does not: `make picture`."""
    assert (DEVELOPER / "rooms.svg").read_text() == DRAW_ROOMS["drawing"]()
