"""The size of the next chunk: as many rows as keep the writer busy for some milliseconds."""

from __future__ import annotations

#: Smaller chunks would spend their time in commits; larger ones would delay publishers.
LEAST, MOST = 100, 2000
#: Seconds for which a chunk should keep the writer, without the commit: a commit takes its time for any number of rows.
HOLD = 0.003


class ChunkSize:
    """The number of rows of the next chunk, from the time for which the last chunk kept the writer busy.

    ``rows`` is the size of the first chunk; ``hold`` is in seconds, None to keep the first size.
    """

    def __init__(self, rows: int, hold: float | None = None) -> None:
        self.rows = rows
        self._hold = hold

    def took(self, rows: int, seconds: float) -> None:
        """Choose the next size, after a chunk of ``rows`` rows that took ``seconds``.

        A chunk may have fewer rows than allowed, at the end or because rows are large. Such a chunk does not show that
        a larger one would be fast, so the size does not grow.
        """
        if self._hold is None or not rows:
            return
        fitting = int(rows * self._hold / seconds) if seconds > 0 else MOST
        most = 2 * self.rows if rows >= self.rows else self.rows
        self.rows = max(LEAST, min(fitting, most, MOST))
