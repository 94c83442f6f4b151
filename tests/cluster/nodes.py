"""Several nodes on one Postgres within this process, with clocks, a bus and commits that a test has in its hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed

from holdfast.changes.telemetry import Telemetry
from holdfast.cluster.exchange import Exchange
from holdfast.cluster.members import Place
from holdfast.identity.interfaces import IAuthorizer
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.counters import Counters
from holdfast.sessions.registry import SessionRegistry
from holdfast.sessions.router import Router
from tests.sessions.restartable import RestartableBroker


class Post:
    """The bus of all nodes: datagrams that wait, each with its target. ``full`` nodes take none."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, bytes]] = []
        self.receivers: dict[int, Callable[[bytes], None]] = {}
        self.full: set[int] = set()

    def deliver(self, place: int = 0) -> None:
        """Deliver one datagram. One for a node that is gone is lost."""
        target, datagram = self.waiting.pop(place)
        if target in self.receivers:
            self.receivers[target](datagram)

    def deliver_all(self) -> None:
        """Deliver all datagrams, in order."""
        while self.waiting:
            self.deliver()


class PostBus:
    """The bus as one node has it."""

    def __init__(self, post: Post, node: int) -> None:
        self._post = post
        self._node = node

    def start(self, received: Callable[[bytes], None]) -> None:
        """Receive datagrams for this node."""
        self._post.receivers[self._node] = received

    def send(self, node: int, datagram: bytes) -> bool:
        """Let a datagram wait, unless there is no room."""
        if node in self._post.full:
            return False
        self._post.waiting.append((node, datagram))
        return True

    def stop(self) -> Deferred[None]:
        """Receive nothing more."""
        self._post.receivers.pop(self._node, None)
        return succeed(None)


class NodeBroker(RestartableBroker):
    """One node. Its reactor's turns, and those of all others, run until nothing is due: see :meth:`Cluster.settle`."""

    def __init__(self, cluster: Cluster, url: str, node: int, incarnation: int, start: float, manual: bool) -> None:
        self.cluster = cluster
        self.incarnation = incarnation
        self.exchange: Exchange
        super().__init__(url, manual, start, node, **cluster.options)

    def open_store(self) -> None:
        """Make the exchange, and open the store."""
        bus = PostBus(self.cluster.post, self._node)
        self.exchange = Exchange(
            self.durable, self.clock, retained=self.retained, replays=self.replays, bus=lambda _: cast("Any", bus),
            incarnation=lambda: self.incarnation,
        )  # fmt: skip
        super().open_store()

    def make_router(
        self,
        retained: RetainedMessages,
        authorizer: IAuthorizer,
        counters: Counters,
        rejecting: bool,
        telemetry: Telemetry | None,
    ) -> Router:
        """Return the router of a member."""
        return self.exchange.router(retained, authorizer, counters, rejecting, telemetry)

    def make_registry(self, **parts: Any) -> SessionRegistry:
        """Return the registry of a member."""
        return self.exchange.registry(**parts)

    def settle(self) -> None:
        """Let all nodes do what is due."""
        self.cluster.settle()

    def settle_alone(self) -> None:
        """Run this node's turns until nothing is due."""
        super().settle()

    def kill(self) -> None:
        """Kill the process. What was not committed is lost, and what others send to it."""
        self.exchange.rows.stop()
        self.exchange.corrections.stop()
        self.cluster.post.receivers.pop(self._node, None)
        super().kill()


class Cluster:
    """Nodes by number. With ``lets_flow``, the bus delivers everything whenever nodes do what is due.

    With ``manual``, nodes commit when the test says so. ``options`` are those of each broker.
    """

    def __init__(self, url: str, manual: bool = False, **options: Any) -> None:
        self.url = url
        self.manual = manual
        self.options = options
        self.post = Post()
        self.lets_flow = True
        self.nodes: dict[int, NodeBroker] = {}
        self.dead: dict[int, int] = {}  #: incarnations of killed nodes
        self.seconds = 1_000_000.0
        self._is_settling = False

    def start(self, *numbers: int) -> None:
        """Start nodes, for the first time or again, and let all know each other."""
        for number in numbers:
            incarnation = self.dead.pop(number, 0) + 1
            with self._quietly():
                self.nodes[number] = NodeBroker(self, self.url, number, incarnation, self.seconds, self.manual)
                self.nodes[number].exchange.start()
        self.tell_places()

    def kill(self, number: int, taken_over: bool = True) -> None:
        """Kill a node; the others learn that it is dead, unless it is not ``taken_over``."""
        node = self.nodes.pop(number)
        self.dead[number] = node.incarnation
        with self._quietly():
            node.kill()
        if taken_over:
            self.tell_places()

    def tell_places(self) -> None:
        """Tell each node which others there are, as the renewals of its lease do."""
        places = [Place(number, node.incarnation, True) for number, node in self.nodes.items()]
        places += [Place(number, incarnation, False) for number, incarnation in self.dead.items()]
        for node in list(self.nodes.values()):
            node.exchange.places(places)
        self.settle()

    def settle(self) -> None:
        """Let all nodes do what is due, and deliver what they send, until nothing is left."""
        if self._is_settling:
            return
        with self._quietly():
            for _ in range(10_000):
                for node in list(self.nodes.values()):
                    node.settle_alone()
                if not (self.lets_flow and self.post.waiting):
                    return
                self.post.deliver()
        raise AssertionError("the nodes never become idle")

    def advance(self, seconds: float) -> None:
        """Let time pass at all nodes, in steps of half a second."""
        while seconds > 0:
            step = min(seconds, 0.5)
            seconds -= step
            self.seconds += step
            for node in list(self.nodes.values()):
                with self._quietly():
                    node.clock.advance(step)
            self.settle()

    def commit(self, number: int) -> None:
        """Commit what waits at a node."""
        node = self.nodes[number]
        node.settle()
        while node.executor.waiting:
            node.executor.step()
            node.settle()

    def close(self) -> None:
        """Kill all nodes."""
        for number in list(self.nodes):
            self.kill(number, taken_over=False)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        before, self._is_settling = self._is_settling, True
        try:
            yield
        finally:
            self._is_settling = before
