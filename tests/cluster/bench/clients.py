"""A client: one Network Connection after the other, its subscriptions, its messages in both directions, its history.

How it works. :meth:`Client.run` connects, and connects again whenever the connection has ended, to the node that
``choose`` returns. What it wants is kept by it, not by the connection: Topic Filters without SUBACK are asked for
again, and messages that were not acknowledged are sent again with DUP 1 if its Session is present, as the standard
says. If it is not, they are given up, and the history has no acknowledgement of them.

A connection on which nothing comes in spite of PINGREQ is given up after ``patience`` seconds: its node may stand
still.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from itertools import count
from random import Random

from attrs import define, field

from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.cluster.bench.connections import VERSION, Connection
from tests.cluster.bench.history import (
    Acknowledged,
    Asked,
    Closed,
    Connected,
    Delivered,
    Granted,
    History,
    Published,
    Stillness,
    WillSet,
)

#: Session Expiry Interval of stored Sessions, in seconds
LASTING = 3600
#: messages of one publisher without an acknowledgement
WINDOW = 20
_PING_INTERVAL = 1.0
#: a wait for an answer is told from so many seconds on
_TOLD = 0.5


@define(eq=False)
class Scene:
    """What the clients of a cycle share. ``ports`` are those of the nodes, ``now`` the seconds since the beginning."""

    history: History
    prefix: str
    ports: dict[int, int]
    random: Random
    now: Callable[[], float]
    _numbers: count[int] = field(factory=lambda: count(1))
    _connections: count[int] = field(factory=lambda: count(1))

    def next_number(self) -> int:
        """Return the number of the next message."""
        return next(self._numbers)

    def next_connection(self) -> int:
        """Return the number of the next connection."""
        return next(self._connections)


@define(eq=False)
class _Sent:
    """A message that is not acknowledged completely. ``received``: PUBREC has come."""

    number: int
    packet: p.Publish
    retain: bool
    clear: bool
    since: float
    received: bool = False


@define(eq=False)
class WillOf:
    """The Will of one connection."""

    number: int
    topic: str
    delay: int


class Client:
    """A client with MQTT 5."""

    def __init__(
        self,
        scene: Scene,
        client_id: str,
        choose: Callable[[], int],
        *,
        lasting: bool,
        filters: dict[str, int] | None = None,
        patience: float = 5.0,
    ) -> None:
        self.scene = scene
        self.client_id = f"{scene.prefix}-{client_id}"
        self.lasting = lasting
        self.node = 0
        self.stays_away = False  #: whether it does not come back when its connection ends
        self.rests = False  #: whether it stays where it is
        self._choose = choose
        self._filters = filters or {}
        self._patience = patience
        self._connection: Connection | None = None
        self._number = 0  # of the connection
        self._ended = asyncio.Event()
        self._welcome: asyncio.Future[p.Connack] | None = None
        self._granted: set[str] = set()
        self._asked: dict[int, str] = {}
        self._identifiers = count(1)
        self._sent: dict[int, _Sent] = {}
        self._received: set[int] = set()
        self._progress = asyncio.Event()
        self._pinged_at: float | None = None

    # --- what drivers ask for

    @property
    def is_connected(self) -> bool:
        """Whether CONNACK has come, and the connection is open."""
        return self._connection is not None and self._welcome is None

    @property
    def is_settled(self) -> bool:
        """Whether it is connected, all its filters have SUBACK, and all its messages are acknowledged."""
        return self.is_connected and self._granted >= self._filters.keys() and not self._sent

    async def act(self) -> None:
        """Do what this kind of client does besides."""

    def granted(self, topic_filter: str) -> None:
        """Is called when SUBACK has come for a Topic Filter."""

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Want one more Topic Filter from now on."""
        self._filters[topic_filter] = qos
        if self.is_connected and self._connection is not None:
            self._subscribe(self._connection, topic_filter, qos)

    def will(self) -> WillOf | None:
        """Return the Will of the next connection."""
        return None

    def arrived(self) -> None:
        """Is called when CONNACK has come."""

    async def run(self) -> None:
        """Be connected, until the task is cancelled, or the connection ends of one that ``stays_away``."""
        wanted = self.scene.now()
        while True:
            if await self._connect(wanted):
                await self._stay_connected()
                if self.stays_away:
                    return
                wanted = self.scene.now()
            await asyncio.sleep(self.scene.random.uniform(0.05, 0.4))

    def abort(self) -> None:
        """End the connection without DISCONNECT."""
        if self._connection is not None:
            self._connection.abort()

    def disconnect(self, *, over: bool = False) -> None:
        """End the connection with DISCONNECT, and perhaps the Session."""
        if self._connection is not None:
            self._over = over
            properties = Properties(session_expiry_interval=0) if over and self.lasting else Properties()
            self._connection.leave(p.Disconnect(0, properties))

    def publish(self, topic: str, qos: int, *, retain: bool = False, clear: bool = False, padding: int = 0) -> bool:
        """Publish the next number; return False if there is no connection, or too much is not acknowledged."""
        if not self.is_connected or (qos and len(self._sent) >= WINDOW):
            return False
        connection = self._connection
        assert connection is not None
        number = self.scene.next_number()
        payload = b"" if clear else (b"%d " % number).ljust(padding)
        properties = Properties(correlation_data=b"%d" % number) if clear else Properties()
        identifier = self._next_identifier() if qos else 0
        packet = p.Publish(topic, payload, qos, retain or clear, False, identifier, properties)
        sent = _Sent(number, packet, retain or clear, clear, self.scene.now())
        self._note_sent(sent, again=False)
        if qos:
            self._sent[identifier] = sent
        connection.send(packet)
        return True

    # --- connections

    async def _connect(self, wanted: float) -> bool:
        """Connect, and wait for CONNACK; return whether it came."""
        node = self._choose()
        self._number = number = self.scene.next_connection()
        self._ended = asyncio.Event()
        self._over = False
        connection = Connection(lambda packet: self._take(connection, packet), lambda *how: self._closed(number, *how))
        welcome = self._welcome = asyncio.get_running_loop().create_future()
        self._connection = connection
        will = self.will()
        try:
            async with asyncio.timeout(self._patience):
                await connection.connect(self.scene.ports[node])
                if will is not None:
                    self.scene.history.append(
                        WillSet(self.scene.now(), self.client_id, number, will.number, will.topic, 2, will.delay)
                    )
                connection.send(self._packet(will))
                connack = await welcome
        except (OSError, TimeoutError):
            connection.abort()
            return False
        if not connection.is_open:
            return False
        if connack.reason_code:
            raise AssertionError(f"{self.client_id} at node {node}: {connack}")
        self.node = node
        self._welcomed(connack, wanted)
        return True

    def _packet(self, will: WillOf | None) -> p.Connect:
        made = None
        if will is not None:
            delay = Properties(will_delay_interval=will.delay)
            made = p.Will(will.topic, b"%d will" % will.number, 2, True, delay)
        properties = Properties(session_expiry_interval=LASTING if self.lasting else 0, receive_maximum=200)
        return p.Connect(self.client_id, VERSION, not self.lasting, 0, None, None, made, properties)

    def _welcomed(self, connack: p.Connack, wanted: float) -> None:
        now = self.scene.now()
        self.scene.history.append(
            Connected(
                now, self.client_id, self._number, self.node, self.lasting, not self.lasting, connack.session_present,
                now - wanted,
            )
        )  # fmt: skip
        self._welcome = None
        connection = self._connection
        assert connection is not None
        if not connack.session_present:
            self._granted.clear()
            self._received.clear()
            self._sent.clear()
        self._asked.clear()
        for sent in self._sent.values():
            if sent.received:
                connection.send(p.Pubrel(sent.packet.packet_identifier))
            else:
                self._note_sent(sent, again=True)
                was = sent.packet
                connection.send(
                    p.Publish(was.topic, was.payload, was.qos, was.retain, True, was.packet_identifier, was.properties)
                )
        for topic_filter, qos in self._filters.items():
            if topic_filter not in self._granted:
                self._subscribe(connection, topic_filter, qos)
        self.arrived()

    def _subscribe(self, connection: Connection, topic_filter: str, qos: int) -> None:
        identifier = self._next_identifier()
        self._asked[identifier] = topic_filter
        self.scene.history.append(Asked(self.scene.now(), self.client_id, self._number, topic_filter, qos))
        connection.send(p.Subscribe(identifier, (p.SubscriptionRequest(topic_filter, qos),)))

    async def _stay_connected(self) -> None:
        """Wait until the connection has ended. Give it up when its node is silent."""
        ended, connection = self._ended, self._connection
        assert connection is not None
        while not ended.is_set():
            now = self.scene.now()
            if self._pinged_at is None:
                self._pinged_at = now
                connection.send(p.Pingreq())
            elif now - self._pinged_at > self._patience:
                connection.abort()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), _PING_INTERVAL)

    def _closed(self, number: int, by: str, reason: int | None) -> None:
        self.scene.history.append(Closed(self.scene.now(), self.client_id, number, by, reason, self._over))
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_exception(ConnectionResetError("the connection ended before CONNACK"))
            self._welcome.exception()  # is read, also if nobody waits any more
        self._welcome = None
        self._connection = None
        self._pinged_at = None
        self._ended.set()
        self._progress.set()

    # --- packets

    def _next_identifier(self) -> int:
        while True:
            identifier = (next(self._identifiers) - 1) % 65_535 + 1
            if identifier not in self._sent and identifier not in self._asked:
                return identifier

    def _note_sent(self, sent: _Sent, *, again: bool) -> None:
        packet = sent.packet
        self.scene.history.append(
            Published(
                self.scene.now(), self.client_id, self._number, sent.number, packet.topic, packet.qos, sent.retain,
                sent.clear, again,
            )
        )  # fmt: skip

    def _take(self, connection: Connection, packet: p.Packet) -> None:
        match packet:
            case p.Connack():
                if self._welcome is not None and not self._welcome.done():
                    self._welcome.set_result(packet)
            case p.Publish():
                self._deliver(connection, packet)
            case p.Pubrel():
                self._received.discard(packet.packet_identifier)
                connection.send(p.Pubcomp(packet.packet_identifier))
            case p.Puback():
                self._acknowledged(self._sent.pop(packet.packet_identifier), packet.reason_code)
            case p.Pubrec():
                self._pubrec(connection, packet)
            case p.Pubcomp():
                self._sent.pop(packet.packet_identifier, None)
                self._progress.set()
            case p.Suback():
                self._suback(packet)
            case p.Pingresp():
                self._waited("PINGRESP", self._pinged_at)
                self._pinged_at = None
            case _:
                raise AssertionError(f"{self.client_id} got {packet}")

    def _deliver(self, connection: Connection, packet: p.Publish) -> None:
        if packet.qos == 2:
            repeated = packet.packet_identifier in self._received
            self._received.add(packet.packet_identifier)
            connection.send(p.Pubrec(packet.packet_identifier))
            if repeated:
                return
        text = packet.payload.split(b" ", 1)[0] or packet.properties.correlation_data
        self.scene.history.append(
            Delivered(
                self.scene.now(), self.client_id, self._number, packet.topic, int(text) if text else None, packet.qos,
                packet.retain, packet.dup, not packet.payload,
            )
        )  # fmt: skip
        if packet.qos == 1:
            connection.send(p.Puback(packet.packet_identifier))

    def _acknowledged(self, sent: _Sent, reason: int) -> None:
        self._waited("the acknowledgement of a message", sent.since)
        self.scene.history.append(Acknowledged(self.scene.now(), self.client_id, self._number, sent.number, reason))
        self._progress.set()

    def _pubrec(self, connection: Connection, packet: p.Pubrec) -> None:
        sent = self._sent[packet.packet_identifier]
        if not sent.received:
            sent.received = True
            self._acknowledged(sent, packet.reason_code)
        if packet.reason_code >= 0x80:
            del self._sent[packet.packet_identifier]
        else:
            connection.send(p.Pubrel(packet.packet_identifier))

    def _suback(self, packet: p.Suback) -> None:
        topic_filter = self._asked.pop(packet.packet_identifier)
        self._granted.add(topic_filter)
        self.scene.history.append(
            Granted(
                self.scene.now(), self.client_id, self._number, topic_filter, self._filters[topic_filter],
                packet.reason_codes[0],
            )
        )  # fmt: skip
        self.granted(topic_filter)
        self._progress.set()

    def _waited(self, what: str, since: float | None) -> None:
        if since is not None and self.scene.now() - since > _TOLD:
            self.scene.history.append(Stillness(self.scene.now(), self.client_id, self.scene.now() - since, what))
