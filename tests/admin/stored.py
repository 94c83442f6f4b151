"""The API around a broker whose retained messages are in a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.retained.store.sql import SQLRetainedStore
from tests.admin.doubles import Desk
from tests.doubles import MemoryBroker
from tests.pipeline.stores import database
from tests.postgres import synchronous
from tests.storage.doubles import result_of


@contextmanager
def stored_desk(make: str, folder: Path, **options: Any) -> Iterator[Desk]:
    """Give the API of a broker on an empty database, with work done in the calling thread."""
    with database(make, folder) as filled:

        def store(now: Callable[[], int]) -> SQLRetainedStore:
            durable = synchronous(filled.url, now=now)[0]
            opened = SQLRetainedStore(durable)
            durable.open()
            closing.append(durable)
            return opened

        closing: list[Any] = []
        desk = Desk(MemoryBroker(store, **options))
        yield desk
        desk.broker.retained.stopService()
        result_of(closing[0].close())
