"""Commit tickets of several changes."""

from __future__ import annotations

from holdfast.core.tickets import COMMITTED, CommitTicket, FailureKind, StorageFailure, TicketsTogether


def test_one_ticket_is_settled_when_all_are() -> None:
    tickets = [CommitTicket() for _ in range(3)]
    together = TicketsTogether()
    for ticket in tickets:
        together.add(ticket)
    one = together.ticket()
    for ticket in tickets:
        assert not one.settled
        ticket.settle()
    assert one.settled
    assert one.failure is None


def test_the_first_failure_counts_also_if_it_came_before_the_last_change() -> None:
    first, last = CommitTicket(), CommitTicket()
    together = TicketsTogether()
    together.add(first)
    failure = StorageFailure(FailureKind.FULL, "no space")
    first.settle(failure)
    together.add(last)
    one = together.ticket()
    last.settle()
    assert one.failure is failure


def test_changes_that_need_no_commit_are_settled_at_once() -> None:
    together = TicketsTogether()
    together.add(COMMITTED)
    assert together.ticket().settled
    assert TicketsTogether().ticket().settled
