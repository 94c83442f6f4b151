"""The result of a fault: the number of tries, the broken promises, and the measured figures."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field


@define
class Result:
    """One line of the table. ``broken`` has a text for each broken promise."""

    fault: str
    store: str
    tried: int = 0
    broken: list[str] = field(factory=list)
    figures: dict[str, object] = field(factory=dict)

    def expect(self, kept: bool, promise: str) -> None:
        """Note whether a promise was kept. ``promise`` describes the error."""
        if not kept:
            self.broken.append(promise)

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the line as texts."""
        figures = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        return self.fault, self.store, str(self.tried), str(len(self.broken)), figures


_HEAD = ("fault", "store", "tried", "broken", "figures")


def table(results: Sequence[Result]) -> str:
    """Return the results as a table, and the broken promises below it."""
    lines = [_HEAD, *(result.cells() for result in results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    broken = [f"BROKEN: {one.fault} ({one.store}): {promise}" for one in results for promise in one.broken]
    return "\n".join([*shown, *broken])
