"""The checks of the bench: each finds nothing in a good history, and a planted violation in a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.bench.checks import CHECKS, check, lost_with_qos_0
from tests.cluster.bench.history import (
    Acknowledged,
    Asked,
    Closed,
    Connected,
    Delivered,
    Event,
    Fault,
    Granted,
    History,
    Measured,
    OfClient,
    Phase,
    Published,
    Stored,
    WillSet,
    around,
)
from tests.cluster.bench.views import View


class Story:
    """Tells a history in short words. What a client does, it does on its last connection."""

    def __init__(self) -> None:
        self.history = History()
        self.stored = Stored()
        self._connections: dict[str, int] = {}
        self._topics: dict[int, str] = {}

    def _add(self, kind: type[OfClient], client: str, *values: object) -> Story:
        self.history.append(kind(float(len(self.history.events)), client, self._connections[client], *values))
        return self

    def tell(self, event: Event) -> Story:
        """Add an event."""
        self.history.append(event)
        return self

    def phase(self, name: str) -> Story:
        """Begin a phase."""
        return self.tell(Phase(0.0, name))

    def connect(self, client: str, lasting: bool = True, present: bool = False, node: int = 1) -> Story:
        """Let a client connect."""
        self._connections[client] = 1 + max(self._connections.values(), default=0)
        return self._add(Connected, client, node, lasting, False, present, 0.1)

    def close(self, client: str, by: str = "broker", reason: int | None = 0x8B) -> Story:
        """Let a connection end."""
        return self._add(Closed, client, by, reason, False)

    def subscribe(self, client: str, topic_filter: str, qos: int = 2) -> Story:
        """Let a client subscribe, and get SUBACK."""
        return self.ask(client, topic_filter, qos)._add(Granted, client, topic_filter, qos, qos)

    def ask(self, client: str, topic_filter: str, qos: int = 2) -> Story:
        """Let a client send SUBSCRIBE."""
        return self._add(Asked, client, topic_filter, qos)

    def send(
        self, client: str, number: int, topic: str, qos: int = 1, retain: bool = False, clear: bool = False,
        again: bool = False,
    ) -> Story:  # fmt: skip
        """Let a client send a PUBLISH."""
        self._topics[number] = topic
        return self._add(Published, client, number, topic, qos, retain or clear, clear, again)

    def publish(self, client: str, number: int, topic: str, qos: int = 1, retain: bool = False) -> Story:
        """Let a client publish, and get the acknowledgement."""
        return self.send(client, number, topic, qos, retain).acknowledge(client, number)

    def clear(self, client: str, number: int, topic: str) -> Story:
        """Let a client clear a topic, and get the acknowledgement."""
        return self.send(client, number, topic, clear=True).acknowledge(client, number)

    def acknowledge(self, client: str, number: int, reason: int = 0) -> Story:
        """Let an acknowledgement come."""
        return self._add(Acknowledged, client, number, reason)

    def deliver(self, client: str, number: int, qos: int = 1, retain: bool = False, dup: bool = False) -> Story:
        """Let a message come."""
        return self._add(Delivered, client, self._topics[number], number, qos, retain, dup, False)

    def empty(self, client: str, topic: str) -> Story:
        """Let an empty message without a number come."""
        return self._add(Delivered, client, topic, None, 1, False, False, True)

    def will(self, client: str, number: int, topic: str, delay: int = 0) -> Story:
        """Let a client connect with a Will."""
        back = self.has(client)
        self._connections[client] = 1 + max(self._connections.values(), default=0)
        self._topics[number] = topic
        self._add(WillSet, client, number, topic, 2, delay)
        return self._add(Connected, client, 1, True, False, back, 0.1)

    def has(self, client: str) -> bool:
        """Tell whether a client was connected before."""
        return any(event.client == client for event in self.history.of(Connected))

    def found(self) -> list[str]:
        """Return the violations, as the beginnings of their sentences."""
        return [f"{each.invariant} {each.what}" for each in check(View.of(self.history), self.stored)]


def story(
    *, publishers: tuple[str, ...] = ("p",), lasting: bool = True, topic_filter: str = "t/#", qos: int = 2
) -> Story:
    """Return a story with publishers, and a subscriber s."""
    told = Story()
    for each in publishers:
        told.connect(each)
    return told.connect("s", lasting).subscribe("s", topic_filter, qos)


# 1: stored Sessions


def test_1_a_message_that_arrives_is_right() -> None:
    """With QoS 1 twice as well, with QoS 2 once; one that was not acknowledged need not arrive."""
    told = story().publish("p", 1, "t/a").deliver("s", 1).deliver("s", 1, dup=True)
    told.publish("p", 2, "t/a", 2).deliver("s", 2, 2).send("p", 3, "t/a").publish("p", 4, "other")
    assert told.found() == []


def test_1_a_message_may_come_on_a_later_connection() -> None:
    """The Session lasts."""
    told = story().publish("p", 1, "t/a").close("s").connect("s", present=True, node=2).deliver("s", 1)
    assert told.found() == []


def test_1_a_missing_message() -> None:
    """The acknowledged one that was sent after SUBACK."""
    assert story().publish("p", 1, "t/a").found() == ["1 acknowledged with QoS 1, and never came"]


def test_1_a_message_before_suback_is_not_promised() -> None:
    """It was sent before SUBACK came."""
    told = Story().connect("p").connect("s").ask("s", "t/#").publish("p", 1, "t/a").subscribe("s", "t/#")
    assert told.found() == []


def test_1_qos_2_comes_once() -> None:
    """A second copy is wrong, also on another connection."""
    told = story().publish("p", 1, "t/a", 2).deliver("s", 1, 2).close("s").connect("s", present=True)
    assert told.deliver("s", 1, 2, dup=True).found() == ["1 QoS 2, and came 2 times"]


def test_1_a_session_is_found_again() -> None:
    """A stored Session that is not present any more is lost."""
    assert story().close("s").connect("s", present=False).found() == [
        "1 its stored Session was lost, 5.0 s after the beginning"
    ]


def test_1_a_refused_message_is_wrong() -> None:
    """No client is refused in the bench."""
    assert story().send("p", 1, "other").acknowledge("p", 1, 0x97).found() == ["1 was refused with Reason Code 0x97"]


def test_1_a_message_comes_once_on_a_connection() -> None:
    """But with DUP, or if it was sent twice."""
    assert story().publish("p", 1, "t/a").deliver("s", 1).deliver("s", 1).found() == ["1 came twice on one connection"]
    told = story().publish("p", 1, "t/a").deliver("s", 1).send("p", 1, "t/a", again=True).deliver("s", 1)
    assert told.found() == []


# 2: one of each


def test_2_one_connection_and_one_session() -> None:
    """A connection that was closed is none."""
    told = Story().connect("a").close("a").connect("a", present=True)
    told.stored = Stored(sessions={"a": (1,)}, commits={(1, "7"): (3,), (2, "8"): (1,)})
    assert told.found() == []


def test_2_two_connections() -> None:
    """Both are open in the end."""
    assert Story().connect("a").connect("a", present=True).found() == ["2 has 2 connections"]


def test_2_two_sessions_and_a_late_commit() -> None:
    """Two rows of one Client Identifier; a connection that has committed after its incarnation."""
    told = Story()
    told.stored = Stored(sessions={"a": (1, 2)}, commits={(1, "7"): (3, 4)})
    assert told.found() == [
        "2 has 2 Sessions, of the nodes (1, 2)", "2 connection 7 of node 1 has committed in the incarnations (3, 4)"
    ]  # fmt: skip


# 3: order


def test_3_rising_numbers_are_right() -> None:
    """Each QoS has its own order; a replay begins before; a repeated message may be older."""
    told = story().publish("p", 1, "t/a").send("p", 2, "t/a", 0).deliver("s", 2, 0).deliver("s", 1)
    told.send("p", 3, "t/a").publish("p", 4, "t/a").deliver("s", 4).send("p", 3, "t/a", again=True)
    assert told.acknowledge("p", 3).deliver("s", 3).found() == []


def test_3_a_number_falls() -> None:
    """On one connection; on the next one the order begins anew."""
    told = story().publish("p", 1, "t/a").publish("p", 2, "t/a").deliver("s", 2).deliver("s", 1)
    assert told.found() == ["3 QoS 1, behind 2"]
    told = story().publish("p", 1, "t/a").publish("p", 2, "t/a").deliver("s", 2).close("s")
    assert told.connect("s", present=True).deliver("s", 1, dup=True).found() == []


def test_3_a_stale_replay() -> None:
    """A replayed message behind a newer live one, and a live one behind a newer replayed one."""
    told = story(lasting=False).publish("p", 1, "t/a", retain=True).publish("p", 2, "t/a", retain=True)
    told.stored = Stored({"t/a": 2})
    told.deliver("s", 2).deliver("s", 1, retain=True)
    assert told.found() == ["3 replayed behind 2", "4 saw 1 last, and the database has 2"]
    told = story(lasting=False).publish("p", 1, "t/a", retain=True).publish("p", 2, "t/a", retain=True)
    told.stored = Stored({"t/a": 2})
    assert told.deliver("s", 2, retain=True).deliver("s", 1).found() == [
        "3 live, behind the replayed 2", "4 saw 1 last, and the database has 2"
    ]  # fmt: skip


# 4: agreement


@pytest.mark.parametrize(("row", "found"), [(2, []), (1, ["4 saw 2 last, and the database has 1"])])
def test_4_the_last_value_is_the_stored_one(row: int, found: list[str]) -> None:
    """On a topic that two clients set."""
    told = story(publishers=("p", "q")).publish("p", 1, "t/a", retain=True).publish("q", 2, "t/a", retain=True)
    told.stored = Stored({"t/a": row})
    assert told.deliver("s", 1).deliver("s", 2).found() == found


def test_4_messages_of_different_qos_have_no_order() -> None:
    """The one with QoS 2 may come later."""
    told = story(publishers=("p", "q")).publish("p", 1, "t/a", 2, True).publish("q", 2, "t/a", 1, True)
    told.stored = Stored({"t/a": 2})
    assert told.deliver("s", 2).deliver("s", 1, 2).found() == []


def test_4_an_empty_message_stands_for_none() -> None:
    """A correction has no number."""
    told = story(publishers=("p", "q")).publish("p", 1, "t/a", retain=True).clear("q", 2, "t/a").deliver("s", 1)
    assert told.found() == ["4 saw 1 last, and the database has None"]
    assert told.empty("s", "t/a").found() == []


# 5: replays


def test_5_a_complete_replay() -> None:
    """It has what was set before, or something newer, and nothing that was cleared."""
    told = Story().connect("p").publish("p", 1, "t/a", retain=True).publish("p", 2, "t/b", retain=True)
    told.clear("p", 3, "t/b").connect("s", False).subscribe("s", "t/#").deliver("s", 1, retain=True)
    told.stored = Stored({"t/a": 1})
    assert told.found() == []


def test_5_a_hole_and_a_ghost() -> None:
    """A message that was set before and did not come; one that was cleared before and came."""
    told = Story().connect("p").publish("p", 1, "t/a", retain=True).publish("p", 2, "t/b", retain=True)
    told.clear("p", 3, "t/b").connect("s", False).subscribe("s", "t/#").deliver("s", 2, retain=True)
    told.stored = Stored({"t/a": 1})
    assert [each for each in told.found() if each[0] != "4"] == [
        "5 was set before SUBSCRIBE, and was not replayed", "5 replayed, and was cleared by 3 before SUBSCRIBE"
    ]  # fmt: skip


def test_5_a_connection_that_ended_had_no_complete_replay() -> None:
    """Its client subscribes again."""
    told = Story().connect("p").publish("p", 1, "t/a", retain=True).connect("s", False).subscribe("s", "t/#")
    told.stored = Stored({"t/a": 1})
    assert told.close("s").found() == []


# 6: Wills


def test_6_a_will_once() -> None:
    """Its client was lost and did not come back."""
    told = story().will("w", 1, "t/w").close("w", "abort", None).phase("quiet")
    assert told.found() == ["6 a Will never came"]
    assert told.deliver("s", 1, 2).found() == []
    assert told.close("s").connect("s", present=True).deliver("s", 1, 2).found() == ["6 a Will came 2 times"]


def test_6_a_will_without_need() -> None:
    """Its client said goodbye; or came back before the Will Delay Interval; or is connected."""
    assert story().will("w", 1, "t/w").close("w", "client", 0).deliver("s", 1, 2).found() == [
        "6 a Will came without need"
    ]
    told = story().will("w", 1, "t/w", 60).close("w", "abort", None).will("w", 2, "t/w", 60)
    assert told.found() == []
    assert told.deliver("s", 1, 2).found() == ["6 a Will came without need"]
    assert story().will("w", 1, "t/w").deliver("s", 1, 2).found() == ["6 a Will came without need"]


def test_6_no_will_behind_connack() -> None:
    """What the client has said after CONNACK stays."""
    told = story().will("w", 1, "t/w").close("w", "abort", None).deliver("s", 1, 2).will("w", 2, "t/w")
    told.publish("w", 3, "t/w", retain=True)
    told.stored = Stored({"t/w": 3})
    assert told.found() == []
    told.stored = Stored({"t/w": 1})
    assert told.found() == ["6 1 is retained in spite of what its client said"]


# 7: arrived, or told


def test_7_a_connection_that_is_open_misses_nothing() -> None:
    """One that has ended may."""
    told = story(lasting=False).publish("p", 1, "t/a")
    assert told.found() == ["7 acknowledged with QoS 1, and never came"]
    assert told.close("s").found() == []


def test_7_no_connection_ends_without_a_reason() -> None:
    """But during faults."""
    assert Story().connect("s").phase("faults").close("s", reason=None).phase("groups").found() == []
    told = Story().connect("s").phase("faults").phase("groups").close("s", reason=None)
    assert told.found() == ["7 connection 1 ended without a reason or a fault"]


# 8: stored


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (2, []),
        (3, []),
        (1, ["8 2 was acknowledged, and the database has 1"]),
        (None, ["8 2 was acknowledged, and the database has None"]),
        (9, ["8 the database has 9, which nobody has set"]),
    ],
)
def test_8_the_database_has_what_was_acknowledged(row: int | None, found: list[str]) -> None:
    """Or something newer that was sent."""
    told = Story().connect("p").publish("p", 1, "t/a", retain=True).publish("p", 2, "t/a", retain=True)
    told.send("p", 3, "t/a", retain=True)
    told.stored = Stored({} if row is None else {"t/a": row})
    assert told.found() == found


def test_8_a_cleared_topic_is_empty() -> None:
    """Nothing is there behind an acknowledged clear."""
    told = Story().connect("p").publish("p", 1, "t/a", retain=True).clear("p", 2, "t/a")
    assert told.found() == []
    told.stored = Stored({"t/a": 1})
    assert told.found() == ["8 2 was acknowledged, and the database has 1"]


# 9: groups


def group(*members: str) -> Story:
    """Return a story with a publisher, and the members of a group."""
    told = Story().connect("p")
    for each in members:
        told.connect(each).subscribe(each, "$share/g/t/#")
    return told


def test_9_one_member_gets_each_message() -> None:
    """Nobody, or two, are wrong."""
    told = group("a", "b").publish("p", 1, "t/a", 2)
    assert told.found() == ["9 group g: acknowledged, and nobody got it"]
    assert told.deliver("a", 1, 2).found() == []
    assert told.deliver("b", 1, 2).found() == ["9 group g: QoS 2, and came 2 times"]


def test_9_with_qos_1_another_member_may_get_it_when_a_connection_ends() -> None:
    """Not while both are connected."""
    told = group("a", "b").publish("p", 1, "t/a").deliver("a", 1).deliver("b", 1)
    assert told.found() == ["9 group g: a, b got it"]
    assert told.close("a").found() == []


@pytest.mark.parametrize(("of_a", "found"), [(33, 0), (60, 2)])
def test_9_members_get_equal_parts(of_a: int, found: int) -> None:
    """While nothing is disturbed, within a fifth of the mean."""
    told = group("a", "b").phase("groups")
    for number in range(1, 71):
        told.publish("p", number, "t/a").deliver("a" if number <= of_a else "b", number)
    assert len(told.phase("quiet").found()) == found


# 10: bounds


def test_10_memory_and_what_waits() -> None:
    """Samples during the cycle, and the end."""
    told = (
        Story().tell(Measured(0.0, {"1": 100 << 20}, 1000, 10)).tell(Measured(1.0, {"1": 150 << 20}, 50 << 20, 90_000))
    )
    assert told.found() == []
    told.tell(Measured(2.0, {"1": 500 << 20}, 300 << 20, 0))
    told.stored = Stored(runs=2 << 20, rows=50_000)
    assert [each[:2] for each in told.found()] == ["10"] * 4


# the rest


def test_qos_0_is_counted() -> None:
    """What a connected subscriber should have got, and what it missed."""
    told = story().send("p", 1, "t/a", 0).send("p", 2, "t/b", 0).deliver("s", 1, 0)
    assert lost_with_qos_0(View.of(told.history)) == (2, 1)
    assert told.found() == []


def test_a_history_is_read_as_it_was_saved(tmp_path: Path) -> None:
    """With all its events, without the lines before it."""
    told = story().publish("p", 1, "t/a").will("w", 2, "t/w").phase("quiet").tell(Fault(1.0, "stop", 1, True, True))
    told.tell(Measured(2.0, {"1": 5}, 1, 2)).close("w")
    told.history.save(tmp_path / "history.jsonl", [{"seed": 1}])
    assert History.load(tmp_path / "history.jsonl") == told.history


def test_the_events_around_a_violation() -> None:
    """Its message and its client, without other ones."""
    told = story().publish("p", 1, "t/a").publish("p", 2, "other")
    (violation,) = check(View.of(told.history), told.stored)
    assert str(violation) == "invariant 1: acknowledged with QoS 1, and never came (client s, topic t/a, number 1)"
    kinds = [type(event).__name__ for event in around(told.history, violation)]
    assert kinds == ["Connected", "Asked", "Granted", "Published", "Acknowledged"]


def test_each_invariant_has_a_check() -> None:
    """They are told by their numbers."""
    assert [int((each.__doc__ or "").split(":")[0]) for each in CHECKS] == list(range(1, 11))
