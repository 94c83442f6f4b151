"""Taking part in what the broker offers beyond MQTT: the question, the answer and the refusals."""

from __future__ import annotations

import pytest

from holdfast.core.extensions import ANSWER
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker

QUESTION = ("holdfast", "?")


def connack_of(*properties: tuple[str, str], problems: int | None = None, most: int | None = None) -> p.Connack:
    """Connect with these User Properties, and return CONNACK."""
    client = Client(MemoryBroker(), 5)
    wishes = Properties(user_properties=properties, request_problem_information=problems, maximum_packet_size=most)
    connack = client.connect("c", properties=wishes)
    assert connack is not None
    return connack


def test_connack_tells_the_features_to_who_asks() -> None:
    """Who asks is told the features, also with Request Problem Information 0 [MQTT-3.1.2-29]; others are not."""
    assert connack_of(QUESTION).properties.user_properties == (ANSWER,)
    assert connack_of(QUESTION, problems=0).properties.user_properties == (ANSWER,)
    assert connack_of(("region", "north")).properties.user_properties == ()


@pytest.mark.parametrize("asked", [(QUESTION, QUESTION), (("holdfast", "1"),)])
def test_another_question_is_refused(asked: tuple[tuple[str, str], ...]) -> None:
    """A client that asks twice or for something else is refused with 0x83, and told what is allowed."""
    connack = connack_of(*asked)
    assert connack.reason_code == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    assert (connack.properties.reason_string or "").startswith("User Property holdfast ")


def test_client_that_cannot_be_told_does_not_take_part() -> None:
    """Where CONNACK has no room for the answer, the client connects without it [MQTT-3.2.2-20]."""
    connack = connack_of(QUESTION, most=24)
    assert connack.reason_code == ReasonCode.SUCCESS
    assert connack.properties.user_properties == ()


