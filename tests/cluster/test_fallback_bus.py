"""The bus over two: what is silent on the first one goes over the second one, and returns in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import formatEvent

from holdfast.cluster.fallback_bus import FallbackBus, Way
from tests.logs import logged


class Line:
    """A bus between nodes in memory. It takes datagrams until ``refuses``, and delivers none ``silent`` between two."""

    def __init__(self) -> None:
        self.nodes: dict[int, Callable[[bytes], None]] = {}
        self.under_way: deque[tuple[int, int, bytes]] = deque()
        self.silent: set[tuple[int, int]] = set()
        self.refuses = False
        self.stopped = 0

    def of(self, node: int) -> Ends:
        return Ends(self, node)

    def deliver(self) -> None:
        """Deliver all that is under way, and what is sent meanwhile."""
        while self.under_way:
            origin, target, datagram = self.under_way.popleft()
            if (origin, target) not in self.silent:
                self.nodes[target](datagram)


class Ends:
    """The bus as one node sees it."""

    def __init__(self, line: Line, node: int) -> None:
        self._line = line
        self._node = node

    def start(self, received: Callable[[bytes], None]) -> None:
        self._line.nodes[self._node] = received

    def send(self, node: int, datagram: bytes) -> bool:
        if not self._line.refuses:
            self._line.under_way.append((self._node, node, datagram))
        return not self._line.refuses

    def stop(self) -> Deferred[None]:
        self._line.stopped += 1
        return succeed(None)


class Pair:
    """Nodes 1 and 2, which send to each other each second, as links do."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.first, self.second = Line(), Line()
        self.got: list[bytes] = []
        self.buses = {node: FallbackBus(self.first.of(node), self.second.of(node), node, self.clock) for node in (1, 2)}
        self.buses[1].start(lambda _: None)
        self.buses[2].start(self.got.append)

    def deliver(self) -> None:
        for _ in range(3):
            self.first.deliver()
            self.second.deliver()

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.buses[1].send(2, b"sign")
            self.buses[2].send(1, b"sign")
            self.clock.advance(1.0)
            self.deliver()

    def way(self) -> Way:
        return self.buses[1].ways[2]


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_peer_that_answers_for_five_seconds_is_reached_over_the_first(pair: Pair) -> None:
    """Before, and without any answer, over the second one."""
    pair.pass_seconds(5)
    assert pair.way() is Way.SECOND
    pair.pass_seconds(1)
    assert pair.way() is Way.FIRST
    pair.buses[1].send(2, b"hello")
    assert (1, 2, b"hello") in pair.first.under_way


@pytest.mark.parametrize("silent", [(1, 2), (2, 1)])
def test_one_silent_direction_is_enough(pair: Pair, silent: tuple[int, int]) -> None:
    """Both nodes leave the first bus after 3 s, whichever of them hears the other one."""
    pair.pass_seconds(10)
    pair.first.silent.add(silent)
    pair.pass_seconds(2)
    assert (pair.way(), pair.buses[2].ways[1]) == (Way.FIRST, Way.FIRST)
    pair.pass_seconds(2)
    assert (pair.way(), pair.buses[2].ways[1]) == (Way.SECOND, Way.SECOND)
    pair.got.clear()
    pair.buses[1].send(2, b"hello")
    pair.deliver()
    assert pair.got == [b"hello"]
    assert pair.buses[1].fallbacks == 1


def test_it_returns_after_five_seconds_of_answers(pair: Pair) -> None:
    """A lost answer begins the count anew."""
    pair.pass_seconds(10)
    pair.first.silent.add((1, 2))
    pair.pass_seconds(5)
    pair.first.silent.clear()
    pair.pass_seconds(3)
    pair.first.silent.add((1, 2))
    pair.pass_seconds(1)
    pair.first.silent.clear()
    pair.pass_seconds(5)
    assert pair.way() is Way.SECOND
    pair.pass_seconds(1)
    assert pair.way() is Way.FIRST


def test_one_that_takes_nothing_is_left_at_once(pair: Pair) -> None:
    """And the datagram goes over the second one."""
    pair.pass_seconds(10)
    pair.got.clear()
    pair.first.refuses = True
    assert pair.buses[1].send(2, b"hello")
    assert pair.way() is Way.SECOND
    pair.deliver()
    assert pair.got == [b"hello"]


def test_on_return_nothing_passes_what_was_sent_before(pair: Pair) -> None:
    """Datagrams wait until the second bus has delivered everything."""
    pair.pass_seconds(5)
    pair.buses[1].send(2, b"1")
    pair.clock.advance(1.0)
    assert pair.way() is Way.RETURNING
    pair.got.clear()
    pair.buses[1].send(2, b"2")
    pair.first.deliver()
    assert pair.got == []
    pair.second.deliver()
    assert pair.way() is Way.FIRST
    pair.buses[1].send(2, b"3")
    pair.first.deliver()
    assert pair.got == [b"1", b"2", b"3"]


def test_a_mark_without_an_answer_gives_the_second_bus_what_waits(pair: Pair) -> None:
    """Nothing waits for more than some seconds, nor more than some bytes."""
    pair.pass_seconds(5)
    pair.buses[1].send(2, b"sign")
    pair.clock.advance(1.0)
    pair.second.under_way.clear()
    assert pair.way() is Way.RETURNING
    assert pair.buses[1].send(2, b"hello")
    assert not pair.buses[1].send(2, b"x" * (8 << 20))
    for _ in range(3):
        pair.clock.advance(1.0)
        pair.first.deliver()
    assert pair.way() is Way.SECOND
    pair.got.clear()
    pair.second.deliver()
    assert pair.got == [b"hello"]


