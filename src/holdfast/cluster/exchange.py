"""The exchange of messages between this node and the others: it joins links, interest, rows, runs and the table.

How it works. The answers to the renewals of the lease name all nodes that are not removed. For each other one there is
a :class:`_Node` here, with its receiver in the routing table. A dead node keeps its receiver, for the Topic Filters of
its stored Sessions: their messages are rows that it reads when it comes back.

    what a node says     what this node does
    Interest             changes the routing table; answers Applied when all that it has matched before is stored
    Applied              opens gates: SUBACK and the replay of a new subscription wait for all living nodes
    Hint, Run            rows are read, runs are delivered
    Question, Reply      operators' calls are answered by the members that know: see :mod:`.questions`

So a subscriber gets the messages of publishers at other nodes from its SUBACK on. Each earlier retained message is
stored by then: the replay, which begins behind the gate, reads it. Each batch that a replay reads waits until the rows
that were stored before are applied: an older live message never comes behind a newer replayed one.

A node that starts serves clients when each living node has told all of its interest, and has applied this node's
(:meth:`Exchange.why_not_ready`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, cast

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.changes.telemetry import Telemetry
from holdfast.cluster import messages
from holdfast.cluster.corrections import Corrections
from holdfast.cluster.crossing import CrossedMessage, Rows
from holdfast.cluster.handing_on import HandingOn
from holdfast.cluster.interest import OwnInterest
from holdfast.cluster.links import Bus, Links
from holdfast.cluster.members import Place
from holdfast.cluster.messages import (
    ENDED,
    Applied,
    Connected,
    Hint,
    Interest,
    Malformed,
    Members,
    Question,
    Release,
    Released,
    Reply,
    Run,
    Wanted,
)
from holdfast.cluster.moves import ClusterRegistry
from holdfast.cluster.questions import Answers, MemberQuestions
from holdfast.cluster.receivers import ClusterGroup, ClusterRouter, ClusterTable, Destinations, Peer
from holdfast.cluster.runs import IncomingRuns, LastRows, OutgoingRuns
from holdfast.core.messages import ApplicationMessage, ChangeKind, ChangeOrigin
from holdfast.core.tickets import COMMITTED, CommitTicket, StorageFailure, TicketsTogether, both
from holdfast.core.topics import EVERY_TOPIC
from holdfast.identity.interfaces import IAuthorizer
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.feed import Change
from holdfast.retained.service import RetainedMessages
from holdfast.retained.store.interfaces import IReplaySource
from holdfast.retained.store.values import Batch, Selection
from holdfast.sessions.counters import Counters
from holdfast.storage.driver import Connection
from holdfast.storage.store import DurableStore, OpenStore

_STORED_FILTERS = (
    "SELECT topic_filter, max(qos) FROM session_subscriptions "
    "WHERE session_id IN (SELECT id FROM sessions WHERE owner = ?) AND topic_filter NOT LIKE '$share/%' "
    "GROUP BY topic_filter"
)
_STORED_GROUPS = (
    "SELECT topic_filter, CAST(count(*) AS integer) FROM session_subscriptions "
    "WHERE session_id IN (SELECT id FROM sessions WHERE owner = ?) AND topic_filter LIKE '$share/%' "
    "GROUP BY topic_filter"
)
#: seconds until the filters of a dead node's Sessions are read again
_LOOK_AT_DEAD = 10.0
#: changes of the routing table in one turn
_PER_TURN = 50
#: with more new Topic Filters than that, the changes of all topics are flushed
_FLUSHED_SINGLY = 20


@define(eq=False)
class _Node:
    """Another node: its receiver, its entries in the routing table, and its runs.

    ``told`` are the filters and groups that it has told since it began to tell everything, None behind the end of that.
    ``doomed`` are the filters and groups that are being removed.
    ``answers`` are the versions that it awaits, in order, and ``applied`` is the last one that it was told.
    ``stored`` gathers the tickets that the next one waits for. ``read_at`` is when the filters of a dead node were read
    (seconds of the clock).
    """

    peer: Peer
    incarnation: int
    lives: bool
    runs: IncomingRuns
    filters: dict[str, int] = field(factory=dict)
    groups: set[str] = field(factory=set)
    doomed: dict[str, None] = field(factory=dict)
    told: set[str] | None = field(factory=set)
    answers: deque[tuple[int, CommitTicket]] = field(factory=deque)
    applied: int | None = None
    read_at: float = 0.0
    stored: TicketsTogether = field(factory=TicketsTogether)

    @property
    def is_known(self) -> bool:
        """Whether all of its interest is in the routing table."""
        return self.told is None


class Exchange:
    """Lets messages cross between this node and the others.

    ``bus`` makes the bus of an open store. The membership tells :meth:`places`.
    """

    _log = Logger()

    def __init__(
        self,
        durable: DurableStore,
        clock: IReactorTime,
        *,
        retained: RetainedMessages,
        replays: ReplayRegistry,
        bus: Callable[[OpenStore], Bus],
        incarnation: Callable[[], int],
    ) -> None:
        self.node = durable.node
        self._durable = durable
        self._clock = clock
        self._retained = retained
        self._bus = bus
        self._incarnation = incarnation
        self._links: Links | None = None
        self._nodes: dict[int, _Node] = {}
        self._router: ClusterRouter
        self._sessions: ClusterRegistry
        self._table: ClusterTable
        self._last_rows = LastRows()
        self._changed_groups: dict[str, ClusterGroup] = {}
        self._groups_gate = COMMITTED  # for the changes of groups in this turn
        self._places: Sequence[Place] = ()
        self._reading_filters: set[int] = set()
        self.interest = OwnInterest(self._tell, partial(clock.callLater, 0))
        self.rows = Rows(
            durable, clock, deliver=self._deliver_row, hint=self._hint,
            heard=self.heard,
        )  # fmt: skip
        self.runs = OutgoingRuns(clock, self._last_rows, self._send_run)
        self.corrections = Corrections(retained, clock, self._correct)
        self._handing_on = HandingOn(
            durable, clock, deliver=self._deliver_row, has_members=self._has_members,
            some_are_dead=lambda: bool(self.dead()),
        )  # fmt: skip
        self.questions = MemberQuestions(clock, self._say)
        replays.source = cast("IReplaySource", ReplaysBehindRows(retained.store, self))
        #: names what carries messages to the other nodes now
        self.carrier: Callable[[], str] = lambda: "postgres"
        #: is called once, when this node may serve clients
        self.on_ready: Callable[[], object] | None = None

    def router(
        self,
        retained: RetainedMessages,
        authorizer: IAuthorizer,
        counters: Counters,
        rejecting: bool,
        telemetry: Telemetry | None,
    ) -> ClusterRouter:
        """Build the router of this member."""
        self._table = ClusterTable(
            counters.holdings, authorizer, self.interest, self._group_changed, lambda: self._groups_gate
        )
        self._router = ClusterRouter(
            retained,
            authorizer,
            counters,
            rejecting,
            telemetry,
            table=self._table,
            cross=self._cross,
            retains=self._retains,
        )
        return self._router

    def registry(self, **parts: Any) -> ClusterRegistry:
        """Build the registry of this member's Sessions, of the parts that a :class:`SessionRegistry` has."""
        self._sessions = ClusterRegistry(
            durable=self._durable, neighbours=self, table=self._table, cross=self._router_to_peer, **parts
        )
        return self._sessions

    # --- starting and stopping ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to speak with the other nodes. The store is open, and the Sessions are restored."""
        if self._links is not None:
            return
        parts = self._durable.parts
        assert parts is not None
        self._links = Links(
            self.node, self._incarnation(), self._bus(parts), self._clock, received=self._received,
            up=self._up, down=self._gone, began=self._began,
        )  # fmt: skip
        self._links.start()
        self.rows.start()
        self.places(self._places)
        self._sessions.start()
        self._handing_on.start()

    def stop(self) -> Deferred[None]:
        """Speak with nobody any more, and apply nothing."""
        self.rows.stop()
        self._handing_on.stop()
        self.corrections.stop()
        self.questions.stop()
        self.on_ready = None
        links, self._links = self._links, None
        return succeed(None) if links is None else links.stop()

    def why_not_ready(self) -> str | None:
        """Return which nodes this one still waits for before it serves clients; None if there are none."""
        late = [
            node for node, other in self._nodes.items()
            if not other.is_known or (other.lives and not self.interest.is_applied_by(node))
        ]  # fmt: skip
        if self._links is None:
            return "the exchange with the other nodes of the cluster has not begun"
        if not late:
            return None
        return f"waits for node {', '.join(map(str, late))} of the cluster: holdfast node list shows the nodes"

    @property
    def moved(self) -> tuple[int, int, int]:
        """How many Sessions have come here and have left, and how many messages with QoS 0 their queues have lost."""
        sessions = self._sessions
        return sessions.adopting.count, sessions.releasing.count, sessions.lost

    @property
    def lost(self) -> int:
        """How many messages for other nodes found no room, and how many of others found none here."""
        waiting = sum(other.runs.lost for other in self._nodes.values())
        return waiting + self.rows.not_kept + (0 if self._links is None else self._links.lost)

    @property
    def silent(self) -> frozenset[int]:
        """The nodes that may serve clients, and of which nothing is heard."""
        if self._links is None:
            return frozenset()
        return frozenset(node for node, other in self._nodes.items() if other.lives) - self._links.heard()

    @property
    def breaks(self) -> int:
        """How often a message of another node was missing, so that it has told everything anew."""
        return 0 if self._links is None else self._links.breaks

    def tell_node(self, node: int, message: Release | Released | Connected) -> None:
        """Send a message about Sessions to a node."""
        self._tell(node, message)

    def ask_for_hints(self) -> None:
        """Ask all nodes for the numbers of their last rows."""
        for node in self.living():
            self._tell(node, Hint(0))

    def lives(self, node: int) -> bool:
        """Tell whether nobody has taken over from a node."""
        return any(place.node == node and place.lives for place in self._places)

    def living(self) -> list[int]:
        """Return the other nodes that live."""
        return [place.node for place in self._places if place.lives and place.node != self.node]

    def dead(self) -> list[int]:
        """Return the nodes that others have taken over from."""
        return [place.node for place in self._places if not place.lives and place.node != self.node]

    # --- the other nodes ----------------------------------------------------------------------------------------------

    def places(self, places: Sequence[Place]) -> None:
        """Note which nodes there are."""
        self._places = places
        if self._links is None:
            return
        others = {place.node: place for place in places if place.node != self.node}
        for node in [node for node in self._nodes if node not in others]:
            self._remove(node)
        for node, place in others.items():
            other = self._nodes.get(node)
            if other is None:
                other = self._nodes[node] = _Node(
                    Peer(node, self._router_to_peer), place.incarnation, place.lives, self._incoming(node)
                )
                if not place.lives:
                    self._read_filters(node, other)
            elif (other.lives, other.incarnation) != (place.lives, place.incarnation):
                has_died = other.lives and not place.lives
                other.lives, other.incarnation = place.lives, place.incarnation
                if has_died:
                    self._read_filters(node, other)
            elif (
                (other.filters or other.groups)
                and self._clock.seconds() - other.read_at > _LOOK_AT_DEAD
                and not other.lives
            ):
                self._read_filters(node, other)  # its Sessions may belong to others by now
        self._links.members({node: place.incarnation for node, place in others.items() if place.lives})
        self._look_if_ready()

    def _router_to_peer(self, node: int, outgoing: Any, qos: int) -> None:
        self._router.to_peer(node, outgoing, qos)

    def _incoming(self, node: int) -> IncomingRuns:
        return IncomingRuns(self._clock, partial(self.rows.when_passed, node), self._deliver_run)

    def _read_filters(self, node: int, other: _Node) -> None:
        """Find the Topic Filters of the stored Sessions of a dead node, and keep only these."""
        parts = self._durable.parts
        if parts is None or node in self._reading_filters:
            return

        def read(connection: Connection) -> dict[str, Wanted | Members]:
            cursor = connection.cursor()
            cursor.execute(_STORED_FILTERS, (node,))
            wanted: dict[str, Wanted | Members] = {name: Wanted(name, qos) for name, qos in cursor.fetchall()}
            cursor.execute(_STORED_GROUPS, (node,))
            return wanted | {name: Members(name, 0, count) for name, count in cursor.fetchall()}

        def found(wanted: dict[str, Wanted | Members]) -> None:
            self._reading_filters.discard(node)
            if self._nodes.get(node) is other and not other.lives:
                self._forget(other, [name for name in (*other.filters, *other.groups) if name not in wanted])
                self._in_steps(other, list(wanted.values()), self._known)

        def failed(failure: Any) -> None:
            self._reading_filters.discard(node)
            failure.trap(StorageFailure)
            self._clock.callLater(1, self._read_filters, node, other)

        self._reading_filters.add(node)
        other.read_at = self._clock.seconds()
        reading = parts.readers.read(read)
        reading.addCallbacks(found, failed)
        reading.addErrback(lambda failure: self._log.failure("the filters of a dead node are not known", failure))

    def _up(self, node: int) -> None:
        """Tell a node everything. The last answer and the last hint may have been lost with the former series."""
        self.interest.peer_up(node)
        other = self._nodes.get(node)
        if other is not None and other.applied is not None:
            self._tell(node, Applied(other.applied))
        self.rows.hint_again(node)
        self._sessions.up(node)

    def _known(self, other: _Node) -> None:
        if not other.lives:
            other.told = None
            self._look_if_ready()

    def _forget(self, other: _Node, names: Iterable[str]) -> None:
        """Remove Topic Filters and groups of a node from the routing table, unless it tells them again meanwhile."""
        is_idle = not other.doomed
        other.doomed |= dict.fromkeys(names)
        if is_idle:
            self._end_doomed(other)

    def _end_doomed(self, other: _Node) -> None:
        for name in list(islice(other.doomed, _PER_TURN)):
            is_group = name in other.groups
            self._change(other, Members(name, 0, 0) if is_group else Wanted(name, ENDED))
        if other.doomed:
            self._clock.callLater(0, self._end_doomed, other)

    def _in_steps(
        self, other: _Node, changes: Sequence[Wanted | Members], then: Callable[[_Node], None] = lambda _: None
    ) -> None:
        """Make many changes of the routing table, some in each turn."""
        for change in changes[:_PER_TURN]:
            self._change(other, change)
        if len(changes) > _PER_TURN:
            self._clock.callLater(0, self._in_steps, other, changes[_PER_TURN:], then)
        else:
            then(other)

    def _gone(self, node: int) -> None:
        self.interest.peer_down(node)
        self._sessions.gone(node)
        self.questions.peer_down(node)
        other = self._nodes.get(node)
        if other is not None:
            self._forget_answers(other)
            other.runs.forget()

    def _began(self, node: int) -> None:
        other = self._nodes.get(node)
        if other is not None:
            other.told = set()
            self._forget_answers(other)

    @staticmethod
    def _forget_answers(other: _Node) -> None:
        """Answer nothing of an earlier series: it is told again."""
        other.answers = deque()
        other.applied = None
        other.stored = TicketsTogether()

    def _remove(self, node: int) -> None:
        other = self._nodes.pop(node)
        self._forget(other, [*other.filters, *other.groups])

    def _change(self, other: _Node, change: Wanted | Members) -> None:
        """Change the routing table as a node tells."""
        other.doomed.pop(change.topic_filter if isinstance(change, Wanted) else change.shared_filter, None)
        if isinstance(change, Members):
            self._table.members_elsewhere(
                other.peer.node, change.shared_filter, change.online, change.away, other.lives
            )
            if change.online or change.away:
                other.groups.add(change.shared_filter)
            else:
                other.groups.discard(change.shared_filter)
        elif change.qos == ENDED:
            if other.filters.pop(change.topic_filter, None) is not None:
                self._table.remove_peer(other.peer, change.topic_filter)
        elif other.filters.get(change.topic_filter) != change.qos:
            other.filters[change.topic_filter] = change.qos
            self._table.add_peer(other.peer, change.topic_filter, change.qos)

    # --- messages of members ------------------------------------------------------------------------------------------

    def _received(self, node: int, data: bytes) -> None:
        other = self._nodes.get(node)
        if other is None:
            return
        try:
            message = messages.decode(data)
        except Malformed as wrong:
            self._log.error("node {node} has sent what no member sends: {wrong}", node=node, wrong=wrong)
            return
        if isinstance(message, Run):
            if self.rows.is_ahead(node):
                other.runs.lost += len(message.messages)
            else:
                other.runs.take(message)
        elif isinstance(message, Hint):
            if message.number:
                self.rows.hinted(node, message.number)
            else:
                self.rows.hint_again(node)
        elif isinstance(message, Applied):
            self.interest.applied(node, message.version)
        elif isinstance(message, Release | Released | Connected):
            self._sessions.told(node, message)
        elif isinstance(message, Question | Reply):
            self.questions.take(node, message)
        else:
            self._take_interest(node, other, message)
        self._look_if_ready()

    def _look_if_ready(self) -> None:
        if self.on_ready is not None and self.why_not_ready() is None:
            told, self.on_ready = self.on_ready, None
            told()

    def _take_interest(self, node: int, other: _Node, interest: Interest) -> None:
        for change in interest.changes:
            self._change(other, change)
            name = change.topic_filter if isinstance(change, Wanted) else change.shared_filter
            if other.told is not None:
                other.told.add(name)
        if interest.is_whole and other.told is not None:
            self._forget(other, [name for name in (*other.filters, *other.groups) if name not in other.told])
            other.told = None
        # Messages that were matched with the table before may not be stored yet; the replay must find them.
        added = [each.topic_filter for each in interest.changes if isinstance(each, Wanted) and each.qos != ENDED]
        for topic_filter in added if len(added) <= _FLUSHED_SINGLY else [EVERY_TOPIC]:
            other.stored.add(self._retained.store.flushed(topic_filter))
        if interest.version or interest.is_whole:
            ticket, other.stored = other.stored.ticket(), TicketsTogether()
            other.answers.append((interest.version, ticket))
            answers = other.answers
            ticket.when_settled(lambda _: self._answer(node, other, answers))

    def _answer(self, node: int, other: _Node, answers: deque[tuple[int, CommitTicket]]) -> None:
        """Tell a node which of its versions have effect here."""
        if answers is not other.answers:  # of an earlier series
            return
        version = None
        while other.answers and other.answers[0][1].settled:
            version = other.answers.popleft()[0]
        if version is not None and self._nodes.get(node) is other:
            other.applied = version
            self._tell(node, Applied(version))

    def _tell(self, node: int, message: Interest | Applied | Hint | Release | Released | Connected) -> None:
        if self._links is not None:
            self._links.send(node, messages.encode(message))

    def _hint(self, node: int, number: int) -> None:
        self.runs.flush(node)
        self._tell(node, Hint(number))

    def _send_run(self, node: int, run: Run) -> None:
        if self._links is not None:
            self._links.send(node, messages.encode(run), droppable=True)

    def _say(self, node: int, message: Question | Reply) -> None:
        if self._links is not None:
            self._links.send(node, messages.encode(message), droppable=True)

    def ask(self, subject: str, body: bytes) -> Deferred[Answers]:
        """Ask all other living members; those that were not heard lately are silent. Raises TooManyQuestions."""
        nodes = [node for node, other in self._nodes.items() if other.lives]
        return self.questions.ask(subject, body, nodes, self.heard())

    def heard(self) -> frozenset[int]:
        """Return the nodes that were heard lately."""
        return frozenset() if self._links is None else self._links.heard()

    # --- messages that cross ------------------------------------------------------------------------------------------

    def _cross(self, message: ApplicationMessage, destinations: Destinations, replaces: bool) -> CommitTicket:
        """Let a message cross; return the ticket that its acknowledgement waits for."""
        ticket = COMMITTED
        if destinations.rows:
            ticket = self._cross_by_row(message, destinations.rows, None, replaces)
        if destinations.runs:
            self.runs.add(message, destinations.runs)
        for node, share in destinations.groups:
            if message.qos or message.retain:
                ticket = both(ticket, self._cross_by_row(message, [node], share, replaces))
            else:
                self.runs.add(message, [node], share)
        return ticket

    def _cross_by_row(
        self, message: ApplicationMessage, nodes: list[int], share: str | None, replaces: bool
    ) -> CommitTicket:
        revision = None
        change = self._retained.last
        if message.retain and change is not None and change.topic == message.topic:
            stored = b"" if change.message is None else change.message.payload
            if stored == message.payload:
                revision = change.revision
        self.runs.row_follows(message.topic)
        number, ticket = self.rows.cross(message, nodes, share=share, revision=revision, replaces=replaces)
        self._last_rows.note(message.topic, number, nodes)
        ticket.when_settled(partial(self._look_at_row, message.topic, number))
        return ticket if message.qos else COMMITTED

    def _look_at_row(self, topic: str, number: int, failure: StorageFailure | None) -> None:
        if failure is not None:
            self._last_rows.forget(topic, number)

    def _retains(self, topic: str) -> None:
        """Note that a client of this node sets or clears a topic."""
        last = self._retained.last
        if last is not None and last.topic == topic:
            self.corrections.changed(topic, self.node, last.revision, last.message is None)
        else:
            self.corrections.changed(topic, self.node)
        self.rows.written().when_settled(lambda _: self.corrections.written(topic, self.node))

    def _deliver_row(self, crossed: CrossedMessage, after: CommitTicket) -> None:
        message, revision = crossed.message, crossed.revision
        if revision is not None and crossed.share is None:
            if len(self._retained.feed):
                kind = ChangeKind.SET if message.payload else ChangeKind.CLEAR
                change = Change(message.topic, revision, kind, ChangeOrigin.PUBLISH, True, COMMITTED, True)
                self._retained.feed.announce(change)
            self.corrections.changed(message.topic, crossed.origin, revision, not message.payload)
        self._router.deliver_here(message, after, crossed.share, crossed.replaces)

    def _has_members(self, share: str) -> bool:
        """Tell whether a group has members on nodes that live."""
        group = self._table.group(share)
        return group is not None and group.has_living

    def _deliver_run(self, message: ApplicationMessage, share: str | None) -> None:
        self._router.deliver_here(message, COMMITTED, share, False)

    def _correct(self, message: ApplicationMessage) -> None:
        self._router.deliver_here(message, COMMITTED, None, False)

    def gate_of(self, topic_filter: str) -> CommitTicket:
        """Return a ticket that is settled when all nodes send this one the messages of a Topic Filter."""
        return self._table.gate_of(topic_filter)

    # --- groups -------------------------------------------------------------------------------------------------------

    def _group_changed(self, group: ClusterGroup) -> None:
        """Tell the members of a group once a turn: thousands may come together."""
        if not self._changed_groups:
            self._groups_gate = CommitTicket()
            self._clock.callLater(0, self._tell_groups)
        self._changed_groups[group.shared_filter] = group

    def _tell_groups(self) -> None:
        groups, self._changed_groups = self._changed_groups, {}
        gate, self._groups_gate = self._groups_gate, COMMITTED
        told = TicketsTogether()
        for shared_filter, group in groups.items():
            told.add(self.interest.group(shared_filter, *group.here))
        told.ticket().when_settled(gate.settle)


class ReplaysBehindRows:
    """The retained messages as replays of a member read them: behind the gate, and behind the rows of other nodes."""

    def __init__(self, store: IReplaySource, exchange: Exchange) -> None:
        self._store = store
        self._exchange = exchange

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def flushed(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket:
        """Return a ticket for the time when a replay of a Topic Filter may begin to read."""
        ticket = CommitTicket()

        def stored(_: object) -> None:
            self._exchange.rows.caught_up().addCallback(lambda _: ticket.settle())

        both(self._store.flushed(topic_filter), self._exchange.gate_of(topic_filter)).when_settled(stored)
        return ticket

    def read(
        self, selection: Selection, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool
    ) -> Deferred[Batch]:
        """Read messages; wait until the rows are applied that were stored before."""
        reading: Deferred[Batch] = self._store.read(selection, after, rows, slice_rows, max_bytes, detailed)

        def read(batch: Batch) -> Deferred[Batch]:
            return self._exchange.rows.caught_up().addCallback(lambda _: batch)

        return reading.addCallback(read)
