"""An authorizer or authenticator that never answers holds no Client longer than its time: that is a refusal then."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.core.messages import ApplicationMessage
from holdfast.identity.interfaces import (
    ANSWER_PATIENCE,
    Answer,
    Credentials,
    Grant,
    IAuthenticator,
    IAuthorizer,
    Principal,
)
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.authorizers import Filtering
from tests.doubles import Client, MemoryBroker
from tests.logs import logged

QUIET = Properties(request_problem_information=0)


@implementer(IAuthorizer)
class Silent(Filtering):
    """Never answers about what ``topic`` names; allows all else."""

    def __init__(self) -> None:
        self.topic = "silent"
        self.unanswered: list[Deferred[bool]] = []

    def _about(self, topic: str) -> bool | Deferred[bool]:
        if topic != self.topic:
            return True
        answer: Deferred[bool] = Deferred()
        self.unanswered.append(answer)
        return answer

    def may_publish(self, principal, topic, qos, retain, clears=False):  # type: ignore[no-untyped-def]
        return self._about(topic)

    def may_subscribe(self, principal, topic_filter, qos):  # type: ignore[no-untyped-def]
        answer = self._about(topic_filter)
        return Grant.FILTERED if answer is True else answer

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        return self._about(message.payload.decode())


@implementer(IAuthenticator)
class SilentAuthenticator:
    """Never answers."""

    def authenticate(self, credentials: Credentials) -> Deferred[Answer]:
        return Deferred()


@pytest.mark.parametrize(
    ("packet", "answer"),
    [
        (p.Publish("silent", b"", 1, packet_identifier=7), p.Puback(7, ReasonCode.NOT_AUTHORIZED)),
        (
            p.Subscribe(7, (p.SubscriptionRequest("a"), p.SubscriptionRequest("silent"), p.SubscriptionRequest("b"))),
            p.Suback(7, (0, ReasonCode.NOT_AUTHORIZED, 0)),
        ),
    ],
    ids=["PUBLISH", "SUBSCRIBE"],
)
def test_without_an_answer_a_packet_is_refused_and_the_next_one_has_its_turn(
    packet: p.Packet, answer: p.Packet
) -> None:
    """The Client hears it, and the log names the cause. A later answer changes nothing."""
    authorizer = Silent()
    broker = MemoryBroker(authorizer=authorizer)
    client = broker.client("c", 5, properties=QUIET)
    with logged() as log:
        client.send(packet, p.Pingreq())
        broker.advance(ANSWER_PATIENCE - 1)
        assert client.packets() == []
        broker.advance(1)
    assert client.packets() == [answer, p.Pingresp()]
    assert any("authoriz" in str(event) or "no answer within 30 s" in str(event) for event in log)
    authorizer.unanswered[0].callback(True)
    broker.settle()
    assert client.packets() == []


def test_a_delivery_without_an_answer_is_dropped_and_the_next_one_comes() -> None:
    """Deliveries keep their order, so all later ones wait for it."""
    broker = MemoryBroker(authorizer=Silent())
    client = broker.client("c", 5)
    client.subscribe("t")
    publisher = broker.client("p", 5)
    publisher.publish("t", b"silent")
    publisher.publish("t", b"next")
    assert client.messages() == []
    broker.advance(ANSWER_PATIENCE)
    assert client.messages() == [("t", b"next", 0, False)]


def test_a_will_without_an_answer_is_dropped() -> None:
    """First its CONNECT is refused; one that was allowed is not published."""
    authorizer = Silent()
    broker = MemoryBroker(authorizer=authorizer, limits=Limits(idle_timeout=2 * ANSWER_PATIENCE))
    client = Client(broker, 5)
    client.connect("c", will=p.Will("silent", b"gone"), properties=QUIET)
    broker.advance(ANSWER_PATIENCE)
    assert [connack.reason_code for connack in client.got(p.Connack)] == [ReasonCode.NOT_AUTHORIZED]
    authorizer.topic = "none"
    client = broker.client("c", 5, will=p.Will("silent", b"gone"))
    authorizer.topic = "silent"
    client.drop()
    broker.advance(ANSWER_PATIENCE)
    assert authorizer.unanswered[-1].called


def test_an_authenticator_without_an_answer_refuses() -> None:
    """Also where the operator lets a CONNECT take longer."""
    broker = MemoryBroker(authenticator=SilentAuthenticator(), limits=Limits(idle_timeout=2 * ANSWER_PATIENCE))
    client = Client(broker, 5)
    client.connect("c", properties=QUIET)
    broker.advance(ANSWER_PATIENCE)
    assert [connack.reason_code for connack in client.got(p.Connack)] == [ReasonCode.SERVER_UNAVAILABLE]
    assert client.network.closed
