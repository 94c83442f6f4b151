"""No turn of the reactor does more because a client's packets are long: counted in split levels and in packets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast import topics
from holdfast.authorization.authorizer import Authorizer
from holdfast.authorization.rule import EVERY_ACTION, Rule
from holdfast.authorization.ruleset import RuleList, Ruleset
from holdfast.authorization.trie import MOST_VISITED
from holdfast.client_views import Found, SubscriptionSearch, SubscriptionView
from holdfast.scheduling.long_work import STEPS
from holdfast.sessions.connection.packet_order import PORTION
from holdfast.sessions.directory import directory
from holdfast.sessions.exchange import asking, filter_checks, replay_ends
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker, TurnClock

#: characters of Topic Filters that one turn may compare: in each step 50 comparisons of up to 64 characters
MOST_COMPARED = STEPS * 50 * 64
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

    for module in (asking, replay_ends, directory):
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

    monkeypatch.setattr(filter_checks, "check_topic_filter", counted)
    filters = tuple("+/" * 16_000 + str(number) for number in range(60))
    client = MemoryBroker(limits=Limits(max_packet_size=1 << 24)).client("c", 5)
    packet = p.Unsubscribe(9, filters) if unsubscribes else p.Subscribe(9, tuple(map(p.SubscriptionRequest, filters)))
    client.send(packet)
    assert len(client.packets()) == 1
    assert sum(turns) >= 60 * 32_000
    assert max(turns) <= 2 * STEPS * 8 * 1024


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
    assert broker.counters.packets_received - received <= PORTION // cost + 1
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
