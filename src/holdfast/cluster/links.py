"""Links: ordered messages between two processes over a bus that may lose, repeat and reorder. Without I/O.

How it works. Each message of a link has a number; the receiver takes them in order, each once. A number that is missing
breaks the link: the receiver asks the sender to begin anew, with another *series*. Both sides are told that the link
was down and is up again, and then tell each other everything that the other one has to know.

    1:1 1:2 1:3        series 1, taken
    1:5                4 is missing: down; "again" is sent
    2:1 ...            the sender has begun series 2: up. All else of series 1 is dropped.

Every second a link tells the number of its last message, so that the loss of a last message is noticed as well. A node
that was not heard for :data:`SILENCE` is not *heard*. Its link stays: what was sent may arrive yet.

If the bus has no room for a message, the sender begins another series by itself, with the next sign that finds room.
Until then it leaves out all messages: ``up`` makes them superfluous.

Left out: repeating lost messages. The bus in Postgres loses nothing but in a crash of the server, and NATS only when
a connection breaks; to tell everything anew then is simpler than to keep and repeat what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Protocol

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from holdfast.scheduling.deadlines import PeriodicJob

#: seconds without a sign of a node after which it is not heard
SILENCE = 2.5
#: seconds between two signs
_INTERVAL = 1.0
#: seconds in which a broken link asks once more to begin anew
_ASK_AGAIN = 1.0
#: origin, its incarnation, target, its incarnation, series, number of the message, kind
_HEAD = Struct(">BIBIIQB")
_MESSAGE, _SIGN, _AGAIN = range(3)


class Bus(Protocol):
    """Carries datagrams between members. It may lose, repeat, reorder and delay them."""

    def start(self, received: Callable[[bytes], None]) -> None:
        """Begin to call ``received`` with each datagram for this node, in the reactor's thread."""

    def send(self, node: int, datagram: bytes) -> bool:
        """Send a datagram to a node. Return False if there is no room for it."""

    def stop(self) -> Deferred[None]:
        """Send and receive nothing more."""


@define(eq=False)
class _Link:
    """The link to one process of a node. ``taken`` is the number of the last message taken of its ``series``.

    The series of a process begin with 1; 0 before any is known.
    """

    incarnation: int
    heard_at: float
    series: int = 0
    taken: int = 0
    is_broken: bool = False
    asked_at: float = float("-inf")
    own_series: int = 1
    own_number: int = 0
    had_no_room: bool = False  # for a message of the own series: nothing is sent before the next one


class Links:
    """The links of this process to the living members.

    ``received`` gets each message with its node. ``up`` is called when messages can be sent to a node that has to be
    told everything, ``down`` when the process is gone. ``began`` is called when a node begins to tell everything.
    """

    def __init__(
        self,
        node: int,
        incarnation: int,
        bus: Bus,
        clock: IReactorTime,
        *,
        received: Callable[[int, bytes], None],
        up: Callable[[int], None],
        down: Callable[[int], None],
        began: Callable[[int], None],
    ) -> None:
        self._node = node
        self._incarnation = incarnation
        self._bus = bus
        self._clock = clock
        self._received = received
        self._up = up
        self._down = down
        self._began = began
        self._links: dict[int, _Link] = {}
        self._job = PeriodicJob(self._give_signs, name="signs to other nodes", interval=_INTERVAL, clock=clock)
        #: messages that found no room, datagrams that were not for this process, and broken links
        self.lost = self.strange = self.breaks = 0

    def start(self) -> None:
        """Begin to send and to receive."""
        self._bus.start(self.take)
        self._job.start(_INTERVAL)

    def stop(self) -> Deferred[None]:
        """Send and receive nothing more."""
        self._job.stop()
        self._links.clear()
        return self._bus.stop()

    def members(self, incarnations: Mapping[int, int]) -> None:
        """Note the living members but this one: their incarnations by node."""
        for node, link in list(self._links.items()):
            if incarnations.get(node) != link.incarnation:
                del self._links[node]
                self._down(node)
        for node, incarnation in incarnations.items():
            if node not in self._links:
                self._links[node] = _Link(incarnation, self._clock.seconds())
                self._up(node)

    def heard(self) -> frozenset[int]:
        """Return the nodes that were heard lately, and whose links are whole."""
        now = self._clock.seconds()
        return frozenset(
            node
            for node, link in self._links.items()
            if now - link.heard_at < SILENCE and link.series and not link.is_broken
        )

    def send(self, node: int, message: bytes, droppable: bool = False) -> None:
        """Send a message. A ``droppable`` one is left out and counted if there is no room."""
        link = self._links.get(node)
        if link is None or link.had_no_room:
            self.lost += 1
            return
        if self._bus.send(node, self._head(node, link, link.own_number + 1, _MESSAGE) + message):
            link.own_number += 1
        elif droppable:
            self.lost += 1
        else:
            # Not at once: ``up`` tells everything, and the bus has no room for that either.
            self.lost += 1
            link.had_no_room = True

    def _begin_anew(self, node: int, link: _Link) -> None:
        """Begin another series: the other node may have missed something."""
        link.own_series += 1
        link.own_number = 0
        link.had_no_room = False
        self._up(node)

    def _head(self, node: int, link: _Link, number: int, kind: int) -> bytes:
        return _HEAD.pack(self._node, self._incarnation, node, link.incarnation, link.own_series, number, kind)

    def _give_signs(self) -> None:
        for node, link in list(self._links.items()):
            has_room = self._bus.send(node, self._head(node, link, link.own_number, _SIGN))
            if has_room and link.had_no_room:
                self._begin_anew(node, link)

    def take(self, datagram: bytes) -> None:
        """Take a datagram of the bus."""
        if len(datagram) < _HEAD.size:
            self.strange += 1
            return
        node, incarnation, target, own_incarnation, series, number, kind = _HEAD.unpack_from(datagram)
        link = self._links.get(node)
        if (
            link is None
            or link.incarnation != incarnation
            or (target, own_incarnation) != (self._node, self._incarnation)
            or kind > _AGAIN
        ):
            self.strange += 1
            return
        link.heard_at = self._clock.seconds()
        if kind == _AGAIN:
            # ``number`` is the last message that was taken of the series: an older question is answered already.
            if series == link.own_series:
                self._begin_anew(node, link)
            return
        if series < link.series:
            return
        if series > link.series:
            link.series, link.taken = series, 0
            link.is_broken = False
            self._began(node)
        if kind == _SIGN:
            if number > link.taken:
                self._break(node, link)
            return
        if number <= link.taken or link.is_broken:
            return
        if number > link.taken + 1:
            self._break(node, link)
            return
        link.taken = number
        self._received(node, datagram[_HEAD.size :])

    def _break(self, node: int, link: _Link) -> None:
        """Ask the other node to begin anew, because a message is missing."""
        now = self._clock.seconds()
        if not link.is_broken:
            link.is_broken = True
            self.breaks += 1
        elif now - link.asked_at < _ASK_AGAIN:
            return
        link.asked_at = now
        ask = _HEAD.pack(self._node, self._incarnation, node, link.incarnation, link.series, link.taken, _AGAIN)
        self._bus.send(node, ask)
