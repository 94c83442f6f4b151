"""Limits on connections, and the PROXY protocol, with real sockets."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.processes import PATIENCE, TWISTD, BrokerProcess

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]

CONNECT = encode(p.Connect("c"), 4)
CONNACK = b"\x20\x02\0\0"


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Callable[[int], BrokerProcess]]:
    """Starts a broker whose process may have this many files open."""
    brokers: list[BrokerProcess] = []

    def start(files: int) -> BrokerProcess:
        program = ("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *TWISTD)
        configuration = tmp_path / "holdfast.toml"
        configuration.write_text('[log]\nlevel = "debug"\n')
        brokers.append(BrokerProcess(tmp_path, f"--config={configuration}", program=program))
        return brokers[-1].start()

    yield start
    for broker in brokers:
        broker.end()


def connect(port: int) -> socket.socket:
    """Open a connection."""
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def answer(client: socket.socket, data: bytes, size: int = len(CONNACK)) -> bytes:
    """Send these bytes; return the broker's answer, or b"" if it closes the connection."""
    try:
        client.sendall(data)
        return client.recv(size)
    except OSError as error:
        if error.errno in (errno.ECONNRESET, errno.EPIPE):
            return b""
        raise


def figure(port: int, topic: str) -> bytes:
    """Return one of the broker's figures, as a new subscriber gets it."""
    client = RawClient(port, "figures")
    client.send(p.Subscribe(1, (p.SubscriptionRequest(f"$SYS/broker/{topic}"),)))
    values = (packet.payload for packet in client.packets() if isinstance(packet, p.Publish))
    value = next(values)
    client.close()
    return value


def test_at_200_files_below_the_limit_further_connections_are_closed_and_the_others_served(
    limited: Callable[[int], BrokerProcess],
) -> None:
    broker = limited(250)
    assert broker.wait_for("the process may have 250 files open")
    clients = [connect(broker.port) for _ in range(80)]
    assert broker.wait_for("refuses a connection of 127.0.0.1:.*50 connections are open")
    answers = [answer(client, CONNECT.replace(b"\x01c", b"\x01%c" % (48 + n))) for n, client in enumerate(clients)]
    assert answers == [CONNACK] * 50 + [b""] * 30
    clients[0].close()
    clients[1].close()
    assert figure(broker.port, "holdfast/connections/most") == b"50"
    assert broker.stop() == (0, "")


def test_without_a_free_file_it_goes_on_and_serves_again_later(limited: Callable[[int], BrokerProcess]) -> None:
    """Connections to the socket for operators use up all files: more than 200 are not free here."""
    broker = limited(75)
    first = RawClient(broker.port, "first")
    hogs = []
    for _ in range(100):
        hog = socket.socket(socket.AF_UNIX)
        hog.connect(str(broker.directory / "data" / "control.sock"))
        hogs.append(hog)
    assert broker.wait_for("EMFILE encountered")
    first.send(p.Pingreq())
    assert isinstance(next(first.packets()), p.Pingresp)
    for hog in hogs:
        hog.close()
    first.send(p.Pingreq())
    assert isinstance(next(first.packets()), p.Pingresp)
    first.send(p.Disconnect())
    assert list(first.packets()) == []
    RawClient(broker.port, "second").close()
    assert broker.stop() == (0, "")


def configured(broker_in: Brokers, tmp_path: Path, text: str) -> BrokerProcess:
    """Start a broker with one proxied listener and these options of it."""
    file = tmp_path / "holdfast.toml"
    file.write_text(
        f'[listeners.x]\nendpoint = "haproxy:tcp:0:interface=127.0.0.1"\nallow_anonymous = true\n{text}\n'
        '[sys_topics]\nsys_msg_interval = "1s"\n'
    )
    return broker_in("--config", str(file), listen=False).start()


def header(number: int) -> bytes:
    """The header of the PROXY protocol for one of some clients."""
    return b"PROXY TCP4 192.0.2.%d 192.0.2.99 5555 1883\r\n" % number


def test_clients_of_a_proxy_are_limited_by_the_address_that_it_tells(broker_in: Brokers, tmp_path: Path) -> None:
    broker = configured(broker_in, tmp_path, "max_connections_per_address = 2")
    clients = [connect(broker.port) for _ in range(6)]
    numbers = [1, 1, 1, 2, 2, 2]
    answers = [
        answer(client, header(number) + encode(p.Connect(f"c{index}"), 4))
        for index, (client, number) in enumerate(zip(clients, numbers, strict=True))
    ]
    assert answers == [CONNACK, CONNACK, b"", CONNACK, CONNACK, b""]
    assert broker.wait_for(r"listener x refuses a connection of 192\.0\.2\.1:5555: 2 connections of 192\.0\.2\.1")


def test_a_proxy_that_is_not_trusted_gets_no_byte_read(broker_in: Brokers, tmp_path: Path) -> None:
    broker = configured(broker_in, tmp_path, 'trusted_proxies = ["10.0.0.1", "unix"]')
    client = connect(broker.port)
    assert answer(client, header(1) + CONNECT) == b""
    assert broker.wait_for("is not a trusted proxy")


def test_the_proxy_protocol_needs_authentication_or_permission(broker_in: Brokers) -> None:
    """Even behind a loopback address: the clients of the proxy can be anywhere."""
    broker = broker_in("--listen", "haproxy:tcp:0:interface=127.0.0.1", listen=False)
    broker.launch()
    status, errors = broker.wait()
    assert status == 1
    assert "takes clients of a proxy, which can be anywhere" in errors


def test_400_clients_that_connect_at_once_wait_for_no_second_try(broker: BrokerProcess) -> None:
    """The kernel keeps them all, while the broker reads nothing."""
    port = broker.port
    os.kill(broker.pid, signal.SIGSTOP)
    clients = []
    try:
        for _ in range(400):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
            clients.append(client)
        waiting = set(clients)
        while waiting:
            _, connected, _ = select.select([], waiting, [], 0.5)
            if not connected:
                break
            waiting -= set(connected)
        assert not waiting
    finally:
        os.kill(broker.pid, signal.SIGCONT)
        for client in clients:
            client.close()
