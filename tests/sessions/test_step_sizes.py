"""No turn of the reactor does more because a client's packets are long: counted in split levels and in packets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest
from twisted.internet.defer import Deferred, succeed

from holdfast.changes.since import ChangesSince
from holdfast.core import topics
from holdfast.core.clients import Found, SubscriptionSearch, SubscriptionView
from holdfast.identity.authorizer import Authorizer
from holdfast.identity.rules import EVERY_ACTION, MOST_VISITED, Rule, RuleList, Ruleset
from holdfast.scheduling.long_work import STEPS_IN_PART
from holdfast.sessions import directory, sys_topics
from holdfast.sessions.connection.packet_order import PACKETS_OF_A_TURN
from holdfast.sessions.exchange import asking, subscribing, unsubscribing
from holdfast.sessions.limits import Limits
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode, encode
from holdfast.wire import packets as p
from holdfast.wire.packets import LongEntries
from tests.doubles import Client, MemoryBroker, TurnClock

#: characters of Topic Filters that one turn may compare: in each step 50 comparisons of up to 64 characters
MOST_COMPARED = STEPS_IN_PART * 50 * 64
#: Topic Filters that differ in their last level, and a Topic Name that each of them almost matches
DEEP = "+/" * 100
NEAR = "/".join(["a"] * 100) + "/b"
TAKES_PART = Properties(user_properties=(("holdfast", "?"),))


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each turn has counted: the last entry is that of the present turn."""
    counted = [0]
    turn = TurnClock.turn

    def next_turn(self: TurnClock) -> None:
        counted.append(0)
        turn(self)

    monkeypatch.setattr(TurnClock, "turn", next_turn)
    return counted


