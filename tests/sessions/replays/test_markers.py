"""Markers of the ends of replays: when they come, where, what they tell, and that none is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from holdfast.core.messages import ApplicationMessage
from holdfast.identity.interfaces import Principal
from holdfast.sessions.limits import Limits
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode
from holdfast.wire import packets as p
from tests.authorizers import Filtering, Permissions
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker

KEPT = Properties(session_expiry_interval=1000, user_properties=(("holdfast", "?"),))
TAKES_PART = Properties(user_properties=(("holdfast", "?"),))


def asking(topic: str = "my/end", *others: tuple[str, str], identifier: int | None = None) -> Properties:
    """Return the properties of a SUBSCRIBE that asks for markers."""
    identifiers = () if identifier is None else (identifier,)
    return Properties(user_properties=(("holdfast-replay-end", topic), *others), subscription_identifiers=identifiers)


def subscribe(
    client: Client, *filters: str | p.SubscriptionRequest, properties: Properties = NO_PROPERTIES, qos: int = 0
) -> list[p.Packet]:
    """Subscribe, and return all that comes."""
    requests = tuple(f if isinstance(f, p.SubscriptionRequest) else p.SubscriptionRequest(f, qos) for f in filters)
    client.send(p.Subscribe(client.identifier(), requests, properties))
    return client.packets()


def publishes(packets: list[p.Packet]) -> list[p.Publish]:
    """Return the PUBLISH packets."""
    return [packet for packet in packets if isinstance(packet, p.Publish)]


def told(packet: p.Publish) -> dict[str, Any]:
    """Return what a marker tells."""
    found: dict[str, Any] = json.loads(packet.payload)
    return found


def retaining(broker: MemoryBroker, count: int = 3) -> None:
    """Retain messages ``t/0`` and so on, with QoS 1."""
    publisher = broker.client("publisher")
    for number in range(count):
        publisher.publish(f"t/{number}", b"old", 1, True)


def test_marker_comes_after_the_last_retained_message() -> None:
    """The marker is the last packet of the replay, tells its size, and has the filter's Subscription Identifier."""
    broker = MemoryBroker()
    retaining(broker)
    client = broker.client("c", 5, properties=TAKES_PART)
    subscribe(client, "my/end")
    suback, *came = subscribe(client, "t/#", properties=asking(identifier=7))
    assert isinstance(suback, p.Suback)
    assert suback.properties is NO_PROPERTIES
    *replayed, marker = publishes(came)
    assert [packet.topic for packet in replayed] == ["t/0", "t/1", "t/2"]
    assert (marker.topic, marker.qos, marker.retain) == ("my/end", 0, False)
    assert marker.properties.subscription_identifiers == (7,)
    at = "2027-01-15T08:00:00.000Z"
    found = told(marker)
    assert found.pop("bytes") > 3 * len("t/0old")
    assert found == {
        "filter": "t/#", "count": 3, "token": None, "at": at, "replayed": True, "resumed": False, "complete": True,
    }  # fmt: skip


def test_empty_replay_has_a_marker_too() -> None:
    """A filter without retained messages gets its marker, with a count of 0."""
    client = MemoryBroker().client("c", 5, properties=TAKES_PART)
    (marker,) = publishes(subscribe(client, "t/#", "my/end", properties=asking()))[:1]
    assert told(marker)["count"] == 0
    assert told(marker)["complete"]


def test_each_filter_of_a_subscribe_has_its_marker() -> None:
    """The filters of one SUBSCRIBE get a marker each."""
    broker = MemoryBroker()
    retaining(broker)
    client = broker.client("c", 5, properties=TAKES_PART)
    came = publishes(subscribe(client, "t/0", "t/+", "my/+", properties=asking()))
    markers = {told(packet)["filter"]: told(packet)["count"] for packet in came if packet.topic == "my/end"}
    assert markers == {"t/0": 1, "t/+": 3, "my/+": 0}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_subscription_to_replay_end_brings_markers(version: int) -> None:
    """Who subscribes to $replay/end has markers there, in any version, and none about that Subscription itself."""
    broker = MemoryBroker()
    retaining(broker)
    client = broker.client("c", version)
    assert publishes(subscribe(client, "$replay/end")) == []
    *_, marker = publishes(subscribe(client, "t/#"))
    assert marker.topic == "$replay/end"
    assert told(marker)["count"] == 3


