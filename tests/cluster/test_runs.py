"""Runs: messages with QoS 0 cross in the order in which they were sent, behind the rows of their topics."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from holdfast.cluster import runs as module
from holdfast.cluster.crossing import Rows
from holdfast.cluster.messages import CrossingMessage, Run
from holdfast.cluster.runs import IncomingRuns, LastRows, OutgoingRuns
from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import CommitTicket
from holdfast.storage.store import DurableStore
from holdfast.wire import Properties
from tests.doubles import TurnClock


def message(topic: str = "plant/a", payload: bytes = b"1") -> ApplicationMessage:
    """Return a message with QoS 0."""
    return ApplicationMessage(topic, payload)


def run(behind: int, *payloads: bytes, properties: bytes = b"\0") -> Run:
    """Return a run of messages with these payloads."""
    return Run(behind, tuple(CrossingMessage("plant/a", each, properties, None, None, None, None) for each in payloads))


class Sender:
    """Outgoing runs of a node, and the runs that it has sent."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.rows = LastRows()
        self.sent: list[tuple[int, Run]] = []
        self.runs = OutgoingRuns(self.clock, self.rows, lambda node, run: self.sent.append((node, run)))

    def payloads(self) -> list[tuple[int, int, list[bytes]]]:
        """Return node, row and payloads of the runs sent so far."""
        return [(node, run.behind, [each.payload for each in run.messages]) for node, run in self.sent]


class Receiver:
    """Incoming runs of one node, the tickets of its rows, and the delivered payloads."""

    def __init__(self) -> None:
        self.clock = TurnClock()
        self.position = 0
        self.delivered: list[bytes] = []
        self._tickets: list[tuple[int, CommitTicket]] = []
        self.runs = IncomingRuns(
            self.clock, self._when_passed, lambda message, share: self.delivered.append(message.payload)
        )

    def _when_passed(self, number: int) -> CommitTicket:
        ticket = CommitTicket()
        self._tickets.append((number, ticket))
        self.passed(self.position)
        return ticket

    def passed(self, number: int) -> None:
        """Apply the rows up to a number."""
        self.position = max(number, self.position)
        reached = [ticket for number, ticket in self._tickets if number <= self.position]
        self._tickets = [each for each in self._tickets if each[0] > self.position]
        for ticket in reached:
            ticket.settle()


def test_the_messages_of_a_turn_leave_as_one_run_for_each_node() -> None:
    """Their order is kept."""
    sender = Sender()
    for payload in (b"1", b"2"):
        sender.runs.add(message(payload=payload), [2, 3])
    sender.runs.add(message(payload=b"3"), [3], "$share/g/plant/a")
    assert sender.sent == []
    sender.clock.advance(0)
    assert sender.payloads() == [(2, 0, [b"1", b"2"]), (3, 0, [b"1", b"2", b"3"])]
    assert [each.share for each in sender.sent[1][1].messages] == [None, None, "$share/g/plant/a"]
    assert sender.runs.sent == 5
    sender.runs.add(message(payload=b"4"), [2])
    sender.clock.advance(0)
    assert sender.payloads()[2:] == [(2, 0, [b"4"])]


def test_a_run_leaves_before_the_hint_that_comes_next() -> None:
    """The rest of the turn is another run."""
    sender = Sender()
    sender.runs.add(message(payload=b"1"), [2])
    sender.runs.flush(2)
    sender.runs.flush(2)
    sender.runs.add(message(payload=b"2"), [2])
    sender.clock.advance(0)
    assert sender.payloads() == [(2, 0, [b"1"]), (2, 0, [b"2"])]


def test_a_run_is_behind_the_last_row_of_its_topics() -> None:
    """Rows of other topics, and those for other nodes only, are not awaited: no hint tells of them."""
    sender = Sender()
    sender.rows.note("plant/a", 7, [2])
    sender.rows.note("plant/b", 8, [2])
    sender.rows.note("plant/b", 9, [3])
    sender.rows.note("plant/c", 10, [2])
    for topic in ("plant/a", "plant/b"):
        sender.runs.add(message(topic), [2, 3, 4])
    sender.clock.advance(0)
    assert [(node, run.behind) for node, run in sender.sent] == [(2, 8), (3, 9), (4, 0)]
    sender.runs.add(message("plant/a"), [2])
    sender.clock.advance(0)
    assert sender.sent[-1][1].behind == 7


def test_the_oldest_topics_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million topics cost no more than the bound."""
    monkeypatch.setattr(module, "_MOST_TOPICS", 2)
    rows = LastRows()
    rows.note("a", 1, [2])
    rows.note("b", 2, [2])
    rows.note("a", 3, [2])
    rows.note("c", 4, [2])
    assert [rows.of(topic, 2) for topic in "abc"] == [3, 0, 4]


@pytest.mark.parametrize("where", ["payload", "properties"])
def test_a_run_has_a_bound(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payloads and properties count."""
    monkeypatch.setattr(module, "_RUN_BYTES", 1000)
    sender = Sender()
    big = "x" * 400
    for _ in range(5):
        sender.runs.add(
            message(payload=big.encode())
            if where == "payload"
            else ApplicationMessage("plant/a", b"", properties=Properties(user_properties=(("n", big),))),
            [2],
        )
    sender.clock.advance(0)
    assert [len(run.messages) for _, run in sender.sent] == [3, 2]


def test_a_run_waits_for_its_row_and_later_runs_wait_behind_it() -> None:
    """The example of the module."""
    receiver = Receiver()
    receiver.passed(6)
    receiver.runs.take(run(7, b"1"))
    receiver.runs.take(run(0, b"2"))
    assert receiver.delivered == []
    receiver.passed(7)
    assert receiver.delivered == [b"1", b"2"]
    receiver.runs.take(run(7, b"3"))
    assert receiver.delivered == [b"1", b"2", b"3"]
    assert (receiver.runs.received, receiver.runs.lost) == (3, 0)


