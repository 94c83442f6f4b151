"""Every permission on both protocol versions, on every path: allowed, denied, and denied after a change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.core.messages import ApplicationMessage
from holdfast.identity.interfaces import ANSWER_PATIENCE, Credentials, IAuthenticator, IAuthorizer, Principal
from holdfast.sessions.limits import Limits
from holdfast.sessions.revocation import OnRevoke, Revoked
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.authorizers import Filtering, Permissions
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker

ALIAS = Properties(topic_alias=1)
DENIED = ReasonCode.NOT_AUTHORIZED


def is_sent(client: Client, topic: str, payload: bytes = b"x", qos: int = 0, retain: bool = False) -> int | None:
    """Publish, complete the exchange, and return the Reason Code of the first answer; None for no answer."""
    client.publish(topic, payload, qos, retain)
    return answered(client)


def answered(client: Client) -> int | None:
    answers = [packet for packet in client.packets() if isinstance(packet, p.Puback | p.Pubrec)]
    answer = answers[0] if answers else None
    if isinstance(answer, p.Pubrec) and answer.reason_code < ReasonCode.UNSPECIFIED_ERROR:
        client.send(p.Pubrel(answer.packet_identifier))
        client.packets()
    return None if answer is None else answer.reason_code


# --- publishing: each path tells whether the message got through, and the Reason Code


def a_message(client: Client) -> int | None:
    return is_sent(client, "t", qos=0)


def a_message_with_qos_1(client: Client) -> int | None:
    return is_sent(client, "t", qos=1)


def a_message_with_qos_2(client: Client) -> int | None:
    return is_sent(client, "t", qos=2)


def a_run(client: Client) -> int | None:
    client.raw(b"".join(encode(p.Publish("t", b"x", 1, packet_identifier=n), client.version) for n in (1, 2, 3)))
    codes = {packet.reason_code for packet in client.got(p.Puback)}
    assert len(codes) == 1
    return codes.pop()


def a_topic_alias(client: Client) -> int | None:
    if client.version < 5:
        return is_sent(client, "t", qos=1)
    client.publish("t", properties=ALIAS)
    client.publish("", properties=ALIAS, qos=1)
    return answered(client)


def a_retained_message(client: Client) -> int | None:
    return is_sent(client, "t", qos=1, retain=True)


def a_retained_run(client: Client) -> int | None:
    is_sent(client, "t", qos=1, retain=True)
    packets = [p.Publish("t", b"x", 1, True, False, n) for n in (1, 2, 3)]
    client.raw(b"".join(encode(packet, client.version) for packet in packets))
    codes = {packet.reason_code for packet in client.got(p.Puback)}
    assert len(codes) == 1
    return codes.pop()


def a_clear(client: Client) -> int | None:
    return is_sent(client, "t", b"", 1, True)


PUBLISHING = [
    ("publish", a_message, 0),
    ("publish", a_message_with_qos_1, 1),
    ("publish", a_message_with_qos_2, 2),
    ("publish", a_run, 1),
    ("publish", a_topic_alias, 1),
    ("retain", a_retained_message, 1),
    ("retain", a_retained_run, 1),
    ("clear", a_clear, 1),
]


@pytest.mark.parametrize("bridge", [False, True], ids=["client", "bridge"])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("action", "path", "qos"), PUBLISHING, ids=[path.__name__ for _, path, _ in PUBLISHING])
def test_publishing(action: str, path: Callable[[Client], int | None], qos: int, version: int, bridge: bool) -> None:
    """MQTT 5 gets Not authorized (0x87). MQTT 3 has only the acknowledgement. A change counts for the next packet."""
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions, limits=Limits(max_topic_alias=10))
    reader = broker.client("reader", 5)
    reader.subscribe("t")
    client = broker.client("c", version, bridge=bridge and version == 4)
    assert path(client) in (None, ReasonCode.SUCCESS)
    assert reader.messages()
    if action == "clear":
        client.publish("t", b"kept", 1, True)
        assert reader.messages()
        client.packets()
    before = stored(broker)
    permissions.deny(action, "t")
    answer = path(client)
    assert answer == (None if not qos else DENIED if version == 5 else ReasonCode.SUCCESS)
    if path is not a_retained_run:  # its first message, too, is denied
        assert broker.counters.messages_dropped_not_authorized == len(broker.denied)
    assert ("c", action, "t") in broker.denied
    assert reader.messages() == []
    assert stored(broker) == before
    permissions.allow_all()
    assert path(client) in (None, ReasonCode.SUCCESS)
    assert reader.messages()


def stored(broker: MemoryBroker) -> list[bytes]:
    """Return what is retained of the topic."""
    return [payload for _, payload, _, _ in first_messages(broker.client("late", 5), "t")]


def first_messages(client: Client, topic_filter: str) -> list[tuple[str, bytes, int, bool]]:
    """Subscribe, and return the retained messages."""
    packets = client.subscribe(topic_filter)
    found = [(one.topic, one.payload, one.qos, one.retain) for one in packets if isinstance(one, p.Publish)]
    return found + client.messages()


@pytest.mark.parametrize("version", [4, 5])
def test_a_qos_2_message_that_has_come_is_completed_after_a_change(version: int) -> None:
    """It was published when it came, so PUBREL and repeated packets only end the exchange. A new message is judged."""
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions)
    reader = broker.client("reader", 5)
    reader.subscribe("t")
    client = broker.client("c", version, clean=False, properties=lasting(version))
    client.publish("t", b"first", 2, identifier=7)
    assert [body for _, body, _, _ in reader.messages()] == [b"first"]
    permissions.deny("publish", "t")
    client.drop()
    client = broker.client("c", version, clean=False, properties=lasting(version))
    client.send(p.Publish("t", b"first", 2, False, True, 7))
    assert [packet.reason_code for packet in client.got(p.Pubrec)] == [ReasonCode.SUCCESS]
    client.send(p.Pubrel(7))
    assert [packet.reason_code for packet in client.got(p.Pubcomp)] == [ReasonCode.SUCCESS]
    client.send(p.Publish("t", b"again", 2, False, True, 7))
    assert [packet.reason_code for packet in client.got(p.Pubrec)] == [DENIED if version == 5 else 0]
    assert reader.messages() == []


# --- Wills


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("action", ["publish", "retain", "clear"])
def test_a_will_is_judged_at_connect_and_when_it_is_sent(version: int, action: str) -> None:
    """CONNECT is refused with 0x87, in MQTT 3 with 5. A Will that was allowed then may be withheld later."""
    will = p.Will("t", b"" if action == "clear" else b"gone", 1, action != "publish")
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions)
    reader = broker.client("reader", 5)
    reader.subscribe("t")
    permissions.deny(action, "t")
    refused = Client(broker, version)
    connack = refused.connect("c", will=will)
    assert connack is not None
    assert connack.reason_code == (DENIED if version == 5 else 5)
    assert broker.denied == [("c", action, "t")]
    permissions.allow_all()
    broker.client("c", version, will=will).drop()
    assert len(reader.messages()) == 1
    client = broker.client("c", version, will=will)
    permissions.deny(action, "t")
    client.drop()
    assert reader.messages() == []
    assert broker.denied == 2 * [("c", action, "t")]
    assert broker.counters.messages_dropped_not_authorized == 1


@pytest.mark.parametrize("delay", [0, 5])
def test_a_will_is_judged_after_its_delay_and_after_a_restart(tmp_path: Path, delay: int) -> None:
    """After a restart its publisher is known by its names."""
    will = p.Will("t", b"gone", 1, properties=Properties(will_delay_interval=delay))
    permissions = Permissions()
    broker = RestartableBroker(tmp_path / "db", authorizer=permissions)
    for name in ("allowed", "denied"):
        broker.client(name, 5, username=name, will=will, properties=Properties(session_expiry_interval=900))
    broker = broker.restart()
    reader = broker.client("reader", 5)
    reader.subscribe("t")
    permissions.deny("publish", "t")
    broker.advance(30)
    permissions.allow_all()
    broker.client("denied", 5, clean=False, username="denied", properties=Properties(session_expiry_interval=900))
    broker.advance(31)
    assert len(reader.messages()) == 1
    broker = broker.restart()
    permissions.deny("publish", "t")
    broker.client("third", 5, will=p.Will("u", b""), properties=Properties(session_expiry_interval=900)).drop()
    assert broker.counters.messages_dropped_not_authorized == 0


# --- subscribing and receiving


@pytest.mark.parametrize("share", ["", "$share/group/", "$queue/"])
@pytest.mark.parametrize("version", [4, 5])
def test_subscribing(version: int, share: str) -> None:
    """A refused Topic Filter gets 0x87, in MQTT 3 0x80; the others of its packet are granted."""
    permissions = Permissions()
    permissions.deny("subscribe", "secret/#")
    broker = MemoryBroker(authorizer=permissions)
    client = broker.client("c", version)
    suback, *_ = client.subscribe(f"{share}open/#", f"{share}secret/a")
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (0, DENIED if version == 5 else 0x80)
    assert ("subscribe", "secret/a") in permissions.asked
    assert broker.denied == [("c", "subscribe", "secret/a")]
    assert broker.counters.subscriptions_not_authorized == 1
    publisher = broker.client("p", 5)
    for topic in ("open/a", "secret/a"):
        publisher.publish(topic)
    assert [topic for topic, *_ in client.messages()] == ["open/a"]


@pytest.mark.parametrize("share", ["", "$share/group/"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [4, 5])
def test_a_filtered_subscription_gets_what_is_allowed(version: int, qos: int, share: str) -> None:
    permissions = Permissions()
    permissions.deny("receive", "t/secret")
    broker = MemoryBroker(authorizer=permissions)
    client = broker.client("c", version)
    client.subscribe(f"{share}t/#", qos=qos)
    publisher = broker.client("p", 5)
    for topic in 2 * ("t/open", "t/secret"):
        publisher.publish(topic, qos=qos)
    publisher.raw(b"".join(encode(p.Publish(topic, b"x"), 5) for topic in 3 * ["t/secret"] + 3 * ["t/open"]))
    assert [topic for topic, *_ in client.messages()] == 5 * ["t/open"]
    assert broker.counters.deliveries_not_authorized == 5


def test_a_granted_subscription_costs_no_question_and_a_filtered_one_a_question_for_each_topic() -> None:
    permissions = Permissions()
    permissions.deny("receive", "t/secret")
    broker = MemoryBroker(authorizer=permissions)
    clients = [broker.client(name) for name in ("granted", "filtered")]
    clients[0].subscribe("t/+/deep")
    clients[1].subscribe("t/#")
    publisher = broker.client("p", 5)
    permissions.asked.clear()
    for _ in range(20):
        for topic in ("t/a/deep", "t/a", "t/secret"):
            publisher.publish(topic)
    assert sorted(permissions.asked) == [
        (action, topic) for action in ("publish", "receive") for topic in ("t/a", "t/a/deep", "t/secret")
    ]
    assert len(clients[0].messages()) == 20
    assert len(clients[1].messages()) == 40


def test_routes_of_those_that_may_receive_a_topic_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Client subscribes to all topics, and may receive its own: each topic has a route of its own."""
    monkeypatch.setattr("holdfast.sessions.routing_table._MOST_BYTES", 900 + 10 * 120 + 10 * (300 + 10 * 10))
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions, authenticator=ByAddress())
    clients = [broker.client(f"c{number}") for number in range(10)]
    for number, client in enumerate(clients):
        for other in range(10):
            if other != number:
                permissions.deny("receive", f"t/{other}/#", address=f"c{number}")
        client.subscribe("#")
    publisher = broker.client("p", 5)
    for number in 10 * list(range(10)):
        publisher.publish(f"t/{number}/x")
        publisher.publish(f"t/{number}/y")
    assert sum(len(found.permitted) for found in broker.router.table._found.values()) <= 11
    for number, client in enumerate(clients):
        assert [topic for topic, *_ in client.messages()] == 10 * [f"t/{number}/x", f"t/{number}/y"]


