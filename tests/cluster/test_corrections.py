"""Corrections: the last live message of a topic is the retained one, also where two nodes set it at the same time."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from holdfast.cluster import corrections as module
from holdfast.cluster.corrections import Corrections
from holdfast.core.messages import ApplicationMessage, RetainedMessage
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.wire import NO_PROPERTIES


class World:
    """One node with a subscriber to everything, and the retained messages of the database."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.stored: dict[str, bytes] = {}
        #: what the subscriber got, by topic
        self.live: dict[str, list[bytes]] = {}
        self.sent: list[ApplicationMessage] = []
        self.reads: list[tuple[str, Deferred[RetainedMessage | None]]] = []
        self._answers: list[tuple[Deferred[RetainedMessage | None], RetainedMessage | None]] = []
        self.answers_at_once = True
        self.corrections = Corrections(Mock(store=self), self.clock, self._send)

    def get(self, topic: str) -> Deferred[RetainedMessage | None]:
        """Read a retained message: the answer has the value of now, and comes at once or later."""
        answer = Deferred[RetainedMessage | None]()
        self.reads.append((topic, answer))
        payload = self.stored.get(topic)
        self._answers.append((answer, self._retained(topic, payload)))
        if self.answers_at_once:
            self.answer()
        return answer

    def answer(self) -> None:
        """Let all readings that are under way end."""
        answers, self._answers = self._answers, []
        for answer, found in answers:
            answer.callback(found)

    @staticmethod
    def _retained(topic: str, payload: bytes | None) -> RetainedMessage | None:
        if payload is None:
            return None
        return RetainedMessage(topic, payload, 2, NO_PROPERTIES, "publisher", "user", 1, None, 1)

    def _send(self, message: ApplicationMessage) -> None:
        self.sent.append(message)
        self.live.setdefault(message.topic, []).append(message.payload)

    def store(self, topic: str, payload: bytes) -> None:
        """The database retains a message, or clears one."""
        if payload:
            self.stored[topic] = payload
        else:
            self.stored.pop(topic, None)

    def deliver(self, topic: str, node: int, payload: bytes) -> None:
        """A live message of a node reaches this one."""
        self.live.setdefault(topic, []).append(payload)
        self.corrections.changed(topic, node)


def test_a_topic_that_two_nodes_set_is_sent_once_more() -> None:
    """As a live message with the publisher and the properties of the retained one."""
    world = World()
    world.store("a", b"2")
    world.deliver("a", 2, b"2")
    world.deliver("a", 1, b"1")
    assert world.sent == []
    world.clock.advance(1)
    assert world.sent == [ApplicationMessage("a", b"2", 1, True, "publisher", "user")]
    assert world.corrections.sent == 1
    world.clock.advance(60)
    assert len(world.sent) == 1
    assert not world.clock.calls


def test_a_topic_that_was_cleared_is_sent_as_an_empty_message() -> None:
    """The clear was the last change, but came first."""
    world = World()
    world.deliver("a", 2, b"")
    world.deliver("a", 1, b"1")
    world.clock.advance(1)
    assert [(message.payload, message.retain) for message in world.sent] == [(b"", True)]


@pytest.mark.parametrize("after", [0, module._LATELY + 1])
def test_one_publishing_node_at_a_time_costs_nothing(after: float) -> None:
    """Neither one node alone, nor another one that sets the topic later."""
    world = World()
    world.store("a", b"3")
    world.deliver("a", 1, b"1")
    world.deliver("a", 1, b"2")
    world.clock.advance(after)
    world.deliver("a", 2 if after else 1, b"3")
    world.clock.advance(60)
    assert world.reads == []
    assert not world.clock.calls


def test_a_topic_that_changes_on_is_corrected_behind_the_last_change() -> None:
    """Each change puts it off."""
    world = World()
    world.store("a", b"x")
    for step in range(6):
        world.deliver("a", step % 2, b"%d" % step)
        world.clock.advance(0.6)
    assert world.sent == []
    world.clock.advance(0.6)
    assert len(world.sent) == 1


