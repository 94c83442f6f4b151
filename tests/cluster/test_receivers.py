"""Other nodes in the routing table: their turns in groups, and which messages cross to them, once and one way only."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster.interest import OwnInterest
from holdfast.cluster.receivers import ClusterGroup, ClusterRouter, ClusterTable, Destinations, Peer
from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import COMMITTED, CommitTicket
from holdfast.identity.interfaces import UnrestrictedAuthorizer
from holdfast.sessions.counters import Counters, Holdings
from holdfast.sessions.delivery.permissions import RESTORED
from holdfast.sessions.state import Subscription

GROUP = "$share/g/plant/+"


class Session:
    """A Session that notes the payloads that it gets."""

    granted_in: object = RESTORED
    principal = None

    def __init__(self, client_id: str = "subscriber", connected: bool = True) -> None:
        self.client_id = client_id
        self.link = Mock() if connected else None
        self.groups: dict[str, Any] = {}
        self.queue = Mock()
        self.permissions = Mock()
        self.permissions.order.add = lambda answer, deliver: deliver() if answer else False
        self.got: list[bytes] = []

    def deliver(self, outgoing: Any, _options: Any, _shared_filter: str | None = None) -> None:
        """Note a message."""
        self.got.append(outgoing.message.payload)

    def is_full(self) -> bool:
        """Return False."""
        return False


class World:
    """The router of node 1, and what crosses to the other nodes."""

    def __init__(self) -> None:
        counters = Counters()
        self.told: list[str] = []
        self.crossed: list[tuple[bytes, Destinations, bool]] = []
        self.retained: list[str] = []
        self.ticket = COMMITTED
        self.gate = COMMITTED
        self.interest = OwnInterest(lambda _node, _message: None, lambda _call: None)
        self.authorizer = authorizer = Mock(wraps=UnrestrictedAuthorizer(), epoch=UnrestrictedAuthorizer.epoch)
        self.table = ClusterTable(
            counters.holdings, authorizer, self.interest, lambda group: self.told.append(group.shared_filter),
            lambda: self.gate,
        )  # fmt: skip
        retained = Mock()
        retained.admission.policies.keep_others = False
        self.router = ClusterRouter(
            retained, authorizer, counters, False, None, table=self.table, cross=self._cross,
            retains=self.retained.append,
        )  # fmt: skip
        self.peers = {node: Peer(node, self.router.to_peer) for node in (2, 3, 4)}

    def _cross(self, message: ApplicationMessage, destinations: Destinations, replaces: bool) -> CommitTicket:
        self.crossed.append((message.payload, destinations, replaces))
        return self.ticket

    def subscribe(self, session: Session, topic_filter: str, qos: int = 0, group: str | None = None) -> None:
        """Let a Session of this node subscribe."""
        self.table.subscribe(session, Subscription(topic_filter, qos, group=group))  # type: ignore[arg-type]

    def where(self) -> tuple[list[int], list[int], list[tuple[int, str]]]:
        """Return how the only message has crossed: by rows, over the bus, and for groups."""
        ((_, destinations, _),) = self.crossed
        return destinations.rows, destinations.runs, destinations.groups


def group_of(here: tuple[int, int], elsewhere: dict[int, tuple[int, int]]) -> ClusterGroup:
    """Return a group with these numbers of connected and away members, on this node and on others."""
    group = ClusterGroup(GROUP, Holdings(), lambda _: None)
    for number in range(sum(here)):
        session = Session(f"c{number}", connected=number < here[0])
        group.add(session, Subscription("plant/+", 0, group="g"))  # type: ignore[arg-type]
    for node, members in elsewhere.items():
        group.elsewhere(node, *members)
    return group


weights = st.lists(st.integers(0, 40), min_size=2, max_size=14).filter(any)


@given(weights, st.booleans())
def test_each_node_has_its_share_of_the_messages_but_for_less_than_one(members: list[int], connected: bool) -> None:
    """At any time, and not in the end only."""
    counts = [(number, 0) if connected else (0, number) for number in members]
    group = group_of(counts[0], dict(enumerate(counts[1:], 2)))
    total = sum(members)
    had: Counter[int] = Counter()
    for messages in range(1, min(2 * total, 200) + 1):
        had[(group.next_node() or 1) - 1] += 1
        for place, number in enumerate(members):
            assert abs(had[place] - messages * number / total) < 1 + 1e-6


def test_many_small_nodes_do_not_keep_a_large_one_waiting() -> None:
    """To choose the node that is most behind would let it fall behind by more than one message."""
    members = [1] * 8 + [40] * 4
    group = group_of((1, 0), {node: (number, 0) for node, number in enumerate(members[1:], 2)})
    had: Counter[int] = Counter()
    for messages in range(1, sum(members) + 1):
        had[group.next_node() or 1] += 1
        assert all(abs(had[node] - messages * number / 168) < 1 for node, number in enumerate(members, 1))


def test_turns_go_on_evenly_when_most_members_have_left() -> None:
    """A node does not catch up, message for member, with the time before."""
    group = group_of((1, 0), {2: (5000, 0), 3: (5000, 0)})
    for _ in range(7):
        group.next_node()
    group.elsewhere(2, 1, 0)
    group.elsewhere(3, 1, 0)
    had = Counter(group.next_node() for _ in range(30))
    assert all(9 <= had[node] <= 11 for node in (None, 2, 3))


@given(st.lists(st.tuples(st.integers(2, 4), st.integers(0, 3), st.integers(0, 4)), max_size=60))
def test_nodes_that_come_and_go_leave_the_turns_even(steps: list[tuple[int, int, int]]) -> None:
    """Behind all changes, each of three equal nodes has a third of the messages."""
    group = group_of((1, 0), {})
    for node, online, messages in steps:
        group.elsewhere(node, online, 0)
        for _ in range(messages):
            group.next_node()
    for node, online in ((2, 1), (3, 1), (4, 0)):
        group.elsewhere(node, online, 0)
    for _ in range(30):
        group.next_node()
    had = Counter(group.next_node() for _ in range(30))
    assert all(9 <= had[node] <= 11 for node in (None, 2, 3)), had


def test_away_members_have_turns_only_while_nobody_is_connected() -> None:
    """Connected members come first, on whatever node."""
    group = group_of((0, 5), {2: (1, 0), 3: (0, 9)})
    assert {group.next_node() for _ in range(20)} == {2}
    group.elsewhere(2, 0, 1)
    assert {group.next_node() for _ in range(30)} == {None, 2, 3}
    assert group.next_node(but=(2, 3)) is None


def test_a_group_without_members_anywhere_is_dropped() -> None:
    """And it lasts while one node has members."""
    world = World()
    session = Session()
    world.subscribe(session, "plant/+", group="g")
    world.table.members_elsewhere(2, GROUP, 1, 0)
    world.table.unsubscribe(session, GROUP)  # type: ignore[arg-type]
    group = world.table.group(GROUP)
    assert group is not None
    assert (group.here, len(group)) == ((0, 0), 1)
    world.table.members_elsewhere(2, GROUP, 0, 0)
    world.table.members_elsewhere(3, GROUP, 0, 0)
    assert world.table.group(GROUP) is None
    assert world.router.table.find("plant/a").groups == ()
    assert world.told == [GROUP, GROUP]


@pytest.mark.parametrize(
    ("qos", "retain", "rows", "runs"),
    [(0, False, [], [2, 3, 4]), (1, False, [3, 4], [2]), (2, False, [3, 4], [2]), (0, True, [2, 3, 4], [])],
)
def test_a_message_crosses_once_to_each_node(qos: int, retain: bool, rows: list[int], runs: list[int]) -> None:
    """By a row where it is delivered with QoS 1 or 2, or retained; else over the bus."""
    world = World()
    session = Session()
    world.subscribe(session, "#", 1)
    for node, peer in world.peers.items():
        world.table.add_peer(peer, "plant/+", min(node - 2, 1))
        world.table.add_peer(peer, "plant/#", 0)
    world.router.route(ApplicationMessage("plant/a", b"1", qos, retain))
    got_rows, got_runs, groups = world.where()
    assert (sorted(got_rows), sorted(got_runs), groups) == (rows, runs, [])
    assert session.got == [b"1"]
    assert world.retained == (["plant/a"] if retain else [])


@pytest.mark.parametrize("allowed", [True, False])
def test_a_message_crosses_where_the_authorizer_is_asked_about_a_session_of_this_node(allowed: bool) -> None:
    """It is not asked about the other node, whose Sessions the other node asks about."""
    world = World()
    world.authorizer.epoch = None
    world.authorizer.may_receive.return_value = allowed
    session = Session()
    session.granted_in = object()
    world.subscribe(session, "plant/#")
    for peer in world.peers.values():
        world.table.add_peer(peer, "plant/+", 1)
    world.router.route(ApplicationMessage("plant/a", b"1", 1))
    assert world.where() == ([2, 3, 4], [], [])
    assert session.got == ([b"1"] if allowed else [])
    assert world.authorizer.may_receive.call_count == 1


def test_a_message_that_no_other_node_wants_does_not_cross() -> None:
    """Also behind the end of the interest."""
    world = World()
    world.table.add_peer(world.peers[2], "plant/#", 1)
    world.table.remove_peer(world.peers[2], "plant/#")
    ticket, matched = world.router.route(ApplicationMessage("plant/a", b"1", 1))
    assert (ticket.settled, matched, world.crossed) == (True, False, [])


def test_the_acknowledgement_waits_for_the_row() -> None:
    """The row promises the delivery."""
    world = World()
    world.ticket = CommitTicket()
    world.table.add_peer(world.peers[2], "plant/#", 1)
    ticket, matched = world.router.route(ApplicationMessage("plant/a", b"1", 1))
    assert matched
    assert not ticket.settled
    world.ticket.settle()
    assert ticket.settled


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_of_another_node_does_not_cross_again(qos: int) -> None:
    """It reaches the Sessions of this node, and no member of a group: its publisher's node has chosen one."""
    world = World()
    session, member = Session(), Session("member")
    world.subscribe(session, "plant/#", 1)
    world.subscribe(member, "plant/+", 1, group="g")
    for peer in world.peers.values():
        world.table.add_peer(peer, "plant/#", 1)
    world.table.members_elsewhere(2, GROUP, 5, 0)
    world.router.deliver_here(ApplicationMessage("plant/a", b"1", qos, bool(qos)), COMMITTED, None, False)
    assert (session.got, member.got, world.crossed, world.retained) == ([b"1"], [], [], [])
    world.router.deliver_here(ApplicationMessage("plant/a", b"2", qos), COMMITTED, GROUP, False)
    assert (session.got, member.got, world.crossed) == ([b"1"], [b"2"], [])


