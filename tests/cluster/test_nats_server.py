"""The client and the bus with real servers of NATS, beside its asyncio client."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater

from holdfast.cluster.fallback_bus import FallbackBus, Way
from holdfast.cluster.nats_bus import NatsBus
from holdfast.cluster.nats_settings import NatsSettings, nats_settings
from holdfast.config import load
from holdfast.config.sections.cluster import nats_servers
from tests.certificates import CLIENT, Authority
from tests.cluster.test_fallback_bus import Line
from tests.nats_server import HoldingProxy, NatsProcess, pair_of_servers, running
from tests.processes import PATIENCE

_SECRET = b"0123456789abcdef" * 2
_CLOCK = cast("Any", reactor)

Waits = Generator[Deferred[Any], Any, None]


@inlineCallbacks
def until(condition: Callable[[], bool]) -> Waits:
    """Wait for something that has to come."""
    end = _CLOCK.seconds() + PATIENCE
    while not condition():
        assert _CLOCK.seconds() < end, "it never came"
        yield deferLater(_CLOCK, 0.01)


class Node:
    """A bus of one node, and what it has received."""

    def __init__(self, node: int, url: str, settings: NatsSettings | None = None) -> None:
        self.got: list[bytes] = []
        self.bus = NatsBus(settings or NatsSettings(nats_servers(url), "plant", _SECRET), node, 1, _CLOCK)
        self.bus.start(self.got.append)

    @property
    def is_connected(self) -> bool:
        return self.bus.is_connected


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsProcess]:
    server = NatsProcess(tmp_path)
    with running(server):
        yield server


@inlineCallbacks
def stopped(*nodes: Node) -> Waits:
    for node in nodes:
        yield node.bus.stop()


@inlineCallbacks
def test_datagrams_of_all_sizes_cross_in_order(server: NatsProcess) -> Waits:
    """Those of a server's ``max_payload`` and more in parts."""
    one, two = Node(1, server.url), Node(2, server.url)
    try:
        yield until(lambda: one.is_connected and two.is_connected)
        datagrams = [bytes([number]) * size for number, size in enumerate((0, 1, 1000, 300_000, 3, 5_000_000, 7))]
        for datagram in datagrams:
            assert one.bus.send(2, datagram)
        yield until(lambda: len(two.got) == len(datagrams))
        assert two.got == datagrams
        assert two.bus.refused == {"unknown": 0, "old": 0, "repeated": 0, "too_large": 0, "incomplete": 0}
    finally:
        yield stopped(one, two)


_COUNTERPART = """
import asyncio, json, sys
import nats

async def main(url):
    client = await nats.connect(url, no_echo=True)
    heard = []
    async def note(message):
        heard.append(message)
        if len(heard) <= 3:
            await client.publish("holdfast.plant.2", message.data)       # once more
            await client.publish("holdfast.plant.2", message.data[:-1] + b"x")
            await client.publish("holdfast.plant.2", b"anything", headers={"a": "b"})
            await client.publish("holdfast.plant.2", b"y" * 900_000)
            await client.flush()
    await client.subscribe("holdfast.>", cb=note)
    await client.flush()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps([[m.subject, len(m.data), b"hello" in m.data] for m in heard]), flush=True)
    await client.close()

asyncio.run(main(sys.argv[1]))
"""