def test_a_member_of_a_group_that_may_receive_a_message_gets_it() -> None:
    """The message of a member that may not is the next one's."""
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions, authenticator=ByAddress())
    permissions.deny("receive", "t/secret", address="one")
    one, two = broker.client("one"), broker.client("two")
    for client in (one, two):
        client.subscribe("$share/g/t/#", qos=1)
    publisher = broker.client("p", 5)
    for number in range(4):
        publisher.publish("t/secret", b"%d" % number, 1)
    assert one.messages() == []
    assert len(two.messages()) == 4
    assert broker.counters.deliveries_not_authorized == 0
    two.drop()
    publisher.publish("t/secret", b"for nobody", 1)
    assert one.messages() == []
    assert broker.counters.deliveries_not_authorized == 1


@implementer(IAuthenticator)
class ByAddress:
    """Admits every Client, from the address that its User Name or else its Client Identifier tells."""

    def authenticate(self, credentials: Credentials) -> Principal:
        return Principal(credentials.client_id, None, address=credentials.username or credentials.client_id)


# --- changes


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("noticed", [True, False], ids=["revoked", "noticed"])
def test_a_subscription_that_is_not_allowed_any_more_ends(version: int, noticed: bool) -> None:
    """Whether somebody calls for the walk or not: no message leaves over the old grant."""
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions)
    client, other, publisher = broker.client("c", version), broker.client("o", version), broker.client("p", 5)
    client.subscribe("t", "u")
    other.subscribe("u")
    permissions.deny("subscribe", "t")
    permissions.deny("receive", "t")
    if noticed:
        revoked: list[Revoked] = []
        broker.registry.grants.revoke().addCallback(revoked.append)
        broker.settle()
        assert [(one.subscriptions, one.clients) for one in revoked] == [(1, {"c"})]
    else:
        publisher.publish("t")
    assert [packet.reason_code for packet in client.packets() if isinstance(packet, p.Disconnect)] == (
        [DENIED] if version == 5 else []
    )
    assert client.network.closed
    assert not other.network.closed
    assert broker.counters.subscriptions_revoked == 1
    assert broker.denied == [("c", "subscribe", "t")]
    publisher.publish("u")
    assert len(other.messages()) == 1


