"""The map of the topics: a column for each level, in which each prefix is as high as its part of the whole. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import frozen

from holdfast.pipeline.formatting import number, share, size, span
from holdfast.pipeline.jobs.tree import Branch
from holdfast.pipeline.report.markup import LONGEST, Markup, el, joined, percent, text

#: Pixels; and those below which a prefix is drawn without its name, and not drawn at all.
HEIGHT, NAMED, SMALLEST = 520, 15, 1.5
#: The last colour, for what there is no other for.
_PLAIN = 7
_MOST = 0.7
_LONGEST_LABEL = 40


@frozen
class Tile:
    """A prefix and its place: from ``top``, so ``high``, both as parts of 1; ``hue`` is one of 8 colours."""

    branch: Branch
    top: float
    high: float
    hue: int


def tiles(branches: Iterable[Branch], value: Callable[[Branch], int], whole: int) -> list[Tile]:
    """Place prefixes within those they belong to, the largest first; those too small to be seen are left out."""
    below: dict[str | None, list[Branch]] = {}
    for branch in branches:
        parent = branch.prefix.rpartition("/")[0] if branch.depth > 1 else None
        below.setdefault(parent, []).append(branch)
    hues = _hues(below, value, whole)
    found: list[Tile] = []
    waiting: list[tuple[str | None, float, int]] = [(None, 0.0, _PLAIN)]
    while waiting:
        prefix, top, hue = waiting.pop()
        for branch in sorted(below.get(prefix, ()), key=lambda one: (-value(one), one.prefix)):
            high = value(branch) / whole if whole else 0.0
            if high * HEIGHT < SMALLEST:
                break
            own = hues.get(branch.prefix, hue)
            found.append(Tile(branch, top, high, own))
            waiting.append((branch.prefix, top, own))
            top += high
    return found


def _hues(below: Mapping[str | None, list[Branch]], value: Callable[[Branch], int], whole: int) -> dict[str, int]:
    """Return the colours of prefixes, the largest first; where one has most of the whole, of what is in it instead."""
    coloured: list[Branch] = []
    prefix: str | None = None
    while True:
        here = sorted(below.get(prefix, ()), key=lambda one: (-value(one), one.prefix))
        if not here or value(here[0]) < _MOST * whole or not below.get(here[0].prefix):
            coloured += here
            break
        coloured += here[1:]
        prefix = here[0].prefix
    coloured.sort(key=lambda one: (-value(one), one.prefix))
    return {branch.prefix: min(place, _PLAIN) for place, branch in enumerate(coloured)}


def icicle(placed: Sequence[Tile], messages: int, size_of_all: int, described: str) -> Markup:
    """Draw tiles; what is retained altogether is needed to say how much of it each is."""
    columns = max((one.branch.depth for one in placed), default=1)
    heads = el("div", [el("span", f"level {depth}") for depth in range(1, columns + 1)], class_="depths")
    drawn = [_tile(one, columns, messages, size_of_all) for one in placed]
    picture = el("svg", drawn, class_="icicle", role="img", aria_label=described, width="100%", height=HEIGHT)
    return Markup(heads + picture)


def _tile(tile: Tile, columns: int, messages: int, size_of_all: int) -> Markup:
    branch = tile.branch
    level = branch.prefix.rpartition("/")[2] if branch.depth > 1 else branch.prefix
    label = text(level, _LONGEST_LABEL) if level else Markup("(empty)")
    facts = (
        f"{number(branch.messages)} messages ({share(branch.messages, messages)}), {size(branch.bytes)} "
        f"({share(branch.bytes, size_of_all)}); median age {span(branch.median_age)}, newest "
        f"{span(branch.newest_age)}; {number(branch.expiring)} expire"
    )
    return el(
        "svg",
        el("title", joined((text(branch.prefix, LONGEST) or "(empty)", Markup("\n"), facts))),
        el("rect", width="100%", height="100%", class_=f"h{tile.hue} d{min(branch.depth, 5)}"),
        el("text", label, x=6, y=14),
        x=percent((branch.depth - 1) / columns),
        y=percent(tile.top),
        width=percent(1 / columns),
        height=percent(tile.high),
        class_="small" if tile.high * HEIGHT < NAMED else None,
    )
