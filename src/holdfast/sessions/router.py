"""The router: it gives each published Application Message to the retainer and to the matching Sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

from holdfast.changes.telemetry import Telemetry
from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.core.tickets import COMMITTED, CommitTicket, both
from holdfast.core.topics import is_of_broker
from holdfast.identity.interfaces import IAuthorizer
from holdfast.retained.leases import Wanted
from holdfast.retained.limits import Limit, RetainRefused
from holdfast.retained.service import RetainedMessages
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.inflight import CommonIdentifiers
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.delivery.session import Session, deliver_run
from holdfast.sessions.limits import RetainMode, WhenFull
from holdfast.sessions.routing_table import Match, RoutingTable, SharedGroup, merged
from holdfast.sessions.sparkplug import SparkplugAware, is_certificate
from holdfast.sessions.state import Subscription
from holdfast.wire import Run, Single

#: messages of a shared subscription that another member gets in one step of long work
_MESSAGES_PER_STEP = 4
#: the members of a group that are asked about for one message, until one may receive it
_MOST_ASKED = 10


#: a Session in a group, with its subscription
_Member = tuple[Session, Subscription]
#: the ticket for the acknowledgement, and whether there was a subscriber
Routed = tuple[CommitTicket, bool]


class QueueFull(Exception):
    """The queue of an offline subscriber is full, and its zone rejects the message."""


class Router:
    """Sends each message to the Sessions that it matches and, with RETAIN 1, to the retainer.

    ``rejecting`` tells that some zone rejects messages when a queue is full. A policy may retain messages without
    RETAIN, or record them in the ``telemetry``. Most brokers have no such policy. There, it costs a message one
    comparison, and a run nothing.
    """

    def __init__(
        self,
        retained: RetainedMessages,
        authorizer: IAuthorizer,
        counters: Counters,
        rejecting: bool = False,
        telemetry: Telemetry | None = None,
        table: RoutingTable | None = None,
    ) -> None:
        self.table = table or RoutingTable(counters.holdings, authorizer)
        self._retained = retained
        self._authorizer = authorizer
        self._counters = counters
        self.rejecting = rejecting
        self._identifiers = CommonIdentifiers()
        self._telemetry = telemetry
        self.keeps_others = False  #: whether a policy retains or records messages without RETAIN
        self.sparkplug: SparkplugAware | None = None  #: None unless the broker is Sparkplug-aware
        retained.policies_changed = self._policies_changed
        self._policies_changed()

    def _policies_changed(self) -> None:
        self.keeps_others = self._retained.admission.policies.keep_others
        self.table.forget_routes()  # the runs of known topics end: other topics may be retained or recorded now

    def publish(
        self,
        message: ApplicationMessage,
        origin: ChangeOrigin,
        after: CommitTicket = COMMITTED,
        may_reject: bool = False,
        mode: RetainMode = RetainMode.ENABLED,
        silent_clear: bool = False,
        replaces: bool = False,
        lease: Wanted | None = None,
    ) -> tuple[CommitTicket, bool]:
        """Retain the message if it has RETAIN 1 or a policy says so, and the ``mode`` allows it; and route it.

        Without RETAIN, a policy may have it recorded too.

        With ``silent_clear``, a message that clears a retained one is not routed. ``after`` is settled when the
        message may be sent with QoS 2. A message that ``replaces`` is queued in place of older retained messages of its
        topic (see :class:`OutgoingMessage`). A ``lease`` is for a message with RETAIN 1. Returns the ticket for the
        acknowledgement, and whether there was a subscriber.
        Raises ``RetainRefused`` or, with ``may_reject``, :class:`QueueFull`; then the message is not routed either.
        """
        if self.sparkplug is not None:
            message = self.sparkplug.dated(message)
        # Both refusals come before any delivery: a refused message must have no effect.
        if may_reject and self.rejecting and message.qos:
            self.check_queues(message)
        retained = COMMITTED
        if message.retain:
            if mode is RetainMode.ENABLED:
                retained = self._retained.retain(message, origin, True, lease)
                if silent_clear and not message.payload:
                    return retained, True
        elif self.keeps_others:
            retained = self._keep(message, origin, mode)
        ticket, matched = self.route(message, after, replaces)
        if self.sparkplug is not None:
            ticket = both(ticket, self._certify(self.sparkplug, message, origin, after))
        return ticket if retained is COMMITTED else both(retained, ticket), matched

    def _certify(
        self, sparkplug: SparkplugAware, message: ApplicationMessage, origin: ChangeOrigin, after: CommitTicket
    ) -> CommitTicket:
        """Retain and send the copy of a birth, in the turn of the birth: one commit stores both."""
        certificate = sparkplug.certificate(message)
        if certificate is None:
            return COMMITTED
        retained = self._retain_forced(certificate, origin)
        ticket, _ = self.route(certificate, after)
        return both(retained, ticket)

    def _keep(self, message: ApplicationMessage, origin: ChangeOrigin, mode: RetainMode) -> CommitTicket:
        """Retain or record a message without RETAIN 1, as its policy says."""
        policy = self._retained.admission.policies.of(message.topic)
        if policy is None:
            return COMMITTED
        kept = COMMITTED
        if policy.force_retain and mode is RetainMode.ENABLED:
            kept = self._retain_forced(message, origin)
        if policy.records_all and self._telemetry is not None:
            kept = both(kept, self._telemetry.record(message, policy.waits_for_record))
        return kept

    def _retain_forced(self, message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Retain a message without RETAIN 1, as a policy says. Its publisher is not told of a refusal."""
        try:
            return self._retained.retain(message, origin)
        except RetainRefused as refusal:
            # Without RETAIN 1, who may publish may also clear: an empty message does.
            return not_retained(message, refusal, origin, self._retained, self._counters) or COMMITTED

    def is_own(self, topic: str) -> bool:
        """Tell whether only the broker publishes to a topic that begins with ``$``."""
        return is_of_broker(topic) or (self.sparkplug is not None and is_certificate(topic))

    def route(
        self, message: ApplicationMessage, after: CommitTicket = COMMITTED, replaces: bool = False
    ) -> tuple[CommitTicket, bool]:
        """Send the message to every matching Session; ``replaces`` is as in :meth:`publish`.

        Returns the ticket of the Session State that this writes, and whether there was a subscriber.
        """
        route = self.table.find(message.topic)
        outgoing: OutgoingMessage | None = None
        if route.withheld:
            self._counters.deliveries_not_authorized += route.withheld
        judged = route.judged
        publisher = message.client_id
        # The message is wrapped only if a Session gets it, and encoded once for all Sessions with the same options.
        for match in route.matches:
            session = match.session
            options: DeliveryOptions | None = match.own if session.client_id == publisher else match.options
            if options is not None:
                if outgoing is None:
                    outgoing = OutgoingMessage(message, after, replaces)
                if judged:
                    if not self._deliver(session, outgoing, options, match.checked):
                        self._counters.deliveries_not_authorized += 1
                else:
                    session.deliver(outgoing, options)
        for group in route.groups:
            if outgoing is None:
                outgoing = OutgoingMessage(message, after, replaces)
            self._deliver_to_group(group, outgoing)
        return COMMITTED if outgoing is None else outgoing.ticket, bool(route.matches or route.groups)

    def _deliver_to_group(self, group: SharedGroup, outgoing: OutgoingMessage) -> None:
        """Send a message to one member of a group."""
        if outgoing.replaces:  # any member may have an older message in its queue
            for session in group.away():
                session.queue.drop_retained(outgoing.message.topic, group.shared_filter)
        self._deliver_shared(group, group.choose(), group.choose, outgoing)

    def route_for_runs(self, message: ApplicationMessage, may_reject: bool) -> int | None:
        """Return the number of the route that runs of messages like this one take, None if they may not be runs.

        ``may_reject`` is that of :meth:`publish`. A Client that gets its own messages sends no runs: delivering one of
        them may end its connection, and later ones must not be published then.
        """
        if may_reject and self.rejecting and message.qos:
            return None
        if self.sparkplug is not None and self.sparkplug.concerns(message.topic):
            return None
        policy = self._retained.admission.policies.of(message.topic) if self.keeps_others else None
        if policy is not None and policy.force_retain:
            return None
        route = self.table.find(message.topic)
        if route.groups or route.judged or any(match.session.client_id == message.client_id for match in route.matches):
            return None
        if policy is not None and policy.records_all and self._telemetry is not None:
            return _number_of_recorded(route.number, policy.waits_for_record)
        return route.number

    def publish_run(self, run: Run | Single, client_id: str, username: str | None) -> Routed | list[Routed] | None:
        """Send a run to every Session of its route; None if the route is no longer known.

        Returns what :meth:`route` returns: once for the run, or once for each message.
        """
        route = self.table.numbered(run.route)
        if route is None:
            return self._publish_recorded(run, client_id, username)
        if route.withheld:
            self._counters.deliveries_not_authorized += run.count * route.withheld
        first = self._identifiers.take(run.count) if run.qos else 0
        others = [
            match
            for match in route.matches
            if not deliver_run(match.session, run, match.options, first, client_id, username)
        ]
        if others:
            return self._deliver_singly(run, others, client_id, username)
        return COMMITTED, bool(route.matches)

    def _publish_recorded(
        self, run: Run | Single, client_id: str, username: str | None
    ) -> Routed | list[Routed] | None:
        """Record a run if its topics are recorded, and send it; None if the route is no longer known."""
        if run.route >= 0 or self._telemetry is None:
            return None
        number, waits = _recorded_route(run.route)
        if self.table.numbered(number) is None:
            return None
        recorded = self._telemetry.record_run(run, client_id, username, waits)
        run.route = number
        routed = self.publish_run(run, client_id, username)
        if recorded is COMMITTED or routed is None:
            return routed
        # Each gets its own answer: the commit may fail.
        each = routed if isinstance(routed, list) else [routed] * run.count
        return [(both(recorded, ticket), matched) for ticket, matched in each]

    def _deliver_singly(
        self, run: Run | Single, matches: list[Match], client_id: str, username: str | None
    ) -> Routed | list[Routed]:
        """Send the messages of a run one by one to the Sessions that have not taken all of it."""
        routed = []
        alike = True
        for packet in run.publishes():
            message = ApplicationMessage(packet.topic, packet.payload, packet.qos, False, client_id, username)
            # An earlier message may have ended the last Session of the route.
            matched = self.table.numbered(run.route) is not None or self.reach(packet.topic) > 0
            outgoing = OutgoingMessage(message)
            for match in matches:
                match.session.deliver(outgoing, match.options)
            ticket = outgoing.ticket
            alike = alike and matched and ticket is COMMITTED
            routed.append((ticket, matched))
        return (COMMITTED, True) if alike else routed

    def online(self, topic: str) -> Iterator[tuple[Session, DeliveryOptions, bool]]:
        """Yield the online Sessions that match a topic, and whether the authorizer has to allow the delivery."""
        route = self.table.find(topic)
        for match in route.matches:
            if match.session.link is not None:
                yield match.session, match.options, match.checked
        for group in route.groups:
            chosen = group.choose(online=True)
            if chosen is not None:
                session, subscription = chosen
                yield session, merged([subscription]), self.table.is_checked(session, subscription)

    def reach(self, topic: str) -> int:
        """Return how many deliveries a message of this topic causes."""
        route = self.table.find(topic)
        return len(route.matches) + len(route.groups)

    def connected(self, topic: str) -> Iterator[Session]:
        """Yield the Sessions of connected Clients that would get a message of this topic now. Changes no turn."""
        route = self.table.find(topic)
        for match in route.matches:
            if match.session.link is not None:
                yield match.session
        for group in route.groups:
            session = group.next_connected()
            if session is not None:
                yield session

    def if_allowed(
        self, session: Session, message: ApplicationMessage, deliver: Callable[[], None], checked: bool
    ) -> bool:
        """Call ``deliver`` once the authorizer allows the Session to receive the message, in order with others.

        It is asked if the delivery is ``checked``. Returns False if it is denied at once.
        """
        answer = self._authorizer.may_receive(session.principal, message) if checked else True
        return session.permissions.order.add(answer, deliver) is not False

    def redeliver(self, session: Session, ended: bool) -> Iterator[int]:
        """Send the undelivered messages of a Session's shared subscriptions to other members of their groups.

        A Session that has not ``ended`` keeps them unless another member is online, and keeps the rest once its Client
        is back. Works in steps (:mod:`holdfast.scheduling.long_work`): each message leaves one Session and enters
        another one in the same turn, so that one commit stores both.
        """
        if not session.groups:
            return
        yield 1
        groups = cast("dict[str, SharedGroup]", dict(session.groups))  # the routing table has put them there
        for number, (shared_filter, take) in enumerate(session.shared(), 1):
            if not number % _MESSAGES_PER_STEP:
                yield 1
            if not ended and (session.is_over or session.link is not None):
                return
            group = groups.get(shared_filter)
            # choose() passes the turn on, so the messages are spread over the other members.
            if group is None:
                continue
            choose = partial(group.choose, session, online=not ended)
            chosen = choose()
            if chosen is not None:
                outgoing = take()
                if outgoing is not None:
                    self._deliver_shared(group, chosen, choose, outgoing)

    def _deliver_shared(
        self,
        group: SharedGroup,
        chosen: _Member | None,
        choose: Callable[[], _Member | None],
        outgoing: OutgoingMessage,
    ) -> None:
        """Send a message to the chosen member or, if it may not receive it, to the next one of some that may."""
        for _ in range(min(len(group), _MOST_ASKED)):
            if chosen is None:
                return
            session, subscription = chosen
            checked = self.table.is_checked(session, subscription)
            if self._deliver(session, outgoing, merged([subscription]), checked, group.shared_filter):
                return
            chosen = choose()
        if len(group):
            self._counters.deliveries_not_authorized += 1

    def check_queues(self, message: ApplicationMessage) -> None:
        """Raise :class:`QueueFull` if a matching queue is full and has the policy "reject"."""
        for match in self.table.find(message.topic).matches:
            session = match.session
            if match.options.qos and session.limits.mqueue_full is WhenFull.REJECT and session.is_full():
                raise QueueFull(f"the queue of a subscriber of {message.topic!r} is full (mqtt.mqueue_full is reject)")

    def _deliver(
        self,
        session: Session,
        outgoing: OutgoingMessage,
        options: DeliveryOptions,
        checked: bool,
        shared_filter: str | None = None,
    ) -> bool:
        """Send a message that the authorizer may have to allow. Returns False if it is denied at once."""
        deliver = partial(session.deliver, outgoing, options, shared_filter)
        return self.if_allowed(session, outgoing.message, deliver, checked)


