"""A bus over two: datagrams go over the first one to nodes that answer there, and over the second one to others.

How it works. Each second, each peer is asked over the first bus, and answers there at once. So an answer shows that
both directions work. For each peer:

    SECOND  at the beginning. Five questions in a row are answered: RETURNING.
    RETURNING  what is sent waits. A mark goes over the second bus, behind all that was sent there, and is answered over
            the second bus too. The answer leads to FIRST, and what waits goes over the first bus. So nothing sent
            later arrives earlier. No answer for 3 s: what waits goes over the second bus, and SECOND begins anew.
    FIRST   no question of the last 3 s is answered: SECOND. The first bus does not take a datagram: SECOND, at once.

What was under way on the first bus when it failed is lost, or comes late; :mod:`.links` notices both.

A datagram passes as it is. It begins with the number of its origin, which is never 0; so what this bus itself says
begins with 0. The numbers of questions and marks begin at random in each process:

    0 | 1 | origin | number     a question, answered with   0 | 2 | origin | number
    0 | 3 | origin | number     a mark, answered with       0 | 4 | origin | number
    0 | 5 | origin | sign       over the second bus: the sign of the origin's secret

A member that has the second bus alone drops these, and answers none. So members with both buses and members with one
understand each other, and each may get the other bus at a restart of its own. A node whose sign is another one cannot
be reached over the first bus; the sign tells why.

Left out: the choice of the way for each datagram. Two ways at a time would mix the order of what is sent.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from struct import Struct

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.cluster.links import Bus
from holdfast.scheduling.deadlines import PeriodicJob

#: seconds between two questions
INTERVAL = 1.0
#: seconds without an answered question until a peer is not reached, and for the answer to a mark
SILENCE = 3.0
#: questions that a peer has to answer in a row before it is reached again
_IN_A_ROW = 5
#: seconds after which a peer to which nothing is sent is forgotten, and another sign that is not told any more
_FORGOTTEN = 30.0
#: bytes that wait for the answer to a mark
_MOST_WAITING = 8 << 20

#: questions until a node is told the sign once more, while it is not reached over the first bus
_SIGNS_EVERY = 10

_QUESTION, _ANSWER, _MARK, _MARK_ANSWER, _SIGN = range(1, 6)
#: 0, kind, origin, number
_PROBE = Struct(">BBBQ")


class Way(Enum):
    """How datagrams reach a peer."""

    FIRST = "first"
    SECOND = "second"
    RETURNING = "returning"


@define(eq=False)
class _Peer:
    """A node to which something is sent. All times are of the reactor's clock."""

    used_at: float
    way: Way = Way.SECOND
    asked: dict[int, float] = field(factory=dict)  # when the questions without an answer were sent, by number
    reached_at: float = float("-inf")  # when the latest question was sent that was answered
    in_a_row: int = 0
    questions: int = 0  # in which the sign was not told
    mark: int = 0
    marked_at: float = 0.0
    waiting: deque[bytes] = field(factory=deque)
    waiting_size: int = 0