def test_nobody_else_publishes_to_replay_end() -> None:
    """A client that publishes below $replay is refused, and no subscriber gets it."""
    broker = MemoryBroker()
    client = broker.client("c", 5)
    subscribe(client, "$replay/#")
    client.publish("$replay/end", b"lie", 1)
    (puback,) = client.packets()
    assert isinstance(puback, p.Puback)
    assert puback.reason_code == ReasonCode.NOT_AUTHORIZED


def test_no_marker_without_a_matching_subscription() -> None:
    """Without a Subscription that matches the topic there is no marker, and the Reason String says so."""
    broker = MemoryBroker()
    retaining(broker)
    client = broker.client("c", 5, properties=TAKES_PART)
    suback, *came = subscribe(client, "t/#", properties=asking())
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (0,)
    assert suback.properties.reason_string == "no marker: no subscription matches the topic in holdfast-replay-end"
    assert len(came) == 3


@pytest.mark.parametrize(
    "properties",
    [
        asking("my/end", ("holdfast-replay-end", "my/end")),
        asking("my/#"),
        asking(""),
        Properties(user_properties=(("holdfast-unknown", "1"),)),
    ],
)
def test_bad_request_refuses_every_filter(properties: Properties) -> None:
    """A request that is given twice, has a bad value or is unknown is refused with 0x83, and nothing is subscribed."""
    client = MemoryBroker().client("c", 5, properties=TAKES_PART)
    (suback,) = subscribe(client, "t/#", "my/end", properties=properties)
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (0x83, 0x83)
    assert (suback.properties.reason_string or "").startswith("User Property holdfast-")
    client.publish("t/1")
    assert client.packets() == []


def test_shared_subscription_and_retain_handling_are_not_replayed() -> None:
    """Where no replay is due, the marker says so at once."""
    broker = MemoryBroker()
    retaining(broker)
    client = broker.client("c", 5, properties=TAKES_PART)
    without = p.SubscriptionRequest("t/#", 0, retain_handling=2)
    came = publishes(subscribe(client, "my/end", "$share/g/t/#", without, properties=asking()))
    found = {told(packet)["filter"]: told(packet) for packet in came}
    assert {key: (each["replayed"], each["complete"], each.get("why")) for key, each in found.items()} == {
        "my/end": (True, True, None),
        "$share/g/t/#": (False, False, "not replayed"),
        "t/#": (False, False, "not replayed"),
    }


def test_message_that_is_too_large_makes_the_replay_incomplete() -> None:
    """A retained message above the Maximum Packet Size is left out, and the marker tells it."""
    broker = MemoryBroker()
    broker.client("publisher").publish("t/large", bytes(500), 1, True)
    client = broker.client("c", 5, properties=Properties(user_properties=(("holdfast", "?"),), maximum_packet_size=400))
    (marker,) = publishes(subscribe(client, "my/end", "t/#", properties=asking()))[1:]
    assert told(marker)["complete"] is False
    assert told(marker)["why"] == "too large"


def test_live_messages_that_wait_come_before_the_marker() -> None:
    """A marker with QoS 1 has its place in the window, so what was queued before the SUBSCRIBE leaves first."""
    broker = MemoryBroker(limits=Limits(max_inflight=1))
    client = broker.client("c", 5, properties=TAKES_PART)
    subscribe(client, "live", "my/end", qos=1)
    publisher = broker.client("publisher")
    for _ in range(3):
        publisher.publish("live", b"x", 1)
    came = publishes(subscribe(client, "t/#", properties=asking(), qos=1))
    client.send(*(p.Puback(packet.packet_identifier) for packet in came))
    topics = [packet.topic for packet in came] + [topic for topic, _, _, _ in client.messages()]
    assert topics == ["live", "live", "live", "my/end"]


class Interrupted:
    """A participant that has got the first of five messages, with a window of one."""

    def __init__(self, place: Path, qos: int, marker_qos: int) -> None:
        self.broker = RestartableBroker(place, limits=Limits(max_inflight=1))
        retaining(self.broker, 5)
        publisher = self.broker.client("two")
        for number in range(5):
            publisher.publish(f"t/{number}", b"old", 2, True)
            publisher.messages()
        self.client = self.connect()
        subscribe(self.client, p.SubscriptionRequest("my/end", marker_qos))
        self.came = publishes(subscribe(self.client, "t/#", properties=asking(), qos=qos))

    def connect(self) -> Client:
        return self.broker.client("c", 5, clean=False, properties=KEPT)

    def disconnect(self) -> None:
        self.client.drop()
        self.back()

    def kill(self) -> None:
        self.broker.commit()
        self.broker = self.broker.restart()
        self.back()

    def back(self) -> None:
        self.client = self.connect()
        self.came = publishes(self.client.backlog)

    def rest(self) -> list[tuple[str, bytes]]:
        """Acknowledge all that comes, and return topics and payloads."""
        found = [(packet.topic, packet.payload) for packet in self.came]
        for packet in self.came:
            if packet.qos:
                self.client.send((p.Puback if packet.qos == 1 else p.Pubrec)(packet.packet_identifier))
        for _ in range(20):
            found += [(topic, payload) for topic, payload, _, _ in self.client.messages()]
            self.broker.advance(1)
        return found


