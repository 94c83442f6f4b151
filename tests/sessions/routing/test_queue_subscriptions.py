"""``$queue/FILTER``, EMQX's spelling of a shared subscription: ``$share/$queue/FILTER`` for the broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

VERSIONS = pytest.mark.parametrize("version", [4, 5])


@VERSIONS
def test_each_message_goes_to_one_member(version: int) -> None:
    """Clients that use the two spellings are members of one group."""
    broker = MemoryBroker()
    clients = [broker.client(name, version) for name in "abc"]
    spellings = ("$queue/jobs/+", "$queue/jobs/+", "$share/$queue/jobs/+")
    for client, spelling in zip(clients, spellings, strict=True):
        (suback,) = client.subscribe(spelling, qos=1)
        assert isinstance(suback, p.Suback)
        assert suback.reason_codes == (1,)
    for number in range(6):
        broker.client("p").publish("jobs/a", b"%d" % number, qos=1)
    got = [[payload for _, payload, _, _ in client.messages()] for client in clients]
    assert [len(each) for each in got] == [2, 2, 2]
    assert sorted(payload for each in got for payload in each) == [b"%d" % number for number in range(6)]
    assert broker.counters.holdings.shared_subscriptions == 3


@VERSIONS
@pytest.mark.parametrize("spelling", ["$queue/a", "$share/$queue/a"])
def test_unsubscribe_takes_either_spelling(version: int, spelling: str) -> None:
    broker = MemoryBroker()
    client = broker.client("c", version)
    client.subscribe("$queue/a")
    client.send(p.Unsubscribe(7, (spelling, spelling)))
    (unsuback,) = client.got(p.Unsuback)
    if version == 5:
        assert unsuback.reason_codes == (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED)
    broker.client("p").publish("a")
    assert client.messages() == []
    assert broker.counters.holdings.subscriptions == 0


@VERSIONS
def test_unsubscribe_ends_a_subscription_from_before_the_option_was_on(version: int) -> None:
    """Both names of ``$queue/a`` end together."""
    broker = MemoryBroker(limits=Limits(queue_subscription=False))
    client = broker.client("c", version)
    client.subscribe("$queue/a", "$share/$queue/a")
    client.send(p.Unsubscribe(7, ("$queue/a",)))
    assert broker.counters.holdings.subscriptions == 0


def test_off_it_is_an_ordinary_filter() -> None:
    broker = MemoryBroker(limits=Limits(queue_subscription=False))
    clients = [broker.client(name, 5) for name in "ab"]
    for client in clients:
        client.subscribe("$queue/a")
    broker.client("p").publish("a", b"1")
    broker.client("p").publish("$queue/a", b"2")
    assert [[payload for _, payload, _, _ in client.messages()] for client in clients] == [[b"2"], [b"2"]]


def test_retained_messages_are_not_replayed() -> None:
    """As for every shared subscription [MQTT5-3.3.1-9]."""
    broker = MemoryBroker()
    broker.client("p").publish("a", b"kept", retain=True)
    client = broker.client("c", 5)
    client.subscribe("$queue/a", "$queue/#")
    assert client.messages() == []


def test_the_limits_of_shared_subscriptions_hold() -> None:
    """Where they are not offered, MQTT 3 is told so in SUBACK and MQTT 5 loses the connection."""
    broker = MemoryBroker(limits=Limits(shared_subscription=False))
    (suback,) = broker.client("a", 4).subscribe("$queue/a")
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (0x80,)
    client = broker.client("b", 5)
    client.subscribe("$queue/a")
    assert client.network.closed


def test_no_local_ends_the_connection() -> None:
    """As for ``$share`` [MQTT5-3.8.3-4]; the ordinary filter may have it."""
    for limits, closed in ((Limits(), True), (Limits(queue_subscription=False), False)):
        client = MemoryBroker(limits=limits).client("c", 5)
        client.subscribe(p.SubscriptionRequest("$queue/a", no_local=True))
        assert client.network.closed is closed


def test_a_malformed_filter_behind_it_ends_the_connection() -> None:
    client = MemoryBroker().client("c", 5)
    client.subscribe("$queue/a/#/b")
    assert client.network.closed


def test_the_group_outlives_a_kill(tmp_path: Path) -> None:
    """It is stored as the shared subscription that it is."""
    broker = RestartableBroker(fresh_file(tmp_path))
    lasting = Properties(session_expiry_interval=1000)
    broker.client("c", 5, clean=False, properties=lasting).subscribe("$queue/a", qos=1)
    broker = broker.restart()
    broker.client("p").publish("a", b"1", qos=1)
    back = broker.client("c", 5, clean=False, properties=lasting)
    assert [packet.payload for packet in back.backlog if isinstance(packet, p.Publish)] == [b"1"]
    back.send(p.Unsubscribe(7, ("$queue/a",)))
    (unsuback,) = back.got(p.Unsuback)
    assert unsuback.reason_codes == (ReasonCode.SUCCESS,)
    assert broker.rows("session_subscriptions") == 0
