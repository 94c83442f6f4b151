"""The bounds of the refusals that wait."""

from __future__ import annotations

from holdfast.identity.failed_logins import WaitingRefusals


def test_few_wait_for_each_address_and_few_in_all() -> None:
    waiting = WaitingRefusals(most_for_address=2, most=3)

    answers = [lambda number=number: number for number in range(4)]
    assert [waiting.enter("a", one) for one in answers[:3]] == [True, True, False]
    assert [waiting.enter("b", one) for one in answers[:2]] == [True, False]
    waiting.leave("a", answers[0])
    waiting.leave("a", answers[0])  # a second time, without effect
    waiting.leave("c", answers[0])
    assert len(waiting) == 2
    assert waiting.enter("c", answers[3])