@pytest.mark.parametrize("version", [4, 5])
def test_a_subscription_may_end_without_a_word(version: int) -> None:
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions, on_revoke=OnRevoke.WITHHOLD)
    client, publisher = broker.client("c", version), broker.client("p", 5)
    client.subscribe("t", "u")
    permissions.deny("subscribe", "t")
    for topic in ("t", "u"):
        publisher.publish(topic)
    publisher.publish("t")
    assert [topic for topic, *_ in client.messages()][-1] == "u"
    assert not client.network.closed
    assert list(next(session for session in broker.registry if session.client_id == "c").subscriptions) == ["u"]


def test_subscriptions_become_filtered_and_granted_again() -> None:
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions)
    client, publisher = broker.client("c"), broker.client("p", 5)
    client.subscribe("t/#")
    permissions.deny("receive", "t/secret")
    for topic in ("t/secret", "t/open"):
        publisher.publish(topic)
    assert [topic for topic, *_ in client.messages()] == ["t/open"]
    permissions.allow_all()
    publisher.publish("t/secret")
    permissions.asked.clear()
    publisher.publish("t/new")
    assert [topic for topic, *_ in client.messages()] == ["t/secret", "t/new"]
    assert permissions.asked == [("publish", "t/new")]


def test_no_message_leaves_over_an_old_grant_while_the_walk_goes_on() -> None:
    """A thousand Sessions take many turns."""
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions, on_revoke=OnRevoke.WITHHOLD)
    clients = [broker.client(f"c{number}") for number in range(300)]
    for client in clients:
        client.subscribe("t")
    publisher = broker.client("p", 5)
    permissions.deny("subscribe", "t")
    permissions.deny("receive", "t")
    publisher.connection.receive(encode(p.Publish("t", b"x"), 5))
    for _ in range(100):
        broker.clock.turn()
        publisher.connection.receive(encode(p.Publish("t", b"x"), 5))
    broker.settle()
    assert not any(client.messages() for client in clients)
    assert broker.counters.subscriptions_revoked == 300


