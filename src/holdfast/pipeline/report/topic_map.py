"""The geometry of the map of topics, an icicle plot; ``topics.html`` draws it. Pure.

Each level of the topics is a column. A prefix is as high as its share of the whole, and stands right of the prefix
above it: where ``plant`` has 60 of 100 messages and ``plant/hall`` has 30, the first takes 0.6 of the height from 0.0
on, and the second 0.3 from 0.0 on in the next column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from attrs import frozen

from holdfast.pipeline.report.figures import PrefixTotals

#: Pixels of the map, of the lowest prefix with room for its name, and of the lowest prefix that is drawn at all.
HEIGHT, _NAMED, SMALLEST = 520, 15, 1.5
#: The last of the 8 colours. Prefixes without a colour of their own have it.
_PLAIN = 7
#: A prefix with this share of the whole gets no colour, but the prefixes below it do: else nearly all would have one.
_MOST = 0.7


@frozen
class Tile:
    """A prefix in the map; ``top`` and ``high`` (its height) are shares of the map's height, ``hue`` is its colour."""

    branch: PrefixTotals
    top: float
    high: float
    hue: int

    @property
    def level(self) -> str:
        """The last level of the prefix."""
        return self.branch.prefix.rpartition("/")[2]

    @property
    def is_named(self) -> bool:
        """Whether there is room for the name."""
        return self.high * HEIGHT >= _NAMED


def tiles(branches: Iterable[PrefixTotals], value: Callable[[PrefixTotals], int], whole: int) -> list[Tile]:
    """Place each prefix beside the prefix above it, the largest first. Leave out prefixes too low to be seen."""
    below: dict[str | None, list[PrefixTotals]] = {}
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


def _hues(
    below: Mapping[str | None, list[PrefixTotals]], value: Callable[[PrefixTotals], int], whole: int
) -> dict[str, int]:
    """Return the colours, the first for the largest prefix. Prefixes below a coloured one have its colour, too."""
    coloured: list[PrefixTotals] = []
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
