"""The geometry of a chart with columns, as plain numbers; ``elements.html`` draws it. Pure.

Heights are in pixels, horizontal positions in shares of the width. So letters keep their size in a chart of any width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import frozen

_PLOT, _TOP, _FOOT = 150, 14, 20
_MOST_LABELS = 6
#: Pixels of the narrowest chart, and of half a character of a label. A centred label would hang over the edge of this
#: chart when its middle is nearer to the edge than half its width.
_NARROWEST, _HALF_CHARACTER = 320, 3


@frozen
class ChartColumn:
    """One column: the label below it, two lines for its tooltip, and its parts from bottom to top."""

    label: str
    heading: str
    facts: str
    parts: tuple[int, ...]


@frozen
class Label:
    """A column's label at ``x`` (0 to 1); ``anchor`` is the end of the text at x. Narrow screens may hide some."""

    text: str
    x: float
    anchor: str
    may_be_hidden: bool


@frozen
class ColumnChart:
    """Columns of one or more parts.

    ``figure`` writes a value of the scale, in units that are a ``thousand`` of each other (1024 for bytes).
    """

    described: str
    columns: Sequence[ChartColumn]
    figure: Callable[[float], str]
    every_label: bool = False
    thousand: int = 1000

    height = _TOP + _PLOT + _FOOT
    #: Where the columns stand.
    base = _TOP + _PLOT

    @property
    def _scale(self) -> float:
        return ceiling(max((sum(column.parts) for column in self.columns), default=0), self.thousand)

    @property
    def scale_lines(self) -> list[tuple[float, str]]:
        """The height and the figure of each line of the scale."""
        scale = self._scale
        return [(self.base - _PLOT * value / scale, self.figure(value)) for value in (scale / 2, scale)]

    def rectangles(self, column: ChartColumn) -> Iterator[tuple[float, float, int]]:
        """Give the top, the height and the number of each part that is not 0; at least a pixel of it is seen."""
        top, scale = float(self.base), self._scale
        for hue, part in enumerate(column.parts):
            if part > 0:
                height = max(1.0, _PLOT * part / scale)
                top -= height
                yield top, height, hue

    @property
    def labels(self) -> Iterator[Label]:
        """The labels that have room. Narrow screens have room for every second one of them."""
        count = len(self.columns)
        apart = 1 if self.every_label else -(-count // _MOST_LABELS)
        for shown, place in enumerate(range(0, count, apart or 1)):
            x, anchor = (place + 0.5) / count, "middle"
            edge = len(self.columns[place].label) * _HALF_CHARACTER / _NARROWEST
            if x < edge:
                x, anchor = place / count, "begin"
            elif x > 1 - edge:
                x, anchor = (place + 1) / count, "end"
            yield Label(self.columns[place].label, x, anchor, not self.every_label and shown % 2 == 1)


def ceiling(highest: float, thousand: int = 1000) -> float:
    """Return a round number that is at least the highest value and at least 2. Its half is round, too."""
    unit = 1.0
    while highest >= thousand * unit:
        unit *= thousand
    tens = 10.0 ** (len(str(int(highest / unit))) - 1)
    scale = next(factor * tens for factor in (1, 2, 4, 6, 8, 10, 20) if factor * tens * unit >= highest) * unit
    return max(2.0, scale)
