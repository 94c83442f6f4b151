"""The size of the next slice: how many rows one statement reads, where each statement reads one slice.

How it works
------------
Each slice has a fixed cost: a turn of the reactor, a read transaction, and a write to the socket. So slices are large.
But live messages wait while a slice is read in the reactor's turn, and a client that reads nothing costs the bytes of a
slice. So a slice has at most 64 KiB, and its statement takes about half a millisecond. The last slice tells how many
rows that is:

=====================  ==========  ======  ============  =========
packets                rows read   KiB     milliseconds  next rows
=====================  ==========  ======  ============  =========
of 50 bytes            250         12      0.1           500
of 50 bytes            500         24      0.2           1000
of 50 bytes, slowly    1000        49      1.0           500
of 1100 bytes          250         268     not read      60
=====================  ==========  ======  ============  =========

The number of rows at most doubles or halves from one slice to the next one: a slice that another process has delayed
counts little. The time is a target, since it is known only afterwards. The bytes are a bound: if rows as long as the
longest packet of the store would exceed it, their lengths are read first (:meth:`fitting`). The sizes of a Topic Filter
are kept between reads.
"""

from __future__ import annotations

from attrs import define

#: The most bytes of a slice, except for a single longer packet.
SLICE_BYTES = 64 * 1024
#: The time that the statement of a slice should take.
SLICE_SECONDS = 0.0005
_FIRST_ROWS = 250
_FEWEST_ROWS = 8


@define
class SliceSize:
    """How many rows the next statement reads."""

    rows: int = _FIRST_ROWS

    def fitting(self, rows: int, most_bytes: int, longest: int) -> int:
        """Return how many of these rows surely fit, if no packet is longer than ``longest`` bytes.

        Returns 0 if too few of them surely fit: then the lengths have to be read first.
        """
        fitting = most_bytes // longest if longest else rows
        return min(fitting, rows) if 4 * fitting >= rows else 0

    def took(self, rows: int, size: int, seconds: float) -> None:
        """Take note that a statement has read as many rows as it could, of this size in bytes, in this time."""
        share = max(size / SLICE_BYTES, seconds / SLICE_SECONDS)
        wanted = int(rows / share) if share else 2 * self.rows
        self.rows = max(_FEWEST_ROWS, self.rows // 2, min(wanted, 2 * self.rows))