@pytest.fixture
def compared(turns: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The characters of the Topic Filters that each turn has compared."""

    def counting(name: str) -> Callable[[str], Callable[[str], bool]]:
        prepare: Callable[[str], Callable[[str], bool]] = getattr(topics, name)

        def prepared(topic: str) -> Callable[[str], bool]:
            compare = prepare(topic)

            def counted(topic_filter: str) -> bool:
                turns[-1] += len(topic_filter)
                return compare(topic_filter)

            return counted

        return prepared

    for module in (asking, subscribing, directory):
        monkeypatch.setattr(module, "matching", counting("matching"))
    monkeypatch.setattr(directory, "covering", counting("covering"))
    return turns


def subscriber(count: int = 1500) -> Client:
    """Return a client with many Subscriptions of many levels."""
    client = MemoryBroker().client("c", 5, properties=TAKES_PART)
    client.subscribe(*(f"{DEEP}{number}" for number in range(count)))
    return client


def check(compared: list[int]) -> None:
    assert sum(compared) > 2 * MOST_COMPARED  # there was much to compare
    assert max(compared) <= MOST_COMPARED


def test_a_question_compares_its_response_topic_with_a_bounded_part_of_the_subscriptions_in_a_turn(
    compared: list[int],
) -> None:
    client = subscriber()
    question = Properties(response_topic=NEAR)
    client.send(p.Publish("$retained/count", b'{"filter":"#"}', 1, False, False, 7, question))
    assert [packet.reason_code for packet in client.got(p.Puback)] == [ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR]
    check(compared)


def test_a_marker_compares_its_topic_with_a_bounded_part_of_the_subscriptions_in_a_turn(compared: list[int]) -> None:
    client = subscriber()
    asks = Properties(user_properties=(("holdfast-replay-end", NEAR),))
    client.send(p.Subscribe(9, (p.SubscriptionRequest("other"),), asks))
    check(compared)


@pytest.mark.parametrize("wanted", [NEAR, f"{NEAR[:-1]}+"])
def test_a_search_for_subscriptions_compares_a_bounded_part_of_them_in_a_turn(compared: list[int], wanted: str) -> None:
    broker = subscriber().broker
    found: list[Found[SubscriptionView, directory.Place]] = []
    search = directory.Directory(broker.registry, broker.session_parts.broker_parts.long_work)
    search.subscriptions(SubscriptionSearch(matching=wanted), ("", ""), 100).addCallback(found.append)
    broker.settle()
    assert len(found) == 1
    check(compared)


def test_a_response_topic_with_too_many_levels_is_compared_with_nothing(compared: list[int]) -> None:
    """Its levels are limited as those of all topics, though no message has it yet."""
    client = subscriber(3)
    client.publish("$retained/count", b'{"filter":"#"}', 1, properties=Properties(response_topic="/" * 64_999))
    (refused,) = client.got(p.Puback)
    assert refused.reason_code == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    assert refused.properties.reason_string == "the Response Topic has more than 128 levels"
    assert sum(compared) == 0


@pytest.mark.parametrize("unsubscribes", [True, False])
def test_a_turn_checks_a_bounded_number_of_characters_of_topic_filters(
    turns: list[int], monkeypatch: pytest.MonkeyPatch, unsubscribes: bool
) -> None:
    check_filter = topics.check_topic_filter

    def counted(topic_filter: str, most: int) -> None:
        turns[-1] += len(topic_filter)
        check_filter(topic_filter, most)

    monkeypatch.setattr(unsubscribing, "check_topic_filter", counted)
    filters = tuple("+/" * 16_000 + str(number) for number in range(60))
    client = MemoryBroker(limits=Limits(max_packet_size=1 << 24)).client("c", 5)
    packet = p.Unsubscribe(9, filters) if unsubscribes else p.Subscribe(9, tuple(map(p.SubscriptionRequest, filters)))
    client.send(packet)
    assert len(client.packets()) == 1
    assert sum(turns) >= 60 * 32_000
    assert max(turns) <= 2 * STEPS_IN_PART * 8 * 1024


def entangled() -> Ruleset:
    """Return rules with ``+`` and ``%c`` in each of many levels: a topic of these levels leads to nodes of them all."""
    filters = (
        "/".join("%c" if number >> depth % 8 & 1 else "+" for depth in range(64)) + f"/x{number}"
        for number in range(256)
    )
    return Ruleset(RuleList((Rule(True, EVERY_ACTION, tuple(filters), "here", has_templates=True),)), default=True)


def test_packets_whose_rules_take_long_to_find_are_few_in_a_turn(turns: list[int]) -> None:
    """The search is bounded too: then the message is denied, whatever the rules say."""
    authorizer = Authorizer(entangled())
    broker = MemoryBroker(authorizer=authorizer)
    client = broker.client("c", 5)
    dispatched = broker.counters
    packets = [p.Publish("c/" * 64 + str(number), b"x", 0) for number in range(50)]
    client.connection.receive(b"".join(encode(packet, 5) for packet in packets))
    before, most = 0, 0
    for _ in range(200):
        most = max(most, dispatched.messages_received - before)
        before = dispatched.messages_received
        if before == len(packets):
            break
        broker.clock.turn()
    assert dispatched.messages_dropped_not_authorized == before == len(packets)
    assert most <= 2
    broker.settle()
    client.publish("c/" * 8 + "y", b"x", 1)
    (puback,) = client.got(p.Puback)
    assert puback.reason_code == ReasonCode.NO_MATCHING_SUBSCRIBERS  # allowed


@pytest.mark.parametrize(
    ("packets", "cost"),
    [([p.Pubrel(number) for number in range(1, 1000)], 3), ([p.Pubrec(number) for number in range(1, 1000)], 3),
     ([p.Publish(f"a/{number}", b"", 0, True) for number in range(1, 1000)], 4)],
)  # fmt: skip
def test_packets_that_cost_more_are_fewer_in_a_turn(packets: list[p.Packet], cost: int) -> None:
    broker = MemoryBroker()
    client = broker.client("c", 5)
    data = b"".join(encode(packet, 5) for packet in packets)
    received = broker.counters.packets_received
    client.connection.receive(data)
    assert broker.counters.packets_received - received <= PACKETS_OF_A_TURN // cost + 1
    broker.settle()
    assert broker.counters.packets_received - received == len(packets)


def test_the_search_for_a_topic_is_bounded() -> None:
    """What lies behind a match is left out, so usual rules never come near the bound."""
    rules = entangled()
    authorizer = Authorizer(rules)
    principal = MemoryBroker().client("c", 5).broker.registry.session_of("c")
    assert principal is not None
    permissions = authorizer.permissions_of(principal.principal)
    action = next(iter(EVERY_ACTION))
    allowed, visited = permissions.search(action, ("c/" * 64 + "x0").split("/"))
    assert (allowed, MOST_VISITED < visited <= MOST_VISITED + 256) == (False, True)
    assert not permissions.decide(action, "c/" * 64 + "x0").is_exact
    everything = Ruleset(RuleList((Rule(True, EVERY_ACTION, ("#",), "here"), *rules.rules)))
    first = Authorizer(everything).permissions_of(principal.principal)
    assert first.search(action, ("c/" * 64 + "x0").split("/")) == (True, 1)


class Tokens:
    """Grants the same token to all, as a broker does that keeps changes."""

    def token(self) -> Deferred[str]:
        return succeed("token")


FILTERS = tuple(f"f/{number}" for number in range(1500))


def subscribe(*user_properties: tuple[str, str], first: str = "f", last: str = "f") -> p.Subscribe:
    filters = (first, *FILTERS, last)
    return p.Subscribe(9, tuple(map(p.SubscriptionRequest, filters)), Properties(user_properties=user_properties))


@pytest.mark.parametrize(
    ("version", "packet"),
    [
        (5, subscribe()),
        (4, subscribe()),
        (5, subscribe(first="$replay/end")),
        (5, subscribe(last="$replay/end")),
        (5, subscribe(("holdfast-replay-end", "f/end"))),
        (5, subscribe(("holdfast-replay-info", "publisher"))),
        (5, subscribe(("holdfast-conflate", "1000"), last="$share/g/f")),
        (5, subscribe(("holdfast-unknown", "1"))),  # refused
        (5, subscribe(*[("name", "value")] * 100)),  # refused
        (5, subscribe(last="a/#/b")),  # malformed
        (5, subscribe(first="$history/at/x/f")),  # refused with a note
        (5, p.Unsubscribe(9, FILTERS)),
        (4, p.Unsubscribe(9, FILTERS)),
    ],
)
def test_few_topic_filters_are_decoded_in_each_turn(
    turns: list[int], monkeypatch: pytest.MonkeyPatch, version: int, packet: p.Subscribe | p.Unsubscribe
) -> None:
    """Whatever a packet asks for: nothing goes through all its Topic Filters before the first pause, or after it."""
    decoded = LongEntries.__iter__

    def counted(self: LongEntries[object]) -> Iterator[object]:
        for each in decoded(self):
            turns[-1] += 1
            yield each

    monkeypatch.setattr(LongEntries, "__iter__", counted)
    broker = MemoryBroker()
    broker.replays.since = cast(ChangesSince, Tokens())
    client = broker.client("c", version, properties=TAKES_PART if version == 5 else NO_PROPERTIES)
    client.send(packet)
    answers = [each for each in client.packets() if isinstance(each, p.Suback | p.Unsuback | p.Disconnect)]
    assert len(answers) == 1
    assert sum(turns) >= len(FILTERS)
    # One is decoded to know its length. The changes begin in the turn in which the checks end.
    assert max(turns) <= STEPS_IN_PART * unsubscribing.CHECKS_PER_STEP + 1 + STEPS_IN_PART


@pytest.mark.parametrize("wildcards", [True, False])
def test_few_values_of_the_broker_s_own_topics_are_compared_and_sent_in_each_turn(
    turns: list[int], monkeypatch: pytest.MonkeyPatch, wildcards: bool
) -> None:
    compare = topics.matches

    def counted(topic_filter: str, topic: str) -> bool:
        turns[-1] += 1
        return compare(topic_filter, topic)

    monkeypatch.setattr(sys_topics, "matches", counted)
    broker = MemoryBroker(sys_msg_interval=10, limits=Limits(max_packet_size=1 << 24))
    broker.settle()
    client = broker.client("c", 5)
    known = len(client.subscribe("$SYS/#")) - 1
    assert known > 10
    turns[:] = [0]
    filters = [f"$SYS/broker/{number}/{'#' if wildcards else 'x'}" for number in range(600)]
    client.subscribe(*filters)
    assert sum(turns) == (600 * known if wildcards else 0)
    assert max(turns) <= STEPS_IN_PART * 20 * 10
    turns[:] = [0]
    told = client.subscribe(*(f"$SYS/{'#' if number % 2 else 'broker/version'}" for number in range(201)))
    assert len(told) == 1 + known + 1  # SUBACK, and each Subscription once


def test_the_codes_of_all_refusals_are_explained_once() -> None:
    """The notes that Topic Filters of the past cause are as few as their Reason String can tell."""
    client = MemoryBroker(limits=Limits(max_subscriptions=1, max_topic_levels=8)).client("c", 5)
    past = [f"$history/at/{number}x/a" for number in range(100)]
    (suback, *_) = client.subscribe("a", "b", "a/b/c/d/e/f/g/h/i", *past)
    assert isinstance(suback, p.Suback)
    assert set(suback.reason_codes) == {0, ReasonCode.QUOTA_EXCEEDED, ReasonCode.TOPIC_FILTER_INVALID}
    reason = suback.properties.reason_string
    assert reason is not None
    assert reason.startswith("a Topic Filter has at most 8 levels here")
    assert reason.count("a Session has at most 1 Subscriptions") == 1
    assert reason.count("; ") <= 12
