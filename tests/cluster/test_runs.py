"""Messages with QoS 0 between nodes: gathered in a turn, and delivered behind the rows before them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from holdfast.cluster.messages import CrossingMessage, Run
from holdfast.cluster.runs import IncomingRuns, LastRows, OutgoingRuns
from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import CommitTicket


def run(behind: int, *payloads: bytes) -> Run:
    """Return a run of one topic."""
    return Run(behind, tuple(CrossingMessage("a", each, b"\0", "c", None, None, None) for each in payloads))


class Target:
    """A node that applies rows and delivers runs."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.position = 0
        self.waiting: list[tuple[int, CommitTicket]] = []
        self.delivered: list[bytes] = []
        self.runs = IncomingRuns(
            self.clock, self.when_passed, lambda message, _share: self.delivered.append(message.payload)
        )

    def when_passed(self, number: int) -> CommitTicket:
        """Return a ticket for the row of this number."""
        ticket = CommitTicket()
        if number <= self.position:
            ticket.settle()
        else:
            self.waiting.append((number, ticket))
        return ticket

    def apply(self, number: int) -> None:
        """Apply the rows up to a number."""
        self.delivered.append(b"row %d" % number)
        self.position = number
        passed = [ticket for each, ticket in self.waiting if each <= number]
        self.waiting = [each for each in self.waiting if each[0] > number]
        for ticket in passed:
            ticket.settle()


def test_a_run_waits_for_the_row_before_it() -> None:
    """Later runs of the node wait behind it, though they wait for no row."""
    target = Target()
    target.runs.take(run(7, b"1", b"2"))
    target.runs.take(run(0, b"3"))
    assert target.delivered == []
    target.apply(6)
    target.apply(7)
    assert target.delivered == [b"row 6", b"row 7", b"1", b"2", b"3"]


def test_a_row_that_never_comes_is_not_waited_for_without_end() -> None:
    """It was refused, or is late: a run must not pass it, so it is lost. What waits for no row comes."""
    target = Target()
    target.runs.take(run(7, b"1", b"2"))
    target.runs.take(run(8, b"3"))
    target.runs.take(run(0, b"4"))
    target.clock.advance(2)
    assert target.delivered == [b"4"]
    target.apply(7)
    target.clock.advance(10)
    target.runs.take(run(7, b"5"))
    assert target.delivered == [b"4", b"row 7", b"5"]
    assert (target.runs.received, target.runs.lost) == (2, 3)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300)), max_size=6), st.lists(st.integers(1, 3), max_size=4))
def test_the_order_of_runs_is_kept(sizes: list[tuple[int, int]], rows: list[int]) -> None:
    """However long they are, and whenever their rows are applied; those whose rows never come are lost."""
    target = Target()
    sent = []
    for number, (behind, size) in enumerate(sizes):
        payloads = [b"%d.%d" % (number, each) for each in range(size)]
        target.runs.take(run(behind, *payloads))
        sent += payloads
    for row in sorted(rows):
        target.apply(row)
    target.clock.pump([0.5] * 60)
    came = [each for each in target.delivered if not each.startswith(b"row")]
    remaining = iter(sent)
    assert all(each in remaining for each in came)
    assert len(came) + target.runs.lost == len(sent)


def test_a_row_ends_the_run_of_its_topic() -> None:
    """Else the message before it would wait with the one behind it. A row of another topic ends nothing."""
    clock, rows, sent = Clock(), LastRows(), list[Run]()
    runs = OutgoingRuns(clock, rows, lambda _node, run: sent.append(run))
    for number, (topic, follows) in enumerate((("a", "a"), ("a", "c"), ("b", "d"))):
        runs.add(ApplicationMessage(topic, b"%d" % number, 0, False, None, None), [2])
        runs.row_follows(follows)
        rows.note(follows, 10 + number)
    clock.advance(0)
    assert [(each.behind, [one.payload for one in each.messages]) for each in sent] == [(0, [b"0"]), (10, [b"1", b"2"])]


def test_runs_that_wait_are_bounded() -> None:
    """Beyond 16 MiB they are counted as lost."""
    target = Target()
    large = bytes(1 << 20)
    for _ in range(20):
        target.runs.take(run(1, large))
    assert target.runs.lost > 0
    target.apply(1)
    assert target.runs.received + target.runs.lost == 20


def test_messages_of_a_turn_leave_together_behind_the_last_row() -> None:
    """A hint lets them leave at once, so that its row does not pass them."""
    clock, rows = Clock(), LastRows()
    sent: list[tuple[int, Run]] = []
    outgoing = OutgoingRuns(clock, rows, lambda node, run: sent.append((node, run)))
    rows.note("b", 5)
    outgoing.add(ApplicationMessage("a", b"1"), (2, 3))
    outgoing.add(ApplicationMessage("b", b"2"), (2,), "$share/g/b")
    assert sent == []
    outgoing.flush(3)
    clock.advance(0)
    (third, to_third), (second, to_second) = sent
    assert (third, second) == (3, 2)
    assert [each.payload for each in to_third.messages] == [b"1"]
    assert [(each.payload, each.share) for each in to_second.messages] == [(b"1", None), (b"2", "$share/g/b")]
    assert (to_third.behind, to_second.behind) == (0, 5)
    clock.advance(1)
    assert len(sent) == 2


def test_the_rows_of_old_topics_are_forgotten() -> None:
    """The memory is bounded."""
    rows = LastRows()
    for number in range(10_001):
        rows.note(str(number), number + 1)
    assert rows.of("0") == 0
    assert rows.of("10000") == 10_001
