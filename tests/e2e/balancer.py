"""A plain TCP balancer before several brokers, for tests: each connection goes to the next broker in turn.

How it works. An asyncio loop in a thread of its own carries bytes between pairs of sockets. It looks at none of
them, as balancers of TCP do, so a client with a Session comes to another broker each time it connects.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from typing import Self


class Balancer:
    """Listens on ``port`` of the loopback while it is used as a context, and passes connections on to ``ports``.

    A broker that does not listen is left out. ``count`` is how many connections there have been.
    """

    def __init__(self, ports: Sequence[int], port: int = 0) -> None:
        """``port`` 0: any free one."""
        self._number = len(ports)
        self._ports = cycle(ports)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="balancer", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server
        self.port = port
        self.count = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._connected, "127.0.0.1", self.port), self._loop
        ).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """End all connections, without their last bytes: both sides find that the network has failed."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()

    async def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        for _ in range(self._number):
            with suppress(OSError):
                server_reader, server_writer = await asyncio.open_connection("127.0.0.1", next(self._ports))
                break
        else:
            writer.transport.abort()
            return
        pair = {writer, server_writer}
        self._writers |= pair
        try:
            await asyncio.gather(_pass_on(reader, server_writer), _pass_on(server_reader, writer))
        finally:
            self._writers -= pair


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one side ends, then end the other one."""
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
