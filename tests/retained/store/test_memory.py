"""The retained store in memory keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from zope.interface.verify import verifyObject

from holdfast.core.tickets import COMMITTED
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.usage import USERS
from holdfast.storage.revisions import RevisionClock
from tests.retained.store.contract import StoreContract, UsageContract, batches, put, selection
from tests.retained.store.memory import MemoryRetainedStore
from tests.retained.store.scan_contract import ScanContract
from tests.storage.doubles import Wall


class TestMemoryRetainedStore(StoreContract, ScanContract):
    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        store = MemoryRetainedStore(RevisionClock(1, 0, Wall()))
        verifyObject(IRetainedStore, store)
        yield store

    def test_every_ticket_is_settled_at_once(self) -> None:
        with self.opened() as store:
            put(store, "a")
            assert store.flushed() is COMMITTED

    def test_a_read_that_finds_nothing_in_many_topics_makes_progress(self) -> None:
        with self.opened() as store:
            for number in range(9000):
                put(store, f"{number:05}")
            read = list(batches(store, selection("+/x")))
            assert [(list(batch.slices), batch.done) for batch in read] == [([], False), ([], True)]


class TestMemoryUsage(UsageContract):
    @contextmanager
    def opened(
        self, topic_filters: Sequence[str] = (), clients: bool = False, payers: str | None = None
    ) -> Iterator[IRetainedStore]:
        yield MemoryRetainedStore(RevisionClock(1, 0, Wall()))

    @contextmanager
    def reopened(
        self, store: IRetainedStore, topic_filters: Sequence[str] = (), clients: bool = False, payers: str | None = None
    ) -> Iterator[IRetainedStore]:
        assert isinstance(store, MemoryRetainedStore)
        store.names_proven = payers == USERS
        yield store
