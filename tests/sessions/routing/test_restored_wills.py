"""Wills of Clients that were connected when the broker ended: who counts as come back, and who does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from holdfast.identity.interfaces import Principal, UnrestrictedAuthorizer
from holdfast.retained.limits import RetainerLimits
from holdfast.scheduling.long_work import STEPS_IN_PART
from holdfast.wire import Properties, encode
from holdfast.wire import packets as p
from tests.doubles import Client
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

VERSIONS = pytest.mark.parametrize("version", [4, 5])
#: how broker and devices end: by kill -9, or by SIGTERM
ENDS = pytest.mark.parametrize("end", [RestartableBroker.restart, RestartableBroker.stop], ids=["kill", "SIGTERM"])
End = Callable[[RestartableBroker], RestartableBroker]

OFFLINE = p.Will("state/d", b"offline", 1, True)


@pytest.fixture
def broker(tmp_path: Path) -> RestartableBroker:
    return RestartableBroker(fresh_file(tmp_path))


def device(
    broker: RestartableBroker, client_id: str, version: int = 4, will: p.Will = OFFLINE, user: str = ""
) -> Client:
    """Connect a device that says "online"."""
    client = broker.client(client_id, version, will=will, username=user or None)
    client.publish(will.topic, b"online", retain=True)
    return client


def watch(broker: RestartableBroker) -> Client:
    """Return a client that misses nothing while it or the broker is away."""
    properties = Properties(session_expiry_interval=1000)
    watcher = broker.client("watcher", 5, clean=False, properties=properties)
    watcher.subscribe("#", qos=1)
    return watcher


def offline(broker: RestartableBroker) -> list[str]:
    """Return the topics for which the watcher has got "offline", since it was connected the last time."""
    watcher = broker.client("watcher", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    came = [packet for packet in watcher.backlog if isinstance(packet, p.Publish)]
    watcher.send(*(p.Puback(packet.packet_identifier) for packet in came if packet.qos))
    return [packet.topic for packet in came if packet.payload == b"offline"]


def state(broker: RestartableBroker, topic: str = "state/d") -> bytes:
    """Return the retained message."""
    [message] = [packet for packet in broker.client("asks").subscribe(topic) if isinstance(packet, p.Publish)]
    return message.payload


@ENDS
@VERSIONS
@pytest.mark.parametrize("user", ["", "anna"])
def test_a_device_that_is_back_under_a_new_client_identifier_stays_online(
    broker: RestartableBroker, end: End, version: int, user: str
) -> None:
    """As MQTT.js does by default. Its old Will is gone, and its new one is kept."""
    watch(broker).drop()
    device(broker, "mqttjs_1", version, user=user)
    for number in (2, 3):  # the second time within the grace of the first
        broker = end(broker)
        device(broker, f"mqttjs_{number}", version, user=user)
        assert broker.rows("wills") == 1
    broker.advance(100)
    assert state(broker) == b"online"
    assert offline(broker) == []
    broker = end(broker)
    broker.advance(61)
    assert state(broker) == b"offline"


def test_a_device_whose_restored_will_already_waits_may_return_after_one_more_restart(
    broker: RestartableBroker,
) -> None:
    """It was connected when the broker ended, however often the broker was restarted since then."""
    device(broker, "random-1", 5)
    broker = broker.restart().restart()
    device(broker, "random-2", 5)
    broker.advance(100)
    assert state(broker) == b"online"


@ENDS
def test_an_assigned_client_identifier_of_mqtt_311_is_offline_before_anybody_is_admitted(
    broker: RestartableBroker, end: End
) -> None:
    """As Paho does by default: nobody can return with it. So its device, which is back, says "online" afterwards."""
    watch(broker).drop()
    device(broker, "", 4)
    broker = end(broker)
    assert broker.rows("wills") == 0
    assert offline(broker) == ["state/d"]
    assert state(broker) == b"offline"
    device(broker, "", 4)
    broker.advance(100)
    assert state(broker) == b"online"


@ENDS
def test_an_assigned_client_identifier_of_mqtt_5_waits(broker: RestartableBroker, end: End) -> None:
    """Its Client was told it, so it may return."""
    watch(broker).drop()
    first = device(broker, "", 5)
    assert first.connack is not None
    told = first.connack.properties.assigned_client_identifier
    assert told is not None
    broker = end(broker)
    assert state(broker) == b"online"
    device(broker, told, 5)
    broker = end(broker)
    device(broker, "", 5)  # with another one, it has returned as well
    broker.advance(100)
    assert state(broker) == b"online"
    assert offline(broker) == []


@ENDS
def test_a_hundred_devices_with_fixed_client_identifiers_are_never_offline(broker: RestartableBroker, end: End) -> None:
    """Clean Session 1: each takes back its own Will."""
    wills = [p.Will(f"state/{number}", b"offline", 1, True) for number in range(100)]
    watch(broker).drop()
    for number, will in enumerate(wills):
        device(broker, f"fixed-{number}", 4, will)
    broker = end(broker)
    for number, will in enumerate(wills):
        device(broker, f"fixed-{number}", 4, will)
    broker.advance(100)
    assert offline(broker) == []
    assert {state(broker, will.topic) for will in wills} == {b"online"}


@ENDS
@VERSIONS
def test_a_device_that_does_not_return_is_offline_after_the_grace(
    broker: RestartableBroker, end: End, version: int
) -> None:
    device(broker, "mqttjs_1", version)
    broker = end(broker)
    broker.advance(59)
    assert state(broker) == b"online"
    broker.advance(2)
    assert state(broker) == b"offline"


@pytest.mark.parametrize(
    ("user", "newcomer"),
    [
        pytest.param("anna", ("bob", OFFLINE), id="another user"),
        pytest.param("anna", ("", OFFLINE), id="a client without a user"),
        pytest.param("", ("bob", OFFLINE), id="a user, for a client without one"),
        pytest.param("anna", ("anna", p.Will("state/other", b"offline", 1, True)), id="another topic"),
        pytest.param("anna", ("anna", p.Will("state/d", b"gone", 1, True)), id="another payload"),
        pytest.param("anna", ("anna", p.Will("state/d", b"offline", 1, False)), id="a Will without RETAIN"),
    ],
)
def test_nobody_else_takes_back_a_will(broker: RestartableBroker, user: str, newcomer: tuple[str, p.Will]) -> None:
    """Neither do those who publish "online": bridges and operators do that too."""
    device(broker, "random-1", user=user)
    broker = broker.restart()
    other, will = newcomer
    broker.client("random-2", will=will, username=other or None)
    broker.client("bridge", username="anna", bridge=True).publish("state/d", b"online", retain=True)
    broker.advance(61)
    assert state(broker) == b"offline"


def test_a_client_of_another_listener_takes_back_no_will_of_a_client_without_a_user(broker: RestartableBroker) -> None:
    device(broker, "random-1")
    broker = broker.restart()
    other = Client(broker)
    other.connection = broker.connect(other.network, broker.limits, "other")
    other.connect("random-2", will=OFFLINE)
    broker.advance(61)
    assert state(broker) == b"offline"


def test_an_operator_at_the_console_takes_back_no_will(broker: RestartableBroker) -> None:
    """Even if the console is on the same listener."""
    device(broker, "random-1")
    broker = broker.restart()
    console = Client(broker, 5)
    console.connection = broker.connect_operator(console.network, broker.limits, "test", "user alice", True)
    console.connect("", will=OFFLINE)
    assert console.connack is not None
    assert console.connack.reason_code == 0
    broker.advance(61)
    assert state(broker) == b"offline"


def test_a_device_that_was_lost_before_the_broker_ended_does_not_return_by_its_will(broker: RestartableBroker) -> None:
    """Its delay was running: only its Client Identifier takes back the Will."""
    will = p.Will("state/d", b"offline", 1, True, Properties(will_delay_interval=300))
    lasting = Properties(session_expiry_interval=1000)
    broker.client("random-1", 5, clean=False, properties=lasting, will=will).drop()
    broker = broker.restart()
    device(broker, "random-2", 5)
    broker.advance(301)
    assert state(broker) == b"offline"


def test_the_client_identifier_tells_first_who_is_back(broker: RestartableBroker) -> None:
    """Two clients share a Will. The one that is back takes back its own only."""
    device(broker, "first")
    device(broker, "second")
    broker = broker.restart()
    device(broker, "first")
    assert broker.rows("wills") == 2
    broker.advance(61)
    assert state(broker) == b"offline"


def test_many_wills_of_one_device_are_discarded_in_portions(broker: RestartableBroker) -> None:
    """A client chooses how many Clients with one Will it starts. A Will that is due meanwhile is not published."""
    watch(broker).drop()
    for number in range(10 * STEPS_IN_PART):
        broker.client(f"random-{number}", will=OFFLINE)
    broker = broker.restart()
    broker.clock.rightNow += 61
    back = Client(broker)
    back.connection.receive(encode(p.Connect("back", 4, will=OFFLINE), 4))
    broker.clock.turn()
    assert broker.rows("wills") > 5 * STEPS_IN_PART
    broker.settle()
    assert broker.rows("wills") == 1
    assert offline(broker) == []


class Later(UnrestrictedAuthorizer):
    """Answers about Wills when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Deferred[bool]] = []

    def may_publish(
        self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False
    ) -> bool | Deferred[bool]:
        """Answer later about a Client of an earlier process."""
        if not principal.names_only:
            return True
        self.asked.append(Deferred())
        return self.asked[-1]


def test_nobody_is_admitted_before_an_authorizer_that_takes_its_time_has_answered_about_such_a_will(
    tmp_path: Path,
) -> None:
    """Else the device could say "online" before its old Will says "offline"."""
    authorizer = Later()
    broker = RestartableBroker(fresh_file(tmp_path), authorizer=authorizer)
    device(broker, "", 4)
    broker = broker.restart()
    back = Client(broker)
    assert back.connect("", will=OFFLINE) is None
    back.publish("state/d", b"online", retain=True)
    authorizer.asked.pop().callback(True)
    broker.settle()
    assert [type(packet) for packet in back.packets()] == [p.Connack]
    assert state(broker) == b"online"


def test_such_a_will_is_published_first_also_where_quotas_have_to_be_read(tmp_path: Path) -> None:
    """The retainer has to read the database before it knows whether the Will fits."""
    broker = RestartableBroker(fresh_file(tmp_path), retainer=RetainerLimits(max_retained_messages=1))
    device(broker, "", 4)
    broker = broker.restart()
    assert state(broker) == b"offline"
