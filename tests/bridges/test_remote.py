"""What a bridge says to a remote broker, and what it makes of the answers."""

from __future__ import annotations

import pytest

from holdfast.bridges.crossing import Lines
from holdfast.bridges.remote import Login, Memory, Refused, Silence, refused_filters, remembered, wanted_at_remote
from holdfast.config.sections.bridges import MQTT_3, BridgeConfig, BridgeTopicConfig, RemoteAddress
from holdfast.wire import PacketParser, Properties, encode
from holdfast.wire import packets as p


def login(**options: object) -> Login:
    config = BridgeConfig(addresses=("a",), topics=(BridgeTopicConfig(),), **options)  # type: ignore[arg-type]
    return Login(name="cloud", config=config, client_id="me", password=b"secret", max_packet_size=1000)


def test_mqtt_5_asks_for_a_session_that_lasts_and_tells_both_limits() -> None:
    connect = login(max_inflight_messages=7, username="u").connect(False, True)
    assert connect == p.Connect(
        "me", 5, False, 60, "u", b"secret",
        properties=Properties(session_expiry_interval=0xFFFFFFFF, receive_maximum=7, maximum_packet_size=1000),
    )  # fmt: skip


@pytest.mark.parametrize("private", [True, False])
def test_mqtt_3_announces_a_bridge_as_mosquitto_does(private: bool) -> None:
    packet = encode(login(protocol_version=MQTT_3, username="u").connect(True, private), 4)
    assert packet[8] == (0x84 if private else 4)
    parser = PacketParser(1000)
    parser.receive_data(packet)
    connect = parser.next_packet()
    assert isinstance(connect, p.Connect)
    assert (connect.bridge, connect.clean_start, connect.protocol_version) == (private, True, 4)


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (MQTT_3, 5, "not authorized; check username and password"),
        (MQTT_3, 1, "unsupported protocol version; set protocol_version"),
        ("mqttv50", 0x85, "client identifier not valid; the remote broker takes no such Client Identifier"),
        ("mqttv50", 0x89, "server busy; the bridge tries again"),
    ],
)
def test_a_refusal_names_its_remedy(version: str, code: int, told: str) -> None:
    with pytest.raises(Refused) as caught:
        login(protocol_version=version).accepted(p.Connack(False, code))
    assert str(caught.value).startswith(told)


def test_the_limits_in_connack_are_taken() -> None:
    properties = Properties(receive_maximum=5, maximum_qos=1, retain_available=0, maximum_packet_size=99)
    found = login().accepted(p.Connack(True, 0, properties))
    assert (found.session_present, found.receive_maximum, found.maximum_qos) == (True, 5, 1)
    assert (found.retain_available, found.maximum_packet_size) == (False, 99)


LINES = Lines((BridgeTopicConfig(filter="a", qos=0), BridgeTopicConfig(filter="b", qos=2)))


@pytest.mark.parametrize(
    ("v5", "present", "known", "expected"),
    [
        (True, False, False, [("a", 0), ("b", 0)]),
        (True, True, True, [("a", 0), ("b", 1)]),  # Retain Handling 1: what is stored there is not sent again
        (False, True, False, [("a", 0), ("b", 0)]),
        (False, True, True, [("a", 0)]),  # MQTT 3.1.1 has no Retain Handling
        (False, False, True, [("a", 0), ("b", 0)]),
    ],
)
def test_a_session_that_is_resumed_is_not_sent_all_retained_messages_again(
    v5: bool, present: bool, known: bool, expected: list[tuple[str, int]]
) -> None:
    found = wanted_at_remote(LINES, present, known, v5)
    assert [(each.topic_filter, each.retain_handling) for each in found] == expected
    assert {(each.no_local, each.retain_as_published) for each in found} == {(v5, v5)}


def test_refused_subscriptions_are_found() -> None:
    asked = wanted_at_remote(LINES, False, False, True)
    assert refused_filters(asked, p.Suback(1, (0, 0x87))) == ["b"]


def test_what_is_remembered_is_that_of_this_place_and_these_subscriptions() -> None:
    here = Memory.of(login(), RemoteAddress("a", 1), LINES)
    assert remembered(here.listener("cloud", subscribed=True)) == ("cloud", here)
    assert remembered(here.listener("cloud", subscribed=False)) == ("cloud", Memory(here.place))
    assert Memory.of(login(), RemoteAddress("b", 1), LINES).place != here.place
    assert Memory.of(login(username="x"), RemoteAddress("a", 1), LINES).place != here.place
    other = Memory.of(login(), RemoteAddress("a", 1), Lines((BridgeTopicConfig(filter="b", qos=1),)))
    assert (other.place, other.subscriptions != here.subscriptions) == (here.place, True)
    assert remembered("default") is None


def test_silence_is_noticed_at_one_and_a_half_times_the_keep_alive() -> None:
    silence = Silence()
    assert [silence.tick() for _ in range(4)] == ["", "ping", "ping", "lost"]


def test_a_bridge_that_only_receives_sends_pingreq_in_time() -> None:
    silence = Silence()
    found = []
    for _ in range(3):
        silence.heard()
        found.append(silence.tick())
    assert found == ["", "ping", "ping"]
