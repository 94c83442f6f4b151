"""Messages for groups whose node dies: each acknowledged one reaches a member, once with QoS 2."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.nodes import Cluster
from tests.cluster.test_moves import asked, back, cluster, died, subscribed, url

__all__ = ["cluster", "url"]

GROUP = "$share/g/jobs"


def rest(cluster: Cluster) -> list[tuple[int]]:
    """Return the numbers of the rows that are left."""
    return asked(cluster, "SELECT number FROM cluster_messages")


def restarted(cluster: Cluster) -> None:
    """Start the dead node again, before others have taken over its Sessions."""
    asked(cluster, "UPDATE cluster_members SET state = 'member' WHERE node = 2 RETURNING node")
    cluster.start(2)
    cluster.advance(2)


@pytest.mark.parametrize("then", [lambda cluster: None, restarted])
def test_a_message_that_a_dead_node_has_not_applied_reaches_a_member(
    cluster: Cluster, then: Callable[[Cluster], None]
) -> None:
    """Its Sessions are taken over, or it comes back before."""
    subscribed(cluster, 2, "worker", GROUP).leave()
    cluster.advance(2)
    publisher = cluster.nodes[1].client("publisher")
    cluster.lets_flow = False
    for number in range(5):
        publisher.publish("jobs", b"%d" % number, 2)
    died(cluster, 2)
    cluster.lets_flow = True
    then(cluster)
    cluster.advance(20)
    client, got = back(cluster, 3, "worker")
    cluster.advance(3)
    assert client.present
    assert got == [b"%d" % number for number in range(5)]
    cluster.advance(12)
    assert rest(cluster) == []


def test_a_message_for_members_on_dead_nodes_only_waits(cluster: Cluster) -> None:
    """Until others have taken over their Sessions."""
    subscribed(cluster, 2, "worker", GROUP).leave()
    cluster.advance(2)
    died(cluster, 2)
    publisher = cluster.nodes[1].client("publisher")
    publisher.publish("jobs", b"x", 2)
    cluster.advance(20)
    _, got = back(cluster, 3, "worker")
    assert got == [b"x"]


def test_a_living_member_gets_the_messages_of_a_dead_one(cluster: Cluster) -> None:
    """At once, on whichever node it is."""
    subscribed(cluster, 2, "worker", GROUP)
    other = subscribed(cluster, 3, "other", GROUP)
    cluster.advance(2)
    publisher = cluster.nodes[1].client("publisher")
    cluster.lets_flow = False
    for number in range(6):
        publisher.publish("jobs", b"%d" % number, 2)
    died(cluster, 2)
    cluster.lets_flow = True
    cluster.advance(4)
    assert sorted(payload for _, payload, _, _ in other.messages()) == [b"%d" % number for number in range(6)]


def test_an_origin_that_was_dead_too_hands_on_when_it_is_back(cluster: Cluster) -> None:
    """Claimed or not."""
    subscribed(cluster, 2, "worker", GROUP).leave()
    cluster.advance(2)
    publisher = cluster.nodes[1].client("publisher")
    cluster.lets_flow = False
    publisher.publish("jobs", b"x", 2)
    died(cluster, 2)
    died(cluster, 1)
    cluster.lets_flow = True
    cluster.advance(20)
    asked(cluster, "UPDATE cluster_members SET state = 'member' WHERE node = 1 RETURNING node")
    cluster.start(1)
    cluster.advance(12)
    _, got = back(cluster, 3, "worker")
    assert got == [b"x"]


def test_a_message_that_nobody_wants_any_more_is_dropped(cluster: Cluster) -> None:
    """The Session of its only member is over."""
    subscribed(cluster, 2, "worker", GROUP).leave()
    cluster.advance(2)
    publisher = cluster.nodes[1].client("publisher")
    cluster.lets_flow = False
    publisher.publish("jobs", b"x", 1)
    died(cluster, 2)
    cluster.lets_flow = True
    client, _ = back(cluster, 3, "worker", clean=True)
    assert not client.present
    cluster.advance(20)
    assert rest(cluster) == []
