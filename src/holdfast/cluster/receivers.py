"""Other nodes as receivers: each has a place in the routing table, beside the Sessions of this node.

How it works. A peer tells for which Topic Filters it has Sessions, and with which most QoS (:mod:`.interest`). For each
of them, the routing table gets a subscription of a :class:`Peer`, which looks like a Session to the table. So a route
has an entry for each node with matching Sessions, and finding it costs nothing more. A message that matches crosses
once to each such node:

    with QoS 1 or 2 there, or with RETAIN 1     as one row for all nodes, in the publisher's commit (:mod:`.crossing`)
    else                                        over the bus (:mod:`.runs`); it may be lost

The other node gives it to its own Sessions: :meth:`ClusterRouter.deliver_here`. It never crosses again.

A group of a shared subscription has members on several nodes. The publisher's node chooses the node whose turn it is: a
node has turns as it has connected members; if no member is connected anywhere, as it has members that are away. That
node chooses the member. If its members have gone meanwhile, it passes the message on by the same rule.

Left out: runs of a client that cross as runs. A topic that another node subscribes to takes its messages one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from attrs import define, field

from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import COMMITTED, CommitTicket, both
from holdfast.core.topics import split_shared
from holdfast.identity.interfaces import IAuthorizer
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.counters import Counters, Holdings
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.delivery.permissions import RESTORED
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.limits import Limits
from holdfast.sessions.router import Router
from holdfast.sessions.routing_table import RoutingTable, SharedGroup
from holdfast.sessions.state import Subscription


class Peer:
    """Another node in the routing table. It takes messages as a Session does, and asks the authorizer about none."""

    link = None
    principal = None
    granted_in = RESTORED
    limits = Limits()

    def __init__(self, node: int, cross: Callable[[int, OutgoingMessage, int], None]) -> None:
        self.node = node
        self.client_id = f"\0node {node}"  # no client has such an identifier
        self._cross = cross

    def deliver(self, outgoing: OutgoingMessage, options: DeliveryOptions) -> None:
        """Let a message cross to this node, once for all of its Sessions."""
        self._cross(self.node, outgoing, options.qos)

    def is_full(self) -> bool:
        """Return False: the other node keeps the queues of its Sessions."""
        return False

    @property
    def receiver(self) -> Session:
        """This peer, for the routing table."""
        return cast("Session", self)


@define(eq=False)
class _Turns:
    """The members of a group on one node. ``credit`` is how many messages it should have had more, by its share."""

    online: int = 0
    away: int = 0
    credit: float = 0.0


class ClusterGroup(SharedGroup):
    """The members of a shared subscription on all nodes. ``changed`` is called when members of this node change."""

    def __init__(self, shared_filter: str, holdings: Holdings, changed: Callable[[ClusterGroup], None]) -> None:
        super().__init__(shared_filter, holdings)
        self._changed = changed
        self._elsewhere: dict[int, _Turns] = {}
        self._of_the_dead: dict[int, int] = {}  # how many members dead nodes have
        self._here = _Turns()

    @property
    def here(self) -> tuple[int, int]:
        """How many members of this node are connected, and how many are away."""
        return len(self._online), len(self._away)

    def add(self, session: Session, subscription: Subscription) -> None:
        """Add a member of this node, or replace its options."""
        super().add(session, subscription)
        self._changed(self)

    def remove(self, session: Session) -> None:
        """Remove a member of this node."""
        super().remove(session)
        self._changed(self)

    def came(self, session: Session) -> None:
        """Note that a member of this node is connected."""
        super().came(session)
        self._changed(self)

    def left(self, session: Session) -> None:
        """Note that a member of this node is away."""
        super().left(session)
        self._changed(self)

    @property
    def has_living(self) -> bool:
        """Whether any node that lives has members."""
        return any(self.here) or bool(self._elsewhere)

    def elsewhere(self, node: int, online: int, away: int, lives: bool = True) -> None:
        """Note the numbers of members that another node has told, or that a dead node has."""
        self._of_the_dead.pop(node, None)
        if away and not lives:
            self._of_the_dead[node] = away
        if (online or away) and lives:
            turns = self._elsewhere.setdefault(node, _Turns())
            turns.online, turns.away = online, away
        else:
            gone = self._elsewhere.pop(node, None)
            if gone is not None:
                self._here.credit += gone.credit  # their sum stays 0: no node that comes later is behind all others

    def __len__(self) -> int:
        elsewhere = sum(turns.online + turns.away for turns in self._elsewhere.values())
        return super().__len__() + elsewhere + sum(self._of_the_dead.values())

    def next_node(self, but: Iterable[int] = ()) -> int | None:
        """Return the other node that gets the next message; None: this node has the turn.

        Nodes in ``but`` are left out. A dead node is chosen if no other one has members: its messages are handed on
        when others have taken over its Sessions (:mod:`.handing_on`).

        Each node has as many turns as members, spread evenly: at any time, it has had its share of all messages but for
        less than one (Tijdeman's solution of the chairman assignment problem).
        """
        self._here.online, self._here.away = self.here
        if not self._elsewhere:
            others = (node for node in self._of_the_dead if node not in but)
            return None if any(self.here) else next(others, None)
        places: list[tuple[int | None, _Turns]] = [(None, self._here)]
        places += [(node, turns) for node, turns in self._elsewhere.items() if node not in but]
        connected = any(turns.online for _, turns in places)
        shares = [(node, turns, turns.online if connected else turns.away) for node, turns in places]
        shares = [each for each in shares if each[2]]
        if not shares:
            return None
        total = sum(weight for _, _, weight in shares)
        for _, turns, weight in shares:
            turns.credit += weight / total
        # A node may have its turn from ``least`` on. The first one that would get too far behind its share has it now.
        least = 1 / (2 * len(shares) - 2) if len(shares) > 1 else 0.0
        ready = [each for each in shares if each[1].credit >= least] or [max(shares, key=lambda each: each[1].credit)]
        chosen, turns, _ = min(ready, key=lambda each: (1 - least - each[1].credit) / each[2])
        turns.credit -= 1
        return chosen


class ClusterTable(RoutingTable):
    """The routing table of a member: the Sessions of this node, and the other nodes.

    ``group_changed`` is called with each group whose members on this node have changed; ``groups_gate`` returns the
    ticket that is settled when all nodes know of it.
    """

    def __init__(
        self,
        holdings: Holdings,
        authorizer: IAuthorizer,
        interest: Any,
        group_changed: Callable[[ClusterGroup], None],
        groups_gate: Callable[[], CommitTicket],
    ) -> None:
        self._groups_gate = groups_gate
        self._interest = interest
        self._group_changed = group_changed
        self._gates: dict[str, CommitTicket] = {}  # those that are not settled, by Topic Filter
        super().__init__(holdings, authorizer)

    def subscribe(self, session: Session, subscription: Subscription) -> Subscription | None:
        """Add or replace a Session's subscription, and let other nodes know its Topic Filter."""
        former = super().subscribe(session, subscription)
        if subscription.group is not None:
            self.gate = self._groups_gate()
        else:
            topic_filter = subscription.topic_filter
            self.gate = self._interest.want(topic_filter, subscription.qos)
            if not self.gate.settled:
                self._wait(topic_filter, self.gate)
            if former is not None:
                self._interest.end(topic_filter, former.qos)
        return former

    def gate_of(self, topic_filter: str) -> CommitTicket:
        """Return a ticket that is settled when all nodes have noted the last subscription to a Topic Filter."""
        return self._gates.get(topic_filter, COMMITTED)

    def _wait(self, topic_filter: str, gate: CommitTicket) -> None:
        self._gates[topic_filter] = gate

        def opened(_: object) -> None:
            if self._gates.get(topic_filter) is gate:
                del self._gates[topic_filter]

        gate.when_settled(opened)

    def unsubscribe(self, session: Session, topic_filter: str) -> Subscription | None:
        """Remove a Session's subscription."""
        former = super().unsubscribe(session, topic_filter)
        if former is not None:
            self._interest.end(former.topic_filter, former.qos)
        return former

    def add_peer(self, peer: Peer, topic_filter: str, qos: int) -> None:
        """Note that another node has Sessions for a Topic Filter, with this most QoS."""
        super().subscribe(peer.receiver, Subscription(topic_filter, qos, retain_as_published=True))

    def remove_peer(self, peer: Peer, topic_filter: str) -> None:
        """Note that another node has no Session for a Topic Filter any more."""
        super().unsubscribe(peer.receiver, topic_filter)

    def members_elsewhere(self, node: int, shared_filter: str, online: int, away: int, lives: bool = True) -> None:
        """Note how many members of a group another node has, or that is dead."""
        name, inner = split_shared(shared_filter)
        group = self._groups.get((name or "", inner))
        if group is None:
            if not (online or away):
                return
            group = self._group_for(Subscription(inner, 0, group=name))
        assert isinstance(group, ClusterGroup)
        group.elsewhere(node, online, away, lives)
        self._drop_if_empty(name or "", inner, group)

    def group(self, shared_filter: str) -> ClusterGroup | None:
        """Return the group of a shared subscription, None if it has no members anywhere."""
        name, inner = split_shared(shared_filter)
        group = self._groups.get((name or "", inner))
        assert group is None or isinstance(group, ClusterGroup)
        return group

    def _new_group(self, shared_filter: str) -> SharedGroup:
        return ClusterGroup(shared_filter, self._holdings, self._group_changed)


@define(eq=False)
class Destinations:
    """The nodes to which one message crosses: by rows, over the bus, and for one group each."""

    rows: list[int] = field(factory=list)
    runs: list[int] = field(factory=list)
    groups: list[tuple[int, str]] = field(factory=list)


class ClusterRouter(Router):
    """Routes messages of this node's clients to its Sessions and to other nodes, and those of others to its Sessions.

    ``cross`` lets a message cross, and returns the ticket that its publisher's acknowledgement waits for. ``retains``
    is told the topics of messages with RETAIN 1 of this node's clients.
    """

    table: ClusterTable

    def __init__(
        self,
        retained: RetainedMessages,
        authorizer: IAuthorizer,
        counters: Counters,
        rejecting: bool,
        telemetry: Any,
        *,
        table: ClusterTable,
        cross: Callable[[ApplicationMessage, Destinations, bool], CommitTicket],
        retains: Callable[[str], None],
    ) -> None:
        self._cross = cross
        self._retains = retains
        self._crossing: Destinations | None = None  # of the message that is being routed
        self._is_foreign = False  # whether another node has routed it here
        super().__init__(retained, authorizer, counters, rejecting, telemetry, table)

    def route(
        self, message: ApplicationMessage, after: CommitTicket = COMMITTED, replaces: bool = False
    ) -> tuple[CommitTicket, bool]:
        """Send the message to every matching Session, on all nodes. See :meth:`Router.route`."""
        if message.retain:
            self._retains(message.topic)
        before = self._crossing, self._is_foreign
        self._crossing, self._is_foreign = None, False
        try:
            ticket, matched = super().route(message, after, replaces)
            crossing = cast("Destinations | None", self._crossing)
        finally:
            self._crossing, self._is_foreign = before
        if crossing is None:
            return ticket, matched
        return both(ticket, self._cross(message, crossing, replaces)), matched

    def route_for_runs(self, message: ApplicationMessage, may_reject: bool) -> int | None:
        """Return the number of the route of runs; None for topics that another node subscribes to."""
        if any(isinstance(match.session, Peer) for match in self.table.find(message.topic).matches):
            return None
        return super().route_for_runs(message, may_reject)

    def deliver_here(
        self, message: ApplicationMessage, after: CommitTicket, share: str | None, replaces: bool
    ) -> CommitTicket:
        """Give a message of another node to the Sessions of this one; with a ``share``, to one member of this group."""
        before = self._crossing, self._is_foreign
        self._crossing, self._is_foreign = None, True
        crossing: Destinations | None = None
        ticket = COMMITTED
        try:
            if share is None:
                ticket, _ = super().route(message, after, replaces)
            else:
                group = self.table.group(share)
                if group is not None:
                    outgoing = OutgoingMessage(message, after, replaces)
                    if any(group.here):
                        super()._deliver_to_group(group, outgoing)
                        ticket = outgoing.ticket
                    else:
                        self._pass_on(group, group.next_node())
            crossing = cast("Destinations | None", self._crossing)
        finally:
            self._crossing, self._is_foreign = before
        return ticket if crossing is None else both(ticket, self._cross(message, crossing, replaces))

    def to_peer(self, node: int, outgoing: OutgoingMessage, qos: int) -> None:
        """Let the message that is being routed cross to a node, whose Sessions get it with this QoS at most."""
        if self._is_foreign:
            return
        crossing = self._begun()
        message = outgoing.message
        (crossing.rows if min(message.qos, qos) or message.retain else crossing.runs).append(node)

    def _deliver(
        self,
        session: Session,
        outgoing: OutgoingMessage,
        options: DeliveryOptions,
        checked: bool,
        shared_filter: str | None = None,
    ) -> bool:
        receiver: object = session
        if isinstance(receiver, Peer):  # the other node asks the authorizer about its Sessions
            receiver.deliver(outgoing, options)
            return True
        return super()._deliver(session, outgoing, options, checked, shared_filter)

    def _deliver_to_group(self, group: SharedGroup, outgoing: OutgoingMessage) -> None:
        if self._is_foreign:  # the publisher's node has chosen for each group
            return
        assert isinstance(group, ClusterGroup)
        node = group.next_node()
        if node is None:
            super()._deliver_to_group(group, outgoing)
        else:
            self._pass_on(group, node)

    def _pass_on(self, group: ClusterGroup, node: int | None) -> None:
        if node is not None:
            self._begun().groups.append((node, group.shared_filter))

    def _begun(self) -> Destinations:
        if self._crossing is None:
            self._crossing = Destinations()
        return self._crossing
