"""CONNECT: section 3.1 of both standards."""

from __future__ import annotations

import pytest

from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.conformance.expect import (
    TERSE,
    VERSIONS,
    Door,
    Forbidding,
    block,
    connect,
    lasting,
    payloads,
    refused,
    resent,
    string,
)
from tests.doubles import Client, MemoryBroker

CLIENT = string(b"c")


def first(version: int, data: bytes) -> Client:
    """Return a new connection that has sent these bytes."""
    client = Client(MemoryBroker(), version)
    client.raw(data)
    return client


@VERSIONS
@pytest.mark.parametrize("name", [b"MQTX", b"mqtt", b"MQTT5", b"HTTP", b"MQIsdP"])
def test_another_protocol_name_ends_the_connection(version: int, name: bytes) -> None:
    """The packet is not a CONNECT of MQTT [MQTT5-3.1.2-1], [MQTT311-3.1.2-1]."""
    client = first(version, connect(version, name=name) + encode(p.Pingreq(), version))
    assert client.network.closed
    assert client.network.take() == b""


@pytest.mark.parametrize(
    ("level", "answer"),
    [(1, "20 02 00 01"), (2, "20 02 00 01"), (6, "20 03 00 84"), (7, "20 03 00 84"), (255, "20 03 00 84")],
)
def test_another_protocol_level_is_answered_and_closed(level: int, answer: str) -> None:
    """Lower levels get 0x01 as in MQTT 3, higher ones 0x84 as in MQTT 5 [MQTT5-3.1.2-2], [MQTT311-3.1.2-2]."""
    client = first(4, connect(4, level=level))
    sent = client.network.take()
    assert sent[:1] + sent[2:4] == bytes.fromhex(answer)[:1] + bytes.fromhex(answer)[2:]
    assert client.network.closed


@VERSIONS
def test_the_reserved_connect_flag_is_checked(version: int) -> None:
    """1 is malformed [MQTT5-3.1.2-3], [MQTT311-3.1.2-3]."""
    refused(first(version, connect(version, 3)), ReasonCode.MALFORMED_PACKET)


@VERSIONS
def test_a_clean_start_begins_anew(version: int) -> None:
    """Subscriptions, queued messages and unfinished exchanges of the old Session are gone.

    [MQTT5-3.1.2-4], [MQTT5-3.1.4-4], [MQTT311-3.1.2-6], [MQTT311-3.1.4-3].
    """
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=2)
    client.publish("other", qos=2, identifier=7)
    publisher = broker.client("p")
    publisher.publish("t", qos=2)
    client.drop()
    publisher.publish("t", qos=1)
    client = broker.client("c", version)
    assert client.connack is not None
    assert not client.connack.session_present
    assert client.backlog == []
    publisher.publish("t", qos=1)
    assert client.messages() == []
    client.subscribe("other", qos=2)
    client.publish("other", b"new", qos=2, identifier=7)
    assert payloads(client) == [b"new"]


@VERSIONS
def test_a_session_of_a_clean_start_is_not_reused(version: int) -> None:
    """Without a Session Expiry Interval it ends with its connection [MQTT311-3.1.2-6], [MQTT5-4.1.0-2]."""
    broker = MemoryBroker()
    client = broker.client("c", version, clean=True)
    client.subscribe("t", qos=1)
    client.drop()
    client = broker.client("c", version, clean=False)
    assert client.connack is not None
    assert not client.connack.session_present
    client.publish("t", qos=1)
    assert client.messages() == []


@VERSIONS
def test_a_session_is_resumed_with_its_subscriptions(version: int) -> None:
    """Matching messages are kept for a Client that is away.

    [MQTT5-3.1.2-5], [MQTT5-3.1.2-23], [MQTT311-3.1.2-4], [MQTT311-3.1.2-5].
    """
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("a/+", qos=1)
    client.subscribe("b", qos=2)
    client.drop()
    publisher = broker.client("p")
    publisher.publish("a/x", b"1", qos=1)
    publisher.publish("b", b"2", qos=2)
    client = lasting(broker, "c", version)
    assert [(one.payload, one.qos) for one in resent(client)] == [(b"1", 1), (b"2", 2)]
    publisher.publish("a/y", b"3", qos=1)
    assert payloads(client) == [b"3"]


