"""Stored Sessions that move from node to node with their clients, on one Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import psycopg
import pytest

from holdfast.cluster.members import HandedOver, hand_over
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.sessions.accounts import Accounts
from holdfast.sessions.registry import owners_only
from holdfast.sessions.rows import will_of
from holdfast.wire import ConnectReturnCode, ReasonCode
from holdfast.wire import packets as p
from holdfast.wire.properties import NO_PROPERTIES, Properties
from tests.cluster.nodes import Cluster
from tests.doubles import Client
from tests.postgres import drop, fresh_database


@pytest.fixture
def url() -> Iterator[str]:
    """A database with a current schema, in which three nodes are members."""
    made = fresh_database()
    with psycopg.connect(made.replace("+psycopg", ""), autocommit=True) as connection:
        for node in (1, 2, 3):
            connection.execute(
                "INSERT INTO cluster_members VALUES (%s, 'plant', 1, 9223372036854775807, 'member', 1, 1, '', '')",
                (node,),
            )
    yield made
    drop(made)


@pytest.fixture
def cluster(url: str) -> Iterator[Cluster]:
    """Three nodes."""
    made = Cluster(url)
    made.start(1, 2, 3)
    yield made
    made.close()


def asked(cluster: Cluster, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement."""
    with psycopg.connect(cluster.url.replace("+psycopg", ""), autocommit=True) as connection:
        return list(connection.execute(statement))


def died(cluster: Cluster, node: int) -> None:
    """Kill a node, and let the others take over from it."""
    cluster.kill(node, taken_over=False)
    asked(cluster, f"UPDATE cluster_members SET state = 'dead' WHERE node = {node} RETURNING node")
    cluster.tell_places()


class Mover(Client):
    """A client with a stored Session. ``packets`` leaves CONNACK out."""

    def begin(
        self, name: str, clean: bool = False, will: p.Will | None = None, username: str | None = None,
        properties: Properties = NO_PROPERTIES,
    ) -> None:  # fmt: skip
        """Send CONNECT."""
        self.send(p.Connect(name, self.version, clean, 0, username, None, will, properties))

    def packets(self) -> list[p.Packet]:
        """Return the packets received since the last call; keep CONNACK."""
        found = super().packets()
        if found and isinstance(found[0], p.Connack):
            self.connack = found[0]
            return found[1:]
        return found

    @property
    def present(self) -> bool | None:
        """Whether it has found its Session; None if it is not connected."""
        answered = self.connack is not None and self.connack.reason_code == 0
        return self.connack.session_present if self.connack is not None and answered else None

    def leave(self) -> None:
        """Disconnect."""
        self.send(p.Disconnect())
        self.drop()


def subscribed(cluster: Cluster, node: int, name: str, *filters: str, qos: int = 2, **connect: Any) -> Mover:
    """Return a client with a stored Session and subscriptions."""
    client = Mover(cluster.nodes[node], connect.pop("version", 4))
    client.begin(name, **connect)
    client.send(p.Subscribe(client.identifier(), tuple(p.SubscriptionRequest(each, qos) for each in filters)))
    assert any(isinstance(packet, p.Suback) for packet in client.packets())
    return client


def back(cluster: Cluster, node: int, name: str, version: int = 4, **connect: Any) -> tuple[Mover, list[bytes]]:
    """Return a client that has come back to a node, and the payloads that it has received."""
    client = Mover(cluster.nodes[node], version)
    client.begin(name, **connect)
    return client, payloads(client)


def payloads(client: Client) -> list[bytes]:
    """Return the payloads that a client has received, and acknowledge them."""
    return [payload for _, payload, _, _ in client.messages()]


def test_a_session_moves_with_its_client(cluster: Cluster) -> None:
    """With subscriptions, queued messages and those in flight; the older connection ends."""
    first = subscribed(cluster, 1, "a", "t/#")
    publisher = cluster.nodes[3].client("publisher")
    publisher.publish("t/1", b"1", 1)
    assert payloads(first) == [b"1"]
    cluster.nodes[1].client("other").publish("t/2", b"2", 2)
    second, got = back(cluster, 2, "a")
    assert second.present
    assert got == [b"2"]
    assert first.network.closed
    publisher.publish("t/3", b"3", 1)
    assert b"3" in payloads(second)
    assert asked(cluster, "SELECT owner FROM sessions WHERE client_id = 'a'") == [(2,)]
    assert asked(cluster, "SELECT * FROM session_cuts") == []
    assert cluster.nodes[1].registry.session_of("a") is None