class FallbackBus:
    """Carries datagrams over ``first`` where it works, else over ``second``. ``node`` is this one's number.

    ``sign`` is that of the secret without which nobody is reached over the first bus.
    """

    _log = Logger()

    def __init__(
        self,
        first: Bus,
        second: Bus,
        node: int,
        clock: IReactorTime,
        sign: int = 0,
    ) -> None:
        self._first = first
        self._second = second
        self._node = node
        self._clock = clock
        self._sign = sign
        self._others: dict[int, float] = {}  # nodes with another sign, and when each told it
        self._peers: dict[int, _Peer] = {}
        self._number = self._last_asked = random.getrandbits(62)
        self._received: Callable[[bytes], None] | None = None
        self._job = PeriodicJob(self._ask, name="questions to other nodes", interval=INTERVAL, clock=clock)
        #: how often a peer was left to the second bus, waiting datagrams for which that had no room, and datagrams that
        #: were none of this bus
        self.fallbacks = self.lost = self.strange = 0

    def start(self, received: Callable[[bytes], None]) -> None:
        """Begin to call ``received`` with each datagram for this node, in the reactor's thread."""
        self._received = received
        self._first.start(self._take_first)
        self._second.start(self._take_second)
        self._job.start(INTERVAL)

    def stop(self) -> Deferred[None]:
        """Send and receive nothing more. Fires when both buses have ended."""
        self._received = None
        self._job.stop()
        self._peers.clear()
        both: Deferred[None] = DeferredList([self._first.stop(), self._second.stop()]).addCallback(lambda _: None)
        return both

    @property
    def ways(self) -> Mapping[int, Way]:
        """How datagrams reach the nodes to which some were sent lately."""
        return {node: peer.way for node, peer in self._peers.items()}

    @property
    def with_another_sign(self) -> frozenset[int]:
        """The nodes whose secret is another one."""
        return frozenset(self._others)

    def send(self, node: int, datagram: bytes) -> bool:
        """Send a datagram to a node. Return False if there is no room for it."""
        peer = self._peers.get(node)
        if peer is None:
            peer = self._peers[node] = _Peer(self._clock.seconds())
        peer.used_at = self._clock.seconds()
        if peer.way is Way.FIRST:
            if self._first.send(node, datagram):
                return True
            self._fall_back(node, peer)
        if peer.way is Way.RETURNING:
            if peer.waiting_size + len(datagram) > _MOST_WAITING:
                return False
            peer.waiting.append(datagram)
            peer.waiting_size += len(datagram)
            return True
        return self._second.send(node, datagram)

    # --- the ways -----------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask each peer, and look which way to it works."""
        now = self._clock.seconds()
        number = self._next()
        for node, peer in list(self._peers.items()):
            if now - peer.used_at > _FORGOTTEN:
                del self._peers[node]
                continue
            since = {Way.FIRST: peer.reached_at, Way.RETURNING: peer.marked_at}.get(peer.way, now)
            if now - since >= SILENCE:
                self._fall_back(node, peer)
            if self._last_asked in peer.asked:
                peer.in_a_row = 0
            peer.asked = {number: sent for number, sent in peer.asked.items() if now - sent < SILENCE}
            if peer.way is Way.SECOND and peer.in_a_row >= _IN_A_ROW:
                self._return(node, peer)
            if self._first.send(node, _PROBE.pack(0, _QUESTION, self._node, number)):
                peer.asked[number] = now
            else:
                peer.in_a_row = 0
            if peer.way is Way.SECOND:
                self._tell_sign(node, peer)
        self._last_asked = number
        self._others = {node: told for node, told in self._others.items() if now - told <= _FORGOTTEN}

    def _tell_sign(self, node: int, peer: _Peer) -> None:
        if peer.questions % _SIGNS_EVERY == 0:
            self._second.send(node, _PROBE.pack(0, _SIGN, self._node, self._sign))
        peer.questions += 1

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _fall_back(self, node: int, peer: _Peer) -> None:
        """Take the second bus, also for what waits."""
        peer.way = Way.SECOND
        peer.in_a_row = 0
        self.fallbacks += 1
        self._log.warn("node {node} does not answer over NATS: messages to it go over the database", node=node)
        for datagram in peer.waiting:
            self.lost += not self._second.send(node, datagram)
        peer.waiting.clear()
        peer.waiting_size = 0

    def _return(self, node: int, peer: _Peer) -> None:
        """Let what is sent wait until everything that was sent over the second bus has arrived."""
        number = self._next()
        if self._second.send(node, _PROBE.pack(0, _MARK, self._node, number)):
            peer.mark, peer.marked_at = number, self._clock.seconds()
            peer.way = Way.RETURNING

    # --- what comes ---------------------------------------------------------------------------------------------------

    def _take_first(self, datagram: bytes) -> None:
        self._take(datagram, self._first)

    def _take_second(self, datagram: bytes) -> None:
        self._take(datagram, self._second)

    def _take(self, datagram: bytes, bus: Bus) -> None:
        if self._received is None:
            return
        if datagram[:1] > b"\0":
            self._received(datagram)
            return
        if len(datagram) != _PROBE.size:
            self.strange += 1
            return
        _, kind, node, number = _PROBE.unpack(datagram)
        peer = self._peers.get(node)
        if kind in (_QUESTION, _MARK) and node != self._node:
            bus.send(node, _PROBE.pack(0, kind + 1, self._node, number))
        elif kind == _ANSWER and bus is self._first:
            sent = None if peer is None else peer.asked.pop(number, None)
            if peer is not None and sent is not None:
                peer.reached_at = max(peer.reached_at, sent)
                peer.in_a_row += 1
        elif kind == _MARK_ANSWER and bus is self._second:
            if peer is not None and peer.way is Way.RETURNING and peer.mark == number:
                self._returned(node, peer)
        elif kind == _SIGN and bus is self._second:
            self._compare(node, number)
        else:
            self.strange += 1

    def _compare(self, node: int, sign: int) -> None:
        """Note whether a node has the same secret."""
        if sign == self._sign:
            self._others.pop(node, None)
        elif node in self._peers:
            is_known = node in self._others
            self._others[node] = self._clock.seconds()
            if is_known:
                return
            self._log.error(
                "node {node} has another cluster.secret, so messages between it and this node go over the database;"
                " copy one secret to all members, and restart those that had another one",
                node=node,
            )

    def _returned(self, node: int, peer: _Peer) -> None:
        """Take the first bus, with what has waited first."""
        peer.way = Way.FIRST
        self._log.info("node {node} answers over NATS: messages to it go there", node=node)
        while peer.waiting:
            if not self._first.send(node, peer.waiting[0]):
                self._fall_back(node, peer)
                return
            peer.waiting_size -= len(peer.waiting.popleft())
