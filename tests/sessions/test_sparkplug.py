"""Sparkplug Aware MQTT Server: each assertion of the profile (Sparkplug 3.0, chapter 10.1.4), and what goes beyond."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.sessions.limits import Limits
from holdfast.sessions.sparkplug import SparkplugAware, with_timestamp
from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

CERTIFICATES = "$sparkplug/certificates/"
NBIRTH, DBIRTH, NDEATH = "spBv1.0/g/NBIRTH/n", "spBv1.0/g/DBIRTH/n/d", "spBv1.0/g/NDEATH/n"
BIRTH = b"\x08\xe8\x07\x12\x03\x0a\x01m"  # timestamp 1000, a metric
VERSIONS = pytest.mark.parametrize("version", [4, 5])
BIRTHS = pytest.mark.parametrize("topic", [NBIRTH, DBIRTH])


def aware(broker: MemoryBroker | None = None) -> MemoryBroker:
    broker = broker or MemoryBroker()
    broker.router.sparkplug = SparkplugAware(broker.now)
    return broker


def messages(client: Client) -> list[tuple[str, bytes, bool]]:
    return [(topic, payload, retain) for topic, payload, _, retain in client.messages()]


def replayed(client: Client, topic_filter: str) -> list[tuple[str, bytes, bool]]:
    """Subscribe; return the retained messages that come."""
    came = [packet for packet in client.subscribe(topic_filter, qos=1) if isinstance(packet, p.Publish)]
    return [(packet.topic, packet.payload, packet.retain) for packet in came] + messages(client)


# --- tck-id-conformance-mqtt-aware-basic


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1])
def test_aware_basic_messages_wills_and_retain_work_as_ever(version: int, qos: int) -> None:
    """tck-id-conformance-mqtt-aware-basic: what a Sparkplug Compliant MQTT Server has, is there with the key on.

    tck-id-conformance-mqtt-qos0, -qos1, -will-messages and -retained, at topics of Sparkplug.
    """
    broker = aware()
    host = broker.client("host", version)
    host.subscribe("spBv1.0/#", qos=1)
    broker.client("node", version).publish("spBv1.0/g/NDATA/n", b"data", qos=qos)
    will = p.Will("spBv1.0/STATE/other", b"offline", 1, True)
    lost = broker.client("lost", version, will=will)
    lost.drop()
    assert [(topic, payload, qos_of) for topic, payload, qos_of, _ in host.messages()] == [
        ("spBv1.0/g/NDATA/n", b"data", qos), ("spBv1.0/STATE/other", b"offline", 1),
    ]  # fmt: skip
    late = broker.client("late", version)
    assert replayed(late, "spBv1.0/#") == [("spBv1.0/STATE/other", b"offline", True)]


# --- -store, -nbirth-mqtt-topic, -nbirth-mqtt-retain, -dbirth-mqtt-topic, -dbirth-mqtt-retain


@BIRTHS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_aware_store_births_outlive_a_kill(tmp_path: Path, topic: str, qos: int) -> None:
    """tck-id-conformance-mqtt-aware-store: NBIRTH and DBIRTH are stored as they pass through."""
    broker = RestartableBroker(fresh_file(tmp_path))
    aware(broker)
    node = broker.client("node", 5)
    node.publish(topic, BIRTH, qos=qos)
    broker.settle()
    broker = broker.restart()
    host = broker.client("host", 5)
    assert replayed(host, CERTIFICATES + "#") == [(CERTIFICATES + topic, BIRTH, True)]


@VERSIONS
def test_aware_nbirth_mqtt_topic_and_retain(version: int) -> None:
    """tck-id-conformance-mqtt-aware-nbirth-mqtt-topic, tck-id-conformance-mqtt-aware-nbirth-mqtt-retain."""
    broker = aware()
    broker.client("node", version).publish(NBIRTH, BIRTH)
    host = broker.client("host", version)
    assert replayed(host, "$sparkplug/certificates/spBv1.0/g/NBIRTH/n") == [
        ("$sparkplug/certificates/spBv1.0/g/NBIRTH/n", BIRTH, True)
    ]


@VERSIONS
def test_aware_dbirth_mqtt_topic_and_retain(version: int) -> None:
    """tck-id-conformance-mqtt-aware-dbirth-mqtt-topic, tck-id-conformance-mqtt-aware-dbirth-mqtt-retain."""
    broker = aware()
    broker.client("node", version).publish(DBIRTH, BIRTH)
    host = broker.client("host", version)
    assert replayed(host, "$sparkplug/certificates/spBv1.0/g/DBIRTH/n/d") == [
        ("$sparkplug/certificates/spBv1.0/g/DBIRTH/n/d", BIRTH, True)
    ]


# --- tck-id-conformance-mqtt-aware-ndeath-timestamp


@VERSIONS
@pytest.mark.parametrize("by_will", [True, False])
def test_aware_ndeath_timestamp_is_that_of_the_delivery(version: int, by_will: bool) -> None:
    """tck-id-conformance-mqtt-aware-ndeath-timestamp: a Will has it too, and all else of it stays."""
    broker = aware()
    host = broker.client("host", version)
    host.subscribe("spBv1.0/#")
    payload = b"\x12\x03\x0a\x01b" + b"\x08\xe8\x07" + b"\x18\x05"
    node = broker.client("node", version, will=p.Will(NDEATH, payload, 1, False) if by_will else None)
    broker.clock.advance(3600)
    if by_will:
        node.drop()
    else:
        node.publish(NDEATH, payload, qos=1)
    ((topic, told, _),) = messages(host)
    assert topic == NDEATH
    assert told == with_timestamp(b"\x12\x03\x0a\x01b\x18\x05", broker.now())


# --- beyond the assertions


def test_one_commit_stores_a_birth_and_its_copy(tmp_path: Path) -> None:
    """A birth with RETAIN 1: before the commit there is neither, after it both; PUBACK waits for both."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    aware(broker)
    node = broker.client("node", 5)
    broker.commit()
    node.packets()
    node.publish(NBIRTH, BIRTH, qos=1, retain=True)
    assert node.got(p.Puback) == []
    assert broker.rows("retained") == 0
    broker.commit()
    assert broker.rows("retained") == 2
    assert len(node.got(p.Puback)) == 1


