"""QoS 1 messages in blocks: the same as entries, which are the plain twin, in less memory and time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.core.messages import HELD_IDENTIFIER
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.deliveries import Deliveries
from holdfast.sessions.delivery.inflight import NO_BLOCKS, Blocks, Inflight, Window
from holdfast.sessions.delivery.inflight_messages import InflightMessages
from holdfast.sessions.limits import Limits
from holdfast.sessions.state import UNRECORDED, MemorySessionStates
from holdfast.wire import ProtocolError, encode
from holdfast.wire import packets as p
from holdfast.wire.encoding import pubacks
from tests.doubles import Client, MemoryBroker


def spans(blocks: Blocks) -> list[tuple[int, int]]:
    """Return the first and the last identifier of each block."""
    return [(first, first + block.count - 1) for first, block in zip(blocks._firsts, blocks._blocks, strict=True)]


@pytest.fixture
def window() -> Window:
    return Window(65535, 1 << 20)


@pytest.fixture
def blocks(window: Window) -> Blocks:
    return Blocks(window)


def test_consecutive_messages_are_one_block(blocks: Blocks) -> None:
    blocks.add(1, 3, 30, False)
    blocks.add(4, 1, 10, False)
    blocks.add(10, 2, 20, False)
    blocks.add(5, 5, 20, False)
    assert spans(blocks) == [(1, 9), (10, 11)]
    assert blocks.count == 11


def test_live_and_replayed_messages_are_apart(blocks: Blocks, window: Window) -> None:
    blocks.add(1, 3, 30, False)
    blocks.add(4, 2, 25, True)
    blocks.add(6, 1, 7, False)
    assert spans(blocks) == [(1, 3), (4, 5), (6, 6)]
    assert (window.bytes, window.replayed, window.replayed_bytes) == (62, 2, 25)
    assert blocks.acknowledged(5)
    assert (window.bytes, window.replayed, window.replayed_bytes) == (50, 1, 13)


def test_acknowledgements_in_order_are_one_step(blocks: Blocks, window: Window) -> None:
    blocks.add(300, 1000, 1000, False)
    assert blocks.acknowledged_first(pubacks(300, 400), 0) == 400
    assert spans(blocks) == [(700, 1299)]
    assert window.bytes == 600
    assert blocks.acknowledged_first(pubacks(300, 1000), 4 * 400) == 500
    assert blocks.acknowledged_first(pubacks(300, 1000), 4 * 900) == 100
    assert (spans(blocks), window.bytes, blocks.count) == ([], 0, 0)


def test_acknowledgements_beyond_a_block_are_left(blocks: Blocks) -> None:
    blocks.add(1, 5, 5, False)
    assert blocks.acknowledged_first(pubacks(1, 9), 0) == 5
    assert blocks.acknowledged_first(pubacks(6, 1), 0) == 0


def test_an_acknowledgement_out_of_order_divides_a_block(blocks: Blocks, window: Window) -> None:
    blocks.add(1, 5, 55, False)
    stretch = pubacks(3, 1) + pubacks(1, 1) + pubacks(4, 2)
    assert [blocks.acknowledged_first(stretch, position) for position in (0, 4, 8)] == [1, 1, 2]
    assert spans(blocks) == [(2, 2)]
    assert window.bytes == 11
    assert [blocks.acknowledged(identifier) for identifier in (2, 2, 1)] == [True, False, False]
    assert window.bytes == 0


def test_the_bytes_of_a_block_come_back_with_its_last_message(blocks: Blocks, window: Window) -> None:
    blocks.add(1, 7, 1000, False)
    for identifier in (4, 7, 1, 2, 6, 3):
        assert blocks.acknowledged(identifier)
        assert window.bytes > 0
    assert blocks.acknowledged(5)
    assert window.bytes == 0


def test_a_block_has_its_identifiers_and_no_others(blocks: Blocks) -> None:
    blocks.add(5, 3, 3, False)
    blocks.add(20, 1, 1, False)
    assert [identifier for identifier in range(30) if identifier in blocks] == [5, 6, 7, 20]
    assert blocks.last_used(1, 4) == 0
    assert blocks.last_used(1, 5) == blocks.last_used(7, 19) == 7
    assert blocks.last_used(1, 65535) == 20


class InBothForms(RuleBasedStateMachine):
    """Drives one Session with blocks and one with entries only, and finds no difference.

    The messages have the same size, so both windows count the same, but for what an entry costs more.
    """

    def __init__(self) -> None:
        super().__init__()
        link = MemoryBroker().client("c", 5).connection
        self.link: Any = link
        self.room = [0, 0]  # how often each was told that there is room
        self.windows = [Window(65535, 1 << 30), Window(65535, 1 << 30)]
        self.both = [self._messages(number) for number in range(2)]
        self.with_blocks, self.plain = self.both
        self.with_blocks.in_blocks = True
        for messages in self.both:
            messages.resume(link)

    def _messages(self, number: int) -> InflightMessages:
        def on_room() -> None:
            self.room[number] += 1

        return InflightMessages(
            window=self.windows[number],
            deliveries=Deliveries(UNRECORDED, MemorySessionStates()),
            counters=Counters(),
            now=lambda: 0,
            on_room=on_room,
            on_sent=lambda: None,
            on_lost=lambda: None,
        )

    def _packet(self, identifier: int, qos: int) -> bytes:
        return encode(p.Publish("t", b"x", qos, packet_identifier=identifier), 5)

    @rule()
    def one_is_sent(self) -> None:
        identifier = self.with_blocks.next_identifier()
        self.with_blocks.send_block(self.link, self._packet(identifier, 1), identifier)
        self._plain(identifier, 1, False)

    @rule()
    def one_with_qos_2_is_sent(self) -> None:
        identifier = self.with_blocks.next_identifier()
        self.with_blocks.send(self.link, identifier, Inflight(self._packet(identifier, 2), 2, 5))
        self._plain(identifier, 2, False)

    @rule(count=st.integers(1, 30))
    def a_replay_sends_some(self, count: int) -> None:
        first = self.with_blocks.next_block(count)
        assert first
        assert self.with_blocks.is_free(first, count)
        packets = b"".join(self._packet(first + number, 1) for number in range(count))
        self.with_blocks.send_replayed_block(self.link, packets, first, count)
        for number in range(count):
            self._plain(first + number, 1, True)

    def _plain(self, identifier: int, qos: int, replayed: bool) -> None:
        entry = Inflight(self._packet(identifier, qos), qos, 5, replayed=replayed)
        if replayed:
            self.plain.send_replayed(self.link, identifier, entry, "t")
        else:
            self.plain.send(self.link, identifier, entry)

    def _identifiers(self) -> list[int]:
        return sorted(self.plain.entries)

    @rule(data=st.data())
    def acknowledgements_come(self, data: st.DataObject) -> None:
        """In order, out of order, unknown and of the wrong kind, in one stretch."""
        known = self._identifiers()
        acknowledged: list[int] = []
        for _ in range(data.draw(st.integers(1, 4))):
            first = data.draw(st.sampled_from(known) if known else st.integers(1, 50))
            acknowledged += range(first, min(65536, first + data.draw(st.integers(1, 30))))
        stretch = b"".join(pubacks(identifier, 1) for identifier in acknowledged)
        refused = [self._refuses(steps) for steps in (self._together(stretch), self._one_by_one(acknowledged))]
        assert refused[0] == refused[1]

    def _together(self, stretch: bytes) -> Iterator[None]:
        yield
        before = self.with_blocks.count, self.room[0]
        try:
            self.with_blocks.all_acknowledged(stretch)
        finally:
            assert (self.with_blocks.count < before[0]) == (self.room[0] == before[1] + 1)

    def _one_by_one(self, identifiers: list[int]) -> Iterator[None]:
        for identifier in identifiers:
            yield
            self.plain.acknowledged(identifier, 1)

    @rule(data=st.data(), event=st.sampled_from(["puback", "pubcomp", "pubrec", "refusal"]))
    @precondition(lambda self: self.plain.entries)
    def one_acknowledgement_comes(self, data: st.DataObject, event: str) -> None:
        identifier = data.draw(st.sampled_from(self._identifiers()))

        def steps(messages: InflightMessages) -> Iterator[None]:
            yield
            match event:
                case "puback":
                    messages.acknowledged(identifier, 1)
                case "pubcomp":
                    messages.acknowledged(identifier, 2)
                case "pubrec":
                    messages.received_by_client(identifier)
                case "refusal":
                    messages.refused(identifier)

        assert self._refuses(steps(self.with_blocks)) == self._refuses(steps(self.plain))

    def _refuses(self, steps: Iterator[None]) -> str:
        try:
            for _ in steps:
                pass
        except ProtocolError as error:
            return str(error)
        return ""

    @invariant()
    def the_same_is_in_flight(self) -> None:
        with_blocks = self.with_blocks
        one_by_one = [number for first, last in spans(with_blocks.blocks) for number in range(first, last + 1)]
        assert sorted([*one_by_one, *with_blocks.entries]) == self._identifiers()
        assert with_blocks.count == self.plain.count == len(self.plain.entries)
        assert self.windows[0].replayed == self.windows[1].replayed
        live, replayed = self._bytes()
        assert self.windows[0].bytes - sum(entry.size for entry in with_blocks.entries.values()) == live + replayed
        assert self.windows[0].replayed_bytes == replayed

    def _bytes(self) -> tuple[int, int]:
        size = len(self._packet(1, 1)) + HELD_IDENTIFIER
        entries = [entry for entry in self.plain.entries.values() if entry.qos == 1]
        replayed = sum(entry.replayed for entry in entries)
        return size * (len(entries) - replayed), size * replayed

    @invariant()
    def blocks_are_in_order_and_never_empty(self) -> None:
        last = 0
        for first, end in spans(self.with_blocks.blocks):
            assert last < first <= end <= 65535
            last = end
        assert NO_BLOCKS.count == 0


TestInBothForms = InBothForms.TestCase
TestInBothForms.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def acknowledging(limits: Limits, clean: bool) -> tuple[MemoryBroker, Client, int]:
    """Return a client with up to 40 QoS 1 messages and two QoS 2 messages in flight, and more in its queue.

    The number is that of the messages in flight.
    """
    broker = MemoryBroker(limits=limits)
    client = broker.client("c", 4, clean=clean)
    client.subscribe("t", qos=2)
    publisher = broker.client("p")
    for number in range(60):
        publisher.publish("t", b"%d" % number, qos=2 if number in (20, 30) else 1)
    return broker, client, len(client.got(p.Publish))


@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("most_bytes", [1 << 20, 5000])
@given(data=st.data())
def test_acknowledgements_in_any_pieces_have_the_same_effect(clean: bool, most_bytes: int, data: st.DataObject) -> None:
    """Whether the broker reads them one by one or all at once, the same messages follow."""
    limits = Limits(max_inflight=42, max_inflight_bytes=most_bytes)
    in_flight = acknowledging(limits, clean)[2]
    identifiers = st.one_of(st.integers(1, in_flight), st.integers(1000, 1010))
    acknowledged = data.draw(st.lists(st.tuples(identifiers, st.integers(1, in_flight)), max_size=8))
    stream = b"".join(pubacks(first, max(1, min(count, in_flight + 1 - first))) for first, count in acknowledged)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    effects = []
    for ends in (range(4, len(stream) + 4, 4), [*cuts, len(stream)], [len(stream)]):
        broker, client, _ = acknowledging(limits, clean)
        start = 0
        for end in ends:
            client.raw(stream[start:end])
            start = end
        session = broker.registry._sessions.get("c")
        left = None if session is None else session.inflight.count
        effects.append((client.packets(), client.network.closed, left))
    assert effects[0] == effects[1] == effects[2]
