"""Links: messages arrive in order and once, or everything is told anew, whatever the bus and the processes do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast.cluster.links import SILENCE, Links


class Wire:
    """All datagrams that are under way, and those nodes for which there is no room."""

    def __init__(self) -> None:
        self.under_way: list[tuple[int, bytes]] = []
        self.full: set[int] = set()


class WireBus:
    """The bus of one process: it sends to the wire. The test takes datagrams from there."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def start(self, received: Callable[[bytes], None]) -> None:
        """Begin; the test calls ``take`` of the links itself."""

    def send(self, node: int, datagram: bytes) -> bool:
        """Put a datagram on the wire."""
        if node in self._wire.full:
            return False
        self._wire.under_way.append((node, datagram))
        return True

    def stop(self) -> Deferred[None]:
        """Do nothing."""
        return succeed(None)


class Process:
    """One process of a node, which tells two messages with each ``up``. It notes all that its links say."""

    def __init__(self, node: int, incarnation: int, wire: Wire, clock: Clock, numbers: count[int]) -> None:
        self.node, self.incarnation = node, incarnation
        self._numbers = numbers
        #: by node: the messages sent since each ``up``, and those received since each ``began``
        self.sent: dict[int, list[list[bytes]]] = {}
        self.got: dict[int, list[list[bytes]]] = {}
        self.events: list[tuple[str, int]] = []
        self.links = Links(
            node, incarnation, WireBus(wire), clock, received=self._received, up=self._up, down=self._down,
            began=self._began,
        )  # fmt: skip
        self.links.start()

    def say(self, node: int, droppable: bool = False) -> None:
        """Send the next message."""
        message = b"%d" % next(self._numbers)
        lost = self.links.lost
        self.links.send(node, message, droppable)
        if not droppable or self.links.lost == lost:
            self.sent[node][-1].append(message)

    def _received(self, node: int, message: bytes) -> None:
        self.got[node][-1].append(message)

    def _up(self, node: int) -> None:
        self.events.append(("up", node))
        self.sent.setdefault(node, []).append([])
        self.say(node)
        self.say(node)

    def _began(self, node: int) -> None:
        self.events.append(("began", node))
        self.got.setdefault(node, []).append([])

    def _down(self, node: int) -> None:
        self.events.append(("down", node))
        self.got.pop(node, None)


