"""The retained store in Postgres keeps the contract, for one node and for several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any

import psycopg
import pytest
from zope.interface.verify import verifyObject

from holdfast.interfaces import IRetainedStore
from holdfast.retained import reading
from holdfast.retained.postgres import PostgresStatements
from holdfast.retained.sql import SQLRetainedStore
from tests.postgres import fresh_database, synchronous
from tests.retained.store_contract import StoreContract
from tests.storage.doubles import result_of


@cache
def database() -> str:
    """One database for all these tests, one after the other."""
    return fresh_database()


@contextmanager
def opened(node: int = 1, empty: bool = True, **options: Any) -> Iterator[SQLRetainedStore]:
    """Open the store, emptied first."""
    if empty:
        with psycopg.connect(database().replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("TRUNCATE retained, retained_levels, nodes")
    durable, bridge = synchronous(database(), node)
    store = SQLRetainedStore(durable, **options)
    durable.open()
    try:
        yield store
    finally:
        bridge.manual = False
        result_of(durable.close())


class TestPostgresRetainedStore(StoreContract):
    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        with opened() as store:
            verifyObject(IRetainedStore, store)
            yield store


class TestPostgresRetainedStoreInSmallBites(StoreContract):
    """Every bound is so tight that each read crosses it."""

    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        ticks = count()
        with opened(scan_rows=2, read_time=3, seconds=lambda: float(next(ticks))) as store:
            yield store


class TestPostgresRetainedStoreWithoutLike(StoreContract):
    """No filter is left to SQL: topics are matched by the caller."""

    @pytest.fixture(autouse=True)
    def _no_like(self, monkeypatch: pytest.MonkeyPatch) -> None:
        check_of = PostgresStatements.check_of
        monkeypatch.setattr(
            PostgresStatements,
            "check_of",
            lambda self, plan, levels: None if plan.levels else check_of(self, plan, levels),
        )
        monkeypatch.setattr(reading, "_LISTED_ROWS", 3)

    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        with opened() as store:
            yield store
