"""Judges the messages of one Network Connection, packet by packet, by the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import define, field

from holdfast.core.topics import matches
from holdfast.wire.packets import Publish
from tests.e2e.never_stale.ledger import Ledger, Publication
from tests.e2e.never_stale.plan import Kind

if TYPE_CHECKING:
    from attrs import frozen
else:
    from attrs import define as frozen


#: the QoS of a notice of expiry
_NOTICE = 1
#: the most QoS of a correction: the stored message of a topic that two nodes have set, sent once more
CORRECTION = 1


class Violation(AssertionError):
    """A broken promise. The text names it, and lists the messages of the topic on this connection."""


@frozen
class Sent:
    """A received message."""

    value: int
    qos: int
    retain: bool
    dup: bool
    identifiers: tuple[int, ...]


@define
class Witness:
    """Judges one Network Connection of a Client on a node.

    ``since`` has the accepted values, by topic, when the Session began, ``floors`` those when the connection began.
    ``floors`` rises with every round trip: no older value is replayed. ``identifiers`` has the Topic Filter of each
    Subscription Identifier of the Session. All subscriptions have the same ``no_local`` and ``retain_as_published``.
    ``resumed`` tells that the Session had a connection before. A QoS 2 message may have begun to leave on that one, and
    have waited for its commit as the connection ended: it leaves on this one for the first time, with DUP 0.

    Messages of other nodes may come behind later ones of this node. A correction follows then, or where two nodes have
    set a topic one after the other: it is the stored message, so it is judged as a replayed one, and may be a tool's.
    """

    ledger: Ledger
    client_id: str
    version: int
    node: int
    since: Mapping[str, int]
    floors: dict[str, int]
    identifiers: Mapping[int, str]
    no_local: bool = False
    retain_as_published: bool = False
    resumed: bool = False
    seen: dict[str, int] = field(factory=dict)  #: the newest retained change, by topic
    log: dict[str, list[Sent]] = field(factory=dict)
    count: int = 0
    _live: dict[tuple[str, int, int], int] = field(factory=dict)
    _replayed: dict[tuple[str, int], int] = field(factory=dict)  #: values by topic and node
    _changes: dict[tuple[str, int, int], int] = field(factory=dict)  #: values of this node, without RETAIN 0

    def raise_floors(self, accepted: Mapping[str, int]) -> None:
        """From now on, no replayed message may be older than these values."""
        for topic, value in accepted.items():
            self.floors[topic] = max(value, self.floors.get(topic, 0))

    def take(self, packet: Publish) -> Publication:
        """Judge a message, and return its publication. Raises :class:`Violation`."""
        topic = packet.topic
        self.count += 1
        made = self._publication(packet)
        if made is None:
            return self._judge_corrected_clear(packet)
        value = made.value
        identifiers = packet.properties.subscription_identifiers
        self.log.setdefault(topic, []).append(Sent(value, packet.qos, packet.retain, packet.dup, identifiers))
        if made.kind is Kind.EXPIRING and not packet.payload:
            return self._judge_notice(packet, made)
        self._require(made.topic == topic, topic, f"a value of {made.topic}")
        self._require(packet.qos <= made.qos, topic, "sent with a higher QoS than it was published with")
        self._require(not (self.no_local and made.publisher == self.client_id), topic, "its own, in spite of No Local")
        for identifier in identifiers:
            known = self.identifiers.get(identifier)
            self._require(known is not None and matches(known, topic), topic, "another Subscription Identifier")
        if not packet.dup:
            self._judge(packet, made)
        if made.kind is not Kind.PASSING:
            self.seen[topic] = max(value, self.seen.get(topic, 0))
        return made

    def _judge(self, packet: Publish, made: Publication) -> None:
        topic, value = made.topic, made.value
        order = topic, made.qos, packet.qos
        own = made.node == self.node
        perhaps_live = self.retain_as_published and value > self.since.get(topic, 0)
        if not packet.retain:
            replayed = self._replayed.get((topic, made.node), 0)
            self._require(value >= replayed, topic, "live, but replayed newer before")
            is_late = value <= self._live.get(order, 0)
            if made.publisher == "" or (is_late and own):
                self._require(self._has_corrections and packet.qos <= CORRECTION, topic, "a live message out of order")
                self._require(made.kind is not Kind.PASSING, topic, "a live message out of order")
                self._require(value >= self.seen.get(topic, 0), topic, "a stale value after a fresh one")
            if is_late:
                return
        elif not perhaps_live:
            self._require(packet.payload != b"", topic, "an empty message was replayed")
            self._require(made.kind is not Kind.PASSING, topic, "replayed, but published with RETAIN 0")
            self._require(value >= self.seen.get(topic, 0), topic, "a stale value after a fresh one")
            floors = self.since if self.resumed and packet.qos == 2 else self.floors
            # A correction that has waited in the queue looks like a replayed message with Retain As Published.
            is_correction = (
                self.retain_as_published and packet.qos <= CORRECTION and self.ledger.is_set_by_several(topic)
            )
            is_fresh = is_correction or value >= floors.get(topic, 0)
            self._require(is_fresh, topic, "replayed after it was known to be outdated")
            self._replayed[topic, made.node] = value
            return
        elif own:  # this may be a replay, which has no order with messages published with RETAIN 0
            self._require(value >= self._changes.get(order, 0), topic, "a stale value after a fresh one")
        self._live[order] = max(value, self._live.get(order, 0))
        if made.kind is not Kind.PASSING:
            self._changes[order] = max(value, self._changes.get(order, 0))

    def _judge_corrected_clear(self, packet: Publish) -> Publication:
        """Judge an empty message that nobody has published: a correction says that nothing is retained."""
        topic = packet.topic
        value = self.ledger.emptied.get(topic, 0)
        self.log.setdefault(topic, []).append(Sent(value, packet.qos, packet.retain, packet.dup, ()))
        is_possible = self._has_corrections and packet.qos <= CORRECTION and value > 0
        self._require(is_possible, topic, "an empty message, which nobody can have published")
        self._require(value >= self.seen.get(topic, 0), topic, "an empty message, though a newer value is retained")
        return Publication(value, topic, Kind.CLEAR, CORRECTION, "", self.node, False)

    def _judge_notice(self, packet: Publish, made: Publication) -> Publication:
        topic, value = made.topic, made.value
        self._require(self.retain_as_published or not packet.retain, topic, "a notice of expiry with RETAIN 1")
        order = topic, _NOTICE, packet.qos
        self._live[order] = max(value, self._live.get(order, 0))
        self.seen[topic] = max(value, self.seen.get(topic, 0))
        return made

    def _publication(self, packet: Publish) -> Publication | None:
        if packet.payload:
            return self._known(packet, packet.payload.split()[0])
        number = packet.properties.correlation_data
        return self._unnumbered(packet) if number is None else self._known(packet, number)

    def _known(self, packet: Publish, number: bytes) -> Publication:
        made = self.ledger.publications.get(int(number))
        if made is None:
            raise Violation(f"{self.client_id} on {packet.topic}: the value {int(number)}, which was refused")
        return made

    def _unnumbered(self, packet: Publish) -> Publication | None:
        """Return the earliest clear that this message can be, by its Session and by the messages before it.

        Or the message whose expiry it tells. Such a notice has QoS 1, and comes from no Client. None: it is none of
        these.
        """
        topic = packet.topic
        for made in self.ledger.ends(topic):
            if made.kind is Kind.EXPIRING:
                in_order = packet.dup or made.value >= self._live.get((topic, _NOTICE, packet.qos), 0)
                if in_order and packet.qos <= _NOTICE and made.value >= self._replayed_by(made):
                    return made
                continue
            in_order = packet.dup or made.value > self._live.get((topic, made.qos, packet.qos), 0)
            foreign = not (self.no_local and made.publisher == self.client_id)
            sent = made.value > self.since.get(topic, 0) and made.qos >= packet.qos
            fresh = packet.dup or made.value >= self._replayed_by(made)
            if in_order and foreign and sent and fresh and not (made.numbered and self.version == 5):
                return made
        return None

    @property
    def _has_corrections(self) -> bool:
        """Whether several nodes may set a topic."""
        return len(self.ledger.accepted) > 1

    def _replayed_by(self, made: Publication) -> int:
        return self._replayed.get((made.topic, made.node), 0)

    def _require(self, holds: bool, topic: str, what: str) -> None:
        if not holds:
            newest = self.ledger.newest.get(topic)
            sent = "\n  ".join(map(str, self.log[topic]))
            raise Violation(
                f"{self.client_id} on {topic}: {what}; floor {self.floors.get(topic)}, newest {newest}, sent:\n  {sent}"
            )
