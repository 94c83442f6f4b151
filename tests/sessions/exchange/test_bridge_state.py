"""Bridges of mosquitto tell their state on a topic of ``$SYS``: it is acknowledged, dropped and counted."""

from __future__ import annotations

import pytest

from holdfast.sessions.limits import Limits
from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.conformance.expect import Forbidding
from tests.doubles import Client, MemoryBroker

STATE = "$SYS/broker/connection/vm.bridge/state"
VERSIONS = pytest.mark.parametrize("version", [3, 4, 5])
LIMITS = pytest.mark.parametrize(
    "limits", [Limits(), Limits(retain_available=False), Limits(max_qos_allowed=0), Limits(max_topic_levels=4)]
)
OTHERS = pytest.mark.parametrize(
    "topic",
    [
        "$SYS/broker/connection/state",
        "$SYS/broker/connection/a/b/state",
        "$SYS/broker/connection/a/state/",
        "$SYS/broker/connection/a/States",
        "$SYS/broker/uptime",
        "$SYS",
    ],
)


def dropped(broker: MemoryBroker) -> int:
    """Expect that nothing was stored or refused; return the number of states."""
    assert broker.retained.totals.refreshed().count == 0
    assert broker.counters.messages_dropped_not_authorized == 0
    assert broker.counters.connections_refused == 0
    return broker.counters.messages_dropped_bridge_state


@VERSIONS
@LIMITS
def test_a_client_may_publish_it_within_any_limits(version: int, limits: Limits) -> None:
    """Its acknowledgement is that of an accepted message; no subscriber gets it."""
    broker = MemoryBroker(limits=limits, authorizer=Forbidding(STATE))
    watcher = broker.client("watcher", 5)
    watcher.subscribe("$SYS/#", "#")
    client = broker.client("c", version)
    client.publish(STATE, b"1", 0, True)
    client.publish(STATE, b"1", 1, True, identifier=7)
    client.publish(STATE, b"1", 2, True, identifier=8)
    assert client.packets() == [p.Puback(7), p.Pubrec(8)]
    client.publish(STATE, b"1", 2, True, identifier=8)
    client.send(p.Pubrel(8))
    assert client.packets() == [p.Pubrec(8), p.Pubcomp(8)]
    assert not client.network.closed
    assert watcher.messages() == []
    assert dropped(broker) == 3


@VERSIONS
@LIMITS
@pytest.mark.parametrize("retain", [False, True])
def test_a_client_may_have_it_as_its_will_within_any_limits(version: int, limits: Limits, retain: bool) -> None:
    """The connection is accepted, and the Will is never published."""
    broker = MemoryBroker(limits=limits, authorizer=Forbidding(STATE))
    watcher = broker.client("watcher")
    watcher.subscribe("$SYS/#")
    client = broker.client("c", version, will=p.Will(STATE, b"0", 1, retain))
    assert client.connack is not None
    assert client.connack.reason_code == 0
    client.drop()
    broker.advance(3600)
    assert watcher.messages() == []
    assert dropped(broker) == 1


@OTHERS
def test_all_other_topics_of_the_broker_stay_closed(topic: str) -> None:
    """As a PUBLISH and as a Will."""
    broker = MemoryBroker()
    client = broker.client("c", 5)
    client.publish(topic, b"1", 1, True, identifier=7)
    (puback,) = client.got(p.Puback)
    assert puback.reason_code == ReasonCode.NOT_AUTHORIZED
    refused = Client(broker, 5)
    connack = refused.connect("d", will=p.Will(topic, b"0"))
    assert connack is not None
    assert connack.reason_code == ReasonCode.NOT_AUTHORIZED
    assert broker.counters.messages_dropped_bridge_state == 0


def test_the_drops_are_told_below_sys() -> None:
    """As one of the causes of dropped messages, too."""
    broker = MemoryBroker(sys_msg_interval=10)
    client = broker.client("c")
    client.publish(STATE, b"1", 1, True)
    client.packets()
    broker.advance(10)
    names = "$SYS/broker/holdfast/counters/messages_dropped_bridge_state", "$SYS/broker/publish/messages/dropped"
    packets = client.subscribe(*names)
    assert {packet.topic: packet.payload for packet in packets[1:] if isinstance(packet, p.Publish)} == dict.fromkeys(
        names, b"1"
    )


@pytest.mark.parametrize("version", [3, 4])
def test_a_bridge_gets_none_of_its_own_messages(version: int) -> None:
    """They would come back to the other broker. Its Subscriptions have No Local and Retain As Published."""
    broker = MemoryBroker()
    other = broker.client("other")
    other.publish("t/other", b"retained", 1, True)
    bridge = broker.client("bridge", version, bridge=True)
    bridge.publish("t/own", b"retained", 1, True)
    bridge.packets()
    bridge.send(p.Subscribe(1, (p.SubscriptionRequest("#", 1),)))
    assert bridge.messages() == [("t/other", b"retained", 1, True)]
    bridge.publish("t/own", b"live")
    other.publish("t/other", b"live")
    assert bridge.messages() == [("t/other", b"live", 0, False)]


def test_a_bridge_in_a_shared_subscription_gets_its_own_messages() -> None:
    """No Local and shared subscriptions exclude each other [MQTT5-3.8.3-4]."""
    broker = MemoryBroker()
    bridge = broker.client("bridge", bridge=True)
    bridge.subscribe("$share/g/t")
    bridge.publish("t", b"own")
    assert bridge.messages() == [("t", b"own", 0, False)]
