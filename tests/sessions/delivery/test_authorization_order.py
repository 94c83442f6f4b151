"""Deliveries and replays under an authorizer that judges every message, at once or later."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.core.messages import ApplicationMessage
from holdfast.identity.interfaces import IAuthorizer, Principal, UnrestrictedAuthorizer
from holdfast.retained.limits import FlowSettings
from holdfast.sessions.limits import Limits
from holdfast.watch.log import LastingFailure
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.authorizers import Filtering
from tests.doubles import Client, MemoryBroker
from tests.logs import logged


@implementer(IAuthorizer)
class Selective(Filtering):
    """Denies topics with ``secret`` in them. Answers at once, later, or with an error."""

    def __init__(self, mode: str = "now") -> None:
        self.mode = mode
        self.later: list[tuple[Deferred[bool], bool]] = []

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        allowed = "secret" not in message.topic
        if self.mode == "now":
            return allowed
        answer: Deferred[bool] = Deferred()
        self.later.append((answer, allowed))
        return answer

    def answer(self) -> None:
        later, self.later = self.later, []
        for deferred, allowed in reversed(later):  # not in the order of the questions
            if self.mode == "error":
                deferred.errback(RuntimeError("backend away"))
            else:
                deferred.callback(allowed)


@pytest.mark.parametrize("mode", ["now", "later"])
def test_a_long_replay_goes_on_after_every_answer(mode: str) -> None:
    """Also when every message of a slice is denied."""
    authorizer = Selective(mode)
    broker = MemoryBroker(authorizer=authorizer, flow=FlowSettings(4, 2))
    publisher = broker.client("p")
    for number in range(20):
        topic = f"t/{number:02}" + ("/secret" if 6 <= number < 12 else "")
        publisher.publish(topic, b"x", retain=True)
    client = broker.client("c", 5)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#"),)))
    seen = client.messages()
    for _ in range(30):
        authorizer.answer()
        broker.settle()
        seen += client.messages()
    assert len(seen) == 14


@pytest.mark.parametrize("mode", ["now", "later"])
@pytest.mark.parametrize("qos", [0, 1])
def test_only_allowed_messages_arrive_and_in_order(mode: str, qos: int) -> None:
    """This holds for live and replayed messages. A denied message is counted; the others keep their order."""
    authorizer = Selective(mode)
    broker = MemoryBroker(authorizer=authorizer, limits=Limits(max_inflight=2))
    publisher = broker.client("p", 5)
    for topic in ("t/1", "t/secret", "t/2", "t/3"):
        properties = Properties(message_expiry_interval=100) if topic == "t/2" else Properties()
        publisher.publish(topic, topic.encode(), qos=1, retain=True, properties=properties)
    client = broker.client("c", 5)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", qos),), Properties(subscription_identifiers=(3,))))
    seen = []
    for _ in range(10):
        authorizer.answer()
        broker.settle()
        seen += client.messages()
    assert seen == [(topic, topic.encode(), qos, True) for topic in ("t/1", "t/2", "t/3")]
    for topic in ("t/secret", "t/live"):
        publisher.publish(topic, b"new", qos=1)
    authorizer.answer()
    broker.settle()
    assert client.messages() == [("t/live", b"new", qos, False)]
    assert broker.counters.deliveries_not_authorized >= (1 if mode == "now" else 0)


class WithoutRetain(UnrestrictedAuthorizer):
    """Denies RETAIN when the test says so."""

    may_retain = True

    def may_publish(self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False) -> bool:
        return self.may_retain or not retain


@pytest.mark.parametrize(("version", "reason"), [(4, ReasonCode.SUCCESS), (5, ReasonCode.NOT_AUTHORIZED)])
def test_the_right_to_publish_does_not_include_retain(version: int, reason: ReasonCode) -> None:
    """The authorizer learns of RETAIN: in a message, a clear and a Will Message."""
    authorizer = WithoutRetain()
    broker = MemoryBroker(authorizer=authorizer)
    publisher = broker.client("p", version)
    publisher.publish("t/kept", b"kept", 1, True)
    authorizer.may_retain, authorizer.epoch = False, 1
    publisher.packets()
    for payload in (b"new", b""):
        publisher.publish("t/kept", payload, 1, True)
        (packet,) = publisher.packets()
        assert isinstance(packet, p.Puback)
        assert packet.reason_code == reason
    publisher.publish("t/live", b"live", 1)
    reader = broker.client("r", 5)
    assert [m.payload for m in reader.subscribe("#") if isinstance(m, p.Publish)] == [b"kept"]
    refused = broker.client("w", version, will=p.Will("t/will", b"x", 0, True))
    assert refused.connack is not None
    assert refused.connack.reason_code != 0
    allowed = broker.client("w", version, will=p.Will("t/will", b"x", 0, False)).connack
    assert allowed is not None
    assert allowed.reason_code == 0


def test_a_failing_authorizer_denies() -> None:
    """Neither live nor replayed messages arrive when the answer is an error."""
    authorizer = Selective("error")
    broker = MemoryBroker(authorizer=authorizer)
    broker.client("p").publish("t", b"x", retain=True)
    client = broker.client("c")
    client.subscribe("t")
    authorizer.answer()
    broker.settle()
    with logged(LastingFailure) as events:
        for number in range(5):
            broker.client("q").publish("t", b"%d" % number)
            authorizer.answer()
            broker.settle()
    assert client.messages() == []
    assert not client.network.closed
    assert not events  # the first failure of this Session was logged above, with the replayed message


def test_a_shared_subscription_prefers_connected_members(broker: MemoryBroker, publisher: Client) -> None:
    """A member that is away gets a message only if no member is connected."""
    session = Properties(session_expiry_interval=100)
    away = broker.client("away", 5, clean=False, properties=session)
    away.subscribe("$share/g/t", qos=1)
    here = broker.client("here", 5)
    here.subscribe("$share/g/t", qos=1)
    away.drop()
    for value in (b"1", b"2"):
        publisher.publish("t", value, qos=1)
    assert [payload for _, payload, _, _ in here.messages()] == [b"1", b"2"]
    here.drop()
    publisher.publish("t", b"3", qos=1)
    back = broker.client("away", 5, clean=False, properties=session)
    assert [m.payload for m in back.backlog if isinstance(m, p.Publish)] == [b"3"]