def test_subscribers_get_new_copies_live() -> None:
    """As any message: once, and beside the birth itself; a newer birth takes the place of the older copy."""
    broker = aware()
    host = broker.client("host", 5)
    host.subscribe("#", CERTIFICATES + "#")
    node = broker.client("node", 5)
    for payload in (BIRTH, BIRTH + b"\x18\x01"):
        node.publish(NBIRTH, payload)
    assert [(topic, payload) for topic, payload, _ in messages(host)] == [
        (NBIRTH, BIRTH), (CERTIFICATES + NBIRTH, BIRTH),
        (NBIRTH, BIRTH + b"\x18\x01"), (CERTIFICATES + NBIRTH, BIRTH + b"\x18\x01"),
    ]  # fmt: skip
    late = broker.client("late", 5)
    assert replayed(late, CERTIFICATES + "#") == [(CERTIFICATES + NBIRTH, BIRTH + b"\x18\x01", True)]


@pytest.mark.parametrize("retain", [False, True])
def test_births_in_runs_are_copied_too(retain: bool) -> None:
    """Many births of one client in one segment: none takes the short way."""
    broker = aware()
    node = broker.client("node", 5)
    topics = [f"spBv1.0/g/NBIRTH/n{number % 7}" for number in range(50)]
    node.send(*(p.Publish(topic, b"%d" % number, 0, retain) for number, topic in enumerate(topics)))
    host = broker.client("host", 5)
    assert sorted(replayed(host, CERTIFICATES + "#")) == sorted(
        (CERTIFICATES + topic, b"%d" % number, True) for number, topic in enumerate(topics) if number >= 43
    )


