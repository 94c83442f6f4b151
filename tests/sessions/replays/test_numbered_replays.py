"""Replays with QoS 1 whose slices are numbered together send what replays packet by packet send."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.retained.limits import FlowSettings
from holdfast.sessions.delivery import replayed_packets
from holdfast.sessions.limits import Limits
from holdfast.wire import NO_PROPERTIES, Properties
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker


def filled(flow: FlowSettings, window: int, kinds: list[str]) -> MemoryBroker:
    """Return a broker with retained messages t/00, t/01, ... of these kinds."""
    broker = MemoryBroker(flow=flow, limits=Limits(max_inflight=window))
    publisher = broker.client("filler", 5)
    for number, kind in enumerate(kinds):
        properties = Properties(message_expiry_interval=100) if kind == "expires" else NO_PROPERTIES
        payload = b"x" * (200 if kind == "long" else 9)
        publisher.publish(f"t/{number:02}", payload, int(kind != "qos 0"), retain=True, properties=properties)
    return broker


def replayed(broker: MemoryBroker, client: Client, draw: Any) -> list[p.Publish]:
    """Acknowledge any part of the messages at a time, in any order, until the replay is over. Return all packets."""
    seen: list[p.Publish] = []
    unacknowledged: list[int] = []
    for _ in range(300):
        broker.settle()
        came = client.got(p.Publish)
        seen += came
        unacknowledged += [packet.packet_identifier for packet in came if packet.qos]
        assert len(set(unacknowledged)) == len(unacknowledged)
        if not unacknowledged and not broker.replays.running:
            return seen
        some = draw(st.integers(1, len(unacknowledged)))
        if draw(st.booleans()):
            unacknowledged.reverse()
        client.send(*(p.Puback(identifier) for identifier in unacknowledged[:some]))
        del unacknowledged[:some]
    raise AssertionError("the replay does not come to an end")


@given(
    st.data(),
    st.sampled_from([3, 4, 5]),
    st.sampled_from(["plain", "some of QoS 0", "some expire"]),
    st.sampled_from([None, 60, 100_000]),
)
def test_numbered_slices_are_what_single_packets_are(
    data: st.DataObject, version: int, store: str, maximum: int | None
) -> None:
    """With any batch numbers, window and order of acknowledgements; also if a limit or an expiry concerns some."""
    other = {"plain": "plain", "some of QoS 0": "qos 0", "some expire": "expires"}[store]
    kinds = data.draw(st.lists(st.sampled_from(["plain", "plain", "long", other]), min_size=1, max_size=25))
    read = data.draw(st.integers(1, 30))
    flow = FlowSettings(read, data.draw(st.integers(0, read)))
    broker = filled(flow, data.draw(st.integers(1, 30)), kinds)
    found = []
    for name, clean, interval in (("passing", True, None), ("kept", False, 1000)):
        options: dict[str, Any] = {"clean": clean}
        if version == 5:
            options["properties"] = Properties(session_expiry_interval=interval, maximum_packet_size=maximum)
        client = broker.client(name, version, **options)
        client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", 1),)))
        found.append(
            [
                (packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.properties)
                for packet in replayed(broker, client, data.draw)
            ]
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("kinds", [["plain"] * 9, ["plain"] * 8 + ["qos 0"]])
def test_the_packets_of_a_slice_are_numbered_together_if_all_get_qos_1(
    kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = []
    numbered = replayed_packets.numbered

    def note(joined: bytes, packets: int, first: int) -> bytes:
        slices.append(packets)
        return numbered(joined, packets, first)

    monkeypatch.setattr(replayed_packets, "numbered", note)
    broker = filled(FlowSettings(), 512, kinds)
    assert len(broker.client("c").subscribe("t/#", qos=1)) > 9
    assert slices == ([9] if kinds[-1] == "plain" else [])
