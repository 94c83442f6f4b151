"""The wildcard patterns of a Session are few, so no Session makes the search for a topic's subscribers long."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from holdfast.core import topics
from holdfast.core.topics import wildcard_pattern
from holdfast.sessions.limits import Limits
from holdfast.sessions.state import Subscription, Subscriptions
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

TWO = Limits(max_wildcard_patterns=2)


def subscribe_to(*filters: str, identifier: int = 1) -> p.Subscribe:
    return p.Subscribe(identifier, tuple(map(p.SubscriptionRequest, filters)))


@pytest.mark.parametrize(
    ("topic_filter", "pattern"), [("a/b", 0), ("#", 0), ("+", 1), ("a/+", 2), ("b/+/#", 2), ("+/a/+", 5), ("/+", 2)]
)
def test_the_levels_with_a_single_level_wildcard_make_the_pattern(topic_filter: str, pattern: int) -> None:
    assert wildcard_pattern(topic_filter) == pattern


def test_subscriptions_count_their_patterns() -> None:
    """A replaced subscription counts once; a share counts with its Topic Filter."""
    subscriptions = Subscriptions()
    for key, inner in (("+/a", "+/a"), ("+/a", "+/a"), ("$share/g/+/a", "+/a"), ("+/b/#", "+/b/#"), ("a/b", "a/b")):
        subscriptions.add(key, Subscription(inner, 0))
    assert subscriptions.patterns == {1: 3}
    assert subscriptions.remove("+/a")
    assert not subscriptions.remove("+/a")
    assert subscriptions.patterns == {1: 2}
    subscriptions.remove("$share/g/+/a")
    subscriptions.remove("+/b/#")
    assert subscriptions.patterns == {}


@pytest.mark.parametrize(("version", "refused"), [(4, 0x80), (5, 0x97)])
def test_a_filter_with_one_pattern_too_many_is_refused(version: int, refused: int) -> None:
    """Filters of known patterns, and filters without a pattern, are granted as before."""
    client = MemoryBroker(limits=TWO).client("c", version)
    client.send(subscribe_to("+/a", "a/+", "+/+", "+/b/#", "c/#", "$share/g/+/+/+", "$share/g/d/+"))
    (suback,) = client.got(p.Suback)
    assert suback.reason_codes == (0, 0, refused, 0, 0, refused, 0)
    client.send(subscribe_to("+/a", "+/+/+", "e/+", identifier=2))
    assert client.got(p.Suback)[0].reason_codes == (0, refused, 0)


def test_mqtt_3_1_is_closed_since_its_suback_has_no_code_for_a_failure() -> None:
    client = MemoryBroker(limits=TWO).client("c", 3)
    client.send(subscribe_to("+/a", "a/+", "+/+"))
    assert client.network.closed
    assert client.got(p.Suback) == []


def test_unsubscribe_makes_room_for_another_pattern() -> None:
    client = MemoryBroker(limits=TWO).client("c", 5)
    client.subscribe("+/a", "a/+")
    client.send(p.Unsubscribe(9, ("+/a",)), subscribe_to("+/+", identifier=10))
    assert client.got(p.Suback)[0].reason_codes == (0,)


def test_a_restored_session_keeps_its_subscriptions_and_their_patterns(tmp_path: Path) -> None:
    """Also if it has more than the limit now; it gets no further ones."""
    broker = RestartableBroker(fresh_file(tmp_path))
    durable: Any = {"version": 5, "clean": False, "properties": Properties(session_expiry_interval=600)}
    broker.client("c", **durable).subscribe("+/a", "a/+", "+/+")
    broker.limits = TWO
    broker._options["limits"] = TWO
    broker = broker.stop()
    client = broker.client("c", **durable)
    client.send(subscribe_to("+/+/+", "+/+", "b/+"))
    assert client.got(p.Suback)[0].reason_codes == (0x97, 0, 0)


class CountingChildren(dict[str, Any]):
    """The children of a node of the topic tree; counts how often any node is asked for one."""

    asked = 0

    def get(self, level: str, default: Any = None) -> Any:
        CountingChildren.asked += 1
        return super().get(level, default)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[CountingChildren]]:
    """Count the steps in all trees that are made from now on."""
    made = topics._Node.__init__

    def init(node: Any) -> None:
        made(node)
        node.children = CountingChildren()

    monkeypatch.setattr(topics._Node, "__init__", init)
    yield CountingChildren
    CountingChildren.asked = 0


def test_one_session_adds_a_bounded_number_of_steps_to_the_search_for_a_deep_topic(
    counted: type[CountingChildren],
) -> None:
    """It asks for all variants of a topic with 60 levels: without the limit they would be 1024 ways of 50 levels."""
    broker = MemoryBroker()
    client = broker.client("c", 5)
    depth = 60
    for beginning in product("a+", repeat=10):
        client.send(subscribe_to("/".join(beginning) + "/a" * (depth - 10)))
    counted.asked = 0
    matches = broker.router.table.find("/".join("a" * depth)).matches
    assert len(matches) == 1
    most = Limits().max_wildcard_patterns
    assert most == 32
    assert counted.asked <= 2 * (most + 1) * depth
