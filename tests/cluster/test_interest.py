"""The interest of a node and the gate, beside a model: no ticket is settled before each living node has its version."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.cluster.interest import OwnInterest
from holdfast.cluster.messages import ENDED, Interest, Members, Wanted
from holdfast.core.tickets import CommitTicket

FILTERS = st.sampled_from([f"plant/{number}/#" for number in range(6)])
NODES = st.integers(2, 4)


class Node:
    """What another node has been told, in order, and what it has applied."""

    def __init__(self) -> None:
        self.arriving: deque[Interest] = deque()
        self.filters: dict[str, int] = {}
        self.groups: dict[str, tuple[int, int]] = {}
        self.told: set[str] | None = set()

    def apply(self) -> int:
        """Apply the next message as :class:`holdfast.cluster.exchange.Exchange` does; return the version to answer."""
        interest = self.arriving.popleft()
        for change in interest.changes:
            if isinstance(change, Members):
                name = change.shared_filter
                self.groups[name] = (change.online, change.away)
            else:
                name = change.topic_filter
                self.filters[name] = change.qos
                if change.qos == ENDED:
                    del self.filters[name]
            if self.told is not None:
                self.told.add(name)
        if interest.is_whole:
            assert self.told is not None
            self.filters = {name: qos for name, qos in self.filters.items() if name in self.told}
            self.told = None
        return interest.version


class Gates(RuleBasedStateMachine):
    """Sessions come and go, nodes come, apply late, and go."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[int, Node] = {}
        self.soon: deque[Callable[[], None]] = deque()
        self.interest = OwnInterest(lambda node, told: self.nodes[node].arriving.append(told), self.soon.append)
        self.wants: Counter[tuple[str, int]] = Counter()
        self.tickets: list[tuple[str, int, CommitTicket]] = []

    @rule(topic_filter=FILTERS, qos=st.integers(0, 2))
    def want(self, topic_filter: str, qos: int) -> None:
        """Another Session subscribes."""
        self.wants[topic_filter, qos] += 1
        ticket = self.interest.want(topic_filter, qos)
        self.tickets.append((topic_filter, qos, ticket))
        if not ticket.settled:
            ticket.when_settled(lambda _: self.opened(topic_filter, qos, ticket))

    def opened(self, topic_filter: str, qos: int, ticket: CommitTicket) -> None:
        """Require that all nodes know the Topic Filter of a Session that still waits."""
        if any(ticket is each for _, _, each in self.tickets):
            self.know(topic_filter, qos, list(self.nodes.values()))

    @staticmethod
    def know(topic_filter: str, qos: int, nodes: list[Node]) -> None:
        """Require that these nodes know a Topic Filter, with its QoS at least."""
        assert all(node.filters.get(topic_filter, -1) >= qos for node in nodes)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A Session unsubscribes; its own wait is of no interest any more."""
        present = sorted(self.wants.elements())
        if present:
            topic_filter, qos = data.draw(st.sampled_from(present))
            self.wants[topic_filter, qos] -= 1
            self.interest.end(topic_filter, qos)
            self.tickets = [each for each in self.tickets if each[0] != topic_filter]

    @rule(online=st.integers(0, 2), away=st.integers(0, 1))
    def group(self, online: int, away: int) -> None:
        """The members of a group change."""
        self.interest.group("$share/g/jobs", online, away)

    @rule(node=NODES)
    def come(self, node: int) -> None:
        """A node comes, or has to be told everything once more."""
        self.nodes[node] = Node()
        self.interest.peer_up(node)

    @rule(node=NODES)
    def go(self, node: int) -> None:
        """A node is taken over."""
        self.nodes.pop(node, None)
        self.interest.peer_down(node)

    @rule()
    def turn(self) -> None:
        """The reactor's turn ends."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    @rule(node=NODES)
    def apply(self, node: int) -> None:
        """A node applies the next message, and answers."""
        other = self.nodes.get(node)
        if other is not None and other.arriving:
            version = other.apply()
            if version or other.told is None:
                self.interest.applied(node, version)

    @invariant()
    def no_gate_is_open_too_early(self) -> None:
        """Subscribers with SUBACK are known to all nodes that serve: those that have been told everything."""
        for topic_filter, qos, ticket in self.tickets:
            if ticket.settled:
                self.know(topic_filter, qos, [node for node in self.nodes.values() if node.told is None])

    def teardown(self) -> None:
        """When all nodes have applied everything, nobody waits, and all know the same."""
        while self.soon or any(node.arriving for node in self.nodes.values()):
            self.turn()
            for number in list(self.nodes):
                while self.nodes[number].arriving:
                    self.apply(number)
        assert not self.interest.waits
        assert all(ticket.settled for _, _, ticket in self.tickets)
        present = {topic_filter for topic_filter, _ in self.wants.elements()}
        wanted = {each: max(qos for topic, qos in self.wants.elements() if topic == each) for each in present}
        for node in self.nodes.values():
            assert node.filters == wanted


TestGates = Gates.TestCase


def test_the_error_of_one_client_leaves_no_other_waiting() -> None:
    """Its callback is called when the gate opens, and raises."""
    interest = OwnInterest(lambda _node, _told: None, lambda call: call())
    interest.peer_up(2)
    interest.applied(2, 0)
    tickets = [interest.want(name, 1) for name in ("a", "b")]

    def fail(_: object) -> None:
        raise RuntimeError("a client is at fault")

    tickets[0].when_settled(fail)
    try:
        interest.applied(2, 2)
    except RuntimeError:
        assert tickets[1].settled
    else:
        raise AssertionError("the error is lost")


def test_much_is_told_in_parts() -> None:
    """A node that comes to a thousand filters gets them in many messages, the last of which is the whole."""
    told: list[Interest] = []
    soon: deque[Callable[[], None]] = deque()
    interest = OwnInterest(lambda _node, part: told.append(part), soon.append)
    for number in range(1000):
        interest.want(f"plant/{number}", 1)
    interest.peer_up(2)
    turns = 0
    while soon:
        soon.popleft()()
        turns += 1
    assert turns >= 20
    assert max(len(part.changes) for part in told) <= 50
    assert [part.is_whole for part in told] == [False] * (len(told) - 1) + [True]
    names = {change.topic_filter for part in told for change in part.changes if isinstance(change, Wanted)}
    assert len(names) == 1000
