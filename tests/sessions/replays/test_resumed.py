"""A resumed replay: what was queued while its client was away does not come twice, and nothing is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.core.messages import ApplicationMessage, ChangeOrigin, RetainedChange, RetainedMessage
from holdfast.core.units import Rate
from holdfast.identity.interfaces import IAuthorizer, Principal
from holdfast.retained.limits import FlowSettings
from holdfast.sessions.limits import Limits, WhenFull
from holdfast.wire import NO_PROPERTIES, Properties
from holdfast.wire import packets as p
from tests.authorizers import Filtering
from tests.doubles import Client, MemoryBroker
from tests.sessions.places import place
from tests.sessions.restartable import RestartableBroker

#: one message in flight at a time, so a replay is interrupted in its midst
ONE = Limits(max_inflight=1)


class Scene:
    """Five retained messages ``t/0`` to ``t/4``, and a client that went away after it got the first one."""

    def __init__(self, broker: MemoryBroker, qos: int = 1, no_local: bool = False) -> None:
        self.broker = broker
        self.publisher = broker.client("publisher")
        for number in range(5):
            self.publish(f"t/{number}", b"old")
        self.client = self.connect()
        self.client.subscribe(p.SubscriptionRequest("t/#", qos, no_local))
        self.client.drop()

    def connect(self) -> Client:
        properties = Properties(session_expiry_interval=1000)
        return self.broker.client("c", 5, clean=False, properties=properties)

    def restart(self) -> None:
        assert isinstance(self.broker, RestartableBroker)
        self.broker = self.broker.restart()

    def publish(self, topic: str, payload: bytes = b"new", qos: int = 1) -> None:
        self.publisher.publish(topic, payload, qos, True)

    def received(self) -> list[tuple[str, bytes]]:
        """Connect again. Return topics and payloads of all that comes."""
        client = self.connect()
        came = client.backlog
        found = [(packet.topic, packet.payload) for packet in came if isinstance(packet, p.Publish)]
        client.send(*(p.Puback(packet.packet_identifier) for packet in came if isinstance(packet, p.Publish)))
        for _ in range(20):
            found += [(topic, payload) for topic, payload, _, _ in client.messages()]
        self.client = client
        return found


def topics(found: list[tuple[str, bytes]]) -> list[str]:
    return sorted(topic for topic, _ in found)


ALL = [f"t/{number}" for number in range(5)]


def test_a_message_that_was_queued_does_not_come_again_with_the_replay() -> None:
    scene = Scene(MemoryBroker(limits=ONE))
    scene.publish("t/3")
    scene.publish("t/9")
    found = scene.received()
    assert topics(found) == [*ALL, "t/9"]
    assert ("t/3", b"new") in found


def test_after_a_second_interruption_too() -> None:
    scene = Scene(MemoryBroker(limits=ONE))
    scene.publish("t/3")
    scene.connect().drop()
    scene.publish("t/4")
    assert topics(scene.received()) == ALL


def test_a_qos_0_message_comes_with_the_replay() -> None:
    scene = Scene(MemoryBroker(limits=ONE))
    scene.publish("t/4", qos=0)
    found = scene.received()
    assert ("t/4", b"new") in found
    assert topics(found) == ALL


def test_with_upgrade_qos_a_qos_0_message_is_queued_and_does_not_come_again() -> None:
    scene = Scene(MemoryBroker(limits=Limits(max_inflight=1, upgrade_qos=True)))
    scene.publish("t/4", qos=0)
    assert topics(scene.received()) == ALL


def lost_by_dropping(scene: Scene) -> None:
    for number in range(3, 30):
        scene.publish(f"other/{number}")


LOSSES: dict[str, tuple[Limits, Callable[[Scene], None]]] = {
    "drop_oldest": (Limits(max_inflight=1, max_mqueue_len=2), lost_by_dropping),
    "drop_newest": (Limits(max_inflight=1, max_mqueue_len=2, mqueue_full=WhenFull.DROP_NEWEST), lost_by_dropping),
}


@pytest.mark.parametrize("how", list(LOSSES))
def test_if_the_queue_has_lost_a_message_nothing_is_left_out(how: str) -> None:
    """A repeat is allowed then."""
    limits, lose = LOSSES[how]
    scene = Scene(MemoryBroker(limits=limits))
    client = scene.connect()
    client.subscribe("other/#", qos=1)
    client.drop()
    if how == "drop_newest":
        lose(scene)
        scene.publish("t/3")
    else:
        scene.publish("t/3")
        lose(scene)
    assert ("t/3", b"new") in scene.received()


def test_a_message_that_was_too_large_for_one_connection_is_not_left_out_on_the_next() -> None:
    broker = MemoryBroker(limits=ONE)
    scene = Scene(broker)
    scene.publish("t/4", b"large" * 100)
    properties = Properties(session_expiry_interval=1000, maximum_packet_size=100)
    small = broker.client("c", 5, clean=False, properties=properties)
    packet = next(packet for packet in small.backlog if isinstance(packet, p.Publish))
    small.send(p.Puback(packet.packet_identifier))
    assert broker.counters.messages_dropped_too_large
    small.drop()
    assert ("t/4", b"large" * 100) in scene.received()


def test_a_message_in_flight_that_is_too_large_for_the_next_connection_is_not_left_out_later() -> None:
    """The connection that got it first has not acknowledged it."""
    broker = MemoryBroker(limits=ONE)
    scene = Scene(broker)
    scene.publish("t/4", b"large" * 100)
    client = scene.connect()
    client.send(*(p.Puback(packet.packet_identifier) for packet in client.backlog if isinstance(packet, p.Publish)))
    assert [packet.payload for packet in client.got(p.Publish)] == [b"large" * 100]
    client.drop()
    small = Properties(session_expiry_interval=1000, maximum_packet_size=100)
    broker.client("c", 5, clean=False, properties=small).drop()
    assert broker.counters.messages_dropped_too_large == 1
    assert ("t/4", b"large" * 100) in scene.received()


def test_an_operators_change_is_not_left_out() -> None:
    scene = Scene(MemoryBroker(limits=ONE))
    change = ApplicationMessage("t/4", b"set", 1, True, "")
    scene.broker.retained.retain(change, ChangeOrigin.API, live=False)
    assert ("t/4", b"set") in scene.received()


@pytest.mark.parametrize("resubscribed", [False, True])
def test_a_message_that_the_subscription_did_not_queue_comes_with_the_replay(resubscribed: bool) -> None:
    """It was published while the subscription had QoS 0, even if that has QoS 1 now."""
    broker = MemoryBroker(flow=FlowSettings(1, 1, client_rate=Rate(1, 60)))
    scene = Scene(broker, qos=0)
    scene.publish("t/4", qos=1)
    if resubscribed:
        client = scene.connect()
        client.send(p.Subscribe(9, (p.SubscriptionRequest("t/#", 1, retain_handling=2),)))
        client.drop()
    found = scene.received()
    for _ in range(6):
        broker.advance(60)
        found += [(topic, payload) for topic, payload, _, _ in scene.client.messages()]
    assert ("t/4", b"new") in found


def test_a_message_that_no_local_kept_from_the_queue_comes_with_the_replay() -> None:
    """The Client has published it itself, and has given No Local up before its replay is resumed."""
    scene = Scene(MemoryBroker(limits=ONE), no_local=True)
    client = scene.connect()
    client.publish("t/4", b"own", 1, True)
    client.send(p.Subscribe(9, (p.SubscriptionRequest("t/#", 1, retain_handling=2),)))
    client.drop()
    found = scene.received()
    assert ("t/4", b"own") in found
    assert topics(found) == ALL


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    with place(request.param, tmp_path) as found:
        assert found is not None
        yield found


def test_in_a_database_a_queued_message_does_not_come_again(database: Path | str) -> None:
    """Another node's message comes with the replay, as does a message with QoS 0."""
    scene = Scene(RestartableBroker(database, limits=ONE))
    scene.publish("t/3")
    scene.publish("t/9")
    scene.publish("t/8", qos=0)
    retained = scene.broker.retained
    revision = retained.store.next_revision() & ~255 | 7
    foreign = RetainedMessage("t/7", b"theirs", 1, NO_PROPERTIES, None, None, scene.broker.now(), None, revision)
    scene.broker.store.put(RetainedChange("t/7", revision, scene.broker.now(), foreign))
    scene.broker.settle()
    found = scene.received()
    assert topics(found) == [*ALL, "t/7", "t/8", "t/9"]
    assert ("t/3", b"new") in found


