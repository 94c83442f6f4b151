"""The held messages of one replay: which read counts, which copies are stale, and where the next read begins."""

from __future__ import annotations

from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast.core.tickets import CommitTicket
from holdfast.replay.replay import BatchRead, HeldMessages
from holdfast.retained.feed import Change
from holdfast.retained.store.bounded_read import SLICE_BYTES
from holdfast.retained.store.values import Batch, Slice
from holdfast.wire import encode_publish


def slice_of(*topics: str) -> Slice:
    packets = [encode_publish(topic.encode(), b"x", 0, True, False, 0, b"") for topic in topics]
    return Slice(topics[-1], len(topics), b"".join(packets))


def read(held: HeldMessages, *topics: str, began: int = 1, done: bool = False) -> BatchRead:
    """Begin a read, and answer it with one slice."""
    begun = BatchRead(4, began, held.committed())
    held.read_began(begun)
    assert held.arrived(begun, Batch([slice_of(*topics)] if topics else [], topics[-1] if topics else "z", done), began)
    return begun


def changed(topic: str) -> Change:
    return Change(topic, 107, ChangeKind.SET, ChangeOrigin.PUBLISH, True, CommitTicket())


def test_the_next_batch_is_taken_once_the_current_one_is_delivered() -> None:
    held = HeldMessages("")
    read(held, "a", "b")
    held.take_next(SLICE_BYTES)
    read(held, "c", done=True)
    held.take_next(SLICE_BYTES)
    assert (held.take_slice().last, held.count, held.is_complete) == ("b", 1, False)
    held.take_next(SLICE_BYTES)
    assert (held.take_slice().last, held.count, held.is_complete) == ("c", 0, True)


def test_the_answer_to_a_read_that_was_given_up_is_ignored() -> None:
    held = HeldMessages("")
    given_up = BatchRead(4, 1, [])
    held.read_began(given_up)
    held.give_up_reading()
    assert not held.is_reading
    assert not held.arrived(given_up, Batch([slice_of("a")], "a", True), 2)
    assert not held.read_failed(given_up)
    assert not held


def test_giving_up_begins_again_after_the_last_delivered_topic() -> None:
    held = HeldMessages("")
    read(held, "a", "b", "c")
    held.take_next(SLICE_BYTES)
    held.keep_rest(held.take_slice(), 1)
    held.cursor = "a"
    assert held.read_after == "c"
    held.give_up()
    assert (held.read_after, held.count) == ("a", 0)


def test_a_bounded_scan_without_matches_moves_the_cursor() -> None:
    held = HeldMessages("a")
    read(held)
    held.take_next(SLICE_BYTES)
    assert held.cursor == held.read_after == "z"


def test_a_mark_drops_stale_copies_until_a_read_after_its_commit_is_taken() -> None:
    held = HeldMessages("")
    read(held, "a", "b")
    held.take_next(SLICE_BYTES)
    change = held.marks["b"] = changed("b")
    assert held.take_slice().count == 1
    missed = read(held, "b")  # begun before the commit
    change.ticket.settle()
    held.take_next(SLICE_BYTES)
    assert (missed.committed, held.take_slice().count) == ([], 0)
    read(held, "b")
    held.take_next(SLICE_BYTES)
    assert (held.marks, held.take_slice().count) == ({}, 1)


def test_a_read_that_began_after_another_ended_is_not_older() -> None:
    delivering, waiting = HeldMessages(""), HeldMessages("")
    read(delivering, "b", began=5)
    delivering.take_next(SLICE_BYTES)
    for began, older in ((4, True), (6, False)):
        waiting.give_up()
        read(waiting, "b", began=began)
        assert waiting.may_be_older(delivering) is older
    waiting.give_up()
    assert not waiting.may_be_older(delivering)  # it holds nothing


def test_a_batch_is_read_ahead_only_if_it_may_have_enough_bytes() -> None:
    held = HeldMessages("")
    read(held, "a", "b")
    held.take_next(SLICE_BYTES)
    assert held.bytes_to_read_ahead(1 << 20) == (256 << 10) - sum(len(piece.packets) for piece in held.slices)
    assert held.bytes_to_read_ahead(100 << 10) == 0
    held.read_began(BatchRead(4, 2, []))
    assert held.bytes_to_read_ahead(1 << 20) == 0
