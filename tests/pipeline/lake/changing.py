"""Changes of a history that a broker makes on its own: it ends a period, and prunes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from holdfast.changes.periods import end, prune_part
from holdfast.storage.database import Durability
from holdfast.storage.maintenance import database_at
from tests.pipeline.stores import NOW, Filled


def end_period(filled: Filled) -> None:
    """Stop the recording, as a broker does whose history is off."""
    _write(filled, lambda cursor: end(cursor, NOW, 0))


def prune(filled: Filled, horizon: int) -> None:
    """Delete the entries that only moments before ``horizon`` need."""

    def delete(cursor: Any) -> None:
        while prune_part(cursor, horizon, 0, None, 1000).more:
            pass

    _write(filled, delete)


def _write(filled: Filled, work: Callable[[Any], None]) -> None:
    database = database_at(filled.url, Durability.FULL, 0, 5.0)
    with closing(database.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(database.begin_statement)
        work(cursor)
        connection.commit()