def test_a_subscription_that_was_asked_about_before_a_change_is_asked_about_again() -> None:
    """Its SUBSCRIBE takes several turns, and the walk has passed the Session meanwhile."""
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions)
    client = broker.client("c", 5)
    requests = tuple(p.SubscriptionRequest(f"t/{number}") for number in range(300))
    client.connection.receive(encode(p.Subscribe(1, requests), 5))
    permissions.deny("subscribe", "t/0")
    broker.registry.grants.revoke()
    broker.settle()
    assert client.network.closed
    assert broker.counters.subscriptions_revoked == 1


# --- messages that wait


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("restarts", [False, True], ids=["resumed", "restarted"])
def test_waiting_messages_are_asked_about_again(tmp_path: Path, version: int, qos: int, restarts: bool) -> None:
    """Those in flight and those in the queue; an exchange whose PUBREC has come goes on."""
    permissions = Permissions()
    broker: Any = RestartableBroker(tmp_path / "db", authorizer=permissions, limits=Limits(max_inflight=3))
    client = broker.client("c", version, clean=False, properties=lasting(version))
    client.subscribe("t/#", qos=qos)
    publisher = broker.client("p", 5)
    for topic in 3 * ["t/secret", "t/open"]:
        publisher.publish(topic, qos=qos)
    sent = client.got(p.Publish)
    assert len(sent) == 3
    if qos == 2:
        client.send(p.Pubrec(sent[0].packet_identifier))
    client.drop()
    permissions.deny("receive", "t/secret")
    if restarts:
        broker = broker.restart()
    client = broker.client("c", version, clean=False, properties=lasting(version))
    client.parser.receive_data(b"")
    released = [packet for packet in client.backlog if isinstance(packet, p.Pubrel)]
    assert len(released) == (qos == 2)
    client.send(*(p.Pubcomp(packet.packet_identifier) for packet in released))
    first = [packet for packet in client.backlog if isinstance(packet, p.Publish)]
    client.send(*((p.Puback if qos == 1 else p.Pubrec)(packet.packet_identifier) for packet in first))
    topics = [packet.topic for packet in first] + [topic for topic, *_ in client.messages()]
    assert topics == 3 * ["t/open"]
    assert broker.counters.deliveries_not_authorized == 3 - (qos == 2)


