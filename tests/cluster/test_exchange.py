"""Messages that cross between nodes on one Postgres, on a bus and with commits that the test has in its hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import psycopg
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from holdfast.core.messages import ApplicationMessage
from holdfast.sessions.operator_publisher import OperatorPublisher
from holdfast.wire import packets as p
from tests.cluster.nodes import Cluster
from tests.doubles import Client
from tests.postgres import drop, fresh_database


def made_database() -> str:
    """Make a database with a current schema, in which three nodes are members."""
    made = fresh_database()
    with psycopg.connect(made.replace("+psycopg", ""), autocommit=True) as connection:
        for node in (1, 2, 3):
            connection.execute(
                "INSERT INTO cluster_members VALUES (%s, 'plant', 1, 9223372036854775807, 'member', 1, 1, '', '')",
                (node,),
            )
    return made


@pytest.fixture
def url() -> Iterator[str]:
    """A database of three members."""
    made = made_database()
    yield made
    drop(made)


@pytest.fixture
def cluster(url: str) -> Iterator[Cluster]:
    """Three nodes."""
    made = Cluster(url)
    made.start(1, 2, 3)
    yield made
    made.close()


def rows(cluster: Cluster) -> list[int]:
    """Return the numbers of all rows that wait for nodes."""
    with psycopg.connect(cluster.url.replace("+psycopg", ""), autocommit=True) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM cluster_messages ORDER BY number")]


def subscribed(cluster: Cluster, node: int, name: str, *filters: str, qos: int = 2, clean: bool = True) -> Client:
    """Return a client with subscriptions, which has its SUBACK."""
    client = cluster.nodes[node].client(name, clean=clean)
    client.send(p.Subscribe(client.identifier(), tuple(p.SubscriptionRequest(each, qos) for each in filters)))
    assert any(isinstance(packet, p.Suback) for packet in client.packets())
    return client


def published(client: Client) -> list[bytes]:
    """Return the payloads of the messages that a client has received."""
    return [payload for _, payload, _, _ in client.messages()]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_each_node_gets_a_message_once(cluster: Cluster, qos: int, retain: bool) -> None:
    """However many of its clients have subscribed; the rows are deleted when all have them."""
    watchers = [subscribed(cluster, node, f"w{node}{number}", "a/#", "a/b") for node in (1, 2, 3) for number in (1, 2)]
    publisher = cluster.nodes[1].client("publisher")
    publisher.publish("a/b", b"x", qos, retain)
    publisher.publish("other", b"y", qos)
    for watcher in watchers:
        assert published(watcher) == [b"x"]
    cluster.advance(12)
    assert rows(cluster) == []


def test_suback_waits_for_all_nodes(cluster: Cluster) -> None:
    """The one that has not applied the filter could still publish past the subscriber."""
    cluster.lets_flow = False
    client = cluster.nodes[1].client("watcher")
    client.send(p.Subscribe(1, (p.SubscriptionRequest("a", 1),)))
    assert client.got(p.Suback) == []
    for _ in range(3):  # the filter to nodes 2 and 3, and the answer of 2
        cluster.post.deliver()
        cluster.settle()
        assert client.got(p.Suback) == []
    cluster.lets_flow = True
    cluster.settle()
    assert len(client.got(p.Suback)) == 1


def test_suback_does_not_wait_for_a_node_that_was_taken_over(cluster: Cluster) -> None:
    """It waits as long as the node may still serve publishers."""
    cluster.kill(3, taken_over=False)
    client = cluster.nodes[1].client("watcher")
    client.send(p.Subscribe(1, (p.SubscriptionRequest("a", 1),)))
    cluster.advance(5)
    assert client.got(p.Suback) == []
    cluster.tell_places()
    assert len(client.got(p.Suback)) == 1


def test_a_replay_begins_behind_the_gate_and_behind_the_rows(cluster: Cluster) -> None:
    """What another node has stored meanwhile comes once, and nothing older behind it."""
    publisher = cluster.nodes[2].client("publisher")
    publisher.publish("a", b"1", 1, True)
    cluster.lets_flow = False
    client = cluster.nodes[1].client("watcher")
    client.send(p.Subscribe(1, (p.SubscriptionRequest("a", 1),)))
    publisher.publish("a", b"2", 1, True)
    assert published(client) == []
    cluster.lets_flow = True
    cluster.settle()
    publisher.publish("a", b"3", 1, True)
    cluster.advance(3)
    seen = published(client)
    assert seen == sorted(seen)
    assert seen[0] in (b"1", b"2")
    assert seen[-1] == b"3"


def test_a_replay_has_the_stored_message_though_an_older_one_comes_late(cluster: Cluster) -> None:
    """That one crossed for an earlier subscription; the stored one did not, since nobody had subscribed then."""
    publisher = cluster.nodes[1].client("publisher")
    early = subscribed(cluster, 2, "early", "a")
    cluster.lets_flow = False
    publisher.publish("a", b"older", 1, True)
    early.send(p.Unsubscribe(2, ("a",)))
    cluster.settle()
    for _ in [each for each in cluster.post.waiting if each[0] == 1]:
        cluster.post.deliver([target for target, _ in cluster.post.waiting].index(1))
    publisher.publish("a", b"stored", 1, True)
    late = cluster.nodes[2].client("late")
    late.send(p.Subscribe(1, (p.SubscriptionRequest("a", 1),)))
    cluster.lets_flow = True
    cluster.settle()
    assert published(late) == [b"older", b"stored"]


def test_rows_and_runs_of_a_topic_keep_their_order(cluster: Cluster) -> None:
    """Messages with QoS 0 among retained ones: each counter value comes in its place."""
    watcher = subscribed(cluster, 2, "watcher", "#")
    publisher = cluster.nodes[1].client("publisher")
    for number in range(1, 40):
        publisher.publish("a", b"%02d" % number, 0, number % 3 == 0)
    cluster.advance(3)
    assert published(watcher) == [b"%02d" % number for number in range(1, 40)]


def test_a_run_leaves_before_the_next_row_of_its_topic(cluster: Cluster) -> None:
    """It waits for a row that was for another node, and is passed in the same step in which the next one is applied."""
    watcher = subscribed(cluster, 2, "watcher", "a", qos=0)
    subscribed(cluster, 3, "other", "a", qos=1)
    publisher = cluster.nodes[1].client("publisher")
    cluster.lets_flow = False
    publisher.publish("a", b"1", 1)  # a row for node 3, a run for node 2
    publisher.publish("a", b"2", 1)
    publisher.publish("a", b"3", 1, True)  # a row for both
    cluster.lets_flow = True
    cluster.settle()
    assert published(watcher) == [b"1", b"2", b"3"]


def test_a_run_that_comes_behind_a_later_row_is_lost(cluster: Cluster) -> None:
    """A node is not heard, so its rows are applied. When its runs arrive all the same, they are too old."""
    watcher = subscribed(cluster, 2, "watcher", "a", qos=0)
    publisher = cluster.nodes[1].client("publisher")
    cluster.lets_flow = False
    publisher.publish("a", b"1", 0)
    publisher.publish("a", b"2", 0, True)
    cluster.advance(6)
    assert published(watcher) == [b"2"]
    cluster.lets_flow = True
    cluster.advance(3)
    publisher.publish("a", b"3", 0)
    assert published(watcher) == [b"3"]
    assert cluster.nodes[2].exchange.lost == 1


def test_a_lost_hint_costs_time_only(cluster: Cluster) -> None:
    """The next sign tells that something is missing; everything is told anew, the hint as well."""
    watcher = subscribed(cluster, 2, "watcher", "a")
    cluster.lets_flow = False
    cluster.nodes[1].client("publisher").publish("a", b"x", 1)
    cluster.settle()
    cluster.post.waiting.clear()
    cluster.lets_flow = True
    assert published(watcher) == []
    cluster.advance(3)
    assert published(watcher) == [b"x"]


def test_a_killed_node_reads_on_where_its_commit_was(cluster: Cluster) -> None:
    """A stored Session gets each message with QoS 2 once: those before the kill, and those while the node was dead."""
    device = subscribed(cluster, 2, "device", "a/#", clean=False)
    publisher = cluster.nodes[1].client("publisher")
    publisher.publish("a/1", b"1", 2)
    assert published(device) == [b"1"]
    device.drop()
    publisher.publish("a/2", b"2", 2)
    cluster.kill(2, taken_over=False)
    publisher.publish("a/3", b"3", 2)
    cluster.tell_places()
    publisher.publish("a/4", b"4", 2)
    publisher.publish("b", b"not wanted", 2)
    cluster.start(2)
    device = cluster.nodes[2].client("device", clean=False)
    cluster.advance(3)
    backlog = [packet.payload for packet in device.backlog if isinstance(packet, p.Publish)]
    assert sorted(backlog + published(device)) == [b"2", b"3", b"4"]
    cluster.advance(12)
    assert rows(cluster) == []


def test_a_node_that_joins_knows_the_sessions_of_a_dead_one(cluster: Cluster) -> None:
    """Its own publishers' messages wait for them, too."""
    subscribed(cluster, 2, "device", "a", clean=False).drop()
    cluster.kill(2)
    cluster.kill(3)
    cluster.start(3)
    cluster.nodes[3].client("publisher").publish("a", b"x", 1)
    cluster.start(2)
    device = cluster.nodes[2].client("device", clean=False)
    cluster.advance(3)
    backlog = [packet.payload for packet in device.backlog if isinstance(packet, p.Publish)]
    assert backlog + published(device) == [b"x"]


