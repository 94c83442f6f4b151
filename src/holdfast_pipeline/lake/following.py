"""Jobs that follow something which grows: step by step to its end, and again after a while, with the upkeep between."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from holdfast_pipeline.lake.upkeep import KeptTable, Upkeep, join_files
from holdfast_pipeline.progress.phases import phase

#: Seconds between two vacuums, and between two looks whether the job shall end.
_VACUUM, _LOOK = 3600.0, 0.2


def follow(
    step: Callable[[], bool], tables: Collection[KeptTable], upkeep: Upkeep, stopped: Callable[[], bool],
    every: float | None,
) -> None:  # fmt: skip
    """Call ``step`` until it returns False; with ``every``, again after so many seconds.

    It ends early, between two steps, when ``stopped`` returns True. Small files are joined at each end, and old files
    deleted at the first end, then once an hour.
    """
    tended = time.monotonic() - _VACUUM
    while True:
        began = time.monotonic()
        with phase("reading changes", unit="changes"):
            while not stopped() and step():
                pass
        for table in tables:
            if not stopped():
                with phase("joining small files"):
                    join_files(table, upkeep)
        if not stopped() and time.monotonic() - tended >= _VACUUM:
            for table in tables:
                with phase("deleting old files"):
                    table.vacuum(upkeep.keep)
            tended = time.monotonic()
        if every is None or stopped():
            return
        while not stopped() and time.monotonic() - began < every:
            time.sleep(_LOOK)