def test_a_message_that_a_delivery_causes_crosses() -> None:
    """A Will, for example: its publisher is a Client of this node. The foreign message stays foreign."""
    world = World()

    class Causing(Session):
        def deliver(self, outgoing: Any, options: Any, shared_filter: str | None = None) -> None:
            super().deliver(outgoing, options, shared_filter)
            world.router.route(ApplicationMessage("will/a", b"will", 1))

    first, second = Causing("first"), Session("second")
    world.subscribe(first, "plant/#")
    world.subscribe(second, "plant/#")
    for topic_filter in ("plant/#", "will/#"):
        world.table.add_peer(world.peers[2], topic_filter, 1)
    world.router.deliver_here(ApplicationMessage("plant/a", b"1", 1), COMMITTED, None, False)
    assert [(payload, destinations.rows) for payload, destinations, _ in world.crossed] == [(b"will", [2])]
    world.router.route(ApplicationMessage("plant/a", b"2", 1))
    assert [payload for payload, _, _ in world.crossed] == [b"will", b"will", b"2"]


def test_a_message_for_a_group_goes_to_the_node_whose_turn_it_is() -> None:
    """One copy for all members together, whatever the plain subscriptions get."""
    world = World()
    member = Session("member")
    world.subscribe(member, "plant/+", 1, group="g")
    world.table.members_elsewhere(2, GROUP, 1, 0)
    world.table.add_peer(world.peers[2], "plant/#", 0)
    for number in range(10):
        world.router.route(ApplicationMessage("plant/a", b"%d" % number))
    crossed = [destinations.groups for _, destinations, _ in world.crossed if destinations.groups]
    assert crossed == [[(2, GROUP)]] * 5
    assert len(member.got) == 5
    assert [destinations.runs for _, destinations, _ in world.crossed] == [[2]] * 10


