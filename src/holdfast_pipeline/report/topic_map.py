"""The map of topics: the tree of the larger prefixes, each with its share of its parent's colour. Pure.

The tiles of the prefixes below a prefix fill its tile. So a prefix whose messages are not all below larger prefixes has
one more tile, of its other topics: ``plant`` with 100 messages and ``plant/hall`` with 60 has a tile of 40 others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast_pipeline.formatting import number, share, size, span, visible
from holdfast_pipeline.report.chart import MapChart, MapNode
from holdfast_pipeline.report.figures import Figures, PrefixTotals, ReportTotals

#: The last of the 8 colours. Prefixes without a colour of their own, and other topics, have it.
_PLAIN = 7
#: A prefix with this share of the whole gets no colour, but the prefixes below it do: else nearly all would have one.
_MOST = 0.7
#: Characters of a name in a tile, and of a prefix in a tooltip.
_LONGEST_NAME, _LONGEST_PREFIX = 40, 100
_Below = Mapping[str | None, Sequence[PrefixTotals]]


def topic_map(found: Figures) -> MapChart:
    """Return the map of a report's larger prefixes."""
    below: dict[str | None, list[PrefixTotals]] = {}
    for branch in sorted(found.branches, key=lambda one: (-one.messages, one.prefix)):
        below.setdefault(branch.prefix.rpartition("/")[0] if branch.depth > 1 else None, []).append(branch)
    hues = _hues(below, found.totals.messages)
    totals = found.totals
    nodes = [_node(branch, below, hues, _PLAIN, totals) for branch in below.get(None, ())]
    nodes += _others(nodes, totals.messages, totals.bytes, totals)
    return MapChart(described="Topics: each prefix is as large as its share", nodes=nodes)


def _node(branch: PrefixTotals, below: _Below, hues: Mapping[str, int], hue: int, totals: ReportTotals) -> MapNode:
    """Return the node of a prefix. It is as deep as the report's prefixes, which have few levels."""
    own = hues.get(branch.prefix, hue)
    children = [_node(one, below, hues, own, totals) for one in below.get(branch.prefix, ())]
    if children:
        children += _others(children, branch.messages, branch.bytes, totals)
    return MapNode(
        name=visible(branch.prefix.rpartition("/")[2], _LONGEST_NAME) or "(empty)",
        told=f"{visible(branch.prefix, _LONGEST_PREFIX) or '(empty)'}\n"
        f"{_totals(branch.messages, branch.bytes, totals)}; median age {span(branch.median_age)}, newest"
        f" {span(branch.newest_age)}; {number(branch.expiring)} expire",
        messages=branch.messages,
        bytes=branch.bytes,
        hue=own,
        children=children,
    )


def _others(nodes: Sequence[MapNode], messages: int, size_of_all: int, totals: ReportTotals) -> list[MapNode]:
    """Return the node of the topics that are not in these nodes; none if they are all."""
    messages -= sum(one.messages for one in nodes)
    size_of_all -= sum(one.bytes for one in nodes)
    if messages <= 0 and size_of_all <= 0:
        return []
    left, bytes_left = max(0, messages), max(0, size_of_all)
    told = f"Other topics and smaller prefixes\n{_totals(left, bytes_left, totals)}"
    return [MapNode(name="others", told=told, messages=left, bytes=bytes_left, hue=_PLAIN)]


def _totals(messages: int, size_of_all: int, totals: ReportTotals) -> str:
    return (
        f"{number(messages)} messages ({share(messages, totals.messages)}), {size(size_of_all)}"
        f" ({share(size_of_all, totals.bytes)})"
    )


def _hues(below: _Below, whole: int) -> dict[str, int]:
    """Return the colours, the first for the largest prefix. Prefixes below a coloured one have its colour, too."""
    coloured: list[PrefixTotals] = []
    prefix: str | None = None
    while True:
        here = below.get(prefix, ())
        if not here or here[0].messages < _MOST * whole or not below.get(here[0].prefix):
            coloured += here
            break
        coloured += here[1:]
        prefix = here[0].prefix
    coloured.sort(key=lambda one: (-one.messages, one.prefix))
    return {branch.prefix: min(place, _PLAIN) for place, branch in enumerate(coloured)}