@pytest.mark.parametrize("end", [Interrupted.disconnect, Interrupted.kill])
@pytest.mark.parametrize("marker_qos", [0, 1, 2])
@pytest.mark.parametrize("qos", [1, 2])
def test_pending_marker_survives(tmp_path: Path, qos: int, marker_qos: int, end: Callable[[Interrupted], None]) -> None:
    """A replay that is interrupted, also by kill -9, ends with its marker, which tells that it was resumed."""
    scene = Interrupted(tmp_path / "db", qos, marker_qos)
    end(scene)
    came = scene.rest()
    topics = [topic for topic, _ in came]
    assert topics[-1] == "my/end"
    assert topics.count("my/end") == 1
    assert {"t/1", "t/2", "t/3", "t/4"} <= set(topics)
    marker = json.loads(came[-1][1])
    assert marker["resumed"]
    assert marker["complete"]
    end(scene)
    assert scene.rest() == []


@pytest.mark.parametrize("marker_qos", [1, 2])
def test_unacknowledged_marker_comes_again_after_a_kill(tmp_path: Path, marker_qos: int) -> None:
    """A marker that its client has not acknowledged when the broker is killed comes again, behind what comes again."""
    broker = RestartableBroker(tmp_path / "db")
    retaining(broker)
    client = broker.client("c", 5, clean=False, properties=KEPT)
    subscribe(client, p.SubscriptionRequest("my/end", marker_qos))
    came = publishes(subscribe(client, "t/#", properties=asking(), qos=1))
    client.send(*(p.Puback(packet.packet_identifier) for packet in came if packet.topic != "my/end"))
    broker.advance(2)
    assert "my/end" in [packet.topic for packet in [*came, *publishes(client.packets())]]
    broker.commit()
    broker = broker.restart()
    client = broker.client("c", 5, clean=False, properties=KEPT)
    assert [packet.topic for packet in publishes(client.backlog)][-1:] == ["my/end"]


def test_marker_of_a_shared_subscription_survives_a_kill(tmp_path: Path) -> None:
    """A marker without a replay is Session State too."""
    broker = RestartableBroker(tmp_path / "db")
    retaining(broker)
    client = broker.client("c", 5, clean=False, properties=KEPT)
    subscribe(client, "my/end", qos=1)
    subscribe(client, "$share/g/t/#", properties=asking(), qos=1)
    broker.commit()
    broker = broker.restart()
    client = broker.client("c", 5, clean=False, properties=KEPT)
    (marker,) = publishes(client.backlog)
    assert told(marker)["filter"] == "$share/g/t/#"
    assert told(marker)["replayed"] is False


def test_marker_needs_its_subscription_to_the_end() -> None:
    """A client that unsubscribes from the marker's topic during the replay gets no marker."""
    broker = MemoryBroker(limits=Limits(max_inflight=1))
    retaining(broker)
    client = broker.client("c", 5, properties=TAKES_PART)
    subscribe(client, "my/end")
    (first,) = publishes(subscribe(client, "t/#", properties=asking(), qos=1))
    client.send(p.Unsubscribe(client.identifier(), ("my/end",)))
    client.packets()
    client.send(p.Puback(first.packet_identifier))
    assert [topic for topic, _, _, _ in client.messages()] == ["t/1", "t/2"]


def test_repeated_subscribe_marks_the_replay_that_runs() -> None:
    """A SUBSCRIBE that begins no replay of its own gets its marker at the end of the one that runs."""
    broker = MemoryBroker(limits=Limits(max_inflight=1))
    retaining(broker)
    client = broker.client("c", 5, properties=TAKES_PART)
    subscribe(client, "my/end")
    (first,) = publishes(subscribe(client, "t/#", qos=1))
    assert publishes(subscribe(client, p.SubscriptionRequest("t/#", 1, retain_handling=2), properties=asking())) == []
    client.send(p.Puback(first.packet_identifier))
    *_, (topic, payload, _, _) = client.messages()
    assert topic == "my/end"
    assert json.loads(payload)["replayed"]