def test_a_message_for_members_that_have_gone_is_passed_on() -> None:
    """By the same rule; to nobody if nobody is left."""
    world = World()
    world.table.members_elsewhere(3, GROUP, 1, 0)
    world.router.deliver_here(ApplicationMessage("plant/a", b"1", 1), COMMITTED, GROUP, False)
    assert world.where() == ([], [], [(3, GROUP)])
    world.table.members_elsewhere(3, GROUP, 0, 0)
    world.router.deliver_here(ApplicationMessage("plant/a", b"2", 1), COMMITTED, GROUP, False)
    assert len(world.crossed) == 1


def test_topics_of_other_nodes_have_no_runs_of_clients() -> None:
    """A known route ends when another node subscribes."""
    world = World()
    world.subscribe(Session(), "plant/#")
    message = ApplicationMessage("plant/a", b"1", client_id="publisher")
    number = world.router.route_for_runs(message, False)
    assert number is not None
    world.table.add_peer(world.peers[2], "plant/+", 0)
    assert world.router.route_for_runs(message, False) is None
    assert world.table.changed_since(world.table.changes - 1) == ["plant/+"]


def test_own_subscriptions_are_interest_and_those_of_peers_are_not() -> None:
    """Else each node would want what all others want."""
    world = World()
    session = Session()
    world.interest.peer_up(2)
    world.table.add_peer(world.peers[3], "other/#", 1)
    assert world.interest.version == 0
    world.subscribe(session, "plant/#", 1)
    assert not world.table.gate.settled
    assert world.table.gate_of("plant/#") is world.table.gate
    assert world.table.gate_of("other/#").settled
    world.subscribe(session, "plant/#", 0)
    world.interest.applied(2, world.interest.version)
    assert world.table.gate_of("plant/#") is COMMITTED
    world.table.unsubscribe(session, "plant/#")  # type: ignore[arg-type]
    world.table.unsubscribe(session, "plant/#")  # type: ignore[arg-type]
    assert world.interest.version == 3
    assert not world.interest._filters


def test_a_new_member_of_a_group_waits_for_the_gate_of_groups() -> None:
    """All changes of a turn share it."""
    world = World()
    world.gate = CommitTicket()
    world.subscribe(Session(), "plant/+", group="g")
    assert world.table.gate is world.gate
