"""Packets cross a bridge with their Packet Identifiers; what the receiver cannot take is acknowledged in its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.bridges.crossing import CANNOT_STORE, LOCAL_VERSION, MARK, Crossed, Crossing, Lines, RemoteLimits
from holdfast.config.sections.bridges import BridgeTopicConfig
from holdfast.wire import PacketParser, Properties, ReasonCode
from holdfast.wire import packets as p

BOTH = BridgeTopicConfig(filter="#", qos=2, local_prefix="here/", remote_prefix="there/")


class Sides:
    """A crossing, and what has come out of it on both sides."""

    def __init__(self, *lines: BridgeTopicConfig, v5: bool = True, **limits: int | bool) -> None:
        remote = RemoteLimits(v5=v5, session_present=True, **limits)  # type: ignore[arg-type]
        self.crossed = Crossed()
        self.told: list[tuple[str, str]] = []
        self.crossing = Crossing(
            Lines(lines or (BOTH,)), remote, mark="me", own={"me", "other"}, most_levels=10, crossed=self.crossed,
            tell=lambda what, topic: self.told.append((what, topic)),
        )  # fmt: skip
        self._version = 5 if v5 else 4

    def out(self, packet: p.Packet) -> tuple[list[p.Packet], list[p.Packet]]:
        """Give a packet of this broker; return what the remote one and this one get."""
        self.crossing.from_local(packet)
        return self._taken()

    def back(self, packet: p.Packet) -> tuple[list[p.Packet], list[p.Packet]]:
        """Give a packet of the remote broker; return what the remote one and this one get."""
        self.crossing.from_remote(packet)
        return self._taken()

    def _taken(self) -> tuple[list[p.Packet], list[p.Packet]]:
        crossing = self.crossing
        found = parsed(crossing.to_remote, self._version), parsed(crossing.to_local, LOCAL_VERSION)
        crossing.to_remote, crossing.to_local = [], []
        return found


def parsed(packets: list[bytes], version: int) -> list[p.Packet]:
    parser = PacketParser(1 << 20, version)
    parser.receive_data(b"".join(packets))
    found = []
    while (packet := parser.next_packet()) is not None:
        found.append(packet)
    return found


MARKED = Properties(user_properties=((MARK, "me"),))


def test_an_exchange_at_qos_2_crosses_with_its_identifier() -> None:
    sides = Sides()
    assert sides.out(p.Publish("here/a", b"x", 2, packet_identifier=7)) == (
        [p.Publish("there/a", b"x", 2, packet_identifier=7, properties=MARKED)],
        [],
    )
    assert sides.back(p.Pubrec(7)) == ([], [p.Pubrec(7)])
    assert sides.out(p.Pubrel(7)) == ([p.Pubrel(7)], [])
    assert sides.back(p.Pubcomp(7)) == ([], [p.Pubcomp(7)])
    assert sides.back(p.Publish("there/b", b"y", 2, True, True, 7)) == (
        [],
        [p.Publish("here/b", b"y", 2, True, True, 7)],
    )
    assert sides.out(p.Pubrec(7)) == ([p.Pubrec(7)], [])
    assert sides.back(p.Pubrel(7)) == ([], [p.Pubrel(7)])
    assert sides.out(p.Pubcomp(7)) == ([p.Pubcomp(7)], [])
    assert (sides.crossed.sent, sides.crossed.received) == (1, 1)


@given(
    st.sampled_from((0, 1, 2)), st.sampled_from((0, 1, 2)), st.booleans(), st.booleans(),
    st.sampled_from(["here/a", "gone/a", "here"]),
)  # fmt: skip
def test_the_sender_always_gets_its_whole_exchange(qos: int, maximum: int, v5: bool, loops: bool, topic: str) -> None:
    """Whatever is lowered or left out: either the message crosses, or this broker is answered at once."""
    sides = Sides(v5=v5, maximum_qos=maximum)
    properties = MARKED if loops else Properties()
    there, here = sides.out(p.Publish(topic, b"x", qos, packet_identifier=qos and 7, properties=properties))
    for packet in there:
        assert isinstance(packet, p.Publish)
        assert packet.qos == min(qos, maximum)
        if packet.qos == 1:
            here += sides.back(p.Puback(7))[1]
        elif packet.qos == 2:
            here += sides.back(p.Pubrec(7))[1]
    assert here == [[], [p.Puback(7)], [p.Pubrec(7)]][qos]
    if qos == 2:
        there, here = sides.out(p.Pubrel(7))
        if there:
            here = sides.back(p.Pubcomp(7))[1]
        assert here == [p.Pubcomp(7)]


def test_a_message_that_comes_back_goes_no_further() -> None:
    sides = Sides()
    there, here = sides.back(
        p.Publish("there/a", b"x", 2, packet_identifier=3, properties=Properties(user_properties=((MARK, "other"),)))
    )
    assert (there, here) == ([p.Pubrec(3)], [])
    assert sides.back(p.Pubrel(3)) == ([p.Pubcomp(3)], [])
    assert sides.out(p.Publish("here/a", b"x", 1, packet_identifier=4, properties=MARKED)) == ([], [p.Puback(4)])
    assert sides.crossed.looped == 2
    assert sides.told == []


@pytest.mark.parametrize(
    ("topic", "line", "why"),
    [
        ("there/" + "/" * 20, BOTH, "at most 10 levels"),
        ("$SYS/x", BridgeTopicConfig(filter="$SYS/x", local_prefix=""), "one of this broker's own"),
        ("elsewhere", BOTH, "no line"),
    ],
)
def test_what_this_broker_would_not_take_is_left_out_and_told(topic: str, line: BridgeTopicConfig, why: str) -> None:
    """Otherwise it would end the connection, again and again."""
    sides = Sides(line)
    assert sides.back(p.Publish(topic, b"x", 1, packet_identifier=5)) == ([p.Puback(5)], [])
    [(told, about)] = sides.told
    assert why in told
    assert about == topic
    assert sides.crossed.left_out == 1


def test_what_is_too_long_for_the_remote_broker_is_left_out() -> None:
    sides = Sides(maximum_packet_size=200)
    assert sides.out(p.Publish("here/a", bytes(300), 1, packet_identifier=5)) == ([], [p.Puback(5)])
    assert sides.crossing.longest_out is not None
    assert sides.crossing.longest_out < 200


def test_a_refusal_crosses_and_is_told() -> None:
    sides = Sides()
    refusal = p.Pubrec(7, ReasonCode.NOT_AUTHORIZED, Properties(reason_string="not you"))
    assert sides.back(refusal) == ([], [p.Pubrec(7, ReasonCode.NOT_AUTHORIZED)])
    assert sides.crossed.refused == 1
    assert sides.told == [("the remote broker has refused a message (not authorized, not you)", "")]
    assert sides.crossing.stuck == ""


@pytest.mark.parametrize("remote", [True, False])
def test_a_message_that_a_database_cannot_take_now_stays_with_its_sender(remote: bool) -> None:
    sides = Sides()
    refusal = p.Puback(7, ReasonCode.QUOTA_EXCEEDED, Properties(reason_string=CANNOT_STORE))
    assert (sides.back if remote else sides.out)(refusal) == ([], [])
    assert "takes nothing now" in sides.crossing.stuck
    assert sides.crossed.refused == 0


@pytest.mark.parametrize(("rule", "flag", "sent"), [("keep", True, True), ("set", False, True), ("clear", True, False)])
def test_retain_is_kept_set_or_cleared(rule: str, flag: bool, sent: bool) -> None:
    sides = Sides(BridgeTopicConfig(filter="#", retain=rule), v5=False)
    assert sides.out(p.Publish("a", b"x", 0, flag)) == ([p.Publish("a", b"x", 0, sent)], [])
    assert sides.back(p.Publish("a", b"x", 0, flag)) == ([], [p.Publish("a", b"x", 0, sent)])


def test_the_first_line_that_matches_names_the_topic() -> None:
    lines = Lines((
        BridgeTopicConfig(filter="a/#", direction="in", remote_prefix="x/"),
        BridgeTopicConfig(filter="a/+", direction="out", remote_prefix="y/"),
        BridgeTopicConfig(filter="#", remote_prefix="z/"),
    ))  # fmt: skip
    assert [lines.outward(topic) for topic in ("a/b", "a/b/c")] == [
        ("y/a/b", lines.outgoing[0]),
        ("z/a/b/c", lines.outgoing[1]),
    ]
    assert [lines.inward(topic) for topic in ("x/a/b", "y/a/b")] == [("a/b", lines.incoming[0]), None]
    assert Lines((BridgeTopicConfig(filter="#", local_prefix="a/"),)).outward("a") is None