@pytest.mark.parametrize("version", [4, 5])
def test_another_principal_resumes_only_what_it_may_receive(version: int) -> None:
    """For example from another address."""
    permissions = Permissions()
    permissions.deny("receive", "t/secret", address="outside")
    permissions.deny("subscribe", "u", address="outside")
    broker = MemoryBroker(authorizer=permissions, authenticator=ByAddress())
    client = broker.client("c", version, clean=False, username="inside", properties=lasting(version))
    client.subscribe("t/#", "u", qos=1)
    client.drop()
    publisher = broker.client("p", 5)
    for topic in ("t/secret", "t/open"):
        publisher.publish(topic, b"queued", 1)
    client = broker.client("c", version, clean=False, username="outside", properties=lasting(version))
    assert [packet.topic for packet in client.backlog if isinstance(packet, p.Publish)] == ["t/open"]
    assert client.network.closed  # "u" has ended
    client = broker.client("c", version, clean=False, username="outside", properties=lasting(version))
    client.messages()
    for topic in ("t/secret", "t/open", "u"):
        publisher.publish(topic, b"live", 1)
    assert [topic for topic, *_ in client.messages()] == ["t/open"]


def test_an_online_client_gets_no_queued_message_after_a_change() -> None:
    """Its window was full when the permissions changed."""
    permissions = Permissions()
    broker = MemoryBroker(authorizer=permissions, limits=Limits(max_inflight=1))
    client, publisher = broker.client("c", 5), broker.client("p", 5)
    client.subscribe("t/#", qos=1)
    for topic in ("t/open", "t/secret", "t/open"):
        publisher.publish(topic, qos=1)
    permissions.deny("receive", "t/secret")
    assert [topic for topic, *_ in client.messages()] == ["t/open", "t/open"]
    assert broker.counters.deliveries_not_authorized == 1


