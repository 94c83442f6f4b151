"""The bus in NATS: datagrams for a node are sealed messages on its subject.

How it works. A node subscribes to ``holdfast.CLUSTER.NODE``. A datagram that is larger than a message of NATS, or than
:data:`_PART`, is sent in parts, each sealed by itself:

    whole   0 | datagram
    part    1 | number of the datagram | number of the part | bytes of the datagram | the part

The parts of one origin come one after the other. A part that does not continue the one before it ends the datagram,
which is lost. One datagram of each origin is put together at a time; all of them together have at most
:data:`_MOST_COLLECTED` bytes.

Sealing and opening take a microsecond for each kilobyte, so both work for a few milliseconds a turn: what is left of a
large datagram is sent in later turns, and messages that have arrived wait. While more than :data:`_MOST_ARRIVED` bytes
wait, the client reads nothing.

NATS stores nothing: what is sent while a node is not connected is lost. :mod:`.fallback_bus` notices it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from holdfast.cluster.nats import token
from holdfast.cluster.nats_client import Connect, NatsClient
from holdfast.cluster.nats_settings import NatsSettings
from holdfast.cluster.sealing import OVERHEAD, Opener, Sealer

#: bytes of a datagram
LARGEST = 64 << 20
_WHOLE, _SOME = b"\0", 1
#: kind, number of the datagram, number of the part, bytes of the datagram
_PART_HEAD = Struct(">BIII")
#: bytes of a part, unless the server takes smaller messages only
_PART = 256 << 10
#: bytes of parts that are put together; seconds for which the next one is waited for
_MOST_COLLECTED, _MOST_AGE = 64 << 20, 10.0
#: bytes of parts that wait to be sent, and that are sent in one turn
_MOST_OUTGOING, _SENT_PER_TURN = LARGEST, 1 << 20
#: bytes of messages that wait to be opened; the client reads again when fewer than half of them wait
_MOST_ARRIVED = 2 << 20
#: seconds of a turn for messages that have arrived
_TURN = 0.003


@define(eq=False)
class _Collected:
    """A datagram that is put together: ``since`` its last part, by the reactor's clock."""

    number: int
    size: int
    since: float
    parts: list[bytes]
    found: int = 0


