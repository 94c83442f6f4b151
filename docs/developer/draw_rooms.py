"""Draw the rooms of Holdfast from its imports: ``python docs/developer/draw_rooms.py > docs/developer/rooms.svg``.

A room is a package or module directly below ``holdfast``, or the pipeline, a package of its own above them. The rooms
stand in the order of the layers that import-linter holds (``setup.cfg``): a module imports only from rooms below its
own. A package shows its packages (``NAME/``) and its modules. An arrow shows that a room imports from another, unless a
chain of other arrows already shows it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from configparser import ConfigParser
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path
from textwrap import wrap

import grimp

ROOT = Path(__file__).parents[2]
LINE, PAD, GAP = 18, 10, 14
LETTER = 7.2
WIDTH = 900
#: the room of the arrows, left of the boxes
MARGIN = 150

PACKAGES = BROKER, PIPELINE = "holdfast", "holdfast_pipeline"

#: the rooms that each room imports
Imports = dict[str, set[str]]


def build_graph() -> grimp.ImportGraph:
    """Return the imports of the broker and the pipeline as they are now, without a cache."""
    return grimp.build_graph(*PACKAGES, include_external_packages=False, cache_dir=None)


def layers() -> list[str]:
    """Return the rooms of the layers in ``setup.cfg`` from top to bottom: names below ``holdfast``."""
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    rows = settings["importlinter:contract:layers"]["layers"].strip().splitlines()
    return [name.strip(" ()") for row in rows for name in row.split("|")]


def rooms_of(package: str, graph: grimp.ImportGraph) -> Imports:
    """Return the rooms of a package, each with the rooms of the same package that it imports.

    The modules that stand directly in the package count as rooms too.
    """
    children = graph.find_children(package)

    def room(module: str) -> str:
        return next((child for child in children if module == child or module.startswith(f"{child}.")), "")

    imports: Imports = {child: set() for child in children}
    for child in children:
        for module in {child} | graph.find_descendants(child):
            targets = graph.find_modules_directly_imported_by(module)
            imports[child] |= {room(target) for target in targets} - {"", child}
    return imports


def reduced(imports: Imports) -> Iterator[tuple[str, str]]:
    """Yield the imports that no chain of other imports shows."""
    reach: Imports = {}
    for name in TopologicalSorter(imports).static_order():
        reach[name] = set().union(*({target} | reach[target] for target in imports[name]), set())
    for name in sorted(imports):
        for target in sorted(imports[name]):
            if not any(target in reach[other] for other in imports[name] - {target}):
                yield name, target


def contents(room: str, graph: grimp.ImportGraph) -> list[str]:
    """Return the packages and modules of a room as lines that fit into its box."""
    names = [child.rpartition(".")[2] + "/" * bool(graph.find_children(child)) for child in graph.find_children(room)]
    text = "  ".join(sorted(names, key=lambda name: (not name.endswith("/"), name)))
    return wrap(text, int((WIDTH - MARGIN - 3 * PAD) / LETTER), break_on_hyphens=False)


def drawing() -> str:
    """Return the picture as SVG."""
    graph = build_graph()
    parts: list[str] = []
    middle: dict[str, float] = {}
    y = float(PAD)
    for name in (PIPELINE, *layers()):
        lines = contents(name if name == PIPELINE else f"{BROKER}.{name}", graph)
        height = LINE * (1 + len(lines)) + PAD
        parts.append(
            f'<rect x="{MARGIN}" y="{y:.0f}" width="{WIDTH - MARGIN - PAD}" height="{height:.0f}" rx="4"/>'
            f'<text class="room" x="{MARGIN + PAD}" y="{y + LINE:.0f}">{escape(name)}</text>'
        )
        for number, line in enumerate(lines, 2):
            parts.append(f'<text x="{MARGIN + PAD}" y="{y + LINE * number:.0f}">{escape(line)}</text>')
        middle[name] = y + height / 2
        y += height + GAP
    imports = rooms_of(BROKER, graph)
    used = {
        module
        for part in {PIPELINE} | graph.find_descendants(PIPELINE)
        for module in graph.find_modules_directly_imported_by(part)
    }
    imports[PIPELINE] = {
        room for room in imports if any(module == room or module.startswith(f"{room}.") for module in used)
    }
    shown = {
        name.rpartition(".")[2]: {target.rpartition(".")[2] for target in targets} for name, targets in imports.items()
    }
    for name, target in reduced(shown):
        start, end = middle[name] + 3, middle[target] - 3
        bend = MARGIN - 12 - min(MARGIN - 24, (end - start) / 6)
        parts.append(
            f'<path d="M{MARGIN} {start:.0f}C{bend:.0f} {start:.0f} {bend:.0f} {end:.0f} {MARGIN - 2} {end:.0f}"/>'
        )
    style = (
        "text{font:12px monospace;fill:#444}text.room{font-weight:bold;fill:#222}rect{stroke:#667;fill:#f3f5f8}"
        "path{stroke:#889;fill:none;marker-end:url(#a)}svg{background:#fff}"
    )
    arrow = '<marker id="a" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:.0f}"><style>{style}</style>'
    return "\n".join(
        [head, f'<defs>{arrow}<path d="M0 0L6 3L0 6z" style="fill:#889"/></marker></defs>', *parts, "</svg>", ""]
    )


if __name__ == "__main__":
    sys.stdout.write(drawing())
