"""A client that comes to nodes in any order, while messages, commits and datagrams are late, and nodes die.

The model is short: each message with QoS 2 that its publisher has an answer for comes to the client once. One without
an answer comes once or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast.wire import packets as p
from tests.cluster.nodes import Cluster
from tests.doubles import Client
from tests.postgres import drop, fresh_database

NODES = (1, 2, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["publish"]), st.sampled_from(NODES)),
        st.tuples(st.sampled_from(["connect"]), st.sampled_from(NODES)),
        st.tuples(st.sampled_from(["commit"]), st.sampled_from(NODES)),
        st.tuples(st.sampled_from(["deliver"]), st.integers(1, 6)),
        st.tuples(st.sampled_from(["all"]), st.just(0)),
        st.tuples(st.sampled_from(["time"]), st.integers(1, 4)),
        st.tuples(st.sampled_from(["restart", "die"]), st.sampled_from(NODES)),
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A database with a current schema."""
    made = fresh_database()
    yield made
    drop(made)


class World:
    """The cluster, one subscriber, and one publisher at each node."""

    def __init__(self, url: str) -> None:
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            tables = "sessions, session_subscriptions, session_deliveries, session_messages, session_received"
            more = "session_cuts, wills, cluster_messages, cluster_cursors, cluster_members"
            connection.execute(f"TRUNCATE {tables}, {more}")
            for node in NODES:
                connection.execute(
                    "INSERT INTO cluster_members VALUES (%s, 'plant', 1, 9223372036854775807, 'member', 1, 1, '', '')",
                    (node,),
                )
        self.url = url
        self.cluster = Cluster(url, manual=True)
        self.cluster.start(*NODES)
        self.everything()
        self.publishers: dict[int, Client] = {}
        self.client: Client | None = None
        self.count = 0
        self.answered: set[int] = set()
        self.identifiers: dict[tuple[int, int], int] = {}  # by node and Packet Identifier: the message
        self.got: list[int] = []
        self.unreleased: set[int] = set()  # of messages that the client has received
        self.begin(1)
        self.everything()
        client = self.client
        assert client is not None
        client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", 2),)))
        self.everything()
        self.listen()

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return [] if cursor.description is None else list(cursor)

    def everything(self) -> None:
        """Commit and deliver everything."""
        self.cluster.lets_flow = True
        for _ in range(200):
            self.cluster.settle()
            busy = [node for node in self.cluster.nodes.values() if node.executor.waiting]
            if not busy:
                break
            for node in busy:
                node.executor.step()
        self.cluster.lets_flow = False

    def serves(self, node: int) -> bool:
        """Tell whether a node runs, and knows all others."""
        return node in self.cluster.nodes and self.cluster.nodes[node].exchange.why_not_ready() is None

    def begin(self, node: int) -> None:
        """Let the client connect to a node."""
        if self.serves(node):
            self.client = Client(self.cluster.nodes[node])
            self.client.send(p.Connect("a", 4, False, 0))

    def publish(self, node: int) -> None:
        """Publish at a node."""
        if not self.serves(node):
            return
        publisher = self.publishers.get(node)
        if publisher is None:
            publisher = self.publishers[node] = Client(self.cluster.nodes[node])
            publisher.send(p.Connect(f"p{node}", 4, True, 0))
            self.everything()
            publisher.packets()
        identifier = publisher.identifier()
        self.identifiers[node, identifier] = self.count
        publisher.send(p.Publish("t/1", b"%d" % self.count, 2, False, False, identifier))
        self.count += 1

    def listen(self) -> None:
        """Let all clients take what has come, and answer."""
        for node, publisher in self.publishers.items():
            for packet in publisher.packets():
                if isinstance(packet, p.Pubrec):
                    self.answered.add(self.identifiers[node, packet.packet_identifier])
                    publisher.send(p.Pubrel(packet.packet_identifier))
        client = self.client
        for packet in [] if client is None else client.packets():
            assert client is not None
            if isinstance(packet, p.Publish):
                if packet.packet_identifier not in self.unreleased:
                    self.unreleased.add(packet.packet_identifier)
                    self.got.append(int(packet.payload))
                client.send(p.Pubrec(packet.packet_identifier))
            elif isinstance(packet, p.Pubrel):
                self.unreleased.discard(packet.packet_identifier)
                client.send(p.Pubcomp(packet.packet_identifier))

    def kill(self, node: int, comes_back: bool) -> None:
        """Kill a node that runs; let it start again at once, or let others take over from it."""
        if len(self.cluster.nodes) < 3:
            for dead in list(self.cluster.dead):
                self.ask(f"UPDATE cluster_members SET state = 'member' WHERE node = {dead}")
                self.cluster.start(dead)
            return
        self.publishers.pop(node, None)
        if self.client is not None and self.client.broker is self.cluster.nodes[node]:
            self.client = None
        self.cluster.kill(node, taken_over=False)
        if comes_back:
            self.cluster.start(node)
        else:
            self.ask(f"UPDATE cluster_members SET state = 'dead' WHERE node = {node}")
            self.cluster.tell_places()

    def do(self, what: str, number: int) -> None:
        """Do one step."""
        cluster = self.cluster
        if what == "publish":
            self.publish(number)
        elif what == "connect":
            self.begin(number)
        elif what == "commit" and number in cluster.nodes:
            cluster.settle()
            if cluster.nodes[number].executor.waiting:
                cluster.nodes[number].executor.step()
        elif what == "deliver":
            for _ in range(min(number, len(cluster.post.waiting))):
                cluster.post.deliver()
                cluster.settle()
        elif what == "all":
            self.everything()
        elif what == "time":
            cluster.advance(number / 2)
        elif what in ("restart", "die"):
            self.kill(number, what == "restart")
        cluster.settle()
        self.listen()

    def check(self) -> None:
        """Let everything come to rest, and compare."""
        for dead in list(self.cluster.dead):
            self.ask(f"UPDATE cluster_members SET state = 'member' WHERE node = {dead}")
            self.cluster.start(dead)
        for _ in range(30):
            self.everything()
            self.cluster.advance(0.5)
            self.listen()
        for node in (2, 3):
            self.begin(node)
            for _ in range(10):
                self.everything()
                self.cluster.advance(0.5)
                self.listen()
        assert len(self.got) == len(set(self.got)), f"twice: {sorted(n for n in self.got if self.got.count(n) > 1)}"
        missing = self.answered - set(self.got)
        assert not missing, f"lost: {sorted(missing)}"
        assert self.ask("SELECT owner FROM sessions WHERE client_id = 'a'") == [(3,)]
        assert self.ask("SELECT * FROM session_cuts") == []


