"""The gate: a subscription has its SUBACK when each living node knows of it, and no later than that."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from unittest.mock import patch

from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.cluster import interest as module
from holdfast.cluster.interest import OwnInterest
from holdfast.cluster.messages import ENDED, Interest, Members, Wanted
from holdfast.core.tickets import COMMITTED, CommitTicket

NODES = (2, 3, 4)
FILTERS = ("a", "a/#", "+/b", "c")
GROUPS = ("$share/g/a", "$share/h/a/#")


@define
class OtherNode:
    """Another node: what it was told and has not read yet, its table, and its answers that are under way."""

    inbox: deque[Interest] = field(factory=deque)
    answers: deque[int] = field(factory=deque)
    filters: dict[str, int] = field(factory=dict)
    groups: dict[str, tuple[int, int]] = field(factory=dict)
    told: set[str] = field(factory=set)
    applied: int | None = None

    def read(self) -> None:
        """Apply the next message, and answer."""
        message = self.inbox.popleft()
        for change in message.changes:
            if isinstance(change, Wanted):
                self.told.add(change.topic_filter)
                self.filters[change.topic_filter] = change.qos
            else:
                self.told.add(change.shared_filter)
                self.groups[change.shared_filter] = change.online, change.away
        if message.is_whole:
            self.filters = {name: qos for name, qos in self.filters.items() if name in self.told}
            self.groups = {name: members for name, members in self.groups.items() if name in self.told}
        self.filters = {name: qos for name, qos in self.filters.items() if qos != ENDED}
        self.groups = {name: members for name, members in self.groups.items() if any(members)}
        if message.version or message.is_whole:
            self.applied = message.version
            self.answers.append(message.version)


class Cluster:
    """The interest of node 1, other nodes, and the calls that are due in this turn."""

    def __init__(self) -> None:
        self.others: dict[int, OtherNode] = {}
        self._due: list[Callable[[], None]] = []
        self.interest = OwnInterest(lambda node, message: self.others[node].inbox.append(message), self._due.append)

    def join(self, node: int) -> None:
        """A process of a node begins to live, in place of the former one."""
        if node in self.others:
            self.leave(node)
        self.others[node] = OtherNode()
        self.interest.peer_up(node)

    def leave(self, node: int) -> None:
        """A node is taken for dead."""
        del self.others[node]
        self.interest.peer_down(node)

    def turn(self) -> None:
        """End the turn."""
        due, self._due[:] = list(self._due), []
        for call in due:
            call()

    def answer(self, node: int) -> None:
        """Let the next answer of a node arrive."""
        self.interest.applied(node, self.others[node].answers.popleft())

    def quiet(self) -> None:
        """Let everything arrive."""
        while self._due:
            self.turn()
        for node, other in self.others.items():
            while other.inbox:
                other.read()
            while other.answers:
                self.answer(node)


class InterestMachine(RuleBasedStateMachine):
    """Subscriptions and groups come and go, while nodes come and go and links break."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.wants: Counter[tuple[str, int]] = Counter()
        self.groups: dict[str, tuple[int, int]] = {}
        #: how often a filter was not wanted any more, and a group changed: earlier tickets promise nothing then
        self.ended: Counter[tuple[str, int]] = Counter()
        self.changed: Counter[str] = Counter()
        self.open = 0  # tickets that wait
        self._smaller = patch.object(module, "_PER_MESSAGE", 2)
        self._smaller.start()

    def teardown(self) -> None:
        """Nothing waits in the end."""
        try:
            self.quiet()
        finally:
            self._smaller.stop()

    def _watch(self, ticket: CommitTicket, check: Callable[[], None]) -> None:
        self.open += 1

        def settled(failure: object) -> None:
            assert failure is None
            self.open -= 1
            check()

        ticket.when_settled(settled)

    @rule(topic_filter=st.sampled_from(FILTERS), qos=st.integers(0, 2))
    def want(self, topic_filter: str, qos: int) -> None:
        """A Session subscribes."""
        self.wants[topic_filter, qos] += 1
        ended = self.ended[topic_filter, qos]

        def check() -> None:
            if self.ended[topic_filter, qos] == ended:
                for other in self.cluster.others.values():
                    assert other.filters.get(topic_filter, -1) >= qos

        self._watch(self.cluster.interest.want(topic_filter, qos), check)

    @precondition(lambda self: +self.wants)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A Session unsubscribes."""
        topic_filter, qos = data.draw(st.sampled_from(sorted(+self.wants)))
        self.wants[topic_filter, qos] -= 1
        self.ended[topic_filter, qos] += not self.wants[topic_filter, qos]
        self.cluster.interest.end(topic_filter, qos)

    @rule(shared_filter=st.sampled_from(GROUPS), online=st.integers(0, 2), away=st.integers(0, 1))
    def group(self, shared_filter: str, online: int, away: int) -> None:
        """The members of a group change, or are told once more."""
        members = online, away
        self.changed[shared_filter] += self.groups.get(shared_filter) != members
        self.groups[shared_filter] = members
        changed = self.changed[shared_filter]

        def check() -> None:
            if self.changed[shared_filter] == changed:
                for other in self.cluster.others.values():
                    assert other.groups.get(shared_filter, (0, 0)) == members

        before = self.cluster.interest.version
        ticket = self.cluster.interest.group(shared_filter, online, away)
        if (online or away) or self.cluster.interest.version != before:  # nobody waits for a group that was not there
            self._watch(ticket, check)

    @rule()
    def turn(self) -> None:
        """A turn ends."""
        self.cluster.turn()

    @rule(node=st.sampled_from(NODES))
    def join(self, node: int) -> None:
        """A process begins to live."""
        self.cluster.join(node)

    @precondition(lambda self: self.cluster.others)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A node is taken for dead."""
        self.cluster.leave(self._any(data, lambda _: True) or 0)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """A node reads a message."""
        node = self._any(data, lambda other: bool(other.inbox))
        if node is not None:
            self.cluster.others[node].read()

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """An answer arrives."""
        node = self._any(data, lambda other: bool(other.answers))
        if node is not None:
            self.cluster.answer(node)

    @rule(data=st.data())
    def break_link_there(self, data: st.DataObject) -> None:
        """Messages to a node are lost: it is told everything anew. Its earlier answers may arrive yet."""
        node = self._any(data, lambda _: True)
        if node is not None:
            other = self.cluster.others[node]
            other.inbox.clear()
            other.told = set()
            self.cluster.interest.peer_up(node)

    @rule(data=st.data())
    def break_link_back(self, data: st.DataObject) -> None:
        """Answers of a node are lost: it repeats the last one."""
        node = self._any(data, lambda other: bool(other.answers))
        if node is not None:
            other = self.cluster.others[node]
            other.answers.clear()
            if other.applied is not None:
                other.answers.append(other.applied)

    @rule()
    def quiet(self) -> None:
        """Everything arrives: all nodes know everything, and nothing waits."""
        self.cluster.quiet()
        assert (self.open, self.cluster.interest.waits) == (0, 0)
        most = {name: max(qos for other, qos in +self.wants if other == name) for name, _ in +self.wants}
        groups = {name: members for name, members in self.groups.items() if any(members)}
        for node, other in self.cluster.others.items():
            assert (other.filters, other.groups) == (most, groups)
            assert self.cluster.interest.is_applied_by(node)

    @invariant()
    def nothing_waits_for_nobody(self) -> None:
        """Without other nodes, each subscription has effect at once."""
        assert self.cluster.others or not self.open

    def _any(self, data: st.DataObject, accepts: Callable[[OtherNode], bool]) -> int | None:
        nodes = sorted(node for node, other in self.cluster.others.items() if accepts(other))
        return data.draw(st.sampled_from(nodes)) if nodes else None


