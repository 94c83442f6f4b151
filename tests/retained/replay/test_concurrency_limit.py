"""The line: so many at once, the others in their order."""

from __future__ import annotations

from holdfast.retained.replay.concurrency_limit import ConcurrencyLimit


class Guest:
    """Notes that it has been let in."""

    def __init__(self) -> None:
        self.inside = False

    def proceed(self) -> None:
        self.inside = True


def entered(line: ConcurrencyLimit, count: int) -> list[Guest]:
    guests = [Guest() for _ in range(count)]
    for guest in guests:
        guest.inside = line.enter(guest)
    return guests


def inside(guests: list[Guest]) -> list[bool]:
    return [guest.inside for guest in guests]


def test_those_beyond_the_places_come_in_as_others_go() -> None:
    """First in, first out; who gives up waiting is passed over."""
    line = ConcurrencyLimit(2)
    guests = entered(line, 5)
    assert inside(guests) == [True, True, False, False, False]
    line.leave(guests[2])
    line.leave(guests[0])
    line.leave(guests[0])
    assert inside(guests)[3:] == [True, False]
    assert len(line) == 1


def test_more_places_let_in_at_once_and_fewer_send_nobody_out() -> None:
    line = ConcurrencyLimit(1)
    guests = entered(line, 4)
    line.change(2)
    assert inside(guests) == [True, True, False, False]
    line.change(1)
    line.leave(guests[0])
    assert inside(guests) == [True, True, False, False]
    line.change(None)
    assert inside(guests) == [True] * 4
    assert len(line) == 0
