"""The limit on concurrent replays: some run, the others wait in order."""

from __future__ import annotations

from holdfast.retained.replay.pace import ConcurrencyLimit


class Waiting:
    """Notes whether it runs."""

    client_id = "c"

    def __init__(self) -> None:
        self.runs = False

    def proceed(self) -> None:
        self.runs = True


def entered(limit: ConcurrencyLimit, count: int) -> list[Waiting]:
    waiters = [Waiting() for _ in range(count)]
    for waiter in waiters:
        waiter.runs = limit.enter(waiter)
    return waiters


def running(waiters: list[Waiting]) -> list[bool]:
    return [waiter.runs for waiter in waiters]


def test_waiters_run_in_order_as_others_leave() -> None:
    """First in, first out. A waiter that leaves loses its turn."""
    limit = ConcurrencyLimit(2)
    waiters = entered(limit, 5)
    assert running(waiters) == [True, True, False, False, False]
    limit.leave(waiters[2])
    limit.leave(waiters[0])
    limit.leave(waiters[0])
    assert running(waiters)[3:] == [True, False]
    assert len(limit) == 1


def test_a_higher_limit_counts_at_once_and_a_lower_one_removes_none() -> None:
    limit = ConcurrencyLimit(1)
    waiters = entered(limit, 4)
    limit.change(2)
    assert running(waiters) == [True, True, False, False]
    limit.change(1)
    limit.leave(waiters[0])
    assert running(waiters) == [True, True, False, False]
    limit.change(None)
    assert running(waiters) == [True] * 4
    assert len(limit) == 0