TestInterestMachine = InterestMachine.TestCase
TestInterestMachine.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


def test_all_changes_of_a_turn_are_told_at_once() -> None:
    """Only the last change of each filter is told."""
    cluster = Cluster()
    cluster.join(2)
    cluster.quiet()
    cluster.interest.want("a", 0)
    cluster.interest.want("b", 1)
    cluster.interest.want("a", 2)
    cluster.interest.end("b", 1)
    cluster.turn()
    assert list(cluster.others[2].inbox) == [Interest(4, (Wanted("a", 2), Wanted("b", ENDED)))]


def test_many_filters_are_told_in_parts_of_which_the_last_has_the_version() -> None:
    """A part alone has no effect that anybody may count on."""
    cluster = Cluster()
    for number in range(450):
        cluster.interest.want(f"t/{number}", 1)
    cluster.turn()
    cluster.join(2)
    inbox = cluster.others[2].inbox
    for turn in range(9):
        assert len(inbox) == turn
        cluster.turn()
    parts = [(message.version, message.is_whole, len(message.changes)) for message in inbox]
    assert parts == [(0, False, 50)] * 8 + [(450, True, 50)]


def test_a_node_without_subscriptions_tells_this() -> None:
    """Other nodes wait for the end of its interest."""
    cluster = Cluster()
    cluster.join(2)
    cluster.turn()
    assert list(cluster.others[2].inbox) == [Interest(0, (), True)]
    assert not cluster.interest.is_applied_by(2)
    cluster.quiet()
    assert cluster.interest.is_applied_by(2)


