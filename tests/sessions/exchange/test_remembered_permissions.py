"""What is remembered of permissions to publish: never longer than the rules hold, and never too much."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.identity import authorizer as verdicts
from holdfast.identity.authorizer import Authorizer, PresentAuthorizer
from holdfast.identity.rules import Action, Conditions, Rule, RuleList, Ruleset
from holdfast.wire import TopicPool, encode, runs
from holdfast.wire import packets as p
from holdfast.wire.parser import PacketParser
from tests.doubles import Client, MemoryBroker

PUBLISHERS = ("a", "b", "c")
TOPICS = tuple(f"t/{number:02}" for number in range(10))

#: the topics to which each publisher may publish
Allowed = dict[str, frozenset[str]]

ALLOWED: st.SearchStrategy[Allowed] = st.fixed_dictionaries(
    {name: st.sets(st.sampled_from(TOPICS), min_size=3).map(frozenset) for name in PUBLISHERS}
)
#: a publisher, then the topics and the QoS of its packets, which come again a few times in the same piece of bytes
PUBLISHES = st.tuples(
    st.sampled_from(PUBLISHERS),
    st.lists(st.sampled_from(TOPICS), min_size=1, max_size=10, unique=True),
    st.integers(0, 1),
    st.integers(1, 3),
)
OTHERS = st.tuples(st.sampled_from(["reload", "replace"]), ALLOWED) | st.tuples(
    st.sampled_from(["reconnect", "subscribe"]), st.sampled_from(PUBLISHERS)
)


def ruleset(allowed: Allowed) -> Ruleset:
    """Return rules with which the publishers may publish this, and the client s may receive everything."""
    rules = [Rule(True, frozenset({Action.SUBSCRIBE}), ("#",), "here:1")]
    for name, topics in allowed.items():
        only = Conditions(frozenset({name}))
        rules.append(Rule(True, frozenset({Action.PUBLISH}), tuple(sorted(topics)), "here:2", conditions=only))
    return Ruleset(RuleList(tuple(rules)))


class Side:
    """A broker with these publishers and a subscriber of everything, and what the publishers may do."""

    def __init__(self, allowed: Allowed) -> None:
        self.present = PresentAuthorizer(Authorizer(ruleset(allowed)))
        self.broker = MemoryBroker(authorizer=self.present)
        self.allowed = allowed
        self.subscriber = self.broker.client("s")
        self.subscriber.subscribe("#")
        self.publishers: dict[str, Client] = {name: self.broker.client(name) for name in PUBLISHERS}
        self.number = 0

    def publish(self, name: str, topics: list[str], qos: int, times: int) -> None:
        """Check that the subscriber gets what is allowed at this time, and that all messages are answered."""
        packets = []
        for topic in topics * times:
            self.number += 1
            packets.append(p.Publish(topic, b"%d" % self.number, qos, packet_identifier=qos * self.number))
        publisher = self.publishers[name]
        publisher.raw(b"".join(encode(packet, 4) for packet in packets))
        got = [(packet.topic, packet.payload) for packet in self.subscriber.got(p.Publish)]
        assert got == [(one.topic, one.payload) for one in packets if one.topic in self.allowed[name]]
        answered = [packet.packet_identifier for packet in publisher.got(p.Puback)]
        assert answered == [packet.packet_identifier for packet in packets if qos]

    def reload(self, allowed: Allowed) -> None:
        """Exchange the authorizer, as a reload does."""
        self.present.use(Authorizer(ruleset(allowed)))
        self.allowed = allowed

    def replace(self, allowed: Allowed) -> None:
        """Exchange the rules of the authorizer, as a change of rules in the database does."""
        authorizer: Any = self.present.authorizer
        authorizer.replace(ruleset(allowed))
        self.allowed = allowed

    def reconnect(self, name: str) -> None:
        self.publishers[name].drop()
        self.publishers[name] = self.broker.client(name)

    def subscribe(self, _: str) -> None:
        """Make all routes invalid."""
        self.subscriber.subscribe("#")


@given(ALLOWED, st.lists(st.one_of(PUBLISHES, PUBLISHES, OTHERS), max_size=30))
def test_a_message_is_delivered_if_the_present_rules_allow_it(allowed: Allowed, steps: list[Any]) -> None:
    """Whatever was remembered and forgotten before: all memories are so small here that they overflow."""
    with (
        patch.multiple(runs, _UNIT=2 * (150 + len(TOPICS[0])), _MOST_OF_ONE=2),
        patch.multiple(verdicts, MOST_OF_ONE=3, MOST_OF_ONE_AT_EASE=6, MOST_VERDICTS=12),
    ):
        side = Side(allowed)
        for step in steps:
            if len(step) == 4:
                side.publish(*step)
            else:
                getattr(side, step[0])(step[1])


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The packets of each run."""
    found: list[int] = []
    next_run = PacketParser.next_run

    def spy(parser: PacketParser, most: int = 1) -> Any:
        packet = next_run(parser, most)
        if isinstance(packet, runs.Run):
            found.append(packet.count)
        return packet

    monkeypatch.setattr(PacketParser, "next_run", spy)
    return found


def messages(number: int) -> bytes:
    return b"".join(encode(p.Publish(f"site/{one:05}/temperature", b"1"), 4) for one in range(number))


def test_thousands_of_topics_of_one_client_are_known(most: list[int]) -> None:
    """They need no question, however many they are, until the client is gone. Then others can have the memory."""
    broker = MemoryBroker()
    subscriber, publisher = broker.client("s"), broker.client("p")
    subscriber.subscribe("#")
    pool = broker.topic_pool
    whole = pool.free
    publisher.raw(messages(5000))
    assert most == []
    publisher.raw(messages(5000))
    assert sum(most) == 5000
    assert whole - 15 <= pool.free < whole
    publisher.drop()
    assert pool.free == whole


def test_a_client_that_sends_no_further_topics_gives_back_what_a_change_made_useless() -> None:
    broker = MemoryBroker()
    subscriber, publisher = broker.client("s"), broker.client("p")
    whole = broker.topic_pool.free
    publisher.raw(messages(1000))
    assert broker.topic_pool.free < whole
    subscriber.subscribe("#")
    publisher.raw(messages(1))
    assert broker.topic_pool.free == whole


def test_no_client_gets_more_than_half_of_the_pool_or_than_its_bound() -> None:
    """Each of them wants all that it can get. In the end nothing is left, and all comes back."""
    pool = TopicPool(100)
    held = []
    for _ in range(20):
        free, units = pool.free, 0
        while pool.take(units):
            units += 1
        assert units == min(15, (free + 1) // 2)
        held.append(units)
    assert pool.free == 0
    for units in held:
        pool.give_back(units)
    assert pool.free == 100
