"""Clients that check that the broker follows the standard and the model."""

from __future__ import annotations

from holdfast.wire import NO_PROPERTIES
from holdfast.wire import packets as p
from tests.sessions.peers import Peer
from tests.sessions.state import TOPICS, Delivery


class Witness(Peer):
    """A Client that checks every packet it receives."""

    def take(self, late: bool = False) -> None:
        """Read the packets; ``late`` if some of them were sent some time ago."""
        if self.client is None or self.deaf:
            return
        assert not self.client.network.closed
        for packet in self.client.packets():
            match packet:
                case p.Connack():
                    self._connack(packet)
                case p.Publish():
                    self._publish(packet, late)
                case p.Pubrel():
                    self._pubrel(packet.packet_identifier)
                case p.Puback() | p.Pubrec() | p.Pubcomp() | p.Suback() | p.Unsuback():
                    self._acknowledgement(packet)
                case _:
                    raise AssertionError(f"{self.name} got {packet}")

    def _answered(self, kind: type[p.Packet], identifier: int = 0) -> None:
        """Check an answer: it was due, in order among answers of its kind, and its fact is on disk."""
        turn = next((asked for asked in self.waiting if asked[0] is kind), None)
        assert turn == (kind, identifier), f"{kind.__name__} {identifier} to {self.name}"
        fact = self.waiting.pop((kind, identifier))
        assert self.model.is_durable(fact), f"{kind.__name__} to {self.name} before the commit"

    def _connack(self, packet: p.Connack) -> None:
        assert packet.reason_code == 0
        assert packet.session_present == self.present, "Session Present"
        self._answered(p.Connack)
        self.established = True
        session = self.session
        if session.number != self.belongs_to:
            self.forget()
            self.must_be_clean = session.has_history()
            self.belongs_to = session.number
            self.subscribes.update(session.subscriptions.keys())  # of a Clean Start that was lost
        for identifier, outgoing in self.outgoing.items():
            first = outgoing.packet
            properties = first.properties if self.way.version == 5 else NO_PROPERTIES
            self.resends.append(
                p.Pubrel(identifier)
                if outgoing.released
                else p.Publish(first.topic, first.payload, first.qos, first.retain, True, identifier, properties)
            )

    def _acknowledgement(self, packet: p.Puback | p.Pubrec | p.Pubcomp | p.Suback | p.Unsuback) -> None:
        identifier = packet.packet_identifier
        self._answered(type(packet), identifier)
        if isinstance(packet, (p.Puback, p.Pubrec)):
            assert packet.reason_code < 0x80
        match packet:
            case p.Puback() | p.Pubcomp():
                del self.outgoing[identifier]
            case p.Pubrec():
                self.outgoing[identifier].released = True
                self.answers.append(p.Pubrel(identifier))
            case p.Suback():
                assert max(packet.reason_codes) < 0x80
                self.expected |= self.requests.pop(identifier)

    def _publish(self, packet: p.Publish, late: bool) -> None:
        identifier = packet.packet_identifier
        if not packet.qos:
            if not packet.retain:
                assert packet.payload in self.fleeting, f"{self.name} got {packet}"
                self.fleeting.remove(packet.payload)
        else:
            assert identifier not in self.unacknowledged, f"{packet} has the identifier of another, or comes twice"
            self.unacknowledged.add(identifier)
            assert len(self.unacknowledged) <= (self.way.receive_maximum or 65535), "Receive Maximum"
        if packet.retain:
            self._check_replayed(packet)
        elif packet.qos:
            self._check_delivery(packet, late)
        if packet.qos == 1:
            self.answers.append(p.Puback(identifier))
        elif packet.qos == 2:
            self.answers.append(p.Pubrec(identifier))
            if identifier in self.incoming:
                assert packet.dup, f"{packet} has the identifier of one that is not released"
                assert self.incoming[identifier] == packet.payload
            else:
                self.incoming[identifier] = packet.payload
                self._hand_on(packet)

    def _hand_on(self, packet: p.Publish) -> None:
        """Check that a QoS 2 message the Client takes for a new one is new."""
        payload = packet.payload
        if packet.retain:
            self.replayed[payload] += 1
            subscribed = sum(self.subscribes[topic_filter] for topic_filter in TOPICS[packet.topic])
            assert self.replayed[payload] <= subscribed, f"{packet} comes twice"
        elif payload:
            self.handed_on[payload] += 1
            assert self.handed_on[payload] == 1, f"{packet} comes twice"

    def _pubrel(self, identifier: int) -> None:
        """Check that the broker has stored that this Client has the message."""
        self.incoming.pop(identifier, None)
        self.answers.append(p.Pubcomp(identifier))
        for delivery in self.session.owed:
            if delivery.qos == 2 and delivery.seen == identifier:
                assert delivery.released
                if self.session.durable:
                    kept = [one for one in self._on_disk() if one.number == delivery.number]
                    assert kept, "PUBREL before the commit"
                    assert kept[0].released, "PUBREL before the commit"
                delivery.connection = self.number

    def _on_disk(self) -> list[Delivery]:
        session = self.model.disk.sessions.get(self.name)
        return [] if session is None else session.owed

    def _check_replayed(self, packet: p.Publish) -> None:
        """Check that a replayed message has been retained since the subscription was made."""
        payload, topic = packet.payload, packet.topic
        since = [self.session.subscribed_at.get(topic_filter) for topic_filter in TOPICS[topic]]
        replaced = self.model.live.replaced.get(payload)
        if replaced is not None:
            assert replaced > min(fact for fact in since if fact is not None), f"{packet} is stale"
        self.expected = {key: one for key, one in self.expected.items() if (key[1], one[1]) != (topic, payload)}
        for expected in self.requests.values():  # it may overtake its SUBACK
            for key in [key for key, one in expected.items() if (key[1], one[1]) == (topic, payload)]:
                del expected[key]

    def _check_delivery(self, packet: p.Publish, late: bool) -> None:
        """Check that a message is owed, comes in order, and has the right expiry interval."""
        owed, now = self.session.owed, self.model.now
        delivery = self._find(packet)
        message = delivery.message
        expires_at = message.expires_at
        for earlier in owed[: owed.index(delivery)]:
            if earlier.qos != packet.qos or earlier.released or earlier.connection == self.number:
                continue
            if delivery.seen and earlier.seen:
                raise AssertionError(f"{packet} is sent again before {earlier}")
            same = earlier.message.topic == message.topic and earlier.message.publisher == message.publisher
            if same and (earlier.seen or not earlier.message.has_expired(now)):
                raise AssertionError(f"{packet} overtakes {earlier}")
        if not delivery.seen:
            if not late and not packet.dup:
                assert not message.has_expired(now), f"{packet} has expired"
            if packet.qos == 2:
                assert self.model.is_durable(delivery.number) or not self._is_kept(delivery), "QoS 2 before the commit"
        if self.way.version == 5:
            if not packet.dup:
                assert frozenset(packet.properties.subscription_identifiers) == delivery.identifiers
            left = packet.properties.message_expiry_interval
            assert (left is None) == (expires_at is None)
            assert left is None or expires_at is None or late or left == max(1, expires_at - now)
        delivery.seen, delivery.connection = packet.packet_identifier, self.number

    def _is_kept(self, delivery: Delivery) -> bool:
        """Tell whether a delivery, or the arrival of its message, must be on disk before the packet leaves."""
        publisher = self.model.live.sessions.get(delivery.message.publisher)
        known = publisher is not None and publisher.durable and delivery.number in publisher.received.values()
        return self.session.durable or known

    def _find(self, packet: p.Publish) -> Delivery:
        assert self.present or not packet.dup
        alike = [
            one
            for one in self.session.owed
            if not one.released
            and (one.message.topic, one.message.payload, one.qos) == (packet.topic, packet.payload, packet.qos)
        ]
        for delivery in alike:
            if packet.dup and delivery.seen == packet.packet_identifier:
                return delivery
        unseen = [delivery for delivery in alike if not delivery.seen]
        if unseen:  # the same message published once more may last longer
            return min(unseen, key=lambda delivery: delivery.message.has_expired(self.model.now))
        raise AssertionError(f"{packet} is not owed to {self.name}: {self.session.owed}")

    # --- checks when all Clients are idle

    def check_rest(self) -> None:
        """Check, after all commits, that every request is answered, and that idle Clients are owed no message."""
        if self.client is None or self.deaf:
            return
        assert self.waiting == {}
        if self.answers or self.resends:
            return
        assert self.unacknowledged == set()
        assert self.incoming == {}
        assert self.outgoing == {}
        now, retained = self.model.now, self.model.live.retained
        assert [one for one in self.session.owed if one.seen or not one.message.has_expired(now)] == []
        for (topic_filter, topic), (fact, payload) in self.expected.items():
            present = retained.get(topic)
            gone = present is None or present[0] != fact or present[1].has_expired(now)
            assert gone or topic_filter not in self.session.subscriptions, f"{payload!r} was not replayed"