@VERSIONS
def test_a_missing_session_is_created(version: int) -> None:
    """A new Client may ask for its Session, too [MQTT5-3.1.2-6], [MQTT311-3.1.2-4]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    assert client.connack is not None
    assert (client.connack.reason_code, client.connack.session_present) == (0, False)
    client.subscribe("t", qos=1)
    client.drop()
    broker.client("p").publish("t", b"1", qos=1)
    assert [one.payload for one in resent(lasting(broker, "c", version))] == [b"1"]


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_the_will_is_published_as_requested(version: int, qos: int, retain: bool) -> None:
    """It has its topic, payload, QoS and RETAIN, and is published when the connection is lost.

    [MQTT5-3.1.2-7], [MQTT5-3.1.2-8], [MQTT5-3.1.2-9], [MQTT5-3.1.2-12], [MQTT5-3.1.2-14], [MQTT5-3.1.2-15],
    [MQTT311-3.1.2-8], [MQTT311-3.1.2-9], [MQTT311-3.1.2-14], [MQTT311-3.1.2-16], [MQTT311-3.1.2-17].
    """
    broker = MemoryBroker()
    watcher = broker.client("w", 5)
    watcher.subscribe(p.SubscriptionRequest("gone", 2, retain_as_published=True))
    client = broker.client("c", version, will=p.Will("gone", b"!", qos, retain))
    assert watcher.messages() == []
    client.drop()
    assert watcher.messages() == [("gone", b"!", qos, retain)]
    late = broker.client("late", 5)
    late.send(p.Subscribe(1, (p.SubscriptionRequest("gone", 2),)))
    assert late.messages() == ([("gone", b"!", qos, True)] if retain else [])


@pytest.mark.parametrize("reason", [0x04, 0x80, 0x98])
@pytest.mark.parametrize("delay", [0, 10])
def test_the_will_is_published_when_the_client_reports_an_error(reason: int, delay: int) -> None:
    """Only DISCONNECT 0x00 deletes it; its delay counts, up to the Session's end [MQTT5-3.1.2-8]."""
    broker = MemoryBroker()
    watcher = broker.client("w", 5)
    watcher.subscribe("gone")
    will = p.Will("gone", b"!", properties=Properties(will_delay_interval=delay))
    lasting(broker, "c", 5, will=will).send(p.Disconnect(reason))
    if delay:
        broker.advance(9)
        assert payloads(watcher) == []
        broker.advance(1)
    assert payloads(watcher) == [b"!"]
    ending = Properties(session_expiry_interval=0)
    lasting(broker, "c", 5, will=will).send(p.Disconnect(reason, ending))
    assert payloads(watcher) == [b"!"]


def test_the_will_is_published_when_the_session_is_taken_over_and_begun_anew() -> None:
    """This ends the old Session at once, so the Will does not wait for its delay [MQTT5-3.1.2-8], [MQTT5-3.1.4-3]."""
    broker = MemoryBroker()
    watcher = broker.client("w", 5)
    watcher.subscribe("gone")
    will = p.Will("gone", b"!", properties=Properties(will_delay_interval=10))
    first_ = lasting(broker, "c", 5, will=will)
    again = lasting(broker, "c", 5, will=will)
    refused(first_, ReasonCode.SESSION_TAKEN_OVER)
    broker.advance(20)
    assert payloads(watcher) == []
    broker.client("c", 5)
    refused(again, ReasonCode.SESSION_TAKEN_OVER)
    assert payloads(watcher) == [b"!"]


@VERSIONS
def test_the_will_is_published_when_the_broker_ends_the_connection(version: int) -> None:
    """The Client has broken a rule, or has been silent [MQTT5-3.1.2-8], [MQTT5-3.1.2-22], [MQTT311-3.1.2-24]."""
    broker = MemoryBroker()
    watcher = broker.client("w")
    watcher.subscribe("gone")
    broker.client("a", version, will=p.Will("gone", b"rules")).send(p.Connack(False))
    assert payloads(watcher) == [b"rules"]
    silent = broker.client("b", version, will=p.Will("gone", b"silent"), keep_alive=10)
    broker.advance(14.9)
    assert not silent.network.closed
    broker.advance(0.2)
    assert silent.network.closed
    assert payloads(watcher) == [b"silent"]


@VERSIONS
def test_a_keep_alive_of_0_sets_no_limit(version: int) -> None:
    """A Client may be silent for any time [MQTT5-3.1.2-22], [MQTT311-3.1.2-24]."""
    broker = MemoryBroker()
    client = broker.client("c", version, keep_alive=0)
    broker.advance(1_000_000)
    client.send(p.Pingreq())
    assert client.packets() == [p.Pingresp()]