class World:
    """Two nodes and a wire."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.wire = Wire()
        self._numbers = count()
        self.processes = {node: self._process(node, 1) for node in (1, 2)}
        #: all processes that there were, by node and incarnation
        self.all = {(each.node, each.incarnation): each for each in self.processes.values()}
        self.known: dict[int, int] = {}
        for node in (1, 2):
            self.learn(node)

    def _process(self, node: int, incarnation: int) -> Process:
        return Process(node, incarnation, self.wire, self.clock, self._numbers)

    def restart(self, node: int) -> None:
        """Kill the process of a node, and start the next one. It knows the other node; the other one does not yet."""
        old = self.processes[node]
        old.links.stop()
        new = self._process(node, old.incarnation + 1)
        self.processes[node] = self.all[node, new.incarnation] = new
        self.learn(node)

    def learn(self, node: int) -> None:
        """Let a node learn which process of the other one lives."""
        other = self.processes[3 - node]
        self.known[node] = other.incarnation
        self.processes[node].links.members({other.node: other.incarnation})

    def deliver(self, place: int, keep: bool = False) -> None:
        """Let the datagram at this place arrive."""
        node, datagram = self.wire.under_way[place] if keep else self.wire.under_way.pop(place)
        self.processes[node].links.take(datagram)

    def deliver_all(self) -> None:
        """Let all datagrams arrive, in order, and those that they cause."""
        while self.wire.under_way:
            self.deliver(0)

    def sign(self) -> None:
        """Let a second pass: signs are given."""
        self.clock.advance(1)

    def heal(self) -> None:
        """Let both nodes learn of each other, and the bus carry everything for some seconds."""
        self.wire.full.clear()
        for node in (1, 2):
            self.learn(node)
        for _ in range(5):
            self.deliver_all()
            self.sign()
        self.deliver_all()

    def check(self) -> None:
        """All that was received since a beginning is the beginning of what was sent since one ``up``, in this order."""
        for node, process in self.processes.items():
            source = self.all[3 - node, self.known[node]]
            series = iter(source.sent.get(node, []))
            for got in process.got.get(3 - node, []):
                if got:
                    assert any(got == sent[: len(got)] for sent in series), (got, source.sent)

    def check_complete(self) -> None:
        """Both nodes hear each other, and have everything since the last ``up``."""
        for node, process in self.processes.items():
            assert process.links.heard() == {3 - node}
            assert process.got[3 - node][-1] == self.processes[3 - node].sent[node][-1]


class LinksMachine(RuleBasedStateMachine):
    """Two nodes speak over a bus that does everything but invent datagrams."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    nodes = st.sampled_from((1, 2))

    @rule(node=nodes, droppable=st.booleans())
    def say(self, node: int, droppable: bool) -> None:
        """A node sends a message."""
        self.world.processes[node].say(3 - node, droppable)
        self.world.check()

    @precondition(lambda self: self.world.wire.under_way)
    @rule(data=st.data(), keep=st.booleans())
    def deliver(self, data: st.DataObject, keep: bool) -> None:
        """Any datagram arrives, perhaps once more later."""
        self.world.deliver(data.draw(st.integers(0, len(self.world.wire.under_way) - 1)), keep)
        self.world.check()

    @rule()
    def deliver_all(self) -> None:
        """All datagrams arrive in order."""
        self.world.deliver_all()
        self.world.check()

    @precondition(lambda self: self.world.wire.under_way)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Any datagram is lost."""
        self.world.wire.under_way.pop(data.draw(st.integers(0, len(self.world.wire.under_way) - 1)))

    @precondition(lambda self: self.world.wire.under_way)
    @rule(data=st.data())
    def stray(self, data: st.DataObject) -> None:
        """A datagram arrives at the wrong node, which drops it."""
        node, datagram = data.draw(st.sampled_from(self.world.wire.under_way))
        wrong = self.world.processes[3 - node].links
        strange = wrong.strange
        wrong.take(datagram)
        assert wrong.strange == strange + 1

    @rule(node=nodes)
    def fill(self, node: int) -> None:
        """There is no room for a node any more."""
        self.world.wire.full.add(node)

    @rule()
    def empty(self) -> None:
        """There is room again."""
        self.world.wire.full.clear()

    @rule()
    def sign(self) -> None:
        """A second passes."""
        self.world.sign()

    @rule(node=nodes)
    def restart(self, node: int) -> None:
        """A process is killed, and starts again."""
        self.world.restart(node)
        self.world.check()

    @rule(node=nodes)
    def learn(self, node: int) -> None:
        """A node learns which process of the other one lives."""
        self.world.learn(node)
        self.world.check()

    @rule()
    def heal(self) -> None:
        """The bus is healed, and some signs are given: nothing is missing."""
        self.world.heal()
        self.world.check()
        self.world.check_complete()

    def teardown(self) -> None:
        """Nothing is missing in the end."""
        self.heal()


TestLinksMachine = LinksMachine.TestCase
TestLinksMachine.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


def settled_world() -> World:
    """Return two nodes that have told each other everything."""
    world = World()
    world.heal()
    world.check_complete()
    for process in world.processes.values():
        process.events.clear()
    return world


def test_nothing_begins_anew_on_a_bus_that_loses_nothing() -> None:
    """Signs are no reason to tell everything again."""
    world = settled_world()
    for _ in range(5):
        world.processes[1].say(2)
        world.deliver_all()
        world.sign()
        world.deliver_all()
    assert world.processes[1].events == world.processes[2].events == []
    world.check_complete()


def test_the_loss_of_the_last_message_is_noticed() -> None:
    """The next sign tells its number."""
    world = settled_world()
    world.processes[1].say(2)
    world.wire.under_way.clear()
    world.sign()
    world.deliver_all()
    assert world.processes[1].events == [("up", 2)]
    assert world.processes[2].events == [("began", 1)]
    world.check_complete()


def test_a_lost_question_is_asked_again() -> None:
    """While the link is broken, its node is not among those that are heard."""
    world = settled_world()
    world.processes[1].say(2)
    world.processes[1].say(2)
    world.wire.under_way.pop(0)
    world.deliver(0)
    world.wire.under_way.clear()  # the question
    assert world.processes[2].links.heard() == frozenset()
    world.sign()
    world.deliver_all()
    world.check_complete()
    assert world.processes[2].links.breaks == 1


def test_a_repeated_question_is_answered_once() -> None:
    """Everything is told once."""
    world = settled_world()
    world.processes[1].say(2)
    world.processes[1].say(2)
    world.wire.under_way.pop(0)
    world.deliver(0)
    world.deliver(0, keep=True)
    world.deliver_all()
    assert world.processes[1].events == [("up", 2)]


def test_a_silent_node_is_not_heard_and_keeps_its_link() -> None:
    """Its messages may be under way."""
    world = settled_world()
    world.clock.advance(SILENCE)
    assert world.processes[1].links.heard() == frozenset()
    world.processes[1].say(2)
    world.deliver_all()
    assert world.processes[1].links.heard() == {2}
    world.check_complete()
    assert world.processes[1].events == []


def test_a_droppable_message_without_room_is_counted_and_breaks_nothing() -> None:
    """The next messages go on."""
    world = settled_world()
    world.wire.full.add(2)
    world.processes[1].say(2, droppable=True)
    assert world.processes[1].links.lost == 1
    world.wire.full.clear()
    world.processes[1].say(2)
    world.deliver_all()
    world.sign()
    world.deliver_all()
    assert world.processes[1].events == []
    world.check_complete()


def test_a_message_without_room_lets_everything_be_told_anew_once_there_is_room() -> None:
    """Not before: to tell everything needs more room."""
    world = settled_world()
    world.wire.full.add(2)
    world.processes[1].say(2)
    for _ in range(3):
        world.processes[1].say(2)
        world.sign()
    assert world.processes[1].events == []
    world.wire.full.clear()
    world.sign()
    assert world.processes[1].events == [("up", 2)]
    world.deliver_all()
    world.check_complete()


def test_a_restart_is_down_and_up() -> None:
    """The new process of the other node knows nothing."""
    world = settled_world()
    world.restart(2)
    world.learn(1)
    assert world.processes[1].events == [("down", 2), ("up", 2)]
    world.processes[1].links.members({})
    assert world.processes[1].events[2:] == [("down", 2)]
    world.processes[1].links.send(2, b"for nobody")
    assert world.processes[1].links.lost == 1


def test_bytes_that_are_no_datagram_are_counted() -> None:
    """Whoever can write to the bus could send anything."""
    world = settled_world()
    links = world.processes[1].links
    for datagram in (b"", b"x" * 25, b"x" * 26, b"\xff" * 200):
        links.take(datagram)
    assert links.strange == 4
    assert world.processes[1].events == []