def test_a_filter_that_all_nodes_have_costs_no_wait() -> None:
    """A second Session for it tells nothing."""
    cluster = Cluster()
    cluster.join(2)
    assert not cluster.interest.want("a", 1).settled
    cluster.quiet()
    assert cluster.interest.want("a", 1) is COMMITTED
    assert cluster.interest.want("a", 0) is COMMITTED
    cluster.interest.end("a", 0)
    cluster.turn()
    assert not cluster.others[2].inbox
    assert not cluster.interest.want("a", 2).settled


def test_members_that_are_told_once_more_wait_for_the_first_telling() -> None:
    """A member that leaves and comes back in one turn has its SUBACK no sooner than the group is known."""
    cluster = Cluster()
    cluster.join(2)
    cluster.quiet()
    first = cluster.interest.group("$share/g/a", 1, 0)
    second = cluster.interest.group("$share/g/a", 1, 0)
    assert not second.settled
    cluster.turn()
    assert list(cluster.others[2].inbox) == [Interest(1, (Members("$share/g/a", 1, 0),))]
    cluster.quiet()
    assert first.settled
    assert second.settled
    assert cluster.interest.group("$share/g/a", 1, 0) is COMMITTED


def test_a_session_that_joins_an_earlier_change_does_not_wait_for_later_ones() -> None:
    """It waits for the version of its own filter."""
    cluster = Cluster()
    cluster.join(2)
    cluster.quiet()
    cluster.interest.want("a", 1)
    cluster.turn()
    later = cluster.interest.want("b", 1)
    joins = cluster.interest.want("a", 1)
    cluster.others[2].read()
    cluster.answer(2)
    assert joins.settled
    assert not later.settled


def test_a_node_that_is_told_everything_anew_gets_no_version_before_that() -> None:
    """It has missed version 1, and would answer with version 2."""
    cluster = Cluster()
    cluster.join(2)
    cluster.quiet()
    first = cluster.interest.want("a", 1)
    cluster.turn()
    cluster.others[2].inbox.clear()
    cluster.interest.want("b", 1)
    cluster.interest.peer_up(2)
    cluster.turn()
    assert list(cluster.others[2].inbox) == [
        Interest(0, (Wanted("b", 1),)), Interest(2, (Wanted("a", 1), Wanted("b", 1)), True),
    ]  # fmt: skip
    assert not first.settled
    cluster.quiet()
    assert first.settled


def test_a_version_of_a_node_that_is_gone_is_ignored() -> None:
    """Its answer may have been under way."""
    cluster = Cluster()
    cluster.join(2)
    cluster.leave(2)
    cluster.interest.applied(2, 7)
    cluster.interest.peer_down(2)
    assert not cluster.interest.is_applied_by(2)


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
