"""Many light Clients in one event loop, each with a persistent Session. A Client that is cut off reconnects."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterable

from holdfast.wire import PacketParser, Properties, encode
from holdfast.wire import packets as p
from tests.processes import PATIENCE

#: seconds that a whole test may take on a slow machine

#: seconds of the first and of the longest pause before a Client tries again
PAUSES = 0.05, 1.0

#: PUBLISH packets a publisher has in flight, which is less than the broker's Receive Maximum
WINDOW = 500


class Link:
    """One Network Connection, admitted by the broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.version = version
        self.writer = writer
        self._reader = reader
        self._parser = PacketParser(1 << 20, version)

    def send(self, *packets: p.Packet) -> None:
        """Send packets."""
        self.writer.write(b"".join(encode(packet, self.version) for packet in packets))

    async def packets(self) -> AsyncIterator[p.Packet]:
        """Yield packets until the Network Connection ends."""
        while data := await self._reader.read(1 << 16):
            self._parser.receive_data(data)
            while (packet := self._parser.next_packet()) is not None:
                yield packet


@contextlib.asynccontextmanager
async def network_connection(port: int, connect: p.Connect, version: int) -> AsyncIterator[Link]:
    """Open a Network Connection and send CONNECT."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    link = Link(reader, writer, version)
    try:
        link.send(connect)
        yield link
    finally:
        writer.transport.abort()


class Member:
    """One Client of the swarm, subscribed to a topic of its own with QoS 1."""

    def __init__(self, port: int, number: int, changed: Callable[[], None]) -> None:
        self.topic = f"swarm/{number}"
        self.received: set[bytes] = set()
        self.resumed = 0  #: how often it resumed its Session
        self.online = False
        self._version = 4 + number % 2
        properties = Properties(session_expiry_interval=3600) if self._version == 5 else Properties()
        self._connect = p.Connect(f"member-{number}", self._version, False, properties=properties)
        self._port = port
        self._changed = changed
        self._pause = PAUSES[0]
        self._subscribed = False
        self._link: Link | None = None
        self._welcome = asyncio.Event()
        self._welcome.set()

    async def live(self) -> None:
        """Be online, and reconnect after each end with growing pauses."""
        while True:
            await self._welcome.wait()
            with contextlib.suppress(OSError):
                await self._visit()
            self.online = False
            await asyncio.sleep(random.uniform(0, self._pause))
            self._pause = min(2 * self._pause, PAUSES[1])

    def vanish(self, come_back: bool) -> None:
        """Cut the Network Connection; reconnect at once or after :meth:`return_`."""
        if not come_back:
            self._welcome.clear()
        self.online = False
        link, self._link = self._link, None
        if link is not None:
            link.writer.transport.abort()

    def return_(self) -> None:
        """Reconnect."""
        self._welcome.set()

    async def _visit(self) -> None:
        async with network_connection(self._port, self._connect, self._version) as link:
            self._link = link
            async for packet in link.packets():
                if self._link is link:
                    self._handle(link, packet)

    def _handle(self, link: Link, packet: p.Packet) -> None:
        if isinstance(packet, p.Publish):
            self.received.add(packet.payload)
            link.send(p.Puback(packet.packet_identifier))
        elif isinstance(packet, p.Suback):
            assert packet.reason_codes == (1,)
            self._subscribed = self.online = True
        elif isinstance(packet, p.Connack) and packet.reason_code == 0:
            assert packet.session_present or not self._subscribed
            self._pause = PAUSES[0]
            if self._subscribed:
                self.resumed += 1
                self.online = True
            else:
                link.send(p.Subscribe(1, (p.SubscriptionRequest(self.topic, 1),)))
        self._changed()


class Swarm:
    """A number of Clients, and the messages that they must receive."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._changed = asyncio.Event()
        self.members = [Member(port, number, self._changed.set) for number in range(count)]
        self._lives: list[asyncio.Task[None]] = []
        self._sequence = itertools.count()
        #: the messages that were acknowledged to their publisher, by topic
        self.acknowledged: dict[str, set[bytes]] = {member.topic: set() for member in self.members}
        self.acknowledgements = 0

    async def __aenter__(self) -> Swarm:
        self._lives = [asyncio.create_task(member.live()) for member in self.members]
        return self

    async def __aexit__(self, *_: object) -> None:
        for life in self._lives:
            life.cancel()
        for ended in await asyncio.gather(*self._lives, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), ended

    async def publish(self, rounds: int) -> None:
        """Publish ``rounds`` messages to each member with QoS 1, until all are acknowledged or the connection ends."""
        topics = [member.topic for member in self.members] * rounds
        in_flight: dict[int, tuple[str, bytes]] = {}
        waiting = iter(topics)

        def more(link: Link, free: Iterable[int]) -> None:
            for identifier, topic in zip(free, waiting, strict=False):
                in_flight[identifier] = topic, b"%d" % next(self._sequence)
                link.send(p.Publish(*in_flight[identifier], 1, False, False, identifier))

        with contextlib.suppress(OSError):
            async with network_connection(self._port, p.Connect("", 5), 5) as link:
                async for packet in link.packets():
                    if isinstance(packet, p.Connack):
                        more(link, range(1, WINDOW + 1))
                        continue
                    assert isinstance(packet, p.Puback)
                    topic, payload = in_flight.pop(packet.packet_identifier)
                    self.acknowledged[topic].add(payload)
                    self.acknowledgements += 1
                    self._changed.set()
                    more(link, (packet.packet_identifier,))
                    if not in_flight:
                        return

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def all_online(self) -> bool:
        """Tell whether all members are admitted and subscribed."""
        return all(member.online for member in self.members)

    def nothing_missing(self) -> bool:
        """Tell whether all members have received all acknowledged messages."""
        return all(self.acknowledged[member.topic] <= member.received for member in self.members)