@VERSIONS
def test_a_packet_on_its_way_is_no_silence(version: int) -> None:
    """A large packet may take longer than the Keep Alive. A packet that stops ends the connection.

    [MQTT5-3.1.2-22], [MQTT311-3.1.2-24].
    """
    broker = MemoryBroker()
    client = broker.client("c", version, keep_alive=10)
    data = encode(p.Publish("t", b"x" * 100), version)
    for position in range(0, 100, 10):
        client.raw(data[position : position + 10])
        broker.advance(14)
    assert not client.network.closed
    broker.advance(2)
    assert client.network.closed


@VERSIONS
def test_a_will_is_published_once(version: int) -> None:
    """Its publication removes it from the Session, as DISCONNECT does [MQTT5-3.1.2-10], [MQTT311-3.1.2-10]."""
    broker = MemoryBroker()
    watcher = broker.client("w")
    watcher.subscribe("gone")
    lasting(broker, "c", version, will=p.Will("gone", b"1")).drop()
    assert payloads(watcher) == [b"1"]
    lasting(broker, "c", version).drop()
    assert payloads(watcher) == []
    lasting(broker, "c", version, will=p.Will("gone", b"2")).send(p.Disconnect())
    lasting(broker, "c", version).drop()
    broker.advance(2000)
    assert payloads(watcher) == []


@VERSIONS
def test_no_will_no_message(version: int) -> None:
    """Nothing is published if the Will Flag was 0 [MQTT311-3.1.2-12]."""
    broker = MemoryBroker()
    watcher = broker.client("w")
    watcher.subscribe("#")
    broker.client("c", version).drop()
    assert watcher.messages() == []


@VERSIONS
@pytest.mark.parametrize("flags", [0x0A, 0x12, 0x1A, 0x22])
def test_will_flags_without_a_will_are_malformed(version: int, flags: int) -> None:
    """Will QoS and Will Retain must be 0 if the Will Flag is 0.

    [MQTT5-3.1.2-11], [MQTT5-3.1.2-13], [MQTT311-3.1.2-11], [MQTT311-3.1.2-13], [MQTT311-3.1.2-15].
    """
    refused(first(version, connect(version, flags)), ReasonCode.MALFORMED_PACKET)


@VERSIONS
def test_a_will_has_no_qos_3(version: int) -> None:
    """Will QoS is 0, 1 or 2 [MQTT5-3.1.2-12], [MQTT311-3.1.2-14]."""
    data = connect(version, 0x1E, CLIENT + block(version) + string(b"w") + string(b"!"))
    refused(first(version, data), ReasonCode.MALFORMED_PACKET)


WILL, NAME, PASSWORD = 4, 0x80, 0x40


@VERSIONS
@pytest.mark.parametrize("flags", [WILL, NAME, NAME | PASSWORD, WILL | NAME])
def test_every_announced_field_is_required(version: int, flags: int) -> None:
    """A payload without one of these fields is malformed.

    [MQTT5-3.1.2-9], [MQTT5-3.1.2-17], [MQTT5-3.1.2-19], [MQTT311-3.1.2-9], [MQTT311-3.1.2-19], [MQTT311-3.1.2-21].
    """
    payload = CLIENT
    fields = []
    if flags & WILL:
        fields += [block(version) + string(b"w"), string(b"!")]
    if flags & NAME:
        fields.append(string(b"user"))
    if flags & PASSWORD:
        fields.append(string(b"password"))
    for field in fields:
        refused(first(version, connect(version, 2 | flags, payload)), ReasonCode.MALFORMED_PACKET)
        payload += field
    assert not first(version, connect(version, 2 | flags, payload)).network.closed


@VERSIONS
@pytest.mark.parametrize("flags", [0, WILL, NAME, NAME | PASSWORD])
def test_no_other_field_is_allowed(version: int, flags: int) -> None:
    """A payload with more fields is malformed.

    [MQTT5-3.1.2-16], [MQTT5-3.1.2-18], [MQTT311-3.1.2-11], [MQTT311-3.1.2-18], [MQTT311-3.1.2-20].
    """
    payload = CLIENT
    if flags & WILL:
        payload += block(version) + string(b"w") + string(b"!")
    payload += string(b"x") * bool(flags & NAME) + string(b"x") * bool(flags & PASSWORD)
    assert not first(version, connect(version, 2 | flags, payload)).network.closed
    refused(first(version, connect(version, 2 | flags, payload + string(b"more"))), ReasonCode.MALFORMED_PACKET)