def test_a_turn_delivers_a_bounded_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest follows in the next turns, before later runs."""
    monkeypatch.setattr(module, "_PER_TURN", 3)
    receiver = Receiver()
    receiver.runs.take(run(0, *(b"%d" % number for number in range(7))))
    receiver.runs.take(run(0, b"last"))
    counts = [len(receiver.delivered)]
    while receiver.clock.calls:
        receiver.clock.turn()
        counts.append(len(receiver.delivered))
    assert counts == [3, 6, 8]
    assert receiver.delivered[-1] == b"last"


def test_runs_that_find_no_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Properties count as well. The room is free again when the runs are delivered."""
    monkeypatch.setattr(module, "_MOST_WAITING", 1000)
    receiver = Receiver()
    block = b"\xad\x06" + b"x" * 400  # its bytes count before they are decoded
    receiver.runs.take(run(1, b"1"))
    receiver.runs.take(run(0, b"2", properties=block))
    receiver.runs.take(run(0, b"3", b"4", properties=block))
    assert receiver.runs.lost == 2
    receiver.passed(1)
    receiver.runs.take(run(0, b"x" * 5000))
    assert receiver.delivered == [b"1", b"x" * 5000]


def test_malformed_properties_cost_one_message() -> None:
    """The others of its run, and later runs, are delivered."""
    receiver = Receiver()
    good, bad = run(0, b"1"), run(0, b"2", properties=b"\x05x")
    receiver.runs.take(Run(0, good.messages + bad.messages + good.messages))
    receiver.runs.take(run(0, b"3"))
    assert receiver.delivered == [b"1", b"1", b"3"]
    assert (receiver.runs.received, receiver.runs.lost) == (3, 1)


def test_runs_of_a_process_that_is_gone_are_left_out() -> None:
    """Those of its next process do not wait for rows of the former one, and come behind nothing old."""
    receiver = Receiver()
    receiver.runs.take(run(9, b"1", b"2"))
    receiver.runs.forget()
    assert receiver.runs.lost == 2
    receiver.runs.take(run(5, b"3"))
    receiver.passed(5)
    assert receiver.delivered == [b"3"]
    receiver.passed(9)
    receiver.clock.advance(module._PATIENCE)
    assert receiver.delivered == [b"3"]
    assert not receiver.clock.calls


def test_a_run_whose_row_is_late_is_dropped() -> None:
    """Else it would come before the row, or behind the next one. What waits for no row comes."""
    receiver = Receiver()
    for number, behind in enumerate((9, 10, 0)):
        receiver.runs.take(run(behind, b"%d" % number))
    receiver.clock.advance(module._PATIENCE)
    assert receiver.delivered == [b"2"]
    receiver.passed(9)
    receiver.runs.take(run(9, b"3"))
    assert receiver.delivered == [b"2", b"3"]
    assert (receiver.runs.received, receiver.runs.lost) == (2, 2)
    assert not receiver.clock.calls


def test_a_row_that_was_not_stored_is_not_waited_for() -> None:
    """Nobody ever passes it. A later row of the topic is waited for."""
    rows = LastRows()
    rows.note("a", 5, [2, 3])
    rows.note("a", 7, [2])
    rows.forget("a", 5)
    assert (rows.of("a", 2), rows.of("a", 3)) == (7, 0)
    rows.forget("a", 7)
    rows.forget("b", 7)
    assert rows.of("a", 2) == 0


def test_a_row_ends_the_run_of_its_topic() -> None:
    """Else the message before it would wait with the one behind it. A row of another topic ends nothing."""
    sender = Sender()
    for number, (topic, follows) in enumerate((("a", "a"), ("a", "c"), ("b", "d"))):
        sender.runs.add(message(topic, b"%d" % number), [2])
        sender.runs.row_follows(follows)
        sender.rows.note(follows, 10 + number, [2])
    sender.clock.advance(0)
    assert sender.payloads() == [(2, 0, [b"0"]), (2, 10, [b"1", b"2"])]


@given(st.lists(st.one_of(st.integers(0, 8), st.tuples(st.integers(1, 9), st.integers(0, 8)))))
def test_all_runs_are_delivered_in_order_and_none_before_its_row(steps: list[int | tuple[int, int]]) -> None:
    """A number applies rows up to it; a pair is a run of so many messages behind a row."""
    receiver = Receiver()
    sent: list[tuple[bytes, int]] = []
    for step in steps:
        if isinstance(step, int):
            receiver.passed(step)
        else:
            payloads = [b"%d" % (len(sent) + place) for place in range(step[0])]
            sent += [(payload, step[1]) for payload in payloads]
            receiver.runs.take(run(step[1], *payloads))
        expected = [payload for payload, _ in sent]
        assert receiver.delivered == expected[: len(receiver.delivered)]
        assert all(behind <= receiver.position for _, behind in sent[: len(receiver.delivered)])
        waiting = sent[len(receiver.delivered) :]
        assert not waiting or waiting[0][1] > receiver.position
    receiver.passed(8)
    assert receiver.delivered == [payload for payload, _ in sent]


def test_a_row_that_never_comes_holds_up_nobody_who_waits_for_an_earlier_one() -> None:
    """Who waits for rows may do so in any order."""
    durable = Mock(spec=DurableStore, node=1, bulk=Mock())
    rows = Rows(durable, Clock(), deliver=Mock(), hint=Mock(), heard=frozenset)
    late, early = rows.when_passed(2, 9), rows.when_passed(2, 5)
    rows._pass(2, 5)
    assert (late.settled, early.settled) == (False, True)
    rows._pass(2, 9)
    assert late.settled