@pytest.mark.parametrize("name", ["holdfast-stored-at", "holdfast-revision", "holdfast-publisher"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_participant_cannot_publish_what_the_broker_tells(name: str, qos: int) -> None:
    """Such a message is refused with 0x99, with QoS 0 without a word; it is neither stored nor delivered."""
    broker = MemoryBroker()
    other = broker.client("other", 5)
    other.subscribe("t")
    client = broker.client("c", 5, properties=Properties(user_properties=(QUESTION,)))
    client.publish("t", b"x", qos, True, Properties(user_properties=((name, "1"),)))
    answers = client.packets()
    assert [(packet.reason_code, packet.properties.reason_string) for packet in answers] == (  # type: ignore[union-attr]
        [(0x99, f"User Property {name} is told by the broker only")] if qos else []
    )
    assert other.packets() == []
    assert broker.client("late", 5).subscribe("t")[1:] == []
    client.publish("t", b"y", qos)  # nothing else is lost
    assert [payload for _, payload, _, _ in other.messages()] == [b"y"]
    assert broker.counters.messages_rejected_properties == 1


@pytest.mark.parametrize("name", ["holdfast-if-revison", "holdfast-if-Absent", "holdfast-conflate", "holdfast-"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_misspelt_condition_stores_nothing(name: str, qos: int) -> None:
    """A PUBLISH with a request that is not offered is refused with 0x83: it has no effect without its condition."""
    broker = MemoryBroker()
    client = broker.client("c", 5, properties=Properties(user_properties=(QUESTION,)))
    client.publish("t", b"x", qos, True, Properties(user_properties=((name, "1"),)))
    answers = client.packets()
    assert [packet.reason_code for packet in answers] == ([0x83] if qos else [])  # type: ignore[union-attr]
    assert all(
        (packet.properties.reason_string or "").startswith(  # type: ignore[union-attr]
            f"User Property {name} is not offered for PUBLISH, only holdfast-if-absent"
        )
        for packet in answers
    )
    assert broker.client("late", 5).subscribe("t")[1:] == []
    assert broker.counters.messages_rejected_properties == 1


@pytest.mark.parametrize("name", ["holdfast-revision", "holdfast-conflate", "holdfast-if-absentt", "holdfast"])
def test_other_clients_publish_any_property_that_asks_for_nothing(name: str) -> None:
    """The messages of clients that do not take part are forwarded unaltered [MQTT-3.3.2-17]."""
    broker = MemoryBroker()
    other = broker.client("other", 5)
    other.subscribe("t")
    told = Properties(user_properties=((name, "7"), ("unit", "C")))
    broker.client("c", 5).publish("t", b"x", 1, False, told)
    (packet,) = other.got(p.Publish)
    assert packet.properties.user_properties == told.user_properties


@pytest.mark.parametrize(
    "name", ["holdfast-if-absent", "holdfast-if-revision", "holdfast-if-payload-sha256", "holdfast-retain-while"]
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_that_does_not_take_part_is_not_told_that_its_request_was_heard(name: str, qos: int) -> None:
    """It would take the success of the PUBLISH for that of its condition. Refused with 0x83, QoS 0 dropped; counted."""
    broker = MemoryBroker()
    other = broker.client("other", 5)
    other.subscribe("t")
    client = broker.client("c", 5)
    client.publish("t", b"x", qos, True, Properties(user_properties=(("unit", "C"), (name, ""))))
    answers = client.packets()
    assert [(packet.reason_code, packet.properties.reason_string) for packet in answers] == (  # type: ignore[union-attr]
        [(0x83, f"User Property {name} needs User Property holdfast = ? in CONNECT")] if qos else []
    )
    assert other.packets() == []
    assert broker.client("late", 5).subscribe("t")[1:] == []
    assert broker.counters.messages_rejected_properties == 1
    client.publish("t", b"y", qos)  # nothing else is lost
    assert [payload for _, payload, _, _ in other.messages()] == [b"y"]


@pytest.mark.parametrize("name", ["holdfast-replay-end", "holdfast-replay-since", "holdfast-conflate"])
def test_a_subscribe_with_a_request_needs_to_take_part(name: str) -> None:
    """SUBACK refuses each Topic Filter with 0x83. A name that asks for nothing is ignored."""
    broker = MemoryBroker()
    client = broker.client("c", 5)
    for asked, codes, reason in (
        (name, (0x83, 0x83), f"User Property {name} needs User Property holdfast = ? in CONNECT"),
        ("holdfast-other", (0, 0), None),
    ):
        filters = (p.SubscriptionRequest("a", 0), p.SubscriptionRequest("b", 0))
        client.send(p.Subscribe(1, filters, Properties(user_properties=((asked, "1"),))))
        (suback,) = client.got(p.Suback)
        assert (suback.reason_codes, suback.properties.reason_string) == (codes, reason)
        assert len(broker.registry._sessions["c"].subscriptions) == codes.count(0)


@pytest.mark.parametrize("name", ["holdfast-if-absent", "holdfast-retain-while"])
@pytest.mark.parametrize("asked", [QUESTION, ("unit", "C")])
def test_a_will_has_no_request_whoever_sends_it(name: str, asked: tuple[str, str]) -> None:
    client = Client(MemoryBroker(), 5)
    will = p.Will("t", b"gone", properties=Properties(user_properties=((name, ""),)))
    connack = client.connect("c", will=will, properties=Properties(user_properties=(asked,)))
    assert connack is not None
    assert connack.reason_code == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


def test_will_of_a_participant_cannot_tell_what_the_broker_tells() -> None:
    """Such a Will is published later, so its CONNECT is refused with 0x99; that of another client is not."""
    will = p.Will("t", b"gone", properties=Properties(user_properties=(("holdfast-revision", "7"),)))
    for asked, code in ((QUESTION, ReasonCode.PAYLOAD_FORMAT_INVALID), (("unit", "C"), ReasonCode.SUCCESS)):
        client = Client(MemoryBroker(), 5)
        connack = client.connect("c", will=will, properties=Properties(user_properties=(asked,)))
        assert connack is not None
        assert connack.reason_code == code
