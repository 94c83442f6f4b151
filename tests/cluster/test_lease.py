"""A lease: while a member may serve, nobody has taken its place, whatever the network, the process and others do."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.cluster.lease import MARGIN, Lease, State

LENGTH, GRACE = 6.0, 30.0


def lease(sent: float = 0.0) -> Lease:
    """Return a lease whose first renewal was sent at this time."""
    return Lease(length=LENGTH, grace=GRACE, sent=sent)


def test_it_counts_from_the_sending() -> None:
    """The answer may have been under way for long."""
    mine = lease()
    mine.sent(2.0)
    mine.answered(4.5, True)
    assert mine.deadline == 2.0 + LENGTH - MARGIN


def test_an_answer_that_came_while_the_process_was_stopped_is_too_old() -> None:
    """The renewal was sent before the stop: the database's lease may have ended meanwhile."""
    mine = lease()
    mine.sent(2.0)
    assert mine.answered(22.0, True) is State.WAITING
    mine.sent(22.1)
    assert mine.answered(22.2, True) is State.MEMBER


def test_a_refusal_is_final() -> None:
    """Another incarnation has begun: no later answer can take that back."""
    mine = lease()
    mine.sent(2.0)
    assert mine.answered(2.1, False) is State.FENCED
    mine.sent(3.0)
    assert mine.answered(3.1, True) is State.FENCED
    assert mine.failed(3.2) is State.FENCED


def test_the_grace_ends() -> None:
    """A member without its database waits for the grace, behind its deadline."""
    mine = lease()
    assert mine.look(LENGTH - MARGIN - 0.001) is State.MEMBER
    assert mine.look(LENGTH - MARGIN) is State.WAITING
    assert mine.look(LENGTH - MARGIN + GRACE - 0.001) is State.WAITING
    assert mine.look(LENGTH - MARGIN + GRACE) is State.FENCED


def test_the_word_of_a_peer_ends_the_waiting_only() -> None:
    """A peer that reaches the database shows that this member is cut off alone."""
    mine = lease()
    assert mine.peer_reaches(1.0) is State.MEMBER
    mine.look(LENGTH)
    assert mine.peer_reaches(LENGTH) is State.FENCED


@pytest.mark.parametrize("trouble", ["failed", "late"])
def test_a_member_that_was_late_takes_over_from_nobody_for_one_lease(trouble: str) -> None:
    """After an outage, the others need this time to renew their leases."""
    mine = lease()
    assert mine.may_take_over(0.1)
    mine.sent(4.0)
    now = 4.1
    if trouble == "failed":
        mine.failed(now)
    else:
        now = 11.0
        mine.look(now)
    mine.sent(now)
    mine.answered(now, True)
    assert not mine.may_take_over(now)
    mine.sent(now + 4)
    mine.answered(now + 4, True)
    assert not mine.may_take_over(now + LENGTH - 0.1)
    assert mine.may_take_over(now + LENGTH)


class LeaseBesideAModel(RuleBasedStateMachine):
    """The model is the database's side: until when the lease lasts, and whether somebody has taken over.

    Time passes in any steps without a look, as while a process is stopped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.answer: bool | None = None  #: of the database, on its way back
        self.is_under_way = False
        self.taken = False
        self.fenced = False

    @initialize(late=st.floats(0, 2))
    def join(self, late: float) -> None:
        """The first renewal arrives some time after it was sent."""
        self.lease = lease(self.now)
        self.now += late
        self.until = self.now + LENGTH

    @rule(seconds=st.one_of(st.floats(0, 3), st.floats(0, 60)))
    def pass_time(self, seconds: float) -> None:
        """The process may be stopped meanwhile."""
        self.now += seconds

    @precondition(lambda self: not self.lease.is_asking)
    @rule()
    def send(self) -> None:
        """A renewal leaves."""
        self.lease.sent(self.now)
        self.is_under_way, self.answer = True, None

    @precondition(lambda self: self.is_under_way)
    @rule()
    def arrive(self) -> None:
        """The database gets it, however late, and renews if nobody has taken over."""
        self.is_under_way = False
        self.answer = not self.taken
        if not self.taken:
            self.until = self.now + LENGTH

    @precondition(lambda self: self.answer is not None and self.lease.is_asking)
    @rule()
    def hear(self) -> None:
        """The answer comes back."""
        assert self.answer is not None
        self.lease.answered(self.now, self.answer)
        self.answer = None

    @precondition(lambda self: self.lease.is_asking)
    @rule()
    def give_up(self) -> None:
        """No answer comes in time; the renewal may still arrive."""
        self.lease.failed(self.now)
        self.answer = None

    @precondition(lambda self: self.until <= self.now)
    @rule()
    def take_over(self) -> None:
        """Another node takes over: only when the database's lease has ended."""
        self.taken = True

    @rule()
    def hear_of_peer(self) -> None:
        """A peer reaches the database."""
        self.lease.peer_reaches(self.now)

    @invariant()
    def nobody_else_serves(self) -> None:
        """A member that may serve has a lease in the database; and whoever is fenced stays so."""
        state = self.lease.look(self.now)
        if state is State.MEMBER:
            assert not self.taken
            assert self.now < self.until
            assert self.now < self.lease.deadline
        assert not (self.fenced and state is not State.FENCED)
        self.fenced = state is State.FENCED


TestLeaseBesideAModel = LeaseBesideAModel.TestCase