def test_an_answer_of_another_process_counts_for_nothing(pair: Pair) -> None:
    """Recorded ones that somebody sends again, and datagrams of any other kind."""
    bus = pair.buses[1]
    pair.buses[1].send(2, b"sign")
    for kind in (2, 4):
        for number in range(10):
            line = pair.first if kind == 2 else pair.second
            line.nodes[1](bytes([0, kind, 2]) + number.to_bytes(8, "big"))
    for strange in (b"", b"\0", b"\0\x01\x02", b"\0" + b"\x09" * 10):
        pair.first.nodes[1](strange)
    assert bus.strange == 4
    pair.clock.advance(1.0)
    assert bus.ways[2] is Way.SECOND


def test_a_peer_that_is_no_member_any_more_is_forgotten(pair: Pair) -> None:
    """It is asked no more."""
    pair.buses[1].send(2, b"sign")
    pair.clock.pump([1.0] * 32)
    pair.first.under_way.clear()
    pair.clock.pump([1.0] * 5)
    assert not pair.first.under_way


def test_stopping_stops_both(pair: Pair) -> None:
    """And nothing is received any more."""
    done: list[None] = []
    pair.buses[2].stop().addCallback(done.append)
    assert done == [None]
    assert (pair.first.stopped, pair.second.stopped) == (1, 1)
    pair.first.nodes[2](b"late")
    assert pair.got == []


@given(
    st.lists(
        st.one_of(
            st.just("send"), st.just("deliver first"), st.just("deliver second"), st.just("second passes"),
            st.sampled_from([(1, 2), (2, 1)]), st.just("refuse"), st.just("heal"),
        ),
        max_size=120,
    )
)  # fmt: skip
def test_nothing_comes_twice_and_all_comes_once_it_is_whole(events: list[str | tuple[int, int]]) -> None:
    """Whatever is silent for a while: what the second bus has taken arrives, and no datagram comes a second time."""
    pair = Pair()
    sent = 0
    for event in events:
        if event == "send":
            sent += 1
            assert pair.buses[1].send(2, b"%d" % sent)
        elif event == "deliver first":
            pair.first.deliver()
        elif event == "deliver second":
            pair.second.deliver()
        elif event == "second passes":
            pair.pass_seconds(1)
        elif event == "refuse":
            pair.first.refuses = True
        elif event == "heal":
            pair.first.refuses = False
            pair.first.silent.clear()
        elif isinstance(event, tuple):
            pair.first.silent.add(event)
    numbers = [int(each) for each in pair.got if each != b"sign"]
    assert len(numbers) == len(set(numbers))
    pair.first.refuses = False
    pair.first.silent.clear()
    pair.pass_seconds(20)
    assert pair.way() is Way.FIRST
    pair.got.clear()
    for number in range(10):
        pair.buses[1].send(2, b"%d" % number)
    pair.deliver()
    assert [each for each in pair.got if each != b"sign"] == [b"%d" % number for number in range(10)]


def test_a_member_with_the_second_bus_alone_is_understood_and_understands() -> None:
    """So members may get or lose the first bus one after the other. What it cannot read begins with 0, as no origin."""
    clock, first, second = Clock(), Line(), Line()
    bus = FallbackBus(first.of(1), second.of(1), 1, clock)
    got: list[bytes] = []
    alone: list[bytes] = []
    bus.start(got.append)
    second.of(2).start(alone.append)
    first.nodes[2] = lambda _: None
    for _ in range(40):
        assert bus.send(2, b"\x01 to the one alone")
        second.of(2).send(1, b"\x02 from it")
        clock.advance(1.0)
        first.deliver()
        second.deliver()
    assert got == [b"\x02 from it"] * 40
    assert [each for each in alone if each[0]] == [b"\x01 to the one alone"] * 40
    assert bus.ways == {2: Way.SECOND}


def test_a_node_with_another_secret_is_known_until_it_has_the_same() -> None:
    """Over the second bus, since nothing opens over the first one. It is logged once."""
    pair = Pair()
    pair.buses[2]._sign = 7
    pair.first.silent = {(1, 2), (2, 1)}
    with logged(FallbackBus) as events:
        pair.pass_seconds(65)
    lines = [formatEvent(event) for event in events]
    assert sum("node 2 has another cluster.secret" in line for line in lines) == 1
    assert pair.buses[1].with_another_sign == {2}
    assert pair.buses[2].with_another_sign == {1}
    pair.buses[2]._sign = 0
    pair.pass_seconds(15)
    assert not pair.buses[1].with_another_sign


def test_another_secret_that_is_not_told_any_more_is_forgotten() -> None:
    """The node was restarted with the second bus alone."""
    pair = Pair()
    pair.buses[2]._sign = 7
    pair.first.silent = {(1, 2), (2, 1)}
    pair.pass_seconds(3)
    assert pair.buses[1].with_another_sign == {2}
    pair.buses[2].stop()
    pair.second.nodes[2] = lambda _: None
    for _ in range(40):
        pair.buses[1].send(2, b"sign")
        pair.clock.advance(1.0)
        pair.deliver()
    assert not pair.buses[1].with_another_sign
