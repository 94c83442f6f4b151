"""The exchange of two nodes over a bus that loses datagrams: gates open, and rows are read, behind each loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast.cluster.exchange import Exchange
from holdfast.cluster.members import Place
from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import COMMITTED, CommitTicket
from holdfast.identity.interfaces import UnrestrictedAuthorizer
from holdfast.sessions.counters import Counters
from holdfast.sessions.state import Subscription


class Bus:
    """The bus of one node. The datagrams of all nodes wait in one list."""

    def __init__(
        self, node: int, nodes: dict[int, Callable[[bytes], None]], under_way: list[tuple[int, bytes]]
    ) -> None:
        self._node, self._nodes, self._under_way = node, nodes, under_way

    def start(self, received: Callable[[bytes], None]) -> None:
        """Begin to receive."""
        self._nodes[self._node] = received

    def send(self, node: int, datagram: bytes) -> bool:
        """Put a datagram on the way."""
        self._under_way.append((node, datagram))
        return True

    def stop(self) -> Deferred[None]:
        """Receive nothing more."""
        del self._nodes[self._node]
        return succeed(None)


class World:
    """Nodes 1 and 2 with their exchanges. Rows are not read: the calls are noted."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.under_way: list[tuple[int, bytes]] = []
        self._received: dict[int, Callable[[bytes], None]] = {}
        self.stores: dict[int, Any] = {}
        self.incarnations = {1: 1, 2: 1}
        self.nodes = {node: self._exchange(node) for node in (1, 2)}
        self.learn()
        self.settle()

    def _exchange(self, node: int) -> Any:
        retained = Mock()
        retained.admission.policies.keep_others = False
        retained.store.flushed.return_value = COMMITTED
        self.stores[node] = retained.store
        exchange = Exchange(
            Mock(node=node), self.clock, retained=retained, replays=Mock(),
            bus=lambda _: Bus(node, self._received, self.under_way), incarnation=lambda: self.incarnations[node],
        )  # fmt: skip
        exchange.rows = Mock()
        exchange.rows.is_ahead.return_value = False
        exchange.rows.written.return_value = COMMITTED
        exchange._sessions = exchange._handing_on = Mock()
        exchange.router(retained, UnrestrictedAuthorizer(), Counters(), False, None)
        exchange.start()
        return exchange

    def learn(self) -> None:
        """Let all nodes learn who lives."""
        places = [Place(node, incarnation, True) for node, incarnation in self.incarnations.items()]
        for exchange in self.nodes.values():
            exchange.places(places)

    def restart(self, node: int) -> None:
        """Start another process of a node."""
        self.nodes[node].stop()
        self.incarnations[node] += 1
        self.nodes[node] = self._exchange(node)
        self.learn()

    def deliver(self) -> None:
        """End the turn, and let all datagrams arrive."""
        self.clock.advance(0)
        while self.under_way:
            node, datagram = self.under_way.pop(0)
            self._received[node](datagram)
            self.clock.advance(0)

    def settle(self) -> None:
        """Let some seconds pass on a bus that loses nothing."""
        for _ in range(4):
            self.deliver()
            self.clock.advance(1)
        self.deliver()

    def subscribe(self, node: int, topic_filter: str, qos: int = 1) -> CommitTicket:
        """Let a Session subscribe. Return the gate of its SUBACK."""
        table = self.nodes[node]._table
        table.subscribe(Mock(groups={}, client_id="c", link=None), Subscription(topic_filter, qos))
        gate: CommitTicket = table.gate
        return gate

    def filters(self, node: int) -> dict[str, int]:
        """Return the Topic Filters that a node knows of the other one."""
        filters: dict[str, int] = self.nodes[node]._nodes[3 - node].filters
        return filters


def test_a_gate_opens_when_the_other_node_has_stored_earlier_messages() -> None:
    """They were matched with the table before; the replay has to find them."""
    world = World()
    stored = CommitTicket()
    world.stores[2].flushed.return_value = stored
    gate = world.subscribe(1, "plant/#")
    world.settle()
    assert world.filters(2) == {"plant/#": 1}
    assert not gate.settled
    stored.settle()
    world.deliver()
    assert gate.settled


def test_a_lost_subscription_is_told_again() -> None:
    """With everything else."""
    world = World()
    gate = world.subscribe(1, "plant/#")
    world.clock.advance(0)
    world.under_way.clear()
    world.settle()
    assert gate.settled
    assert world.filters(2) == {"plant/#": 1}


def test_a_lost_answer_is_given_again() -> None:
    """The way there has lost nothing, so the subscriber does not tell its interest again."""
    world = World()
    gate = world.subscribe(1, "plant/#")
    world.clock.advance(0)
    while world.under_way:
        node, datagram = world.under_way.pop(0)
        if node == 2:
            world._received[node](datagram)
    assert world.filters(2) == {"plant/#": 1}
    assert not gate.settled
    world.settle()
    assert gate.settled


def test_a_lost_hint_is_given_again() -> None:
    """Otherwise the row would wait for the next one."""
    world = World()
    told = world.nodes[1].rows.hint_again
    told.reset_mock()
    world.nodes[1]._hint(2, 7)
    world.under_way.clear()
    world.settle()
    told.assert_called_with(2)


def test_a_restarted_node_is_not_told_answers_for_its_former_process() -> None:
    """It would take them for answers to what it has not told yet."""
    world = World()
    for number in range(5):
        world.subscribe(2, f"t/{number}")
    world.settle()
    world.restart(2)
    gate = world.subscribe(2, "plant/#")
    assert world.nodes[1]._nodes[2].applied is None
    assert not gate.settled
    world.settle()
    assert gate.settled
    assert world.filters(1) == {"plant/#": 1}


def test_a_node_is_ready_when_both_have_told_everything() -> None:
    """Not before."""
    world = World()
    assert world.nodes[1].why_not_ready() is None
    world.restart(1)
    assert "node 2" in world.nodes[1].why_not_ready()
    world.settle()
    assert world.nodes[1].why_not_ready() is None


def test_messages_with_qos_0_reach_the_other_node_behind_rows_for_it() -> None:
    """The rows of a topic are noted for the nodes that get them."""
    world = World()
    world.subscribe(2, "plant/#", 0)
    world.settle()
    passed = CommitTicket()
    world.nodes[2].rows.when_passed.return_value = passed
    world.nodes[1].rows.cross.return_value = 7, COMMITTED
    world.nodes[2]._deliver_run = Mock()
    for other in world.nodes[2]._nodes.values():
        other.runs._deliver = world.nodes[2]._deliver_run
    router = world.nodes[1]._router
    router.route(ApplicationMessage("plant/a", b"row", 1, True))
    router.route(ApplicationMessage("plant/a", b"run"))
    world.deliver()
    world.nodes[2].rows.when_passed.assert_called_once_with(1, 7)
    assert not world.nodes[2]._deliver_run.called
    passed.settle()
    assert [each.args[0].payload for each in world.nodes[2]._deliver_run.call_args_list] == [b"run"]