@VERSIONS
def test_a_password_without_a_user_name(version: int) -> None:
    """It is malformed in MQTT 3 [MQTT311-3.1.2-22], and allowed in MQTT 5."""
    client = first(version, connect(version, 2 | PASSWORD, CLIENT + string(b"password")))
    assert client.network.closed is (version != 5)


@VERSIONS
def test_the_payload_is_read_in_its_order(version: int) -> None:
    """The order is Client Identifier, Will Properties, Will Topic, Will Message, User Name, Password.

    [MQTT5-3.1.3-1], [MQTT311-3.1.3-1].
    """
    door = Door()
    broker = MemoryBroker(authenticator=door)
    watcher = broker.client("w")
    watcher.subscribe("#")
    client = Client(broker, version)
    payload = b"".join((CLIENT, block(version), *map(string, (b"topic", b"message", b"user", b"password"))))
    client.raw(connect(version, 2 | WILL | NAME | PASSWORD, payload))
    shown = door.shown[-1]
    assert (shown.client_id, shown.username, shown.password) == ("c", "user", b"password")
    client.drop()
    assert watcher.messages() == [("topic", b"message", 0, False)]


@VERSIONS
def test_the_client_identifier_names_the_session(version: int) -> None:
    """Each Client Identifier has its own Session, even if only the case differs [MQTT5-3.1.3-2], [MQTT311-3.1.3-2]."""
    broker = MemoryBroker()
    for name in ("a", "A"):
        client = lasting(broker, name, version)
        client.subscribe(f"to/{name}", qos=1)
        client.drop()
    publisher = broker.client("p")
    for name in ("a", "A"):
        publisher.publish(f"to/{name}", name.encode(), qos=1)
    for name in ("a", "A"):
        assert [one.payload for one in resent(lasting(broker, name, version))] == [name.encode()]


@VERSIONS
def test_a_connect_without_a_client_identifier_field_is_malformed(version: int) -> None:
    """The field is required, even if it is empty [MQTT5-3.1.3-3], [MQTT311-3.1.3-3]."""
    refused(first(version, connect(version, payload=b"")), ReasonCode.MALFORMED_PACKET)
    assert first(version, connect(version, payload=string(b""))).network.closed is (version == 3)


@VERSIONS
@pytest.mark.parametrize("name", ["0", "0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ"])
def test_short_plain_client_identifiers_are_allowed(version: int, name: str) -> None:
    """1 to 23 letters and digits [MQTT5-3.1.3-5], [MQTT311-3.1.3-5]."""
    connack = MemoryBroker().client(name, version).connack
    assert connack is not None
    assert connack.reason_code == 0


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_without_a_name_gets_one_of_its_own(version: int) -> None:
    """It is unique, MQTT 5 Clients get it in CONNACK, and it leads back to the Session.

    [MQTT5-3.1.3-6], [MQTT5-3.1.3-7], [MQTT5-3.2.2-16], [MQTT311-3.1.3-6].
    """
    broker = MemoryBroker()
    properties = Properties(session_expiry_interval=100) if version == 5 else Properties()
    one, other = (broker.client("", version, properties=properties) for _ in range(2))
    assert not one.network.closed
    assert broker.registry.session_count == 2
    if version != 5:
        return
    assert one.connack is not None
    assert other.connack is not None
    name = one.connack.properties.assigned_client_identifier
    assert name
    assert name != other.connack.properties.assigned_client_identifier
    one.subscribe("t", qos=1)
    one.drop()
    broker.client("p").publish("t", b"1", qos=1)
    back = broker.client(name, 5, clean=False)
    assert [publish.payload for publish in resent(back)] == [b"1"]
    assert back.connack is not None
    assert back.connack.properties.assigned_client_identifier is None


@pytest.mark.parametrize(("version", "flags"), [(4, 0), (3, 0), (3, 2)])
def test_no_name_and_no_clean_session(version: int, flags: int) -> None:
    """MQTT 3.1.1 gets return code 2 and a close. MQTT 3.1 always needs a name.

    [MQTT311-3.1.3-7], [MQTT311-3.1.3-8].
    """
    client = first(version, connect(version, flags, string(b"")))
    assert client.network.take() == bytes.fromhex("20 02 00 02")
    assert client.network.closed