def test_a_change_while_the_topic_is_read_puts_the_correction_off() -> None:
    """The found message may be older."""
    world = World()
    world.answers_at_once = False
    world.store("a", b"old")
    world.deliver("a", 1, b"other")
    world.deliver("a", 2, b"old")
    world.clock.advance(1)
    assert [topic for topic, _ in world.reads] == ["a"]
    world.store("a", b"new")
    world.deliver("a", 2, b"new")
    world.answer()
    assert world.sent == []
    world.clock.advance(2)
    world.answer()
    assert [message.payload for message in world.sent] == [b"new"]


def test_a_reading_that_fails_is_tried_again() -> None:
    """The database is away for a while."""
    world = World()
    world.answers_at_once = False
    world.store("a", b"2")
    world.deliver("a", 1, b"1")
    world.deliver("a", 2, b"2")
    world.clock.advance(1)
    world._answers.clear()
    world.reads[0][1].errback(Failure(StorageFailure(FailureKind.UNAVAILABLE, "away")))
    assert world.sent == []
    world.answers_at_once = True
    world.clock.advance(1)
    assert [message.payload for message in world.sent] == [b"2"]


def test_no_correction_follows_the_stop() -> None:
    """Neither a due one nor one that is being read."""
    world = World()
    world.answers_at_once = False
    for topic in ("a", "b"):
        world.deliver(topic, 1, b"1")
        world.deliver(topic, 2, b"2")
        if topic == "a":
            world.clock.advance(1)
    world.corrections.stop()
    world.answer()
    world.deliver("c", 1, b"1")
    world.deliver("c", 2, b"1")
    world.clock.advance(60)
    assert world.sent == []
    assert not world.clock.calls


def test_the_remembered_topics_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that leaves the table too early is corrected: nobody knows who sets it next."""
    monkeypatch.setattr(module, "_MOST", 3)
    world = World()
    for number in range(5):
        world.deliver(f"t/{number}", 1, b"1")
    assert len(world.corrections._setters) == 3
    world.clock.advance(1)
    assert [message.topic for message in world.sent] == ["t/0", "t/1"]
    world.clock.advance(module._LATELY)
    for number in range(5, 9):
        world.deliver(f"t/{number}", 1, b"1")
    world.clock.advance(1)
    assert [message.topic for message in world.sent] == ["t/0", "t/1", "t/5"]


def test_the_due_topics_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond it are counted, and the others are corrected, some at once."""
    monkeypatch.setattr(module, "_MOST_DUE", 5)
    monkeypatch.setattr(module, "_AT_ONCE", 2)
    world = World()
    for number in range(7):
        world.deliver(f"t/{number}", 1, b"1")
        world.deliver(f"t/{number}", 2, b"1")
    assert world.corrections.left_out == 2
    counts: list[int] = []
    for _ in range(3):
        world.clock.advance(1 if not counts else 0.05)
        counts.append(len(world.sent))
    assert counts == [2, 4, 5]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 2), st.sampled_from((0.0, 0.05, 0.3, 0.49)), st.booleans()),
        min_size=1,
        max_size=20,
    ),
    st.data(),
)
def test_the_last_live_message_is_the_retained_one(
    steps: list[tuple[str, int, float, bool]], data: st.DataObject
) -> None:
    """Two nodes set two topics. Live messages of one node keep their order, those of different nodes cross.

    No message is under way for as long as a topic is remembered.
    """
    world = World()
    under_way: dict[int, list[tuple[str, bytes]]] = {1: [], 2: []}

    def arrive(node: int, most: int) -> None:
        for topic, payload in under_way[node][:most]:
            world.deliver(topic, node, payload)
        del under_way[node][:most]

    for number, (topic, node, pause, answers) in enumerate(steps):
        world.answers_at_once = answers
        if answers:
            world.answer()
        payload = b"" if data.draw(st.integers(0, 4)) == 0 else b"%d" % number
        world.store(topic, payload)
        under_way[node].append((topic, payload))
        for each in (1, 2):
            arrive(each, data.draw(st.integers(0, len(under_way[each]))))
        world.clock.advance(pause)
    for node in data.draw(st.permutations((1, 2))):
        arrive(node, len(under_way[node]))
    world.answers_at_once = True
    world.answer()
    for _ in range(10):
        world.clock.advance(1)
    for topic, payloads in world.live.items():
        assert payloads[-1] == world.stored.get(topic, b"")
