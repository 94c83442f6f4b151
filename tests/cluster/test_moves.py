"""Stored Sessions that move from node to node with their clients, on one Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

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
            self.connack = found.pop(0)
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
