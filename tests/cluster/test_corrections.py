"""Topics that two nodes set: the stored message is sent once more, and never an older one behind a newer one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast.cluster.corrections import Corrections
from holdfast.core.messages import ApplicationMessage, RetainedMessage
from holdfast.core.tickets import COMMITTED, CommitTicket, FailureKind, StorageFailure
from holdfast.wire import NO_PROPERTIES


def stored(topic: str, payload: bytes, qos: int = 2) -> RetainedMessage:
    """Return a retained message."""
    return RetainedMessage(topic, payload, qos, NO_PROPERTIES, "c", None, 0, None, 1)


def change(found: RetainedMessage | None, revision: int = 1) -> tuple[int, RetainedMessage | None]:
    """Return the last change of a topic."""
    return revision if found is None else found.revision, found


class Node:
    """Corrections of node 1, whose store answers when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.reads: list[tuple[str, Deferred[tuple[int, RetainedMessage | None]]]] = []
        self.sent: list[ApplicationMessage] = []
        self.flushed: list[str] = []
        retained = SimpleNamespace(store=SimpleNamespace(last_change=self.last_change, flushed=self.flush))
        self.corrections = Corrections(cast("Any", retained), self.clock, self.sent.append)

    def flush(self, topic: str) -> CommitTicket:
        """Write this node's changes of a topic."""
        self.flushed.append(topic)
        return COMMITTED

    def last_change(self, topic: str) -> Deferred[tuple[int, RetainedMessage | None]]:
        """Read what the last change of a topic has left."""
        self.reads.append((topic, Deferred()))
        return self.reads[-1][1]


def test_a_topic_of_one_node_is_never_corrected() -> None:
    """Nor one that another node sets later than ten seconds."""
    node = Node()
    for _ in range(5):
        node.corrections.changed("a", 1)
        node.clock.advance(1)
    node.clock.advance(10)
    node.corrections.changed("a", 2)
    node.clock.advance(10)
    assert node.reads == []


@pytest.mark.parametrize(
    ("found", "sent"),
    [
        (stored("a", b"x"), ApplicationMessage("a", b"x", 1, True, "c")),
        (stored("a", b"x", 0), ApplicationMessage("a", b"x", 0, True, "c")),
        (None, ApplicationMessage("a", b"", 1, True)),
    ],
)
def test_a_topic_of_two_nodes_is_corrected_once(found: RetainedMessage | None, sent: ApplicationMessage) -> None:
    """A second after its last change, with QoS 1 at most, or by an empty message."""
    node = Node()
    for number in (1, 2, 1, 2):
        node.corrections.changed("a", number, is_clear=found is None)
        node.clock.advance(0.5)
    assert node.reads == []
    node.clock.advance(0.6)
    ((topic, reading),) = node.reads
    assert topic == "a"
    reading.callback(change(found))
    node.clock.advance(60)
    assert node.sent == [sent]
    assert len(node.reads) == 1


def test_a_message_that_may_be_older_than_the_last_live_one_is_not_sent() -> None:
    """The topic is set again while its message is read: it is read again."""
    node = Node()
    node.corrections.changed("a", 1)
    node.corrections.changed("a", 2)
    node.clock.advance(1)
    node.corrections.changed("a", 2)
    node.reads[0][1].callback(change(stored("a", b"older")))
    assert node.sent == []
    node.clock.advance(1)
    node.reads[1][1].callback(change(stored("a", b"newer")))
    assert [each.payload for each in node.sent] == [b"newer"]


def test_a_store_that_is_away_is_asked_again() -> None:
    """A second later."""
    node = Node()
    node.corrections.changed("a", 1)
    node.corrections.changed("a", 2)
    node.clock.advance(1)
    node.reads[0][1].errback(StorageFailure(FailureKind.UNAVAILABLE, "away"))
    node.clock.advance(1)
    node.reads[1][1].callback(change(stored("a", b"x")))
    assert len(node.sent) == 1


@pytest.mark.parametrize("is_clear", [False, True])
def test_a_message_that_is_not_stored_yet_is_waited_for(is_clear: bool) -> None:
    """A policy delays its write: the store has an older one, or none, so nothing is sent until it has the newer one."""
    node = Node()
    node.corrections.changed("a", 1, 5)
    node.corrections.changed("a", 2, 7, is_clear)
    node.clock.advance(1)
    assert node.flushed == ["a"]
    node.reads[0][1].callback(change(stored("a", b"older")) if is_clear else (0, None))
    node.clock.advance(1)
    assert node.sent == []
    node.reads[1][1].callback(change(None if is_clear else evolve(stored("a", b"newer"), revision=7), 7))
    assert [each.payload for each in node.sent] == [b"" if is_clear else b"newer"]


def test_a_message_that_is_never_stored_is_given_up() -> None:
    """It was refused: the topic is left out, and counted."""
    node = Node()
    node.corrections.changed("a", 1, 5)
    node.corrections.changed("a", 2, 7)
    for number in range(30):
        node.clock.advance(1)
        node.reads[number][1].callback((0, None))
    node.clock.advance(10)
    assert len(node.reads) == 30
    assert node.corrections.left_out == 1


def test_a_clear_that_was_stored_behind_a_later_set_is_told() -> None:
    """Its revision is given by the store, and is higher than the one that is known here."""
    node = Node()
    node.corrections.changed("a", 1, 5, is_clear=True)
    node.corrections.changed("a", 2, 7)
    node.corrections.written("a", 1)
    node.clock.advance(1)
    node.reads[0][1].callback(change(None, 8))
    assert [each.payload for each in node.sent] == [b""]


@pytest.mark.parametrize("is_written_last", [False, True])
def test_a_change_counts_as_made_when_it_is_stored(is_written_last: bool) -> None:
    """The database was away for a minute: the other node's row comes just before or just behind that."""
    node = Node()
    node.corrections.changed("a", 1, 5)
    node.clock.advance(60)
    if is_written_last:
        node.corrections.changed("a", 2, 7)
        node.corrections.written("a", 1)
    else:
        node.corrections.written("a", 1)
        node.corrections.changed("a", 2, 7)
    node.clock.advance(1)
    node.reads[0][1].callback(change(evolve(stored("a", b"x"), revision=9)))
    assert [each.payload for each in node.sent] == [b"x"]


def test_a_row_that_comes_behind_a_later_one_makes_its_topic_due() -> None:
    """However late it is. A later one that comes late does not."""
    node = Node()
    node.corrections.changed("a", 1, 7)
    node.corrections.changed("b", 1, 5)
    node.clock.advance(60)
    node.corrections.changed("a", 2, 5)
    node.corrections.changed("b", 2, 7)
    node.clock.advance(1)
    assert [topic for topic, _ in node.reads] == ["a"]


def test_topics_that_are_forgotten_are_corrected() -> None:
    """Of more topics than are remembered, nobody knows who sets the first ones next. All are corrected in steps."""
    node = Node()
    for number in range(20_100):
        node.corrections.changed(str(number), 1)
    node.clock.advance(1)
    assert len(node.reads) == 50
    node.clock.pump([0.1] * 5)
    assert [topic for topic, _ in node.reads] == [str(number) for number in range(100)]


def test_nothing_is_corrected_after_the_end() -> None:
    """A reading that is under way is not sent either."""
    node = Node()
    node.corrections.changed("a", 1)
    node.corrections.changed("a", 2)
    node.clock.advance(1)
    node.corrections.stop()
    node.reads[0][1].callback((0, None))
    node.corrections.changed("a", 1)
    node.clock.advance(60)
    assert node.sent == []
    assert node.clock.getDelayedCalls() == []