# Topics whose messages without RETAIN are recorded come in runs too. The numbers of their routes are negative, so the
# table knows no such route: only then anybody looks whether a run is recorded.


def _number_of_recorded(number: int, waits: bool) -> int:
    """Return the number of a route for publishers of recorded topics, which may have to wait for the commit."""
    return ~(number << 1 | waits)


def _recorded_route(number: int) -> tuple[int, bool]:
    """Return the number of the route itself, and whether its publishers wait."""
    return ~number >> 1, bool(~number & 1)


# Messages that are over a limit of the retainer, and are delivered all the same: from Clients, or as Wills.


def not_retained(
    message: ApplicationMessage,
    refusal: RetainRefused,
    origin: ChangeOrigin,
    retained: RetainedMessages,
    counters: Counters,
    may_clear: bool = True,
) -> CommitTicket | None:
    """Count and log a message that is delivered, and see to it that no older message of its topic stays.

    Beyond the publish rate, the message waits until the rate allows to store it. Beyond other limits, the topic is
    cleared. Returns the ticket of this; None if the publisher may not clear the topic: then nobody may get the message.
    Called in the turn of the refusal.
    """
    if refusal.limit is Limit.PUBLISH_RATE:
        counters.retained_delayed += 1
        retained.admission.refused(message, refusal, "so it is delivered, and stored later")
        return retained.retain_later(message, origin)
    if not may_clear:
        counters.retained_not_delivered += 1
        retained.admission.refused(message, refusal, "nor clear the older message, so nobody gets it")
        return None

    def dropped() -> None:
        counters.retained_dropped_old += 1

    counters.retained_not_stored += 1
    retained.admission.refused(message, refusal, "so it is delivered only, and an older message is cleared")
    return retained.drop(message, dropped)