def test_user_properties_of_a_will_keep_their_order() -> None:
    """They are published unchanged [MQTT5-3.1.3-10]."""
    broker = MemoryBroker()
    watcher = broker.client("w", 5)
    watcher.subscribe("gone")
    properties = Properties(
        user_properties=(("b", "2"), ("a", "1"), ("b", "1")),
        content_type="text/plain",
        response_topic="r",
        correlation_data=b"\0",
        payload_format_indicator=1,
    )
    broker.client("c", 5, will=p.Will("gone", b"!", properties=properties)).drop()
    assert [one.properties for one in watcher.got(p.Publish)] == [properties]


@VERSIONS
@pytest.mark.parametrize("cut", [1, 5, 9, 11])
def test_a_connect_that_does_not_conform_is_closed(version: int, cut: int) -> None:
    """In MQTT 3 it gets no answer [MQTT5-3.1.4-1], [MQTT311-3.1.4-1]."""
    whole = connect(version)
    data = bytes((0x10, len(whole) - 2 - cut)) + whole[2:-cut]
    client = first(version, data)
    assert client.network.closed
    if version != 5:
        assert client.network.take() == b""


@VERSIONS
@pytest.mark.parametrize("other", [3, 4, 5])
def test_a_second_connection_takes_the_session_over(version: int, other: int) -> None:
    """The first gets 0x8E and nothing more. The second gets the messages in flight, in any version.

    [MQTT5-3.1.4-3], [MQTT311-3.1.4-2].
    """
    broker = MemoryBroker()
    publisher = broker.client("p")
    old = lasting(broker, "c", version)
    old.subscribe("t", qos=1)
    publisher.publish("t", b"1", qos=1)
    (publish,) = old.got(p.Publish)
    new = lasting(broker, "c", other)
    refused(old, ReasonCode.SESSION_TAKEN_OVER)
    assert new.connack is not None
    assert new.connack.session_present is (other != 3)
    assert [(one.payload, one.dup, one.packet_identifier) for one in resent(new)] == [
        (b"1", True, publish.packet_identifier)
    ]
    publisher.publish("t", b"2", qos=1)
    old.send(p.Puback(publish.packet_identifier))
    assert old.packets() == []
    assert payloads(new) == [b"2"]
    assert not new.network.closed


@VERSIONS
def test_an_unauthorized_client_is_closed(version: int) -> None:
    """CONNACK has the Reason Code, and no Session begins [MQTT5-3.1.4-2]."""
    broker = MemoryBroker(authenticator=Door(ReasonCode.NOT_AUTHORIZED))
    client = broker.client("c", version)
    assert client.connack is not None
    assert client.connack.reason_code == (ReasonCode.NOT_AUTHORIZED if version == 5 else 5)
    assert client.network.closed
    assert broker.registry.session_count == 0


@VERSIONS
def test_nothing_is_processed_after_a_refused_connect(version: int) -> None:
    """This is true of packets in the same segment, too [MQTT5-3.1.4-6], [MQTT311-3.1.4-5]."""
    door = Door()
    broker = MemoryBroker(authenticator=door)
    watcher = broker.client("w")
    watcher.subscribe("#")
    door.answer = ReasonCode.BAD_USER_NAME_OR_PASSWORD
    client = Client(broker, version)
    client.send(p.Connect("c", version), p.Publish("t", b"x", 0, True), p.Publish("t", b"x", 1, packet_identifier=1))
    assert [type(one) for one in client.packets()] == [p.Connack]
    assert watcher.messages() == []
    assert broker.retained.totals.refreshed().count == 0


