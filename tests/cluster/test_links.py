"""Links over a bus that loses, repeats and reorders: messages come in order, once, or everything is told anew."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast.cluster.links import SILENCE, Links


class Post:
    """The bus of all processes: datagrams that wait, by target node. ``full`` nodes take none."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, bytes]] = []
        self.receivers: dict[int, Callable[[bytes], None]] = {}
        self.full: set[int] = set()


class Bus:
    """The bus as one node has it."""

    def __init__(self, post: Post, node: int) -> None:
        self._post = post
        self._node = node

    def start(self, received: Callable[[bytes], None]) -> None:
        """Receive what comes for this node."""
        self._post.receivers[self._node] = received

    def send(self, node: int, datagram: bytes) -> bool:
        """Let a datagram wait, unless there is no room."""
        if node in self._post.full:
            return False
        self._post.waiting.append((node, datagram))
        return True

    def stop(self) -> Deferred[None]:
        """Receive nothing."""
        self._post.receivers.pop(self._node, None)
        return succeed(None)


class Process:
    """A node's process: it counts up in messages to each other one, and begins at 1 when it tells everything."""

    def __init__(self, post: Post, clock: Clock, node: int, incarnation: int) -> None:
        self.node = node
        self.sent: dict[int, list[bytes]] = {}  #: since the last ``up``, by node
        self.received: dict[int, list[bytes]] = {}  #: since the last ``began``, by node
        self.ups = 0
        self.links = Links(
            node, incarnation, Bus(post, node), clock, received=self.take, up=self.up,
            down=self.down, began=lambda node: self.received.update({node: []}),
        )  # fmt: skip
        self.links.start()

    def down(self, node: int) -> None:
        """Forget a process that is gone."""
        self.received.pop(node, None)

    def up(self, node: int) -> None:
        """Tell everything: one message."""
        self.ups += 1
        self.sent[node] = []
        self.say(node, b"whole %d" % self.ups)

    def say(self, node: int, message: bytes, droppable: bool = False) -> None:
        """Send a message."""
        before = self.links.lost
        self.links.send(node, message, droppable)
        if self.links.lost == before:
            self.sent[node].append(message)

    def take(self, node: int, message: bytes) -> None:
        """Note a message: those of a series are what was sent, without a gap."""
        self.received[node].append(message)


class Exchanges(RuleBasedStateMachine):
    """Two processes and a bus without manners."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.post = Clock(), Post()
        self.incarnations = {1: 1, 2: 1}
        self.processes = {node: Process(self.post, self.clock, node, 1) for node in (1, 2)}
        self.number = 0
        self.tell_members()

    def tell_members(self) -> None:
        """Let each process know the incarnation of the other one."""
        for node, process in self.processes.items():
            process.links.members({3 - node: self.incarnations[3 - node]})

    @rule(node=st.integers(1, 2), droppable=st.booleans())
    def say(self, node: int, droppable: bool) -> None:
        """A process sends."""
        self.number += 1
        self.processes[node].say(3 - node, b"%d" % self.number, droppable)

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """Some datagram arrives, perhaps not the first, perhaps once more later."""
        if self.post.waiting:
            place = data.draw(st.integers(0, min(3, len(self.post.waiting) - 1)))
            target, datagram = self.post.waiting[place]
            if data.draw(st.integers(0, 3)):
                del self.post.waiting[place]
            self.post.receivers[target](datagram)

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """A datagram is lost."""
        if self.post.waiting:
            del self.post.waiting[data.draw(st.integers(0, len(self.post.waiting) - 1))]

    @rule(node=st.integers(1, 2))
    def fill(self, node: int) -> None:
        """There is no room for a node, or there is again."""
        self.post.full ^= {node}

    @rule(node=st.integers(1, 2))
    def restart(self, node: int) -> None:
        """A process ends; another one takes its place. The other node hears of it."""
        self.processes[node].links.stop()
        self.incarnations[node] += 1
        self.processes[node] = Process(self.post, self.clock, node, self.incarnations[node])
        self.tell_members()

    @rule()
    def wait(self) -> None:
        """A second passes: signs are sent."""
        self.clock.advance(1)

    def teardown(self) -> None:
        """On a bus with manners, both soon have everything that was sent since it was told as a whole."""
        self.post.full.clear()
        for _ in range(8):
            self.clock.advance(1)
            _deliver_all(self.post)
        for node, process in self.processes.items():
            assert self.processes[3 - node].received[node] == process.sent[3 - node]
            assert process.links.heard() == {3 - node}
            process.links.stop()


TestExchanges = Exchanges.TestCase


def test_a_series_that_is_received_has_no_gap() -> None:
    """The second of three messages is lost: the third is not taken, and everything is told anew."""
    clock, post = Clock(), Post()
    one, two = (Process(post, clock, node, 1) for node in (1, 2))
    one.links.members({2: 1})
    two.links.members({1: 1})
    post.waiting.clear()  # the messages that tell everything at first, and their loss
    for number in range(3):
        one.say(2, b"%d" % number)
    del post.waiting[1]
    for _ in range(2):
        target, datagram = post.waiting.pop(0)
        post.receivers[target](datagram)
        assert two.received.get(1, []) == []
    _deliver_all(post)
    assert two.received[1] == [b"whole 2"]


def test_a_silent_node_is_not_heard() -> None:
    """Its link stays: only another incarnation, or its end, breaks it."""
    clock, post = Clock(), Post()
    one, two = (Process(post, clock, node, 1) for node in (1, 2))
    for process, other in ((one, 2), (two, 1)):
        process.links.members({other: 1})
    _deliver_all(post)
    assert one.links.heard() == {2}
    clock.advance(SILENCE)
    post.waiting.clear()
    assert one.links.heard() == frozenset()
    assert one.ups == 1


def test_no_room_ends_in_one_more_beginning() -> None:
    """A control message finds no room: nothing is sent meanwhile, and everything is told when there is room."""
    clock, post = Clock(), Post()
    one = Process(post, clock, 1, 1)
    post.full.add(2)
    one.links.members({2: 1})
    for number in range(100):
        one.say(2, b"%d" % number)
    assert one.ups == 1
    post.full.clear()
    clock.advance(1)
    assert one.ups == 2
    assert len(post.waiting) == 2  # everything, and a sign


def test_strange_datagrams_are_dropped() -> None:
    """Those that are too short, of unknown nodes and incarnations, for others, of no kind."""
    clock, post = Clock(), Post()
    one, two = (Process(post, clock, node, 1) for node in (1, 2))
    two.links.members({1: 2})
    one.links.members({2: 1})
    for _, datagram in post.waiting:
        two.links.take(datagram)
        two.links.take(datagram[:10])
    assert two.links.strange == 2 * len(post.waiting)
    assert two.received == {}


def test_the_sender_of_a_lost_last_message_learns_it_by_a_sign() -> None:
    """Nothing is sent behind it."""
    clock, post = Clock(), Post()
    one, two = (Process(post, clock, node, 1) for node in (1, 2))
    for process, other in ((one, 2), (two, 1)):
        process.links.members({other: 1})
    _deliver_all(post)
    one.say(2, b"last")
    post.waiting.clear()
    for _ in range(3):
        clock.advance(1)
        _deliver_all(post)
    assert one.ups == 2
    assert two.received[1] == one.sent[2]


def _deliver_all(post: Post) -> None:
    while post.waiting:
        target, datagram = post.waiting.pop(0)
        post.receivers[target](datagram)
