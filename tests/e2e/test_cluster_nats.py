"""Two real brokers whose bus is a real NATS: kills and stops of its servers, a stranger, a secret that differs."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg

from tests.e2e.raw import RawClient
from tests.e2e.test_cluster_messages import messages, publish, subscribe
from tests.nats_server import NatsProcess, forwarder, pair_of_servers, running
from tests.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

Member = Callable[..., BrokerProcess]

CONFIGURATION = """
node.id = {number}
cluster.name = "plant"
cluster.lease = "3s"
cluster.bus = "{bus}"
cluster.secret = "file:secret"
mqtt.max_inflight = 1000
"""
OVER_NATS = "answers over NATS"
OVER_DATABASE = "does not answer over NATS"


@pytest.fixture
def member(tmp_path: Path, url: str) -> Iterator[Member]:
    """Prepare members with a server of NATS each, and the same secret unless another one is given."""
    members: list[BrokerProcess] = []

    def prepare(number: int, nats_server: NatsProcess, secret: str = "s" * 40) -> BrokerProcess:
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "holdfast.toml").write_text(CONFIGURATION.format(number=number, bus=nats_server.url))
        file = folder / "secret"
        file.write_text(secret)
        file.chmod(0o600)
        made = BrokerProcess(folder, "--config", "holdfast.toml", "--storage", url)
        members.append(made)
        return made

    yield prepare
    for each in members:
        each.end()


def await_next(pattern: str, *brokers: BrokerProcess) -> None:
    """Wait until each broker logs something that it did not log before the last call."""
    for broker in brokers:
        broker.wait_for(pattern)
        broker.lines.clear()


def payloads(client: RawClient, count: int, topic: str) -> list[bytes]:
    """Return the payloads of the next messages of a topic."""
    found = []
    for message in messages(client):
        if message.topic == topic:
            found.append(message.payload)
            if len(found) == count:
                break
    return found


@pytest.mark.nightly
def test_each_qos_crosses_and_nothing_is_lost_while_the_server_dies_and_returns(member: Member, tmp_path: Path) -> None:
    """NATS is not there at the start, comes, is killed, and comes again. All with QoS 1 and 2 arrive, in order."""
    server = NatsProcess(tmp_path)
    one, two = member(1, server).start(), member(2, server).start()
    ports = one.port, two.port
    watcher, publisher = RawClient(ports[1], "watcher"), RawClient(ports[0], "publisher")
    subscribe(watcher, "plant/#")
    sent: list[tuple[int, bytes]] = []

    def publish_some(count: int) -> None:
        for _ in range(count):
            number = len(sent) + 1
            qos = 1 + number % 2
            publish(publisher, f"plant/{qos}", b"%d" % number, qos, number % 5 == 0, number)
            sent.append((qos, b"%d" % number))

    for broker in (one, two):
        broker.wait_for("NATS at 127.0.0.1.*refused; the broker tries again")
    publish_some(20)
    with running(server):
        await_next(OVER_NATS, one, two)
        publish(publisher, "plant/0", b"over NATS", 0)
        publish_some(20)
        server.kill()
        publish_some(60)
        await_next(OVER_DATABASE, one, two)
        publish_some(20)
        server.start()
        publish_some(60)
        await_next(OVER_NATS, one, two)
        publish_some(20)
        received: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        for message in messages(watcher):
            received[message.qos].append(message.payload)
            if len(received[1]) + len(received[2]) == len(sent):
                break
        for qos in (1, 2):
            assert received[qos] == [payload for each, payload in sent if each == qos]
        assert received[0] == [b"over NATS"]
        assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]


async def _eavesdrop(url: str, provoke: Callable[[], None]) -> list[bytes]:
    """Hear everything on a server of NATS while something happens, then send it once more, and changed."""
    client = await nats.connect(url)
    heard: list[tuple[str, bytes]] = []

    async def note(message: Msg) -> None:
        heard.append((message.subject, message.data))

    await client.subscribe(">", cb=note)
    await client.flush()
    await asyncio.to_thread(provoke)
    for subject, data in list(heard):
        await client.publish(subject, data)
        await client.publish(subject, data[:-1] + bytes([data[-1] ^ 1]))
        await client.publish(subject, b"\x01" + data)
    await client.publish("holdfast.plant.2", b"\x01\x00\x00\x00\x01" * 40)
    await client.flush()
    await client.close()
    return [data for _, data in heard]


def test_a_stranger_on_the_same_account_can_neither_read_nor_inject_nor_replay(member: Member, tmp_path: Path) -> None:
    """Each message comes once, and no heard byte has any of its text. The brokers count the rest, and go on."""
    server = NatsProcess(tmp_path)
    with running(server):
        one, two = member(1, server).start(), member(2, server).start()
        watcher, publisher = RawClient(two.port, "watcher"), RawClient(one.port, "publisher")
        subscribe(watcher, "secret/plan")
        await_next(OVER_NATS, one, two)

        def provoke() -> None:
            for number in range(10):
                for qos in (0, 1, 2):
                    publish(publisher, "secret/plan", b"attack at dawn %d %d" % (qos, number), qos, number=number + 1)
            assert len(set(payloads(watcher, 30, "secret/plan"))) == 30

        heard = asyncio.run(_eavesdrop(server.url, provoke))
        assert heard
        assert not any(b"attack" in data or b"secret" in data for data in heard)
        publish(publisher, "secret/plan", b"last", 0)
        assert payloads(watcher, 1, "secret/plan") == [b"last"]
        assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]


@pytest.mark.nightly
def test_a_member_with_another_secret_is_named_and_loses_nothing(member: Member, tmp_path: Path) -> None:
    """Both log one sentence with the remedy, and the database carries the messages."""
    server = NatsProcess(tmp_path)
    with running(server):
        one, two = member(1, server).start(), member(2, server, "t" * 40).start()
        for broker, other in ((one, 2), (two, 1)):
            broker.wait_for(f"node {other} has another cluster.secret.*copy one secret to all members")
        watcher, publisher = RawClient(two.port, "watcher"), RawClient(one.port, "publisher")
        subscribe(watcher, "a")
        for qos in (0, 1, 2):
            publish(publisher, "a", b"%d" % qos, qos)
        assert Counter(payloads(watcher, 3, "a")) == Counter((b"0", b"1", b"2"))
        assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]


@pytest.mark.nightly
@pytest.mark.parametrize("stopped", ["server", "route"])
def test_a_server_or_a_route_that_stands_still_is_fallen_back_from(
    member: Member, tmp_path: Path, stopped: str
) -> None:
    """Each broker has one of two servers of a cluster of NATS. Nothing is refused, and nothing passes.

    Without its server, a broker has no NATS. Without the route, both have it, and do not reach each other. When it goes
    on, what was held back arrives late.
    """
    first, second, through, target = pair_of_servers(tmp_path, ["ping_interval: 3600"])
    with forwarder(through, target) as route, running(first, second):
        stop: Callable[[signal.Signals], None] = second.signal if stopped == "server" else route.send_signal
        one, two = member(1, first).start(), member(2, second).start()
        watcher, publisher = RawClient(two.port, "watcher"), RawClient(one.port, "publisher")
        subscribe(watcher, "a")
        await_next(OVER_NATS, one, two)
        stop(signal.SIGSTOP)
        try:
            for number in range(1, 41):
                publish(publisher, "a", b"%d" % number, 1 + number % 2, number=number)
            await_next(OVER_DATABASE, one, two)
        finally:
            stop(signal.SIGCONT)
        await_next(OVER_NATS, one, two)
        publish(publisher, "a", b"41", 1, number=41)
        assert Counter(payloads(watcher, 41, "a")) == Counter(b"%d" % number for number in range(1, 42))
        assert [broker.stop() for broker in (one, two)] == [(0, ""), (0, "")]