@inlineCallbacks
def test_a_stranger_can_neither_read_nor_forge_nor_repeat(server: NatsProcess) -> Waits:
    """NATS's own client on the same account hears sealed bytes; what it sends is dropped and counted."""
    stranger = subprocess.Popen(
        [sys.executable, "-c", _COUNTERPART, server.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    one, two = Node(1, server.url), Node(2, server.url)
    try:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "ready\n"
        yield until(lambda: one.is_connected and two.is_connected)
        for number in range(3):
            assert one.bus.send(2, b"hello %d" % number)
        yield until(lambda: sum(two.bus.refused.values()) >= 12)
        assert two.got == [b"hello %d" % number for number in range(3)]
        assert two.bus.refused == {"unknown": 6, "old": 0, "repeated": 6, "too_large": 0, "incomplete": 0}
        heard = json.loads(stranger.communicate("\n", PATIENCE)[0])
        assert len(heard) >= 3
        assert {(subject, plain) for subject, _, plain in heard} == {("holdfast.plant.2", False)}
    finally:
        stranger.kill()
        stranger.wait()
        yield stopped(one, two)


@inlineCallbacks
def test_a_server_that_is_killed_and_comes_back(tmp_path: Path) -> Waits:
    """The broker connects again; until then it refuses datagrams."""
    server = NatsProcess(tmp_path)
    with running(server):
        one, two = Node(1, server.url), Node(2, server.url)
        try:
            yield until(lambda: one.is_connected and two.is_connected)
            server.kill()
            yield until(lambda: not one.is_connected and not two.is_connected)
            assert not one.bus.send(2, b"hello")
            server.start()
            yield until(lambda: one.is_connected and two.is_connected)
            assert one.bus.send(2, b"hello")
            yield until(lambda: two.got == [b"hello"])
        finally:
            yield stopped(one, two)


@inlineCallbacks
def test_a_server_that_stands_still_is_left_for_another(tmp_path: Path) -> Waits:
    """Its connections stay open, and nobody answers."""
    still, other = NatsProcess(tmp_path), NatsProcess(tmp_path)
    with running(still, other):
        nodes = [Node(1, still.url)]
        try:
            yield until(lambda: nodes[0].is_connected)
            client = nodes[0].bus._client
            client._servers.append(*nats_servers(other.url))
            client._configured = 2
            still.signal(signal.SIGSTOP)
            yield until(lambda: nodes[0].bus.losses > 0)
            yield until(lambda: nodes[0].is_connected)
            assert client._connection is not None
            assert client._connection.server.port == other.port
        finally:
            still.signal(signal.SIGCONT)
            yield stopped(*nodes)


@inlineCallbacks
def test_a_slow_consumer_is_thrown_out_and_comes_back(tmp_path: Path) -> Waits:
    """The server ends its connection when too much waits for it."""
    server = NatsProcess(tmp_path, "max_pending: 1MB", 'write_deadline: "1s"')
    with running(server):
        one, two = Node(1, server.url), Node(2, server.url)
        try:
            yield until(lambda: one.is_connected and two.is_connected)
            two.bus._client.read(False)
            while "Slow Consumer" not in server.log():
                one.bus.send(2, b"x" * 200_000)
                yield deferLater(_CLOCK, 0.01)
            two.bus._client.read(True)
            yield until(lambda: two.bus.losses > 0)
            yield until(lambda: two.is_connected and one.is_connected)
            while b"hello" not in two.got:
                one.bus.send(2, b"hello")
                yield deferLater(_CLOCK, 0.05)
        finally:
            yield stopped(one, two)


@pytest.mark.nightly
@inlineCallbacks
def test_a_route_that_is_lost_silently_makes_the_cluster_use_the_other_bus(tmp_path: Path) -> Waits:
    """Both servers answer their clients, and nothing passes between them; it returns when the route does."""
    first, second, through, target = pair_of_servers(tmp_path, ["ping_interval: 3600"])
    proxy = HoldingProxy(target, through)
    line = Line()
    got: list[bytes] = []
    buses: list[FallbackBus] = []
    with running(first, second):
        nats_of = [
            NatsBus(NatsSettings(nats_servers(server.url), "plant", _SECRET), node, 1, _CLOCK)
            for node, server in ((1, first), (2, second))
        ]
        try:
            for node, bus in enumerate(nats_of, 1):
                buses.append(FallbackBus(bus, line.of(node), node, _CLOCK))
                buses[-1].start(got.append if node == 2 else lambda _: None)

            def both(way: Way) -> bool:
                """Send signs, as links do, and tell whether both take this way."""
                buses[0].send(2, b"sign")
                buses[1].send(1, b"sign")
                line.deliver()
                return buses[0].ways[2] is buses[1].ways[1] is way

            yield until(lambda: both(Way.FIRST))
            proxy.holds = True
            yield until(lambda: both(Way.SECOND))
            assert all(bus.is_connected for bus in nats_of)
            assert buses[0].send(2, b"hello")
            line.deliver()
            assert got[-1] == b"hello"
            proxy.reset()
            yield until(lambda: both(Way.FIRST))
        finally:
            for each in buses:
                yield each.stop()
            yield proxy.stop()


# --- logins and TLS ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "login"),
    [
        ('authorization { user: me, password: "s@cret" }', "me:s%40cret"),
        ('authorization { token: "t0ken" }', "t0ken"),
    ],
)
@inlineCallbacks
def test_it_logs_in(tmp_path: Path, setting: str, login: str) -> Waits:
    """With a user and a password, or a token; others are refused."""
    server = NatsProcess(tmp_path, setting)
    with running(server):
        right, wrong = (Node(node, f"nats://{each}@127.0.0.1:{server.port}") for node, each in ((1, login), (2, "x:y")))
        try:
            yield until(lambda: right.is_connected and wrong.bus.losses > 0)
            assert not wrong.is_connected
        finally:
            yield stopped(right, wrong)


@inlineCallbacks
def test_tls_with_certificates_of_both(tmp_path: Path) -> Waits:
    """The server shows its certificate and wants one; a name that is not in it, and another authority, are refused."""
    authority, clients = Authority("NATS CA"), Authority("Clients CA")
    certificate, key = authority.issue(names=["localhost"]).write(tmp_path, "server")
    own, own_key = clients.issue("broker", usage=CLIENT).write(tmp_path, "own")
    for name, each in (("ca", authority), ("clients", clients)):
        (tmp_path / f"{name}.pem").write_bytes(each.chain)
    (tmp_path / "secret").write_bytes(_SECRET)
    (tmp_path / "secret").chmod(0o600)
    server = NatsProcess(
        tmp_path,
        f'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{tmp_path}/clients.pem", verify: true }}',
    )

    def node(number: int, host: str, *lines: str) -> Node:
        file = tmp_path / f"{number}.toml"
        text = [
            'storage.url = "postgresql+psycopg://db/holdfast"', "[cluster]", 'name = "plant"',
            f'bus = "tls://{host}:{server.port}"', 'secret = "file:secret"', *lines,
        ]  # fmt: skip
        file.write_text("\n".join(text) + "\n")
        settings = nats_settings(load(file).override([], None, None, allow_anonymous=True, cwd=tmp_path), {})
        assert settings is not None
        return Node(number, "", settings)

    shown = (f'tls.certificate = "{own}"', f'tls.key = "{own_key}"')
    with running(server):
        nodes = [
            node(1, "localhost", 'tls.ca = "ca.pem"', *shown),
            node(2, "localhost", 'tls.ca = "ca.pem"', *shown),
            node(3, "127.0.0.1", 'tls.ca = "ca.pem"', *shown),
            node(4, "localhost", 'tls.ca = "clients.pem"', *shown),
            node(5, "localhost", *shown),
            node(6, "localhost", 'tls.ca = "ca.pem"'),
        ]
        try:
            yield until(lambda: nodes[0].is_connected and nodes[1].is_connected)
            yield until(lambda: all(each.bus.losses > 1 for each in nodes[2:]))
            assert not any(each.is_connected for each in nodes[2:])
            assert nodes[0].bus.send(2, b"x" * 1_000_000)
            yield until(lambda: nodes[1].got == [b"x" * 1_000_000])
        finally:
            yield stopped(*nodes)