def test_the_cut_outlives_the_process(database: Path | str) -> None:
    scene = Scene(RestartableBroker(database, limits=ONE))
    scene.publish("t/3")
    scene.restart()
    assert topics(scene.received()) == ALL


@implementer(IAuthorizer)
class Undecided(Filtering):
    """Decides about deliveries, at once or never."""

    answers = True

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        return True if self.answers else Deferred()


def test_a_message_that_awaited_the_authorizer_in_a_killed_process_is_not_left_out(database: Path | str) -> None:
    """It was not in the stored queue yet, and is retained."""
    authorizer = Undecided()
    scene = Scene(RestartableBroker(database, limits=ONE, authorizer=authorizer))
    authorizer.answers = False
    scene.publish("t/3")
    scene.restart()
    authorizer.answers = True
    assert ("t/3", b"new") in scene.received()


def test_a_loss_outlives_the_process(database: Path | str) -> None:
    scene = Scene(RestartableBroker(database, limits=Limits(max_inflight=1, max_mqueue_len=2)))
    for number in range(5):
        scene.publish(f"t/{number}", b"newer")
    scene.restart()
    assert {("t/1", b"newer"), ("t/2", b"newer")} <= set(scene.received())


@pytest.mark.parametrize("origin", [ChangeOrigin.API, ChangeOrigin.IMPORT])
def test_an_operators_change_is_remembered_by_the_next_process(database: Path | str, origin: ChangeOrigin) -> None:
    scene = Scene(RestartableBroker(database, limits=ONE))
    scene.broker.retained.retain(ApplicationMessage("t/4", b"set", 1, True, ""), origin, live=False)
    scene.broker.settle()
    scene.restart()
    assert ("t/4", b"set") in scene.received()
