"""A Client that subscribes, stalls, leaves and rejoins. It knows the messages that it must get."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial

from attrs import define, evolve, field

from holdfast.core.topics import matches
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.e2e.never_stale.ledger import Ledger, Publication
from tests.e2e.never_stale.link import Link
from tests.e2e.never_stale.plan import Habit, Kind
from tests.e2e.never_stale.repeats import Repeats
from tests.e2e.never_stale.witness import Violation, Witness

#: Session Expiry Interval of a lasting Session, in seconds
_LASTING = 1000
#: Here the broker tells the end of each replay.
MARKERS = "$replay/end"


@define
class Subscription:
    """A subscription and its promises.

    ``qos`` is the lowest QoS since the replay began. ``replayed`` tells whether there is a replay. ``granted`` is the
    last published value when SUBACK came (None before), ``stored`` the stored values when SUBSCRIBE was sent, ``known``
    these and the ones accepted by the own node. ``came`` has the newest values that came since SUBSCRIBE was sent, by
    topic. ``marked``: a marker has come.
    """

    qos: int
    replayed: bool
    link: Link
    stored: dict[str, int]
    known: dict[str, int] = field(factory=dict)
    granted: int | None = None
    came: dict[str, int] = field(factory=dict)
    marked: bool = False


@define
class Conduct:
    """Collects the violations. The first one ends the example."""

    violations: list[Exception] = field(factory=list)
    changed: asyncio.Event = field(factory=asyncio.Event)

    def complain(self, violation: Exception) -> None:
        """Note a broken promise."""
        self.violations.append(violation)
        self.changed.set()


class Subscriber:
    """One Client, with one Network Connection after the other."""

    def __init__(
        self, client_id: str, prefix: str, habit: Habit, node: int, port: int, ledger: Ledger, conduct: Conduct
    ) -> None:
        self.client_id = client_id
        self.habit = habit
        self.node = node
        self.ledger = ledger
        self.link: Link | None = None
        self.kept = False  #: whether the broker has a Session
        self.messages = 0
        self.subscriptions: dict[str, Subscription] = {}
        self._uncertain: set[str] = set()  #: Topic Filters whose SUBSCRIBE or UNSUBSCRIBE was cut off
        self._prefix = prefix
        self._port = port
        self._conduct = conduct
        self._asked: dict[int, tuple[str, ...]] = {}
        self._packet_identifiers = itertools.cycle(range(1, 65_536))
        self._identifiers: dict[int, str] = {}
        self._since: dict[str, int] = {}
        self._seen: dict[str, int] = {}  #: the newest value of each topic in this Session
        self._repeats = Repeats(ledger, node)
        self._began = 0  #: the last value when the connection was accepted
        self._reading = self._answering = True
        self._answers: list[p.Packet] = []
        self._welcome: asyncio.Future[p.Connack] | None = None

    async def join(self, clean: bool) -> None:
        """Connect. An existing connection is replaced."""
        self._cut_off()
        old, self.link = self.link, None  # the end of the old connection is no violation
        clean = clean or not self.habit.lasting
        if clean or not self.kept:
            self.subscriptions.clear()
            self._uncertain.clear()
            self._identifiers = {}
            self._seen = {}
            self._repeats = Repeats(self.ledger, self.node)
            self._since = dict(self.ledger.accepted[self.node])
        floors = dict(self.ledger.stored)
        witness = Witness(
            self.ledger, self.client_id, self.habit.version, self.node, self._since, floors, self._identifiers,
            self._no_local, self.habit.retain_as_published and self.habit.version == 5, self.kept and not clean,
        )  # fmt: skip
        witness.raise_floors(self.ledger.accepted[self.node])
        link = Link(self.habit.version, lambda packet: self._take(link, witness, packet), self._ended_by_broker)
        self.witness = witness
        await link.connect(self._port, self.habit.receive_buffer)
        self._welcome = asyncio.get_running_loop().create_future()
        self.link = link
        self._reading = self._answering = True
        self._answers = []
        properties = Properties()
        if link.version == 5:
            expiry = 0 if clean else _LASTING
            asked = (("holdfast", "?"),) if self.habit.takes_part else ()
            properties = Properties(
                session_expiry_interval=expiry, receive_maximum=self.habit.receive_maximum, user_properties=asked
            )
        link.send(p.Connect(self.client_id, link.version, clean, properties=properties))
        connack = await self._welcome
        if old is not None:
            old.abort()
        expected = not clean and self.kept
        if connack.reason_code or connack.session_present != expected:
            self._conduct.complain(Violation(f"{self.client_id}: Session Present {expected} expected, got {connack}"))
        self._began = self.ledger.value
        self._repeats.connected()
        self.kept = not clean
        if self.habit.markers and (not connack.session_present or MARKERS in self._uncertain):
            self._uncertain.discard(MARKERS)
            request = p.SubscriptionRequest(MARKERS, self.habit.markers)
            link.send(p.Subscribe(self._asks(MARKERS), (request,)))

    def leave(self, goodbye: bool) -> None:
        """Disconnect, with or without DISCONNECT."""
        link = self.link
        if link is None:
            return
        self._cut_off()
        self.link = None
        if goodbye:
            link.leave(p.Disconnect())
        else:
            link.abort()
        if not self.kept:
            self.subscriptions.clear()

    def subscribe(self, topic_filter: str, qos: int, retain_handling: int) -> None:
        """Send SUBSCRIBE for a filter below the prefix."""
        link = self.link
        if link is None:
            return
        full = self._prefix + topic_filter
        v5 = link.version == 5
        if not v5:
            retain_handling = 0
        before = self.subscriptions.get(full)
        uncertain = full in self._uncertain
        replayed = retain_handling == 0 or (retain_handling == 1 and before is None and not uncertain)
        if before is not None and not replayed:
            self.subscriptions[full] = evolve(before, qos=min(qos, before.qos), marked=False)
        else:
            known = self.ledger.known(self.node)
            self.subscriptions[full] = Subscription(qos, replayed, link, dict(self.ledger.stored), known)
            if retain_handling == 0:
                self._uncertain.discard(full)
        properties = Properties()
        if v5 and self.habit.identifiers:
            number = len(self._identifiers) + 1
            self._identifiers[number] = full
            properties = Properties(subscription_identifiers=(number,))
        if v5 and self.habit.conflate:
            asked = (("holdfast-conflate", str(self.habit.conflate)),)
            properties = evolve(properties, user_properties=asked)
        if v5 and self.habit.told:
            both = *properties.user_properties, ("holdfast-replay-info", "revision")
            properties = evolve(properties, user_properties=both)
        rap = v5 and self.habit.retain_as_published
        request = p.SubscriptionRequest(full, qos, self._no_local, rap, retain_handling)
        packet_identifier = self._asks(full)
        self._repeats.subscribe(packet_identifier, full, qos, replayed or (uncertain and retain_handling == 1))
        link.send(p.Subscribe(packet_identifier, (request,), properties))

    def unsubscribe(self, topic_filter: str) -> None:
        """Send UNSUBSCRIBE for a filter below the prefix."""
        if self.link is not None:
            full = self._prefix + topic_filter
            self.subscriptions.pop(full, None)
            self.link.send(p.Unsubscribe(self._asks(full), (full,)))

    def stall(self) -> None:
        """Stop reading."""
        if self.link is not None and self._reading:
            self._reading = False
            self.link.read(False)

    def hold(self) -> None:
        """Stop acknowledging."""
        self._answering = False

    def go_on(self) -> None:
        """Read, and send the delayed acknowledgements."""
        self._answering = True
        if self.link is None:
            return
        if not self._reading:
            self._reading = True
            self.link.read(True)
        answers, self._answers = self._answers, []
        if answers:
            self.link.send(*answers)

    def probe(self) -> None:
        """Begin a round trip. After it, no replayed message may be older than the values accepted now."""
        if self.link is not None:
            self.link.ping(partial(self.witness.raise_floors, dict(self.ledger.accepted[self.node])))

    def ping(self, answered: Callable[[], None]) -> bool:
        """Begin a round trip if there is a connection and it is read."""
        if self.link is None or not self._reading:
            return False
        self.probe()
        self.link.ping(answered)
        return True

    def has_everything(self) -> bool:
        """Tell whether all promised messages have come."""
        return next(self.missing(), None) is None and not self.unmarked()

    def unmarked(self) -> list[str]:
        """Return the Topic Filters whose marker was promised and has not come."""
        if self.link is None or not self.habit.markers:
            return []
        return [
            topic_filter
            for topic_filter, subscription in self.subscriptions.items()
            if subscription.granted is not None and not subscription.marked
        ]

    def missing(self) -> Iterator[str]:
        """Yield the topics whose newest value was promised and has not come."""
        if self.link is None:
            return
        for topic, newest in self.ledger.newest.items():
            if self._seen.get(topic) != newest.value and self._is_promised(newest):
                yield topic

    def received(self, packet: p.Publish, value: int) -> None:
        """Take a judged message."""

    @property
    def _no_local(self) -> bool:
        return False

    def _is_promised(self, newest: Publication) -> bool:
        """Tell whether a subscription must deliver the newest value, live or by its replay."""
        if self._no_local and newest.publisher == self.client_id:
            return False
        own = newest.node == self.node
        racing = newest.topic in self.ledger.racing
        for topic_filter, subscription in self.subscriptions.items():
            if subscription.granted is None or not matches(topic_filter, newest.topic):
                continue
            sure = min(newest.qos, subscription.qos) > 0
            live = own and newest.value > subscription.granted and (sure or newest.value > self._began)
            if live and newest.publisher and (newest.kind is Kind.SET or (newest.numbered and self.habit.version == 5)):
                return newest.kind is not Kind.EXPIRING
            known = (own and bool(newest.publisher)) or subscription.stored.get(newest.topic, 0) >= newest.value
            replayed = subscription.replayed and known and (sure or subscription.link is self.link)
            if replayed and newest.kind is Kind.SET and not racing:
                return True
        return False

    def _asks(self, topic_filter: str) -> int:
        packet_identifier = next(self._packet_identifiers)
        self._asked[packet_identifier] = (topic_filter,)
        return packet_identifier

    def _cut_off(self) -> None:
        """Note that unanswered requests may or may not have had an effect."""
        for topic_filters in self._asked.values():
            for topic_filter in topic_filters:
                self.subscriptions.pop(topic_filter, None)
                self._uncertain.add(topic_filter)
        self._asked.clear()

    def _ended_by_broker(self, last_words: str) -> None:
        if self.link is not None and self.link.closed:
            self.link = None
            if self._welcome is not None and not self._welcome.done():
                self._welcome.set_exception(Violation(f"{self.client_id}: refused: {last_words}"))
            self._conduct.complain(Violation(f"{self.client_id}: the broker ended the connection: {last_words}"))

    def _take(self, link: Link, witness: Witness, packet: p.Packet) -> None:
        if self.link is not link:
            return
        self._conduct.changed.set()
        match packet:
            case p.Publish(topic=topic) if topic == MARKERS:
                self._take_marker(packet)
                self._acknowledge(packet)
            case p.Publish():
                try:
                    made = witness.take(packet)
                except Violation as violation:
                    self._conduct.complain(violation)
                    return
                if not self._repeats.take(packet, made):
                    why = f"{self.client_id} on {packet.topic}: {packet} came again, without need"
                    self._conduct.complain(Violation(why))
                    return
                self.messages += 1
                self.received(packet, made.value)
                self._judge_facts(packet, made)
                if made.kind is not Kind.PASSING:
                    self._note(made)
                self._acknowledge(packet)
            case p.Pubrel():
                self._answer(p.Pubcomp(packet.packet_identifier))
            case p.Suback() | p.Unsuback():
                self._repeats.granted(packet.packet_identifier)
                for topic_filter in self._asked.pop(packet.packet_identifier):
                    is_last = not any(topic_filter in later for later in self._asked.values())
                    if isinstance(packet, p.Suback) and is_last and topic_filter in self.subscriptions:
                        subscription = self.subscriptions[topic_filter]
                        if subscription.granted is None:
                            subscription.granted = self.ledger.value
                if any(code > 2 for code in packet.reason_codes if isinstance(packet, p.Suback)):
                    self._conduct.complain(Violation(f"{self.client_id}: {packet}"))
            case p.Connack():
                assert self._welcome is not None
                self._welcome.set_result(packet)
            case _:
                self._acknowledged(packet)

    def _note(self, made: Publication) -> None:
        """Note a change of a retained message that has come."""
        topic = made.topic
        self._seen[topic] = max(made.value, self._seen.get(topic, 0))
        for topic_filter, subscription in self.subscriptions.items():
            if matches(topic_filter, topic):
                subscription.came[topic] = max(made.value, subscription.came.get(topic, 0))

    def _judge_facts(self, packet: p.Publish, made: Publication) -> None:
        """Require the revision of a replayed message where it was asked for, and in order."""
        told = [value for name, value in packet.properties.user_properties if name == "holdfast-revision"]
        asked = self.habit.told and self.habit.version == 5
        unclear = self.habit.retain_as_published  # a live message looks like a replayed one
        if not unclear and len(told) != (asked and packet.retain):
            self._conduct.complain(Violation(f"{self.client_id}: {len(told)} revisions in {packet}"))
        if told and not self.ledger.revisions.told(made.topic, made.value, int(told[0])):
            self._conduct.complain(
                Violation(f"{self.client_id}: a revision out of order: {packet}, {self.ledger.revisions}")
            )

    def _take_marker(self, packet: p.Publish) -> None:
        """Require at a marker that all that was retained at SUBSCRIBE, or newer, has come."""
        marker = json.loads(packet.payload)
        topic_filter = marker["filter"]
        subscription = self.subscriptions.get(topic_filter)
        if subscription is None:
            return  # it belongs to an earlier Session
        subscription.marked = True  # this may be before SUBACK, which waits for its commit
        if subscription.granted is None and marker["replayed"]:
            return  # it may belong to an earlier SUBSCRIBE
        identifiers = packet.properties.subscription_identifiers
        if not marker["replayed"] or packet.dup or any(self._identifiers.get(n) != topic_filter for n in identifiers):
            return  # it may belong to an earlier SUBSCRIBE
        matching = [topic for topic in subscription.known if matches(topic_filter, topic)]
        lacking = [topic for topic in matching if self._lacks(subscription, topic)]
        if lacking or not marker["complete"]:
            explained = "\n".join(
                f"{topic}: came {subscription.came.get(topic)}, known {subscription.known[topic]}, "
                f"emptied {self.ledger.emptied.get(topic)}, newest {self.ledger.newest[topic]}"
                for topic in lacking[:5]
            )
            self._conduct.complain(Violation(f"{self.client_id}: {marker} came before\n{explained}"))

    def _lacks(self, subscription: Subscription, topic: str) -> bool:
        known, newest = subscription.known[topic], self.ledger.newest[topic]
        sure = min(subscription.qos, newest.qos, self.ledger.publications[known].qos) > 0
        if not sure and subscription.link is not self.link:
            return False  # a message with QoS 0 was lost with its connection
        # Behind a clear, an older live message may have come that waited in the queue.
        return subscription.came.get(topic, 0) < known > self.ledger.emptied.get(topic, 0)

    def _acknowledge(self, packet: p.Publish) -> None:
        if packet.qos:
            identifier = packet.packet_identifier
            self._answer(p.Puback(identifier) if packet.qos == 1 else p.Pubrec(identifier))

    def _answer(self, answer: p.Packet) -> None:
        assert self.link is not None
        if self._answering:
            self.link.send(answer)
        else:
            self._answers.append(answer)

    def _acknowledged(self, packet: p.Packet) -> None:
        self._conduct.complain(Violation(f"{self.client_id}: nobody asked for {packet}"))