class NatsBus:
    """Carries sealed datagrams through NATS. ``node`` is this one's number."""

    _log = Logger()

    def __init__(
        self, settings: NatsSettings, node: int, incarnation: int, reactor: Any, *, connect: Connect | None = None
    ) -> None:
        """``connect`` opens a connection to a server; the default is TCP."""
        self._sealer = Sealer(settings.secret, settings.cluster, node, incarnation)
        self._opener = Opener(settings.secret, settings.cluster, node)
        self._family = f"holdfast.{token(settings.cluster)}."
        self._reactor = reactor
        self._client = NatsClient(
            reactor, settings.servers, f"{self._family}{node}", self._arrive, name=f"holdfast {node}",
            tls=settings.tls.context, connect=connect,
        )  # fmt: skip
        self._received: Callable[[bytes], None] | None = None
        self._arrived: deque[bytes] = deque()
        self._arrived_size = 0
        self._opening: IDelayedCall | None = None
        self._outgoing: deque[tuple[int, bytes]] = deque()
        self._outgoing_size = 0
        self._sending: IDelayedCall | None = None
        self._datagrams = 0
        self._collected: dict[int, _Collected] = {}
        #: datagrams that found no room or no server, and those of which a part was missing
        self.unsent = self.incomplete = 0

    @property
    def largest(self) -> int:
        """The most bytes of a datagram."""
        return LARGEST

    @property
    def is_connected(self) -> bool:
        """Whether a server of NATS takes messages now."""
        return self._client.is_connected

    @property
    def refused(self) -> dict[str, int]:
        """The numbers of messages that were not taken, by the reason.

        They are not of a member, of an older process, repeated, too large, or lack a part.
        """
        opener = self._opener
        return {
            "unknown": opener.unknown, "old": opener.old, "repeated": opener.repeated,
            "too_large": self._client.too_large, "incomplete": self.incomplete,
        }  # fmt: skip

    @property
    def losses(self) -> int:
        """How many connections to NATS were lost."""
        return self._client.losses

    def start(self, received: Callable[[bytes], None]) -> None:
        """Begin to call ``received`` with each datagram for this node, in the reactor's thread."""
        self._received = received
        self._client.start()

    def stop(self) -> Deferred[None]:
        """Send and receive nothing more. Fires when the connection is closed."""
        self._received = None
        for call in (self._opening, self._sending):
            if call is not None and call.active():
                call.cancel()
        self._arrived.clear()
        self._outgoing.clear()
        return self._client.stop()

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(self, node: int, datagram: bytes) -> bool:
        """Send a datagram to a node. Return False if it is too large, or there is no server or no room for it."""
        size = len(datagram)
        most = min(_PART, self._client.max_payload - OVERHEAD - _PART_HEAD.size)
        if not self._client.is_connected or size > LARGEST or self._outgoing_size + size > _MOST_OUTGOING:
            self.unsent += 1
            return False
        if size <= most and not self._outgoing:
            sent = self._publish(node, _WHOLE + datagram)
            self.unsent += not sent
            return sent
        self._datagrams = (self._datagrams + 1) & 0xFFFFFFFF
        for number, begin in enumerate(range(0, max(size, 1), most)):
            head = _PART_HEAD.pack(_SOME, self._datagrams, number, size)
            self._outgoing.append((node, head + datagram[begin : begin + most]))
        self._outgoing_size += size
        if self._sending is None:
            self._send_some()
        return True

    def _publish(self, node: int, part: bytes) -> bool:
        return self._client.publish(f"{self._family}{node}", self._sealer.seal(node, part))

    def _send_some(self) -> None:
        """Send as many parts as a turn may take. If one finds no room, all of them are lost."""
        self._sending = None
        sent = 0
        while self._outgoing and sent < _SENT_PER_TURN:
            node, part = self._outgoing.popleft()
            self._outgoing_size -= len(part) - _PART_HEAD.size
            sent += len(part)
            if not self._publish(node, part):
                self.unsent += 1
                self._outgoing.clear()
                self._outgoing_size = 0
        if self._outgoing:
            self._sending = self._reactor.callLater(0, self._send_some)

    # --- receiving ----------------------------------------------------------------------------------------------------

    def _arrive(self, sealed: bytes) -> None:
        """Open a message, now or in a later turn."""
        self._arrived.append(sealed)
        self._arrived_size += len(sealed)
        if self._opening is None:
            self._opening = self._reactor.callLater(0, self._open_some)
        if self._arrived_size > _MOST_ARRIVED:
            self._client.read(False)

    def _open_some(self) -> None:
        """Open as many messages as a turn may take."""
        end = time.monotonic() + _TURN
        while self._arrived:
            sealed = self._arrived.popleft()
            self._arrived_size -= len(sealed)
            try:
                self._open(sealed)
            except Exception:  # noqa: BLE001 - one datagram must not keep the others from being taken
                self._log.failure("a datagram of another node could not be taken")
            if time.monotonic() > end:
                break
        self._opening = self._reactor.callLater(0, self._open_some) if self._arrived else None
        if self._arrived_size < _MOST_ARRIVED // 2:
            self._client.read(True)

    def _open(self, sealed: bytes) -> None:
        opened = self._opener.open(sealed)
        if opened is None:
            return
        node, part = opened
        datagram = part[1:] if part[:1] == _WHOLE else self._joined(node, part)
        if datagram is not None and self._received is not None:
            self._received(datagram)

    def _joined(self, node: int, part: bytes) -> bytes | None:
        """Return the datagram that a part completes."""
        if len(part) < _PART_HEAD.size:
            self.incomplete += 1
            return None
        _, datagram, number, size = _PART_HEAD.unpack_from(part)
        collected = self._collected.get(node)
        if number == 0:
            self._drop(node)
            if not self._has_room(size):
                self.incomplete += 1
                return None
            collected = self._collected[node] = _Collected(datagram, size, 0.0, [])
        elif collected is None:
            return None
        content = part[_PART_HEAD.size :]
        if (datagram, number, size) != (collected.number, len(collected.parts), collected.size) or (
            collected.found + len(content) > size
        ):
            self._drop(node)
            return None
        collected.parts.append(content)
        collected.found += len(content)
        collected.since = self._reactor.seconds()
        if collected.found < size:
            return None
        del self._collected[node]
        return b"".join(collected.parts)

    def _drop(self, node: int) -> None:
        if self._collected.pop(node, None) is not None:
            self.incomplete += 1

    def _has_room(self, size: int) -> bool:
        """Tell whether a datagram of this size may be put together. Those that do not go on make room."""
        now = self._reactor.seconds()
        for node in [node for node, each in self._collected.items() if now - each.since > _MOST_AGE]:
            self._drop(node)
        return size + sum(each.size for each in self._collected.values()) <= _MOST_COLLECTED