def test_only_the_broker_publishes_copies() -> None:
    """A client is refused, by PUBLISH and by Will; where the key is off, the topics are like any others."""
    will = p.Will(CERTIFICATES + NBIRTH, b"forged", 0, True)
    for broker, refused in ((aware(), True), (MemoryBroker(), False)):
        client = broker.client("c", 5)
        client.publish(CERTIFICATES + NBIRTH, b"forged", qos=1, retain=True)
        (puback,) = client.got(p.Puback)
        assert (puback.reason_code == ReasonCode.NOT_AUTHORIZED) is refused
        other = broker.client("w", 5, will=will)
        assert other.network.closed is refused
        host = broker.client("host", 5)
        assert bool(replayed(host, CERTIFICATES + "#")) is not refused


def test_off_nothing_is_copied_or_dated() -> None:
    broker = MemoryBroker()
    host = broker.client("host", 5)
    host.subscribe("spBv1.0/#", CERTIFICATES + "#")
    node = broker.client("node", 5)
    node.publish(NBIRTH, BIRTH)
    node.publish(NDEATH, BIRTH)
    assert messages(host) == [(NBIRTH, BIRTH, False), (NDEATH, BIRTH, False)]


def test_a_zone_without_retained_messages_has_copies() -> None:
    """They are the broker's, not the client's."""
    broker = aware(MemoryBroker(limits=Limits(retain_available=False)))
    broker.client("node", 5).publish(NBIRTH, BIRTH)
    host = broker.client("host", 5)
    assert replayed(host, CERTIFICATES + "#") == [(CERTIFICATES + NBIRTH, BIRTH, True)]


def test_an_operator_may_publish_a_birth() -> None:
    broker = aware()
    broker.router.publish(ApplicationMessage(NBIRTH, BIRTH), ChangeOrigin.API)
    host = broker.client("host", 5)
    assert replayed(host, CERTIFICATES + "#") == [(CERTIFICATES + NBIRTH, BIRTH, True)]


@pytest.mark.parametrize(
    "topic",
    ["spBv1.0/g/NBIRTH", "spBv1.0/g/NBIRTH/n/d", "spBv1.0/g/DBIRTH/n", "spBv1.0/g/DBIRTH/n/d/e", "spBv1.0//NBIRTH/n",
     "spBv1.0/g/NDATA/n", "spAv1.0/g/NBIRTH/n", "spBv1.0/STATE/h", "x/spBv1.0/g/NBIRTH/n", "spBv1.0/g/NDEATH/n"],
)  # fmt: skip
def test_no_other_message_is_copied(topic: str) -> None:
    assert SparkplugAware(lambda: 0).certificate(ApplicationMessage(topic, BIRTH)) is None


def test_an_empty_payload_is_no_birth() -> None:
    """It would clear the copy."""
    assert SparkplugAware(lambda: 0).certificate(ApplicationMessage(NBIRTH, b"")) is None


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_any_payload_stays_whole_or_is_dated_twice_alike(payload: bytes, timestamp: int) -> None:
    """What can be read has the time once, first; dating it again changes nothing."""
    dated = with_timestamp(payload, timestamp)
    if dated is not None:
        assert with_timestamp(dated, timestamp) == dated
        assert len(dated) <= len(payload) + 11


@pytest.mark.parametrize(
    "payload", [b"\x08", b"\x12\x05ab", b"\x0b", b"\x00\x01", b"\x0d\x01", b"\xff" * 12, b"\x18\x01" * 1001]
)
def test_what_cannot_be_read_is_sent_as_it_is(payload: bytes) -> None:
    """Also what would take too many steps."""
    assert with_timestamp(payload, 7) is None
    message = ApplicationMessage(NDEATH, payload)
    assert SparkplugAware(lambda: 7).dated(message) is message
