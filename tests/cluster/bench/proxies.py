"""A link that can be disturbed: TCP connections from one address to another that pass, wait, are late, or are reset.

While a direction is held, nothing goes through it: no byte, no end of a connection. The sender sees a peer that takes
what its buffers hold, as with a cable that was pulled. Each direction of each connection keeps 64 KB at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

#: opens a connection to the server behind a proxy
Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

_CHUNK = 1 << 16
#: SO_LINGER with which closing sends RST
_NO_LINGER = struct.pack("ii", 1, 0)


class Proxy:
    """A port on the loopback whose connections lead to a server. ``name`` tells which link it is."""

    def __init__(self, name: str, dial: Dial) -> None:
        self.name = name
        self.port = 0
        self._dial = dial
        self._server: asyncio.Server | None = None
        self._gates = {True: asyncio.Event(), False: asyncio.Event()}  # to the server, to the client
        self._delay = 0.0
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.heal()

    async def start(self) -> None:
        """Begin to listen on a free port."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=_CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hold(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Let nothing through in one direction, or in both."""
        for direction, held in ((True, to_server), (False, to_client)):
            if held:
                self._gates[direction].clear()

    def delay(self, seconds: float) -> None:
        """Let everything be late."""
        self._delay = seconds

    def reset(self) -> None:
        """Reset all connections. New ones pass."""
        for pair in list(self._pairs):
            for writer in pair:
                _reset(writer)

    def heal(self) -> None:
        """Let everything through, at once."""
        self._delay = 0.0
        for gate in self._gates.values():
            gate.set()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await self._gates[True].wait()
        try:
            to_reader, to_writer = await self._dial()
        except OSError:
            _reset(writer)
            return
        pair = writer, to_writer
        self._pairs.add(pair)
        pumps = [
            asyncio.create_task(self._pump(reader, to_writer, self._gates[True])),
            asyncio.create_task(self._pump(to_reader, writer, self._gates[False])),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._pairs.discard(pair)
            for each in pair:
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await gate.wait()
                writer.write(data)
                await writer.drain()
        await gate.wait()  # the end of a connection is held as well


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.family == socket.AF_INET:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()