@pytest.mark.parametrize("end", [None, Interrupted.disconnect, Interrupted.kill])
def test_a_marker_that_is_due_follows_the_replay_that_replaces_its_own(
    tmp_path: Path, end: Callable[[Interrupted], None] | None
) -> None:
    """The new SUBSCRIBE asks for no marker. There is one marker, and it tells of the new replay."""
    scene = Interrupted(tmp_path / "db", 1, 1)
    (first,) = scene.came
    scene.came = [first, *publishes(subscribe(scene.client, "t/#", qos=1))]
    if end is not None:
        end(scene)
    came = scene.rest()
    assert [topic for topic, _ in came].count("my/end") == 1
    topic, payload = came[-1]
    assert topic == "my/end"
    marker = json.loads(payload)
    assert (marker["complete"], marker["replayed"], marker["resumed"]) == (True, True, end is not None)
    if end is None:
        assert marker["count"] == 5
    assert {f"t/{number}" for number in range(5)} <= {topic for topic, _ in came}


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_marker_comes_again_with_a_new_replay_only_if_it_is_unacknowledged(
    tmp_path: Path, acknowledged: bool
) -> None:
    """The Client cannot get a marker twice that it has acknowledged."""
    broker = RestartableBroker(tmp_path / "db")
    retaining(broker)
    client = broker.client("c", 5, clean=False, properties=KEPT)
    subscribe(client, "my/end", qos=1)
    came = publishes(subscribe(client, "t/#", properties=asking(), qos=1))
    assert came[-1].topic == "my/end"
    client.send(*(p.Puback(packet.packet_identifier) for packet in came if acknowledged or packet.topic != "my/end"))
    again = publishes(subscribe(client, "t/#", qos=1))
    assert [packet.topic for packet in again] == ["t/0", "t/1", "t/2"] + ["my/end"] * (not acknowledged)
    broker.kill()


def running_replay(properties: Properties) -> tuple[Client, p.Publish]:
    """Return a client with a window of one, whose replay has left out ``t/0`` and sent ``t/1``, and that packet."""
    broker = MemoryBroker(limits=Limits(max_inflight=1))
    retaining(broker)
    broker.client("other").publish("t/0", bytes(500), 1, True)
    client = broker.client("c", 5, properties=Properties(user_properties=(("holdfast", "?"),), maximum_packet_size=400))
    subscribe(client, "my/end")
    (first,) = publishes(subscribe(client, "t/#", qos=1, properties=properties))
    assert first.topic == "t/1"
    return client, first


@pytest.mark.parametrize(
    ("earlier", "count", "why"),
    [(asking(), 2, "too large"), (NO_PROPERTIES, 1, "asked for during the replay")],
    ids=["marker", "no marker"],
)
def test_repeated_subscribe_does_not_forget_what_was_left_out(earlier: Properties, count: int, why: str) -> None:
    """The marker of a repeated SUBSCRIBE tells of the whole replay, or that nobody has noted its beginning."""
    client, first = running_replay(earlier)
    subscribe(client, p.SubscriptionRequest("t/#", 1, retain_handling=2), properties=asking())
    client.send(p.Puback(first.packet_identifier))
    *_, (topic, payload, _, _) = client.messages()
    found = json.loads(payload)
    assert topic == "my/end"
    assert (found["count"], found["complete"], found["why"]) == (count, False, why)


def test_partial_permission_makes_the_replay_incomplete() -> None:
    """Where the client may receive only a part of what the filter matches, the marker tells it."""
    rules = Permissions()
    rules.deny("receive", "t/1")
    broker = MemoryBroker(authorizer=rules)
    retaining(broker)
    client = broker.client("c", 5, properties=TAKES_PART)
    *replayed, marker = publishes(subscribe(client, "my/end", "t/#", properties=asking()))[1:]
    assert [packet.topic for packet in replayed] == ["t/0", "t/2"]
    assert (told(marker)["count"], told(marker)["complete"], told(marker)["why"]) == (2, False, "not authorized")


