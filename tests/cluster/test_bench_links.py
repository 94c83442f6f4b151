"""The links of the bench: what a disturbed one lets through. With real sockets, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.cluster.bench.places import Nats, nats_server
from tests.cluster.bench.proxies import Proxy

#: seconds in which nothing comes through a link that is held
_NOTHING = 0.1

Talk = Callable[[Proxy, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def over_a_link(talk: Talk) -> None:
    """Let a client talk to a server that repeats each line, through a proxy."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(line.upper())
        except OSError:
            pass  # the link was reset
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        proxy = Proxy("link", lambda: asyncio.open_connection("127.0.0.1", port))
        await proxy.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        try:
            writer.write(b"before\n")
            assert await reader.readline() == b"BEFORE\n"
            await talk(proxy, reader, writer)
        finally:
            writer.close()
            await proxy.stop()
            server.close()

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize(("to_server", "to_client"), [(True, True), (True, False), (False, True)])
def test_a_held_link_lets_nothing_through_and_loses_nothing(to_server: bool, to_client: bool) -> None:
    """When it is healed, what was sent comes."""

    async def talk(proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proxy.hold(to_server=to_server, to_client=to_client)
        writer.write(b"a\nb\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(line := asyncio.ensure_future(reader.readline())), _NOTHING)
        proxy.heal()
        assert [await line, await reader.readline()] == [b"A\n", b"B\n"]

    over_a_link(talk)


def test_a_held_link_hides_the_end_of_a_connection() -> None:
    """As a cable that was pulled. The client learns nothing before the link heals."""

    async def talk(proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proxy.hold()
        writer.write_eof()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(rest := asyncio.ensure_future(reader.read())), _NOTHING)
        proxy.heal()
        assert await rest == b""

    over_a_link(talk)


def test_a_reset_ends_connections_and_new_ones_pass() -> None:
    """The client gets RST."""

    async def talk(proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            await reader.readline()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"again\n")
        assert await reader.readline() == b"AGAIN\n"
        writer.close()

    over_a_link(talk)


def test_two_servers_of_nats_have_a_route_through_a_proxy(tmp_path: Path) -> None:
    """A message that is sent to one comes from the other."""
    try:
        nats_server()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))

    async def client(nats: Nats) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", nats.port)
        writer.write(b'CONNECT {"verbose":false}\r\nSUB here 1\r\nPING\r\n')
        while await reader.readline() != b"PONG\r\n":
            pass
        return reader, writer

    async def main() -> None:
        one, two = Nats("nats1", tmp_path), Nats("nats2", tmp_path)
        await one.start(None)
        route = await one.link("nats1-nats2", route=True)
        await two.start(route.port)
        try:
            of_one, of_two = await client(one), await client(two)
            hears = asyncio.ensure_future(of_one[0].readline())
            while not hears.done():  # until the route is there
                of_two[1].write(b"PUB here 2\r\nhi\r\n")
                await asyncio.wait([hears], timeout=0.05)
            assert hears.result().startswith(b"MSG here 1 2")
        finally:
            await one.stop()
            await two.stop()
            await route.stop()

    asyncio.run(asyncio.wait_for(main(), 60))
