"""How much a transaction takes on at once, so that nobody waits for it longer than for a few milliseconds."""

from __future__ import annotations

#: Rows of a transaction: fewer would spend their time in commits, more would hold up others by their number alone.
LEAST, MOST = 100, 2000
#: Seconds for which the writer should be held, but for the commit: that takes its time however few the rows are.
HOLD = 0.003


class Pace:
    """How many rows the next transaction takes, by how long the last one has held the writer.

    ``rows`` are those of the first one; ``hold`` is in seconds, None to stay with that number.
    """

    def __init__(self, rows: int, hold: float | None = None) -> None:
        self.rows = rows
        self._hold = hold

    def took(self, rows: int, seconds: float) -> None:
        """Take note that a transaction of so many rows has held the writer for so long.

        One that was shorter than it might have been, for want of rows or because they are large, lets none grow.
        """
        if self._hold is None or not rows:
            return
        fitting = int(rows * self._hold / seconds) if seconds > 0 else MOST
        most = 2 * self.rows if rows >= self.rows else self.rows
        self.rows = max(LEAST, min(fitting, most, MOST))
