"""Runs ``twistd`` with a database that is full or read-only while a file says so.

The environment variable HOLDFAST_TEST_FAULT names the file, which contains "full", "readonly" or nothing. SQLite itself
makes the faults: the writer's connection may not use more pages, or may not write. Run as a script.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.scripts.twistd import run

from holdfast.storage.committer import Committer
from holdfast.storage.driver import Connection

_FILE = Path(os.environ["HOLDFAST_TEST_FAULT"])
_UNLIMITED = 4294967294

transact = Committer.transact


def transact_with_fault(self: Committer, work: Callable[[Connection], Any]) -> Any:
    """Do the work on a connection with the present fault."""
    fault = _FILE.read_text().strip()
    cursor = self._connected().cursor()
    cursor.execute("PRAGMA page_count")
    pages = cursor.fetchone()[0] if fault == "full" else _UNLIMITED
    cursor.execute(f"PRAGMA max_page_count = {pages}")
    cursor.execute(f"PRAGMA query_only = {int(fault == 'readonly')}")
    return transact(self, work)


if __name__ == "__main__":
    Committer.transact = transact_with_fault  # type: ignore[method-assign]
    run()