def test_a_member_of_a_group_is_chosen_on_all_nodes(cluster: Cluster) -> None:
    """Each node has as many turns as connected members; one that is away gets nothing while others are connected."""
    members = [
        subscribed(cluster, node, f"m{node}{number}", "$share/g/jobs") for node in (1, 2, 3) for number in range(node)
    ]
    subscribed(cluster, 1, "away", "$share/g/jobs", clean=False).drop()
    publisher = cluster.nodes[1].client("publisher")
    for number in range(60):
        publisher.publish("jobs", b"%d" % number, number % 3)
    cluster.advance(3)
    found = [published(member) for member in members]
    assert sorted(map(int, (each for one in found for each in one))) == list(range(60))
    assert [len(one) for one in found] == [10] * 6
    for member in members:
        member.drop()
    publisher.publish("jobs", b"for the one that is away", 1)
    device = cluster.nodes[1].client("away", clean=False)
    assert [packet.payload for packet in device.backlog if isinstance(packet, p.Publish)] == [
        b"for the one that is away"
    ]


def test_the_last_message_of_each_subscriber_is_the_retained_one(cluster: Cluster) -> None:
    """Two nodes set a topic before either hears of the other."""
    watchers = [subscribed(cluster, node, f"w{node}", "a", qos=1) for node in (1, 2, 3)]
    cluster.lets_flow = False
    for node in (1, 2):
        cluster.nodes[node].client(f"publisher {node}").publish("a", b"from %d" % node, 1, True)
    cluster.lets_flow = True
    cluster.advance(3)
    reader = subscribed(cluster, 3, "reader", "a")
    (stored,) = {packet[1] for packet in reader.messages()} or {b""}
    for watcher in watchers:
        assert published(watcher)[-1] == (stored or b"from 2")


