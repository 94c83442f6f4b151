"""Questions between members: each member answers once, in parts, or counts as silent; nothing waits for ever."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent

from holdfast.cluster.messages import LAST, MORE, Question, Reply, decode, encode
from holdfast.cluster.questions import (
    MOST_ANSWERED,
    MOST_ANSWERING,
    MOST_ASKED,
    MOST_BODY,
    PATIENCE,
    Answers,
    MemberQuestions,
    TooManyQuestions,
)
from tests.logs import logged


def described(own: int, node: int, body: bytes) -> Deferred[bytes]:
    """Answer with all that a question tells."""
    return succeed(b"%d to %d: %s" % (own, node, body))


class Members:
    """Members by number, which hear each other. Messages pass the codec; ``lost`` are dropped."""

    def __init__(self, *numbers: int) -> None:
        self.clock = Clock()
        self.sent: list[tuple[int, int, Question | Reply]] = []
        self.members = {number: MemberQuestions(self.clock, partial(self._send, number)) for number in numbers}

    def _send(self, origin: int, node: int, message: Question | Reply) -> None:
        self.sent.append((origin, node, message))

    def ask(self, subject: str = "name", body: bytes = b"") -> list[Answers]:
        """Let member 1 ask all others; return the list that gets the answers."""
        found: list[Answers] = []
        others = [number for number in self.members if number != 1]
        self.members[1].ask(subject, body, others, others).addCallback(found.append)
        return found

    def deliver(self) -> None:
        """Deliver what was sent, and what is sent in answer."""
        while self.sent:
            origin, node, message = self.sent.pop(0)
            passed = decode(encode(message))
            assert isinstance(passed, Question | Reply)
            self.members[node].take(origin, passed)

    def answer(self, number: int, body: bytes) -> None:
        """Let a member answer all questions with these bytes."""
        self.members[number].answer_with("name", lambda _node, _body: succeed(body))


def test_each_member_answers_its_own() -> None:
    """The question and the asking node reach each member, the answers come back by node."""
    members = Members(1, 2, 3)
    for number in (2, 3):
        members.members[number].answer_with("name", partial(described, number))
    found = members.ask(body=b"who")
    members.deliver()
    assert found == [Answers({2: b"2 to 1: who", 3: b"3 to 1: who"}, frozenset())]
    members.clock.advance(PATIENCE)
    assert len(found) == 1


@given(st.integers(0, 3), st.integers(-1, 1))
def test_a_long_answer_comes_in_parts(parts: int, more: int) -> None:
    """It is the same bytes, whatever its length."""
    body = b"x" * max(0, parts * (128 << 10) + more)
    members = Members(1, 2)
    members.answer(2, body)
    found = members.ask()
    members.deliver()
    assert found == [Answers({2: body}, frozenset())]


def test_who_does_not_answer_in_time_is_silent() -> None:
    """The answers of the others are told; a later answer changes nothing."""
    members = Members(1, 2, 3)
    late: Deferred[bytes] = Deferred()
    members.answer(2, b"two")
    members.members[3].answer_with("name", lambda _node, _body: late)
    found = members.ask()
    members.deliver()
    members.clock.advance(PATIENCE - 0.01)
    assert found == []
    members.clock.advance(0.01)
    assert found == [Answers({2: b"two"}, frozenset({3}))]
    late.callback(b"late")
    members.deliver()
    assert len(found) == 1


def test_who_is_not_heard_is_silent_at_once() -> None:
    """Nobody waits for a member that stands still."""
    members = Members(1, 2)
    found: list[Answers] = []
    members.members[1].ask("name", b"", [2, 3], []).addCallback(found.append)
    assert found == [Answers({}, frozenset({2, 3}))]
    assert members.sent == []


def test_who_goes_is_silent_at_once() -> None:
    """A question does not wait for a process that is gone."""
    members = Members(1, 2, 3)
    members.answer(3, b"three")
    found = members.ask()
    members.members[1].peer_down(2)
    members.deliver()
    assert found == [Answers({3: b"three"}, frozenset({2}))]


def test_who_cannot_answer_is_silent_at_once(logged_failures: list[LogEvent]) -> None:
    """A member without a part for the subject says so, and one whose part fails, which is logged."""
    members = Members(1, 2, 3)
    members.members[3].answer_with("name", lambda _node, _body: fail(RuntimeError("broken")))
    found = members.ask()
    with logged(MemberQuestions) as events:
        members.deliver()
    assert found == [Answers({}, frozenset({2, 3}))]
    assert [formatEvent(event) for event in events] == ["a question of node 1 about name has no answer"]
    logged_failures.clear()


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_an_answer_with_a_lost_part_is_none(lost: int) -> None:
    """Bytes of another part never take its place."""
    members = Members(1, 2)
    members.answer(2, b"a" * (300 << 10))
    found = members.ask()
    question = members.sent.pop()[2]
    members.members[2].take(1, question)
    assert [message.end for _, _, message in members.sent if isinstance(message, Reply)] == [MORE, MORE, LAST]
    del members.sent[lost]
    members.deliver()
    members.clock.advance(PATIENCE)
    assert found == [Answers({}, frozenset({2}))]


def test_an_answer_that_is_too_long_is_none() -> None:
    """Neither does a member send it, nor does another one keep it."""
    members = Members(1, 2)
    members.answer(2, b"a" * (MOST_ANSWERED + 1))
    found = members.ask()
    with logged(MemberQuestions) as events:
        members.deliver()
    assert found == [Answers({}, frozenset({2}))]
    assert [formatEvent(event) for event in events] == ["an answer to node 1 has more than 1048576 bytes"]
    found = members.ask()
    for part in range(9):
        members.members[1].take(2, Reply(2, part, MORE, b"a" * (128 << 10)))
    assert found == [Answers({}, frozenset({2}))]


def test_questions_are_bounded() -> None:
    """Too many at a time, or one that is too long, is refused. Others are answered up to a number."""
    members = Members(1, 2)
    members.members[2].answer_with("name", lambda _node, _body: Deferred())
    for _ in range(MOST_ASKED):
        members.ask()
    with pytest.raises(TooManyQuestions):
        members.ask()
    with pytest.raises(ValueError, match="has 131073 bytes, more than 131072"):
        members.ask(body=b"x" * (MOST_BODY + 1))
    members.members[2].take(1, Question(1000, "name", b""))
    for number in range(MOST_ANSWERING):
        members.members[2].take(1, Question(2000 + number, "name", b""))
    refused = [message.number for _, node, message in members.sent if node == 1 and isinstance(message, Reply)]
    assert refused == [2000 + MOST_ANSWERING - 1]


def test_a_member_that_stops_waits_for_nothing() -> None:
    """All questions end, and no timer is left."""
    members = Members(1, 2)
    found = members.ask()
    members.members[1].stop()
    assert found == [Answers({}, frozenset({2}))]
    assert members.clock.getDelayedCalls() == []


def test_an_asker_that_leaves_is_forgotten() -> None:
    """Nobody waits for the answers, and a later one changes nothing."""
    members = Members(1, 2)
    members.answer(2, b"two")
    asking = members.members[1].ask("name", b"", [2], [2])
    asking.cancel()
    members.deliver()
    assert members.clock.getDelayedCalls() == []