@pytest.mark.parametrize("how", ["live", "queued", "retained", "sent again"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_clients_maximum_packet_size_is_kept_to_the_byte(how: str, qos: int) -> None:
    """A PUBLISH of that size is sent, a larger one is not. Properties that the broker adds count.

    [MQTT5-3.1.2-24], [MQTT5-3.1.2-25].
    """
    broker = MemoryBroker(limits=Limits(mqueue_store_qos0=True))
    small = Properties(maximum_packet_size=50, topic_alias_maximum=9)
    client = lasting(broker, "c", 5, Properties() if how == "sent again" else small)
    subscribe = p.Subscribe(1, (p.SubscriptionRequest("long/topic", 2),), Properties(subscription_identifiers=(300,)))
    if how != "retained":
        client.send(subscribe)
        client.packets()
    if how == "queued":
        client.drop()
    added = Properties(subscription_identifiers=(300,))
    room = 50 - len(encode(p.Publish("long/topic", b"", qos, packet_identifier=1, properties=added), 5))
    publisher = broker.client("p", 5)
    for size in (room, room + 1):
        publisher.publish("long/topic", b"x" * size, qos, how == "retained")
        if how == "retained":
            client.send(subscribe)
        found = resent(client) if how == "queued" else client.got(p.Publish)
        if how in ("queued", "sent again"):
            continue
        assert [len(one.payload) for one in found] == [room] * (size == room)
    if how in ("queued", "sent again"):
        client.drop()
        client = lasting(broker, "c", 5, small)
        again = 0 if how == "sent again" and qos == 0 else 1
        assert [len(one.payload) for one in resent(client)] == [room] * again
        client.messages()
        publisher.publish("long/topic", b"", qos)
        assert payloads(client) == [b""]


@pytest.mark.parametrize(("size", "request_"), [(10, "connect"), (30, "subscribe"), (30, "unsubscribe")])
def test_no_answer_exceeds_the_clients_maximum_packet_size(size: int, request_: str) -> None:
    """CONNACK, SUBACK and UNSUBACK are never larger [MQTT5-3.1.2-24]."""
    client = Client(MemoryBroker(), 5)
    client.send(p.Connect("c", 5, properties=Properties(maximum_packet_size=size)))
    filters = tuple(f"t/{number}" for number in range(50))
    if request_ == "subscribe":
        client.send(p.Subscribe(1, tuple(map(p.SubscriptionRequest, filters))))
    elif request_ == "unsubscribe":
        client.send(p.Unsubscribe(2, filters))
    assert all(len(encode(one, 5)) <= size for one in client.packets())


def test_a_message_too_large_counts_as_delivered() -> None:
    """It does not delay later messages, even with a window of one [MQTT5-3.1.2-25]."""
    broker = MemoryBroker()
    client = broker.client("c", 5, properties=Properties(maximum_packet_size=50, receive_maximum=1))
    client.subscribe("t", qos=2)
    publisher = broker.client("p")
    for qos in (1, 2):
        publisher.publish("t", b"x" * 100, qos=qos)
        publisher.publish("t", b"small", qos=qos)
        assert payloads(client) == [b"small"]


@pytest.mark.parametrize("most", [None, 0, 2])
def test_topic_aliases_stay_within_the_clients_maximum(most: int | None) -> None:
    """Without a Topic Alias Maximum there are none. No alias is above it, and none is 0.

    [MQTT5-3.1.2-26], [MQTT5-3.1.2-27], [MQTT5-3.3.2-8], [MQTT5-3.3.2-11].
    """
    broker = MemoryBroker()
    client = broker.client("c", 5, properties=Properties(topic_alias_maximum=most))
    client.subscribe("#", qos=1)
    sent = [f"a/long/topic/{number % 4}" for number in range(12)]
    for topic in sent:
        broker.client("p").publish(topic, qos=1)
    known: dict[int, str] = {}
    seen = []
    for publish in client.got(p.Publish):
        alias = publish.properties.topic_alias
        assert alias is None or 1 <= alias <= (most or 0)
        if alias is not None and publish.topic:
            known[alias] = publish.topic
        seen.append(publish.topic or known[alias or 0])
    assert seen == sent


@pytest.mark.parametrize("asked", [None, 0, 1])
def test_no_client_gets_response_information(asked: int | None) -> None:
    """The Server may leave it out, whatever the Client asks for [MQTT5-3.1.2-28]."""
    broker = MemoryBroker()
    connack = broker.client("c", 5, properties=Properties(request_response_information=asked)).connack
    assert connack is not None
    assert connack.properties.response_information is None


def test_no_problem_information_for_a_client_that_does_not_want_it() -> None:
    """Only CONNACK, DISCONNECT and published messages may have a Reason String or User Properties [MQTT5-3.1.2-29]."""
    broker = MemoryBroker(authorizer=Forbidding("secret"))
    client = broker.client("c", 5, properties=TERSE)
    client.send(
        p.Subscribe(1, (p.SubscriptionRequest("secret"),)),
        p.Unsubscribe(2, ("none",)),
        p.Publish("secret", b"", 1, packet_identifier=3),
        p.Publish("secret", b"", 2, packet_identifier=4),
        p.Pubrel(99),
        p.Pubrec(99),
    )
    answers = client.packets()
    assert [type(one) for one in answers] == [p.Suback, p.Unsuback, p.Puback, p.Pubrec, p.Pubcomp, p.Pubrel]
    for one in answers:
        assert isinstance(one, p.Suback | p.Unsuback | p.Puback | p.Pubrec | p.Pubcomp | p.Pubrel)
        assert (one.properties.reason_string, one.properties.user_properties) == (None, ())
