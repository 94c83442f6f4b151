"""What one client may cost the others by permissions: questions about Topic Filters, in each turn of the reactor."""

from __future__ import annotations

import pytest

from holdfast.identity.authorizer import Authorizer, Grants, Permissions
from holdfast.identity.coverage import MOST_NODES
from holdfast.identity.rules import EVERY_ACTION, Rule, RuleList, Ruleset
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker, TurnClock

#: what one turn may visit: one answer about a Topic Filter, and the cheap ones before it
MOST_IN_A_TURN = 2 * MOST_NODES


def entangled() -> Ruleset:
    """Return rules for which a question about a filter with many wildcards takes as long as it may."""
    allows = tuple(topic for each in range(900) for topic in (f"{each}/+/{each}/#", f"+/{each}/+/a{each}"))
    denials = tuple(f"x{each}/+/+/y" for each in range(900))
    return Ruleset(
        RuleList(
            (
                Rule(True, EVERY_ACTION, allows, "here"),
                Rule(False, EVERY_ACTION, denials, "here"),
                Rule(True, EVERY_ACTION, ("#",), "here"),
            )
        )
    )


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each turn has visited."""
    turns = [0]
    grants, turn = Permissions.grants, TurnClock.turn

    def counted(self: Permissions, topic_filter: str, *, partially: bool) -> Grants:
        found = grants(self, topic_filter, partially=partially)
        turns[-1] += found.visited
        return found

    def next_turn(self: TurnClock) -> None:
        turns.append(0)
        turn(self)

    monkeypatch.setattr(Permissions, "grants", counted)
    monkeypatch.setattr(TurnClock, "turn", next_turn)
    return turns


def test_a_subscribe_with_costly_filters_takes_many_turns(visited: list[int]) -> None:
    broker = MemoryBroker(authorizer=Authorizer(entangled(), subscribe_partially=True))
    client = broker.client("c", 5)
    filters = [f"+/+/+/+/{number}/#" for number in range(60)]
    suback = client.subscribe(*filters)[0]
    assert isinstance(suback, p.Suback)
    assert len(suback.reason_codes) == len(filters)
    assert sum(visited) > 20 * MOST_NODES  # the filters are costly indeed
    assert max(visited) <= MOST_IN_A_TURN


def test_a_walk_over_costly_filters_takes_many_turns(visited: list[int]) -> None:
    authorizer = Authorizer(Ruleset(RuleList((Rule(True, EVERY_ACTION, ("#",), "here"),))), subscribe_partially=True)
    broker = MemoryBroker(authorizer=authorizer)
    for number in range(4):
        broker.client(f"c{number}", 5).subscribe(*(f"+/+/+/+/{each}/#" for each in range(10)))
    authorizer.replace(entangled())
    visited[:] = [0]
    broker.registry.grants.revoke()
    broker.settle()
    assert sum(visited) > 20 * MOST_NODES
    assert max(visited) <= MOST_IN_A_TURN


def test_an_answer_is_remembered_until_the_rules_change(visited: list[int]) -> None:
    """A client that subscribes again, or whose replay begins, costs no further search."""
    authorizer = Authorizer(entangled(), subscribe_partially=True)
    broker = MemoryBroker(authorizer=authorizer)
    client = broker.client("c", 5)
    client.subscribe("+/+/#")
    before = sum(visited)
    assert before
    client.subscribe("+/+/#")
    assert sum(visited) == before
    authorizer.replace(entangled())
    client.subscribe("+/+/#")
    assert sum(visited) > before
