"""The seam between the store and a recorder: every change that takes effect is recorded in its transaction."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.core.messages import ChangeOrigin, RetainedChange
from holdfast.retained.store.interfaces import NO_RECORDER, ChangedRow
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.driver import Cursor
from tests.retained.store.contract import NOW, clear, message, put
from tests.storage.doubles import Bench, fresh_file, result_of


class ListRecorder:
    """Keeps the calls in a list."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.error: Exception | None = None

    def key_of(self, topic: str, revision: int) -> Hashable:
        return topic, revision

    def record(self, cursor: Cursor, changes: Sequence[ChangedRow]) -> None:
        if self.error is not None:
            raise self.error
        self.calls += [("record", row.topic, row.payload, at, origin) for row, at, origin, _ in changes]

    def record_stored(self, cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        self.calls.append(("stored", list(topics), origin))

    def record_expired(self, cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        self.calls.append(("expired", list(topics), now))


@pytest.fixture
def recorder() -> ListRecorder:
    return ListRecorder()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(fresh_file(tmp_path))


@pytest.fixture
def store(bench: Bench, recorder: ListRecorder) -> Iterator[SQLRetainedStore]:
    store = SQLRetainedStore(bench.store, recorder=recorder)
    bench.store.open()
    yield store
    bench.executor.manual = False
    bench.executor.stop()
    result_of(bench.store.close())


def test_a_message_and_a_clear_are_recorded(store: SQLRetainedStore, recorder: ListRecorder) -> None:
    put(store, "a", b"1")
    clear(store, "a")
    assert [call[:3] for call in recorder.calls] == [("record", "a", b"1"), ("record", "a", b"")]


def test_waiting_changes_with_different_keys_are_all_recorded_and_the_newest_is_stored(
    bench: Bench, store: SQLRetainedStore, recorder: ListRecorder
) -> None:
    bench.executor.manual = True
    store.put(RetainedChange("z", store.next_revision(), NOW, None))  # the others wait while this one is committed
    first, second = store.next_revision(), store.next_revision()
    store.put(RetainedChange("a", second, NOW, message("a", b"2")))
    store.put(RetainedChange("a", first, NOW, message("a", b"1")))
    bench.executor.stop()
    bench.executor.manual = False
    assert [call[2] for call in recorder.calls if call[1] == "a"] == [b"2", b"1"]
    assert result_of(store.get("a")).payload == b"2"


def test_a_change_that_lost_to_a_newer_row_is_not_recorded(store: SQLRetainedStore, recorder: ListRecorder) -> None:
    older = store.next_revision()
    put(store, "a", b"2")
    store.put(RetainedChange("a", older, NOW, message("a", b"1")))
    result_of(store.get("a"))
    assert [call[2] for call in recorder.calls] == [b"2"]


def test_expiry_and_a_capped_expiry_are_recorded_for_their_topics_only(
    store: SQLRetainedStore, recorder: ListRecorder
) -> None:
    put(store, "a", b"1", expires_at=NOW + 10_000)
    put(store, "b", b"1")
    recorder.calls.clear()
    assert result_of(store.cap_expiry(5_000, False, "", 10)) is None
    assert result_of(store.expire(NOW + 5_000, 10)) == ["a"]
    assert recorder.calls == [("stored", ["a"], ChangeOrigin.OVERRIDE), ("expired", ["a"], NOW + 5_000)]


def test_a_change_that_cannot_be_recorded_is_not_stored(store: SQLRetainedStore, recorder: ListRecorder) -> None:
    recorder.error = ValueError("no")
    ticket = store.put(RetainedChange("a", store.next_revision(), NOW, message("a", b"1")))
    assert ticket.failure is not None
    assert result_of(store.get("a")) is None


def test_without_a_recorder_a_waiting_change_replaces_an_earlier_one_of_its_topic() -> None:
    assert NO_RECORDER.key_of("a", 1) == NO_RECORDER.key_of("a", 2)