def test_rules_do_not_take_replay_end_away() -> None:
    """Rules that deny everything leave the Subscription to $replay/end, also when they change, and its markers."""
    rules = Permissions()
    rules.deny("subscribe", "$replay/end")
    rules.deny("receive", "$replay/end")
    broker = MemoryBroker(authorizer=rules)
    kept = Properties(session_expiry_interval=1000)
    client = broker.client("c", 5, clean=False, properties=kept)
    suback, *_ = subscribe(client, "$replay/end", "t/#", qos=1)
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (1, 1)
    client.drop()
    rules.deny("subscribe", "other")
    broker.settle()
    client = broker.client("c", 5, clean=False, properties=kept)
    assert "$replay/end" in [packet.topic for packet in publishes(client.backlog)]  # sent again
    client.messages()
    *_, marker = publishes(subscribe(client, "t/1", qos=1))
    assert marker.topic == "$replay/end"


class Late(Filtering):
    """Answers about each delivery when a test says so."""

    def __init__(self) -> None:
        self.answers: list[Deferred[bool]] = []

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        answer: Deferred[bool] = Deferred()
        self.answers.append(answer)
        return answer


def test_marker_waits_for_late_answers_of_the_authorizer() -> None:
    """The marker comes behind messages that the authorizer allows late, and that wait in the queue then."""
    rules = Late()
    broker = MemoryBroker(authorizer=rules, limits=Limits(max_inflight=1))
    retaining(broker)
    client = broker.client("c", 4)
    assert publishes(subscribe(client, "$replay/end", "t/#", qos=1)) == []
    came = []
    for _ in range(4):
        for answer in rules.answers:
            answer.callback(True)
        rules.answers.clear()
        broker.settle()
        came += [topic for topic, _, _, _ in client.messages()]
    assert came == ["t/0", "t/1", "t/2", "$replay/end"]


def test_marker_with_qos_2_waits_for_acknowledgements(tmp_path: Path) -> None:
    """It is stored, and would come before messages of its replay that are sent again after a kill."""
    broker = RestartableBroker(tmp_path / "db")
    retaining(broker)
    client = broker.client("c", 5, clean=False, properties=KEPT)
    subscribe(client, p.SubscriptionRequest("my/end", 2))
    came = publishes(subscribe(client, "t/#", properties=asking(), qos=1))
    assert [packet.topic for packet in came] == ["t/0", "t/1", "t/2"]
    client.send(p.Puback(came[0].packet_identifier), p.Puback(came[1].packet_identifier))
    broker.commit()
    assert client.packets() == []
    client.send(p.Puback(came[2].packet_identifier))
    broker.commit()
    assert [packet.topic for packet in client.got(p.Publish)] == ["my/end"]


def test_marker_waits_for_replayed_messages_in_the_queue() -> None:
    """Messages that the authorizer allows late are queued where the window has no room for their bytes."""
    rules = Late()
    broker = MemoryBroker(authorizer=rules, limits=Limits(max_inflight_bytes=2500))
    publisher = broker.client("publisher")
    for number in range(6):
        publisher.publish(f"t/{number}", bytes(800), 1, True)
    client = broker.client("c", 4)
    subscribe(client, "$replay/end", "t/#", qos=1)
    came = []
    for _ in range(10):
        for answer in rules.answers:
            answer.callback(True)
        rules.answers.clear()
        broker.settle()
        came += [topic for topic, _, _, _ in client.messages()]
    assert came == [*(f"t/{number}" for number in range(6)), "$replay/end"]


@pytest.mark.parametrize("marker_qos", [0, 1, 2])
def test_marker_waits_for_messages_that_await_their_commit(tmp_path: Path, marker_qos: int) -> None:
    """In a stored Session, a message with QoS 2 leaves after its commit: replayed or live, the marker comes later."""
    broker = RestartableBroker(tmp_path / "db")
    publisher = broker.client("publisher")
    for number in range(3):
        publisher.publish(f"t/{number}", b"old", 2, True)
        publisher.messages()
    broker.commit()
    client = broker.client("c", 5, clean=False, properties=KEPT)
    subscribe(client, p.SubscriptionRequest("my/end", marker_qos))
    came = publishes(subscribe(client, "t/#", properties=asking(), qos=2))
    for _ in range(5):
        broker.commit()
        broker.advance(1)
        packets = client.packets()
        client.send(*(p.Pubcomp(packet.packet_identifier) for packet in packets if isinstance(packet, p.Pubrel)))
        came += publishes(packets)
        client.send(*(p.Pubrec(packet.packet_identifier) for packet in came if packet.qos == 2))
    assert [packet.topic for packet in came] == ["t/0", "t/1", "t/2", "my/end"]
