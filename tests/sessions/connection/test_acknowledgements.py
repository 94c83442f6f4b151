"""Answers leave in order, each after its commit."""

from __future__ import annotations

import pytest
from twisted.python.failure import Failure

from holdfast.sessions.connection.acknowledgements import Acknowledgements
from holdfast.sessions.connection.error_guard import ErrorGuard
from holdfast.tickets import COMMITTED, CommitTicket, FailureKind, StorageFailure

FAILURE = StorageFailure(FailureKind.FULL, "full")


def refusal(_: StorageFailure) -> bytes | None:
    return b"refused"


@pytest.fixture
def sent() -> list[bytes]:
    return []


@pytest.fixture
def answers(sent: list[bytes]) -> Acknowledgements:
    return Acknowledgements(
        lambda packet, _count: sent.append(packet), lambda: None, ErrorGuard(Failure.raiseException)
    )


def test_an_answer_leaves_at_once_if_nothing_has_to_be_committed(answers: Acknowledgements, sent: list[bytes]) -> None:
    answers.send_when_committed(COMMITTED, b"1", refusal)
    assert sent == [b"1"]


def test_a_committed_answer_waits_for_earlier_answers(answers: Acknowledgements, sent: list[bytes]) -> None:
    ticket = CommitTicket()
    answers.send_when_committed(ticket, b"1", refusal)
    answers.send_when_committed(COMMITTED, b"2", refusal)
    assert sent == []
    ticket.settle()
    assert sent == [b"1", b"2"]


def test_a_failed_commit_sends_the_refusal_in_its_place(answers: Acknowledgements, sent: list[bytes]) -> None:
    first, second = CommitTicket(), CommitTicket()
    answers.send_when_committed(first, b"1", refusal)
    answers.send_when_committed(second, b"2", refusal)
    second.settle(FAILURE)
    assert sent == []
    first.settle()
    assert sent == [b"1", b"refused"]


def test_a_refusal_without_a_packet_sends_nothing(answers: Acknowledgements, sent: list[bytes]) -> None:
    ticket = CommitTicket()
    answers.send_when_committed(ticket, b"1", lambda _: None)
    answers.send_when_committed(COMMITTED, b"2", refusal)
    ticket.settle(FAILURE)
    assert sent == [b"2"]


def test_calls_keep_their_place_among_the_answers(answers: Acknowledgements, sent: list[bytes]) -> None:
    ticket = CommitTicket()
    answers.send_when_committed(ticket, b"1", refusal)
    answers.call_after_answers(lambda: sent.append(b"call"))
    answers.send_when_committed(COMMITTED, b"2", refusal)
    ticket.settle()
    assert sent == [b"1", b"call", b"2"]


def test_waiting_publishes_are_counted_until_their_answer_leaves(answers: Acknowledgements) -> None:
    first, second = CommitTicket(), CommitTicket()
    answers.send_when_committed(first, b"1", refusal, counted=True)
    answers.send_when_committed(second, b"2", refusal, counted=True)
    second.settle()
    assert answers.unacknowledged_publishes == 2
    first.settle()
    assert answers.unacknowledged_publishes == 0


def test_nothing_is_sent_after_the_end(answers: Acknowledgements, sent: list[bytes]) -> None:
    ticket = CommitTicket()
    answers.send_when_committed(ticket, b"1", refusal)
    answers.call_after_answers(lambda: sent.append(b"call"))
    answers.close()
    ticket.settle(FAILURE)
    assert sent == []
