"""How live messages and replays share the window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sessions.delivery.inflight import Window


def window(size: int, *, replaying: bool = False, replayed: int = 0) -> Window:
    made = Window(size, 1 << 20)
    made.replaying = replaying
    made.replayed = replayed
    return made


@pytest.mark.parametrize(
    ("size", "replaying", "live_room"), [(10, False, 10), (10, True, 5), (7, True, 4), (2, True, 1), (1, True, 1)]
)
def test_live_messages_get_the_larger_half_while_a_replay_runs(size: int, replaying: bool, live_room: int) -> None:
    assert window(size, replaying=replaying).live_room(0) == live_room


@pytest.mark.parametrize(
    ("size", "live_waits", "replay_room"), [(10, False, 10), (10, True, 5), (7, True, 3), (2, True, 1), (1, True, 1)]
)
def test_a_replay_gets_its_half_while_live_messages_wait(size: int, live_waits: bool, replay_room: int) -> None:
    assert window(size, replaying=True).replay_room(0, live_waits) == replay_room


def test_replayed_messages_in_flight_take_no_room_from_the_live_half() -> None:
    shared = window(10, replaying=True, replayed=5)
    assert shared.live_room(5) == 5
    assert shared.live_room(8) == 2
    assert shared.replay_room(8, True) == 0


def test_a_window_of_one_is_used_in_turns() -> None:
    shared = window(1, replaying=True)
    assert [shared.is_turn_of_replays() for _ in range(4)] == [False, True, False, True]


def test_no_turn_is_taken_from_live_messages_without_need() -> None:
    """Only a window of one has turns, and only while a replay waits for it."""
    for shared in (window(2, replaying=True), window(1), window(1, replaying=True, replayed=1)):
        assert not any(shared.is_turn_of_replays() for _ in range(4))


@given(st.integers(1, 20), st.booleans(), st.integers(0, 20), st.integers(0, 20), st.booleans())
def test_the_window_is_never_exceeded(size: int, replaying: bool, live: int, replayed: int, live_waits: bool) -> None:
    shared = window(size, replaying=replaying, replayed=replayed)
    in_flight = live + replayed
    if in_flight <= size:
        assert in_flight + max(0, shared.live_room(in_flight)) <= size
        assert in_flight + max(0, shared.replay_room(in_flight, live_waits)) <= size


@given(st.booleans(), st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=30), st.booleans())
def test_the_bytes_in_flight_are_bounded(replaying: bool, offered: list[tuple[bool, int]], live_waits: bool) -> None:
    """By the maximum or one longer message; while a replay runs, by one message more."""
    shared = Window(100, 100)
    shared.replaying = replaying
    in_flight = 0
    longest = {False: 0, True: 0}
    for replayed, size in offered:
        if replayed:
            allowed = replaying and (not shared.replayed_bytes or size <= shared.replay_bytes(live_waits))
        else:
            allowed = shared.takes_live(in_flight, size)
        if allowed:
            in_flight += 1
            shared.bytes += size
            shared.replayed += replayed
            shared.replayed_bytes += size * replayed
            longest[replayed] = max(longest[replayed], size)
    live, other = longest[False], longest[True]
    most = max(100, live)
    if replaying:
        most = max(most + other, max(100, other) + live)
    assert shared.bytes <= most


def test_a_replay_has_no_room_once_the_bytes_are_used() -> None:
    """It is woken when some are free again. Its first message may have any size."""
    shared = Window(100, 100)
    shared.replaying = True
    shared.bytes = 100
    assert shared.replay_room(1, False) > 0
    shared.replayed, shared.replayed_bytes = 1, 60
    assert shared.replay_room(2, False) == 0
    shared.bytes = 70
    assert shared.replay_room(2, False) > 0
    assert shared.replay_room(2, True) == 0  # live messages wait, and the replay has its half


def test_each_kind_of_message_always_has_a_place() -> None:
    """So neither live messages nor a replay wait for ever."""
    shared = Window(100, 100)
    shared.replaying = True
    shared.bytes = shared.replayed_bytes = 100
    assert shared.takes_live(1, 1000)
    shared.replayed_bytes = 0
    assert shared.replay_room(1, True) > 0


@given(
    st.booleans(), st.integers(0, 20), st.integers(0, 20), st.integers(1, 20), st.integers(1, 10), st.integers(100, 200)
)
def test_a_run_is_taken_only_if_each_of_its_messages_would_be(
    replaying: bool, live: int, replayed: int, count: int, size: int, most: int
) -> None:
    shared = Window(30, most)
    shared.replaying = replaying
    shared.replayed = replayed * replaying
    shared.replayed_bytes = 5 * shared.replayed
    shared.bytes = 5 * live + shared.replayed_bytes
    in_flight = live + shared.replayed
    whole = shared.takes_run(in_flight, count, count * size)
    singly = True
    for _ in range(count):
        singly = singly and shared.takes_live(in_flight, size)
        in_flight += 1
        shared.bytes += size
    assert singly or not whole
    if whole != singly:  # messages are sent by themselves although they are too long together
        assert shared.bytes > most or replaying
