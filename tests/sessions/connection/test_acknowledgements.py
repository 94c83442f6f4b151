"""Answers leave in order, each after its commit."""

from __future__ import annotations

import pytest
from twisted.python.failure import Failure

from holdfast.core.tickets import COMMITTED, CommitTicket, FailureKind, RunTicket, StorageFailure
from holdfast.sessions.connection.acknowledgements import Acknowledgements
from holdfast.sessions.connection.link import ErrorGuard

FAILURE = StorageFailure(FailureKind.FULL, "full")


def refusal(_: StorageFailure) -> bytes | None:
    return b"refused"


@pytest.fixture
def sent() -> list[bytes]:
    return []


@pytest.fixture
def answers(sent: list[bytes]) -> Acknowledgements:
    return Acknowledgements(
        lambda packet, _count: sent.append(packet),
        lambda: None,
        ErrorGuard(Failure.raiseException),
        lambda size: size < 10,
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


def refusal_of_one(place: int, _: StorageFailure) -> bytes | None:
    return f"refused {place}".encode()


def test_answers_to_a_run_leave_in_one_piece(answers: Acknowledgements, sent: list[bytes]) -> None:
    ticket = RunTicket()
    answers.send_together_when_committed(ticket, b"aabbcc", 3, refusal_of_one)
    assert answers.unacknowledged_publishes == 3
    ticket.settle()
    assert sent == [b"aabbcc"]
    assert answers.unacknowledged_publishes == 0
    answers.send_together_when_committed(ticket, b"ddee", 2, refusal_of_one)
    assert sent[1:] == [b"ddee"]


def test_answers_to_a_run_leave_singly_if_so_many_may_not_leave_together(
    answers: Acknowledgements, sent: list[bytes]
) -> None:
    ticket = RunTicket()
    answers.send_together_when_committed(ticket, b"11112222333344445555", 5, refusal_of_one)
    ticket.settle()
    assert sent == [b"1111", b"2222", b"3333", b"4444", b"5555"]


def test_in_a_run_only_the_messages_that_failed_are_refused(answers: Acknowledgements, sent: list[bytes]) -> None:
    first, run = CommitTicket(), RunTicket()
    answers.send_when_committed(first, b"0", refusal, True)
    answers.send_together_when_committed(run, b"aabbcc", 3, refusal_of_one)
    answers.send_when_committed(COMMITTED, b"4", refusal)
    run.failures[1] = FAILURE
    run.settle()
    assert sent == []
    assert answers.unacknowledged_publishes == 4
    first.settle()
    assert sent == [b"0", b"aa", b"refused 1", b"cc", b"4"]
    assert answers.unacknowledged_publishes == 0


def test_a_failure_of_a_whole_run_refuses_each_message(answers: Acknowledgements, sent: list[bytes]) -> None:
    ticket = RunTicket()
    answers.send_together_when_committed(ticket, b"aabb", 2, refusal_of_one)
    ticket.settle(FAILURE)
    assert sent == [b"refused 0", b"refused 1"]


def test_a_run_is_answered_up_to_the_failure_that_ends_the_connection(
    answers: Acknowledgements, sent: list[bytes]
) -> None:
    def close(place: int, _: StorageFailure) -> bytes | None:
        answers.close()
        return None

    ticket = RunTicket()
    answers.send_together_when_committed(ticket, b"aabbcc", 3, close)
    ticket.failures.update({1: FAILURE, 2: FAILURE})
    ticket.settle()
    assert sent == [b"aa"]
