"""Judges the messages of one Session over all its connections: what came live is not replayed, and the reverse."""

from __future__ import annotations

import math

from attrs import define, field

from holdfast.core.topics import matches
from holdfast.wire.packets import Publish
from tests.e2e.never_stale.ledger import Ledger, Publication
from tests.e2e.never_stale.plan import Kind
from tests.e2e.never_stale.witness import CORRECTION


@define
class Cut:
    """The newest replay of a Topic Filter in a Session.

    Publications after ``since`` are live for it; they are infinitely far until SUBACK has come. ``qos`` is the lowest
    QoS of the subscription since then. ``quiet`` counts quiet changes of the node when SUBSCRIBE was sent.
    """

    qos: int
    quiet: int
    since: float = math.inf


@define
class Repeats:
    """Tells which messages may come twice without DUP to a Session on a node.

    A replay, resumed or not, leaves out what was published after its SUBSCRIBE with QoS 1 or 2 to a subscription with
    QoS 1 or 2. Exceptions: a queued message has expired, somebody has changed retained messages quietly, or two nodes
    have set the topic.
    """

    ledger: Ledger
    node: int
    _cuts: dict[str, Cut] = field(factory=dict)
    _asked: dict[int, Cut] = field(factory=dict)
    _came: set[int] = field(factory=set)

    def subscribe(self, packet_identifier: int, topic_filter: str, qos: int, replayed: bool) -> None:
        """Note that SUBSCRIBE is about to be sent, and whether it may begin a replay."""
        known = self._cuts.get(topic_filter)
        if replayed:
            cut = Cut(qos, self.ledger.quiet[self.node])
            self._cuts[topic_filter] = self._asked[packet_identifier] = cut
        elif known is not None:
            known.qos = min(qos, known.qos)

    def granted(self, packet_identifier: int) -> None:
        """Note that SUBACK has come."""
        cut = self._asked.pop(packet_identifier, None)
        if cut is not None:
            cut.since = self.ledger.value

    def connected(self) -> None:
        """Note that the Session has a new connection: what was sent on earlier ones is done or forgotten."""
        for packet_identifier in list(self._asked):
            self.granted(packet_identifier)

    def take(self, packet: Publish, made: Publication) -> bool:
        """Note a received message, and tell whether it was allowed to come."""
        if packet.dup:
            return True
        repeated = made.value in self._came
        self._came.add(made.value)
        return not repeated or not self._comes_once(made) or self._is_correction(packet, made)

    def _is_correction(self, packet: Publish, made: Publication) -> bool:
        """Tell whether a message may be the stored one of a topic that two nodes have set, sent once more."""
        return packet.qos <= CORRECTION and self.ledger.is_set_by_several(made.topic)

    def _comes_once(self, made: Publication) -> bool:
        ledger = self.ledger
        if made.kind is not Kind.SET or not made.publisher or made.node != self.node or not made.qos:
            return False
        if ledger.quietly_busy[self.node] or ledger.has_expiring:
            return False
        return all(
            cut.qos > 0 and made.value > cut.since and cut.quiet == ledger.quiet[self.node]
            for topic_filter, cut in self._cuts.items()
            if matches(topic_filter, made.topic)
        )