def test_a_node_without_room_on_the_bus_is_told_everything_later(cluster: Cluster) -> None:
    """Nothing else waits for it but subscriptions."""
    cluster.post.full.add(2)
    watcher = cluster.nodes[1].client("watcher")
    watcher.send(p.Subscribe(1, (p.SubscriptionRequest("a", 1),)))
    cluster.advance(3)
    assert watcher.got(p.Suback) == []
    cluster.nodes[2].client("publisher").publish("b", b"x", 1)
    cluster.post.full.clear()
    cluster.advance(3)
    assert len(watcher.got(p.Suback)) == 1
    cluster.nodes[2].client("publisher").publish("a", b"x", 1)
    assert published(watcher) == [b"x"]


class Deaths(RuleBasedStateMachine):
    """Nodes die at any step, between any two commits, over a bus that loses, repeats and reorders."""

    def __init__(self) -> None:
        super().__init__()
        self.url = made_database()
        self.cluster = Cluster(self.url)
        self.cluster.start(1, 2, 3)
        for node in (1, 2, 3):
            subscribed(self.cluster, node, f"device {node}", "#", clean=False).drop()
        self.cluster.manual = True
        for node in (1, 2, 3):  # from now on, commits are made by the test
            self.cluster.kill(node, taken_over=False)
            self.cluster.start(node)
            self.commit_all()
        self.cluster.advance(2)
        self.commit_all()
        self.cluster.lets_flow = False
        self.number = 0
        self.sent: dict[int, int] = {}  #: QoS by number
        self.waiting: dict[int, tuple[Client, int, int]] = {}  #: publishers, their packets and nodes, by number
        self.acknowledged: set[int] = set()

    def commit_all(self) -> None:
        """Commit all that waits."""
        for node in list(self.cluster.nodes):
            self.cluster.commit(node)

    @rule(node=st.integers(1, 3), qos=st.integers(1, 2), retain=st.booleans())
    def publish(self, node: int, qos: int, retain: bool) -> None:
        """A client publishes, at a node that serves clients; it is acknowledged when that is committed."""
        if node in self.cluster.nodes and self.cluster.nodes[node].exchange.why_not_ready() is None:
            self.number += 1
            client = self.cluster.nodes[node].client(f"publisher {self.number}")
            client.publish(f"topic/{self.number % 3}", b"%d" % self.number, qos, retain)
            self.sent[self.number] = qos
            self.waiting[self.number] = client, qos, node

    @rule(node=st.integers(1, 3))
    def commit(self, node: int) -> None:
        """A node commits what waits, once."""
        if node in self.cluster.nodes:
            executor = self.cluster.nodes[node].executor
            if executor.waiting:
                executor.step()
            self.cluster.settle()
        self.take_acknowledgements()

    def take_acknowledgements(self) -> None:
        """Note which messages are acknowledged."""
        for number, (client, qos, _) in list(self.waiting.items()):
            if client.got(p.Puback if qos == 1 else p.Pubrec):
                self.acknowledged.add(number)
                del self.waiting[number]

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """Some datagram arrives."""
        waiting = self.cluster.post.waiting
        if waiting:
            self.cluster.post.deliver(data.draw(st.integers(0, min(2, len(waiting) - 1))))
            self.cluster.settle()

    @rule()
    def go_on(self) -> None:
        """All datagrams arrive, and all nodes commit, for a while."""
        for _ in range(3):
            while self.cluster.post.waiting:
                self.cluster.post.deliver()
            self.commit_all()
        self.take_acknowledgements()

    @rule()
    def lose(self) -> None:
        """All datagrams under way are lost."""
        self.cluster.post.waiting.clear()

    @rule(node=st.integers(1, 3), taken_over=st.booleans())
    def kill(self, node: int, taken_over: bool) -> None:
        """A node is killed."""
        if node in self.cluster.nodes:
            self.cluster.kill(node, taken_over)
            self.waiting = {number: each for number, each in self.waiting.items() if each[2] != node}

    @rule(node=st.integers(1, 3))
    def start(self, node: int) -> None:
        """A node starts again."""
        if node not in self.cluster.nodes:
            self.cluster.start(node)

    @rule(seconds=st.sampled_from([0.5, 3]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.cluster.advance(seconds)
        self.take_acknowledgements()

    def teardown(self) -> None:
        """In the end each stored Session has each acknowledged message: with QoS 2 once, with QoS 1 at least once."""
        try:
            self.cluster.lets_flow = True
            self.cluster.start(*{1, 2, 3} - set(self.cluster.nodes))
            for _ in range(4):
                self.cluster.advance(3)
                self.commit_all()
            self.take_acknowledgements()
            for node in (1, 2, 3):
                self.judge(node)
        finally:
            self.cluster.close()
            drop(self.url)

    def judge(self, node: int) -> None:
        """Compare the messages of a node's stored Session with the acknowledged ones."""
        self.cluster.commit(node)
        device = Client(self.cluster.nodes[node])
        device.send(p.Connect(f"device {node}", 4, clean_start=False))
        found: Counter[tuple[int, int]] = Counter()
        for _ in range(20):
            self.cluster.commit(node)
            found.update((int(payload), qos) for _, payload, qos, _ in device.messages() if payload)
        for number in self.acknowledged:
            assert found[number, self.sent[number]] >= 1
        for (number, qos), count in found.items():
            assert count == 1 or qos == 1
            assert qos == self.sent[number] or qos == 1  # a correction


TestDeaths = Deaths.TestCase
# An example takes a third of a second: without shrinking, a failure is told at once.
TestDeaths.settings = settings(
    max_examples=max(10, settings().max_examples // 5), stateful_step_count=30,
    phases=(Phase.explicit, Phase.generate),
)  # fmt: skip


def test_a_notice_of_an_expired_message_reaches_the_subscribers_of_all_nodes(cluster: Cluster) -> None:
    """One node removes the message, and sends the notice."""
    watchers = [subscribed(cluster, node, f"w{node}", "a") for node in (1, 2)]
    node = cluster.nodes[1]
    router = cast("Any", node.registry)._router
    OperatorPublisher(router, cast("Any", node.clock)).tell(ApplicationMessage("a", b"", 1, retain=True))
    cluster.settle()
    assert [published(watcher) for watcher in watchers] == [[b""], [b""]]
