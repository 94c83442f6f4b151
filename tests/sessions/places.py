"""Where a test's broker keeps its data: in memory, in an SQLite file, or in Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres import drop, fresh_database
from tests.storage.doubles import fresh_file


@contextmanager
def place(make: str, folder: Path) -> Iterator[Path | str | None]:
    """Yield an empty database of this make with a current schema: None, the path of a file, or a URL."""
    if make == "memory":
        yield None
    elif make == "sqlite":
        yield fresh_file(folder)
    else:
        url = fresh_database()
        try:
            yield url
        finally:
            drop(url)
