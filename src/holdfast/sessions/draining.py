"""Draining: the clients of this node are sent to others, at a bounded rate, and no new ones are admitted.

How it works. While a node drains, each CONNECT is refused, and connected clients are disconnected one after the other:

    12:00:00.00  begin            CONNECT gets 0x9C Use another server, with the address of another member
    12:00:00.05  the addresses    are known: disconnecting begins, 100 clients a second
    12:00:00.07  client 1, 2      DISCONNECT 0x9C, Server Reference mqtt2:1883
    12:00:00.09  client 3, 4      DISCONNECT 0x9C, Server Reference mqtt3:1883: the members take turns
    12:00:20.00  none is left     the node stays, and says so in its log

A member without an address, or no member at all: CONNACK 0x88 Server unavailable, DISCONNECT 0x8B Server shutting down.
Clients of MQTT 3 get CONNACK 3, or their connection is closed. Wills are published as after any other end of a
connection that the client has not announced [MQTT5-3.1.2-8], after their Will Delay Interval. Consoles of operators
stay.

The node does not stop by itself: a service manager that starts it again would undo the draining.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import cycle

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.core.terminal import counted
from holdfast.identity.interfaces import OperatorPrincipal
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.sessions.registry import SessionRegistry
from holdfast.wire import ReasonCode

#: what clients are told
TOLD = "this server is being emptied; use another one"
#: seconds between two steps, and the most clients of one
_STEP, _MOST = 0.02, 20
#: seconds between two looks for clients that were being admitted when the others were sent away
_LOOKS = 1.0


class Draining:
    """Sends the clients of this node to others, ``rate`` of them a second."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, registry: SessionRegistry, rate: float = 100) -> None:
        self._clock = clock
        self._registry = registry
        self.rate = rate
        #: whether this node drains
        self.is_on = False
        self._known = False
        self._servers: Sequence[str] = ()
        self._turns = cycle([""])
        self._waiting: deque[str] = deque()
        self._looked = float("-inf")
        self._due = 0.0
        self._told_done = False
        self._job = PeriodicJob(self._step, name="sending clients to other members", interval=_STEP, clock=clock)

    def begin(self) -> None:
        """Admit no client any more. Clients are disconnected when :meth:`send_to` has told where to."""
        if self.is_on:
            return
        self.is_on = True
        self._known = self._told_done = False
        self._servers, self._turns = (), cycle([""])
        self._looked, self._due = float("-inf"), 0.0
        self._log.warn(
            "this node drains: {clients} are sent to other members, {rate:g} a second, and no new one is admitted",
            clients=counted(self._registry.connection_count, "client"), rate=self.rate,
        )  # fmt: skip

    def send_to(self, servers: Sequence[str]) -> None:
        """Send clients to these addresses from now on; without any, only away."""
        if not self.is_on:
            return
        if list(servers) != list(self._servers):
            self._servers, self._turns = tuple(servers), cycle(servers or [""])
        if not self._known:
            self._known = True
            self._job.start()

    def end(self) -> None:
        """Admit clients again."""
        if self.is_on:
            self.is_on = False
            self._waiting.clear()
            self._job.stop()
            self._log.warn("this node does not drain any more: clients are admitted again")

    def refusal(self, protocol_version: int) -> tuple[ReasonCode, str | None]:
        """Return the Reason Code of CONNACK for a client of a protocol version, and its Server Reference."""
        return self._directed(protocol_version, ReasonCode.SERVER_UNAVAILABLE)

    def _directed(self, protocol_version: int, otherwise: ReasonCode) -> tuple[ReasonCode, str | None]:
        server = next(self._turns) if protocol_version == 5 else ""
        return (ReasonCode.USE_ANOTHER_SERVER, server) if server else (otherwise, None)

    def _step(self) -> None:
        now = self._clock.seconds()
        if not self._waiting:
            if now - self._looked < _LOOKS:
                return
            self._looked = now
            self._waiting.extend(self._registry.connected())
        self._due = min(self._due + self.rate * _STEP, _MOST)
        closed = 0
        while self._waiting and self._due >= 1:
            if self._send_away(self._waiting.popleft()):
                self._due -= 1
                closed += 1
        if not closed and not self._waiting and not self._told_done:
            self._told_done = True
            self._log.warn("this node has no clients any more: stop it, or end the draining")

    def _send_away(self, client_id: str) -> bool:
        """Disconnect a client; return False for one that has gone, and for a console."""
        link, session = self._registry.link_of(client_id), self._registry.session_of(client_id)
        if link is None or session is None or isinstance(session.principal, OperatorPrincipal):
            return False
        reason, server = self._directed(link.protocol_version, ReasonCode.SERVER_SHUTTING_DOWN)
        with link.guard:
            link.close(reason, TOLD, server)
        return True
