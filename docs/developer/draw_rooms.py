"""Draw the rooms of Holdfast from its imports: ``python docs/developer/draw_rooms.py > docs/developer/rooms.svg``.

A room is a package or module directly below ``holdfast``, or a package inside such a package. Rows are the layers that
import-linter holds (``setup.cfg``): a module imports only from rows below its own. Inside a package, a room stands
above the rooms that it imports. An arrow shows such an import, unless a chain of other arrows already shows it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from configparser import ConfigParser
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
LINE, PAD, GAP = 22, 10, 14
LETTER = 7.2
WIDTH = 900

#: the rooms that each room imports
Imports = dict[str, set[str]]


def layers() -> list[list[str]]:
    """Return the layers of ``setup.cfg`` from top to bottom, each a list of names below ``holdfast``."""
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    rows = settings["importlinter:contract:layers"]["layers"].strip().splitlines()
    return [[name.strip(" ()") for name in row.replace(":", "|").split("|")] for row in rows]


def rooms_of(package: str, graph: grimp.ImportGraph) -> Imports:
    """Return the rooms of a package, each with the rooms of the same package that it imports.

    The modules that stand directly in the package count as rooms too.
    """
    children = graph.find_children(package)
    if len(children) < 2 or not any(graph.find_children(child) for child in children):
        return {}

    def room(module: str) -> str:
        return next((child for child in children if module == child or module.startswith(f"{child}.")), "")

    imports: Imports = {child: set() for child in children}
    for child in children:
        for module in {child} | graph.find_descendants(child):
            targets = graph.find_modules_directly_imported_by(module)
            imports[child] |= {room(target) for target in targets} - {"", child}
    return imports


def levels(imports: Imports) -> list[list[str]]:
    """Return the rooms level by level: each room above all rooms that it imports."""
    depth: dict[str, int] = {}
    for name in TopologicalSorter(imports).static_order():
        depth[name] = 1 + max((depth[target] for target in imports[name]), default=-1)
    highest = max(depth.values())
    return [sorted(name for name, at in depth.items() if at == level) for level in range(highest, -1, -1)]


def reduced(imports: Imports) -> Iterator[tuple[str, str]]:
    """Yield the imports that no chain of other imports shows."""
    reach: Imports = {}
    for name in TopologicalSorter(imports).static_order():
        reach[name] = set().union(*({target} | reach[target] for target in imports[name]), set())
    for name in sorted(imports):
        for target in sorted(imports[name]):
            if not any(target in reach[other] for other in imports[name] - {target}):
                yield name, target


def box(x: float, y: float, width: float, height: float, name: str, kind: str) -> str:
    """Return a labelled rectangle. A package has its label at the top, a room in the middle."""
    top = y + (16 if kind == "package" else height / 2 + 4)
    return (
        f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="4"/>'
        f'<text class="{kind}" x="{x + width / 2:.0f}" y="{top:.0f}">{escape(name)}</text>'
    )


def inside(package: str, imports: Imports, x: float, y: float) -> tuple[list[str], float, float]:
    """Return the drawing of a package with its rooms, and its width and height."""
    rows = levels(imports)
    widths = {name: len(name.rpartition(".")[2]) * LETTER + 2 * PAD for name in imports}
    row_widths = [sum(widths[name] for name in row) + GAP * (len(row) - 1) for row in rows]
    width = max([*row_widths, len(package) * LETTER]) + 2 * PAD
    step = LINE + 26
    height = 24 + step * len(rows) - 26 + PAD
    parts = [box(x, y, width, height, package, "package")]
    middle: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = x + (width - row_widths[number]) / 2
        for name in row:
            top = y + 24 + number * step
            parts.append(box(left, top, widths[name], LINE, name.rpartition(".")[2], "room"))
            middle[name] = (left + widths[name] / 2, top)
            left += widths[name] + GAP
    for name, target in reduced(imports):
        (x1, y1), (x2, y2) = middle[name], middle[target]
        parts.append(f'<path d="M{x1:.0f} {y1 + LINE:.0f}L{x2:.0f} {y2 - 3:.0f}"/>')
    return parts, width, height


def drawing() -> str:
    """Return the picture as SVG."""
    graph = grimp.build_graph("holdfast", include_external_packages=False, cache_dir=None)  # a cache may be stale
    parts: list[str] = []
    y, widest = float(PAD), 0.0
    for layer in layers():
        x, tallest = float(PAD), 0.0
        for name in layer:
            imports = rooms_of(f"holdfast.{name}", graph)
            if imports:
                drawn, width, height = inside(name, imports, x, y)
            else:
                width, height = len(name) * LETTER + 2 * PAD, float(LINE)
                drawn = [box(x, y, width, height, name, "room")]
            if x > PAD and x + width > WIDTH:
                x, y, tallest = float(PAD), y + tallest + GAP, 0.0
                drawn = inside(name, imports, x, y)[0] if imports else [box(x, y, width, height, name, "room")]
            parts += drawn
            x, tallest, widest = x + width + GAP, max(tallest, height), max(widest, x + width)
        y += tallest + GAP
        parts.append(f'<line x1="0" y1="{y:.0f}" x2="100%" y2="{y:.0f}"/>')
        y += GAP
    style = (
        "text{font:12px monospace;text-anchor:middle;fill:#222}text.package{font-weight:bold}"
        "rect{stroke:#667;fill:#fff}rect.package{fill:#f3f5f8}line{stroke:#ccd;stroke-dasharray:4}"
        "path{stroke:#889;fill:none;marker-end:url(#a)}svg{background:#fff}"
    )
    arrow = '<marker id="a" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {widest + PAD:.0f} {y:.0f}"><style>{style}</style>'
    return "\n".join(
        [head, f'<defs>{arrow}<path d="M0 0L6 3L0 6z" style="fill:#889"/></marker></defs>', *parts, "</svg>", ""]
    )


if __name__ == "__main__":
    sys.stdout.write(drawing())