@pytest.mark.parametrize("mode", ["allowed", "denied", "failed", "silent"])
@pytest.mark.parametrize("waits", ["in flight", "queued"])
def test_an_authorizer_may_answer_later_about_waiting_messages(mode: str, waits: str) -> None:
    """Nothing passes the message that waits. No answer, or an error, denies it."""
    late = Late()
    broker = MemoryBroker(authorizer=late, limits=Limits(max_inflight=1))
    properties = Properties(session_expiry_interval=900)
    client = broker.client("c", 5, properties=properties)
    client.subscribe("t/#", qos=1)
    if waits == "queued":
        client.drop()
    publisher = broker.client("p", 5)
    publisher.publish("t/1", qos=1)
    client.drop()
    publisher.publish("t/2", qos=1)
    late.waits = True
    client = broker.client("c", 5, clean=False, properties=properties)
    assert client.backlog == []
    late.waits = False
    publisher.publish("t/3", qos=1)
    (answer,) = late.answers
    if mode == "silent":
        broker.advance(ANSWER_PATIENCE)
    elif mode == "failed":
        answer.errback(RuntimeError("backend away"))
    else:
        answer.callback(mode == "allowed")
    broker.settle()
    expected = ["t/1", "t/2", "t/3"] if mode == "allowed" else ["t/2", "t/3"]
    assert [topic for topic, *_ in client.messages()] == expected


@implementer(IAuthorizer)
class Late(Filtering):
    """Answers questions about deliveries later, if the test says so. Promises no answers."""

    def __init__(self) -> None:
        self.waits = False
        self.answers: list[Deferred[bool]] = []

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        if not self.waits:
            return True
        self.answers.append(Deferred())
        return self.answers[-1]


# --- the broker's own topics


@pytest.mark.parametrize("share", ["", "$share/group/"])
@pytest.mark.parametrize("version", [4, 5])
def test_the_brokers_own_topics(version: int, share: str) -> None:
    """SUBSCRIBE, the present values, later values, and a change."""
    permissions = Permissions()
    permissions.deny("receive", "$SYS/broker/bytes/#")
    broker = MemoryBroker(authorizer=permissions, sys_msg_interval=1)
    client = broker.client("c", version)
    client.subscribe(f"{share}$SYS/#")
    broker.advance(2)
    assert not any(topic.startswith("$SYS/broker/bytes") for topic, *_ in client.messages())
    permissions.deny("subscribe", "$SYS/#")
    permissions.deny("receive", "$SYS/#")
    broker.advance(1)
    assert client.messages() == []
    assert client.network.closed
    (suback,) = broker.client("c", version).subscribe(f"{share}$SYS/broker/uptime")
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (DENIED if version == 5 else 0x80,)


def lasting(version: int) -> Properties:
    """Return the properties of CONNECT for a Session that outlives its connection."""
    return Properties(session_expiry_interval=900) if version == 5 else NO_PROPERTIES