@pytest.mark.parametrize("qos", [1, 2])
def test_queued_messages_move(cluster: Cluster, qos: int) -> None:
    """Those of all nodes, published while the client was away; each comes once, in order."""
    subscribed(cluster, 1, "a", "t/#").leave()
    publishers = [cluster.nodes[node].client(f"p{node}") for node in (1, 2, 3)]
    for number in range(6):
        publishers[number % 3].publish(f"t/{number % 3}", b"%d" % number, qos)
    client, got = back(cluster, 2, "a")
    assert client.present
    assert sorted(got) == [b"%d" % number for number in range(6)]
    for of_publisher in range(3):
        mine = [payload for payload in got if int(payload) % 3 == of_publisher]
        assert mine == sorted(mine)


def test_a_session_moves_back(cluster: Cluster) -> None:
    """And again, with messages in between."""
    subscribed(cluster, 1, "a", "t").leave()
    publisher = cluster.nodes[3].client("publisher")
    for number, node in enumerate((2, 1, 3, 1, 2)):
        publisher.publish("t", b"%d" % number, 2)
        client, got = back(cluster, node, "a")
        assert client.present
        assert got == [b"%d" % number]
        client.leave()
    cluster.advance(12)
    assert asked(cluster, "SELECT number FROM cluster_messages") == []
    assert asked(cluster, "SELECT id FROM session_messages") == []
    assert asked(cluster, "SELECT seq FROM session_deliveries") == []


def test_a_clean_start_ends_the_session_of_another_node(cluster: Cluster) -> None:
    """And one new Session begins."""
    subscribed(cluster, 1, "a", "t").leave()
    client, _ = back(cluster, 2, "a", version=5, clean=True, properties=Properties(session_expiry_interval=60))
    assert client.present is False
    cluster.nodes[3].client("publisher").publish("t", b"1", 1)
    assert payloads(client) == []
    assert asked(cluster, "SELECT owner FROM sessions WHERE client_id = 'a'") == [(2,)]
    assert asked(cluster, "SELECT topic_filter FROM session_subscriptions") == []


def test_two_nodes_get_one_new_session(cluster: Cluster) -> None:
    """A client that connects to two nodes at one time: one node has the Session, and the other one asks for it."""
    cluster.lets_flow = False
    first, second = Mover(cluster.nodes[1]), Mover(cluster.nodes[2])
    first.begin("a")
    second.begin("a")
    cluster.lets_flow = True
    cluster.settle()
    cluster.advance(3)
    assert len(asked(cluster, "SELECT owner FROM sessions WHERE client_id = 'a'")) == 1
    assert [first.network.closed, second.network.closed].count(False) <= 1


def test_a_message_is_published_at_each_step(cluster: Cluster) -> None:
    """On every node, between all datagrams of a move: none is lost, none comes twice."""
    subscribed(cluster, 1, "a", "t/#").leave()
    publishers = [cluster.nodes[node].client(f"p{node}") for node in (1, 2, 3)]
    cluster.lets_flow = False
    client = Mover(cluster.nodes[2])
    client.begin("a")
    sent = 0
    for _ in range(60):
        for publisher in publishers:
            publisher.publish("t/1", b"%d" % sent, 2)
            sent += 1
        cluster.settle()
        if cluster.post.waiting:
            cluster.post.deliver()
        cluster.settle()
    cluster.lets_flow = True
    cluster.settle()
    cluster.advance(5)
    assert sorted(map(int, payloads(client))) == list(range(sent))
    assert client.present


# --- large Sessions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dies", [False, True])
def test_a_large_session_moves(cluster: Cluster, dies: bool) -> None:
    """With messages that are published at each step, and that wait in the database of a dead node: each comes once."""
    filters = [f"t/{number}/#" for number in range(40)]
    subscribed(cluster, 1, "a", "t/1/1", "$share/g/s", *filters).leave()
    publishers = [cluster.nodes[node].client(f"p{node}") for node in (2, 3)]
    for number in range(300):
        publishers[number % 2].publish("t/1/1", b"%d" % number, 2)
    sent = 300
    if dies:
        died(cluster, 1)
    client = Mover(cluster.nodes[2])
    cluster.lets_flow = False
    client.begin("a")
    for _ in range(30):
        for publisher in publishers:
            publisher.publish("t/1/1", b"%d" % sent, 2)
            sent += 1
        cluster.settle()
        if cluster.post.waiting:
            cluster.post.deliver()
    cluster.lets_flow = True
    cluster.advance(3)
    got: list[int] = []
    while more := payloads(client):
        got += map(int, more)
    assert client.present
    assert sorted(got) == list(range(sent))
    for of_publisher in range(2):
        mine = [number for number in got if number % 2 == of_publisher]
        assert mine == sorted(mine)
    publishers[1].publish("s", b"shared", 1)
    assert payloads(client) == [b"shared"]
    assert asked(cluster, "SELECT * FROM session_cuts") == []