@settings(
    max_examples=max(10, settings().max_examples // 4), deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(STEPS, st.booleans())
@example([("connect", 2), ("deliver", 6), ("publish", 2), ("deliver", 6), ("publish", 2), ("commit", 2)], False)
def test_each_message_comes_once(url: str, steps: list[tuple[str, int]], is_large: bool) -> None:
    """Whatever is late, and whoever dies. Any Session may count as a large one."""
    world = World(url)
    try:
        for node in world.cluster.nodes.values():
            if is_large:
                node.registry.adopting.most_small = -1  # type: ignore[attr-defined]
        for what, number in steps:
            world.do(what, number)
        world.check()
    finally:
        world.cluster.close()


@pytest.fixture
def world(url: str) -> Iterator[World]:
    """A client with a Session at node 1, which it has left; it connects to node 2, where a publisher is."""
    made = World(url)
    made.publish(2)
    made.everything()
    made.listen()
    made.everything()
    yield made
    made.cluster.close()


def test_own_messages_while_the_session_is_on_its_way(world: World) -> None:
    """The old owner wants no messages any more, and has not committed the move: they wait as rows for this node."""
    cluster = world.cluster
    registry = cluster.nodes[2].registry
    published = 0
    world.begin(2)
    for _ in range(60):
        cluster.settle()
        if cluster.nodes[2].exchange._nodes[1].filters.get("t/#") is None and not published:
            assert registry.session_of("a") is None
            world.publish(2)
            cluster.commit(2)
            world.listen()
            published += 1
        if cluster.post.waiting:
            cluster.post.deliver()
        elif published or cluster.nodes[1].registry.session_of("a") is not None:
            for node in (1, 3):
                cluster.commit(node)
    assert published
    world.check()
    assert world.answered == set(world.got) == {0, 1}


def test_own_messages_while_the_session_is_read(world: World) -> None:
    """They are not committed when the read begins: the Session gets them from memory, behind those that are."""
    cluster = world.cluster
    registry = cluster.nodes[2].registry
    world.begin(2)
    published = 0
    for _ in range(60):
        cluster.settle()
        held = [each.held for each in registry.adopting._arriving.values()]  # type: ignore[attr-defined]
        if published == 1 and held != [None] and held:
            world.publish(2)
            published = 2
        if not published and held:
            world.publish(2)  # its commit waits until the read has begun
            published = 1
        if cluster.post.waiting:
            cluster.post.deliver()
        elif published < 2:
            for node in (1, 3):
                cluster.commit(node)
        else:
            cluster.commit(2)
    assert published == 2
    world.check()
    assert world.got == [0, 1, 2]