def test_a_large_session_is_built_in_steps(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that other clients are served meanwhile, and other Sessions get the messages of other nodes."""
    subscribed(cluster, 1, "a", "t").leave()
    publisher = cluster.nodes[3].client("publisher")
    for number in range(300):
        publisher.publish("t", b"%d" % number, 1)
    registry: Any = cluster.nodes[2].registry
    build, rows = registry.build, cluster.nodes[2].exchange.rows
    steps: list[int] = []

    def observed(stored: Any) -> Any:
        session, work = build(stored)

        def counted() -> Iterator[int]:
            for count in work:
                steps.append(count)
                assert not rows._holds
                yield count

        return session, counted()

    monkeypatch.setattr(registry, "build", observed)
    client, _ = back(cluster, 2, "a")
    cluster.settle()
    assert client.present
    assert sum(steps) >= 30


def test_a_session_that_could_not_be_built_is_read_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the first try is left, and nothing comes twice."""
    subscribed(cluster, 1, "a", "t").leave()
    publisher = cluster.nodes[3].client("publisher")
    for number in range(300):
        publisher.publish("t", b"%d" % number, 2)
    entering: Any = cluster.nodes[2].registry
    entering = entering.adopting._entering
    look_again = entering.look_again
    tries: list[int] = []

    async def failing(*arguments: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise StorageFailure(FailureKind.UNAVAILABLE, "the database is away", "here")
        await look_again(*arguments)

    monkeypatch.setattr(entering, "look_again", failing)
    client = Mover(cluster.nodes[2])
    client.begin("a")
    publisher.publish("t", b"300", 2)
    cluster.advance(8)
    got: list[int] = []
    while more := payloads(client):
        got += map(int, more)
    if not client.present:
        client, first = back(cluster, 2, "a")
        got += map(int, first)
        while more := payloads(client):
            got += map(int, more)
    assert client.present
    assert len(tries) > 1
    assert got == list(range(301))


# --- Wills ------------------------------------------------------------------------------------------------------------

LASTING = Properties(session_expiry_interval=600)


@pytest.mark.parametrize(
    ("delay", "clean", "expected"),
    [(0, False, [b"gone"]), (0, True, [b"gone"]), (60, False, []), (60, True, [b"gone"])],
)
def test_the_will_at_a_move(cluster: Cluster, delay: int, clean: bool, expected: list[bytes]) -> None:
    """It is published unless the client resumes its Session within the delay [MQTT5-3.1.3-9]; before CONNACK."""
    watcher = subscribed(cluster, 3, "watcher", "wills")
    will = p.Will("wills", b"gone", 1, False, Properties(will_delay_interval=delay))
    subscribed(cluster, 1, "a", "t", version=5, properties=LASTING, will=will)
    client, _ = back(cluster, 2, "a", 5, clean=clean, properties=LASTING)
    assert client.present is not clean
    assert payloads(watcher) == expected
    assert asked(cluster, "SELECT * FROM wills") == []
    cluster.advance(70)
    assert payloads(watcher) == []


@pytest.mark.parametrize("delay", [0, 60])
def test_the_will_of_a_session_that_is_not_stored(cluster: Cluster, delay: int) -> None:
    """The Session has ended with its connection, so the Will is published before CONNACK."""
    watcher = subscribed(cluster, 3, "watcher", "wills")
    first = Mover(cluster.nodes[1], 5)
    first.begin("a", True, p.Will("wills", b"gone", 1, False, Properties(will_delay_interval=delay)))
    client, _ = back(cluster, 2, "a", 5, clean=True)
    assert client.present is False
    assert first.network.closed
    assert payloads(watcher) == [b"gone"]


def test_the_will_of_a_lost_client_moves_nowhere(cluster: Cluster) -> None:
    """A client that comes back in time to another node cancels it."""
    watcher = subscribed(cluster, 3, "watcher", "wills")
    will = p.Will("wills", b"gone", 1, False, Properties(will_delay_interval=30))
    subscribed(cluster, 1, "a", "t", version=5, properties=LASTING, will=will).drop()
    cluster.advance(10)
    client, _ = back(cluster, 2, "a", 5, properties=LASTING)
    assert client.present
    cluster.advance(60)
    assert payloads(watcher) == []
    assert asked(cluster, "SELECT * FROM wills") == []


def inherited(cluster: Cluster, dead: int, heir: int) -> None:
    """Hand the Wills of a dead node over."""
    node = cluster.nodes[heir]
    taken: list[HandedOver] = []
    writing = node.parts.writer.run(lambda connection: hand_over(connection.cursor(), dead, heir))
    writing.addCallback(taken.append)
    node.settle()
    node.registry.inherit([will_of(row) for row in taken[0].wills], [])


GONE = p.Will("wills", b"gone", 1, False, NO_PROPERTIES)


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("node", [1, 2, 3])
def test_the_will_of_a_client_that_is_back_after_all_nodes_were_killed(
    cluster: Cluster, node: int, is_stored: bool
) -> None:
    """It is discarded before CONNACK, whatever node the client comes to, and without a new Will."""
    if is_stored:
        subscribed(cluster, 1, "a", "t", version=5, properties=LASTING, will=GONE)
    else:
        Mover(cluster.nodes[1], 5).begin("a", True, GONE)
    for each in (1, 2, 3):
        cluster.kill(each, taken_over=False)
    cluster.start(1, 2, 3)
    watcher = subscribed(cluster, 3, "watcher", "wills")
    cluster.advance(2)
    client, _ = back(cluster, node, "a", 5, clean=not is_stored)
    assert client.present is is_stored
    assert asked(cluster, "SELECT * FROM wills") == []
    cluster.advance(100)
    assert payloads(watcher) == []


@pytest.mark.parametrize("node", [2, 3])
def test_the_will_and_the_session_of_a_dead_node_are_at_two_nodes(cluster: Cluster, node: int) -> None:
    """The client comes to either: its Will is discarded before CONNACK, and its Session resumed."""
    subscribed(cluster, 1, "a", "t", version=5, properties=LASTING, will=GONE)
    cluster.kill(1, taken_over=False)
    inherited(cluster, 1, 3)
    cluster.tell_places()
    cluster.advance(6)
    assert asked(cluster, "SELECT owner FROM sessions") == [(2,)]
    assert asked(cluster, "SELECT node FROM wills") == [(3,)]
    watcher = subscribed(cluster, 3, "watcher", "wills")
    client, _ = back(cluster, node, "a", 5, properties=LASTING)
    assert client.present
    assert asked(cluster, "SELECT * FROM wills") == []
    client.leave()
    cluster.advance(100)
    assert payloads(watcher) == []


def test_a_client_waits_until_its_will_has_an_heir(cluster: Cluster) -> None:
    """The dead node may be alive after all, and publish it."""
    Mover(cluster.nodes[1], 5).begin("a", True, GONE)
    watcher = subscribed(cluster, 3, "watcher", "wills")
    cluster.kill(1, taken_over=False)
    client = Mover(cluster.nodes[2], 5)
    client.begin("a", True)
    cluster.advance(4)
    assert payloads(client) == []
    assert client.connack is None
    inherited(cluster, 1, 2)
    cluster.tell_places()
    cluster.advance(3)
    assert payloads(client) == []
    assert client.present is False
    cluster.advance(100)
    assert payloads(watcher) == []


def test_the_will_of_another_user_stays(url: str) -> None:
    """One who is refused settles nothing."""
    cluster = Cluster(url, ownership=owners_only)
    cluster.start(1, 2, 3)
    subscribed(cluster, 1, "a", "t", version=5, username="alice", properties=LASTING, will=GONE)
    cluster.kill(1, taken_over=False)
    inherited(cluster, 1, 3)
    cluster.tell_places()
    cluster.advance(6)
    client, _ = back(cluster, 2, "a", 5, username="bob")
    assert client.connack is not None
    assert client.connack.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert asked(cluster, "SELECT node, username FROM wills") == [(3, "alice")]
    cluster.close()


# --- who may have a Session -------------------------------------------------------------------------------------------


def test_the_session_of_another_user_stays(url: str) -> None:
    """It is refused before anything has changed: the connection of its client too."""
    cluster = Cluster(url, ownership=owners_only)
    cluster.start(1, 2)
    first = subscribed(cluster, 1, "a", "t", username="alice")
    client, _ = back(cluster, 2, "a", 5, username="bob")
    assert client.connack is not None
    assert client.connack.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert not first.network.closed
    cluster.nodes[2].client("publisher").publish("t", b"1", 1)
    assert payloads(first) == [b"1"]
    cluster.close()


def test_nothing_is_stored_for_a_client_over_a_limit(url: str) -> None:
    """It is refused before its row is written."""
    cluster = Cluster(url, accounts=Accounts(names_proven=True))
    cluster.start(1, 2)
    cluster.nodes[2].limits = attrs.evolve(cluster.nodes[2].limits, max_sessions=1)
    subscribed(cluster, 2, "a", "t", username="alice")
    client, _ = back(cluster, 2, "b", 5, username="alice", properties=LASTING)
    assert client.connack is not None
    assert client.connack.reason_code == ReasonCode.QUOTA_EXCEEDED
    assert asked(cluster, "SELECT client_id, owner FROM sessions") == [("a", 2)]
    cluster.close()


def test_cuts_without_a_session_are_deleted(cluster: Cluster) -> None:
    """They would keep all later rows."""
    asked(cluster, "INSERT INTO session_cuts VALUES (7, 1, 0) RETURNING origin")
    cluster.advance(6)
    assert asked(cluster, "SELECT * FROM session_cuts") == []


def test_the_older_of_two_connections_ends(cluster: Cluster) -> None:
    """Also if their Sessions are stored nowhere."""
    first = cluster.nodes[1].client("a")
    second = cluster.nodes[2].client("a")
    assert first.network.closed
    assert not second.network.closed
    cluster.advance(5)
    third = cluster.nodes[1].client("a")
    assert second.network.closed
    assert not third.network.closed


def connected_apart(cluster: Cluster, *nodes: int) -> list[Client]:
    """Return clients with one Client Identifier, and what nodes tell each other meanwhile is lost."""
    cluster.lets_flow = False
    clients = []
    for node in nodes:
        cluster.seconds += 1
        clients.append(cluster.nodes[node].client("a"))
        cluster.settle()
    cluster.post.waiting.clear()
    cluster.lets_flow = True
    return clients


@pytest.mark.parametrize("nodes", [(1, 2), (2, 1)])
def test_twins_that_nobody_was_told_of_end(cluster: Cluster, nodes: tuple[int, int]) -> None:
    """Within 5 seconds of the time at which the nodes hear each other again, whatever node has the later one."""
    first, second = connected_apart(cluster, *nodes)
    assert not first.network.closed
    cluster.advance(5)
    assert [first.network.closed, second.network.closed].count(True) == 1
    others = [cluster.nodes[3].client(f"other {number}") for number in range(3)]
    cluster.advance(5)
    assert [first.network.closed, second.network.closed].count(True) == 1
    assert not any(other.network.closed for other in others)


def test_a_link_that_begins_anew_ends_no_later_connection(cluster: Cluster) -> None:
    """Each node tells the clients of its own connections, and these stay."""
    clients = [cluster.nodes[node].client(f"client {node}") for node in (1, 2, 3)]
    cluster.advance(3)
    (moved,) = connected_apart(cluster, 2)
    cluster.advance(5)
    cluster.lets_flow = False
    cluster.nodes[1].client("lost")
    cluster.settle()
    cluster.post.waiting.clear()
    cluster.lets_flow = True
    cluster.advance(5)
    assert not any(client.network.closed for client in (*clients, moved))


def test_a_second_connect_takes_the_place_of_the_first(cluster: Cluster) -> None:
    """While the Session is on its way."""
    subscribed(cluster, 1, "a", "t").leave()
    cluster.lets_flow = False
    first, second = Mover(cluster.nodes[2]), Mover(cluster.nodes[2])
    first.begin("a")
    second.begin("a")
    assert first.network.closed
    cluster.lets_flow = True
    cluster.settle()
    second.packets()
    assert second.present


def test_a_client_leaves_while_its_session_moves(cluster: Cluster) -> None:
    """The Session comes all the same, and expires in time."""
    subscribed(cluster, 1, "a", "t", version=5, properties=Properties(session_expiry_interval=60)).leave()
    cluster.lets_flow = False
    client = Mover(cluster.nodes[2], 5)
    client.begin("a", properties=LASTING)
    client.drop()
    cluster.lets_flow = True
    cluster.settle()
    cluster.advance(1)
    assert asked(cluster, "SELECT owner FROM sessions WHERE client_id = 'a'") == [(2,)]
    cluster.advance(70)
    assert asked(cluster, "SELECT owner FROM sessions WHERE client_id = 'a'") == []


def test_an_owner_that_does_not_answer(cluster: Cluster) -> None:
    """The client is told so after 10 seconds, and nothing has changed. A late answer counts."""
    subscribed(cluster, 1, "a", "t").leave()
    cluster.lets_flow = False
    client = Mover(cluster.nodes[2])
    client.begin("a")
    for _ in range(22):
        cluster.advance(0.5)
    client.packets()
    assert client.connack is not None
    assert client.connack.reason_code == ConnectReturnCode.SERVER_UNAVAILABLE
    assert asked(cluster, "SELECT owner FROM sessions WHERE client_id = 'a'") == [(1,)]
    cluster.lets_flow = True
    cluster.advance(6)
    cluster.nodes[3].client("publisher").publish("t", b"1", 2)
    client, got = back(cluster, 3, "a")
    assert client.present
    assert got == [b"1"]


# --- deaths -----------------------------------------------------------------------------------------------------------


def test_the_session_of_a_dead_node_is_taken(cluster: Cluster) -> None:
    """With what was published while nobody served it."""
    subscribed(cluster, 1, "a", "t").leave()
    publisher = cluster.nodes[3].client("publisher")
    publisher.publish("t", b"1", 2)
    cluster.kill(1, taken_over=False)
    publisher.publish("t", b"2", 2)
    client = Mover(cluster.nodes[2])
    client.begin("a")
    cluster.advance(3)
    assert client.connack is None
    assert payloads(client) == []
    asked(cluster, "UPDATE cluster_members SET state = 'dead' WHERE node = 1 RETURNING node")
    cluster.tell_places()
    publisher.publish("t", b"3", 2)
    cluster.advance(3)
    assert payloads(client) == [b"1", b"2", b"3"]
    assert client.present


def test_sessions_of_a_dead_node_are_taken_over(cluster: Cluster) -> None:
    """By the lowest living node, with their messages, while their clients are away."""
    names = [f"c{number}" for number in range(5)]
    for name in names:
        subscribed(cluster, 3, name, "t").leave()
    publisher = cluster.nodes[2].client("publisher")
    publisher.publish("t", b"1", 2)
    died(cluster, 3)
    publisher.publish("t", b"2", 2)
    cluster.advance(12)
    assert asked(cluster, "SELECT DISTINCT owner FROM sessions") == [(1,)]
    publisher.publish("t", b"3", 2)
    for name in names:
        client, got = back(cluster, 2, name)
        assert client.present
        assert got == [b"1", b"2", b"3"]
    cluster.tell_places()
    publisher.publish("t", b"4", 2)
    cluster.advance(12)
    assert asked(cluster, "SELECT number FROM cluster_messages WHERE targets LIKE '%,3,%'") == []


@pytest.mark.parametrize("victim", [1, 2])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_node_dies_at_each_step_of_a_move(url: str, victim: int, comes_back: bool) -> None:
    """The owner or the other node, with and without a restart: every message comes once."""
    number = 0
    for step in range(0, 20, 2 if comes_back else 3):
        cluster = Cluster(url)
        cluster.start(1, 2, 3)
        if not step:
            subscribed(cluster, 1, "a", "t").leave()
        else:
            back(cluster, 1, "a")[0].leave()
        publisher = cluster.nodes[3].client("publisher")
        sent = []
        cluster.lets_flow = False
        client = Mover(cluster.nodes[2])
        client.begin("a")
        for _ in range(step):
            if cluster.post.waiting:
                cluster.post.deliver()
                cluster.settle()
            number += 1
            sent.append(b"%d" % number)
            publisher.publish("t", sent[-1], 2)
        got = payloads(client) if client.packets() or client.connack else []
        cluster.lets_flow = True
        if comes_back:
            cluster.kill(victim, taken_over=False)
            cluster.start(victim)
        else:
            died(cluster, victim)
        cluster.advance(4)
        node = 3 if victim == 2 or step % 2 else 2
        if node != 2 or client.network.closed or victim == 2:
            client, more = back(cluster, node, "a")
            cluster.advance(3)
            got += more + payloads(client)
        else:
            got += payloads(client)
        assert sorted(got) == sorted(sent), f"step {step}"
        client.leave()
        if not comes_back:
            asked(cluster, f"UPDATE cluster_members SET state = 'member' WHERE node = {victim} RETURNING node")
            cluster.start(victim)
        cluster.advance(6)
        cluster.close()
