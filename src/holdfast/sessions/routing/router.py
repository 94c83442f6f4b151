"""Routing: from a published Application Message to the Sessions whose subscriptions match it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from holdfast.auth.interfaces import IAuthorizer
from holdfast.hot_values import hot_frozen
from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.service import IRetainedMessages
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.limits import RetainMode, WhenFull
from holdfast.sessions.routing.shared_subscriptions import SharedGroup
from holdfast.sessions.routing.subscriptions import SubscriptionTree
from holdfast.sessions.session.session import Session
from holdfast.sessions.state.subscription import Subscription
from holdfast.tickets import COMMITTED, CommitTicket, both
from holdfast.topics import split_shared


@hot_frozen
class _Match:
    """What a Session's matching subscriptions come to; ``own`` for messages it published itself (No Local)."""

    session: Session
    options: DeliveryOptions
    own: DeliveryOptions | None


_Route = tuple[tuple[_Match, ...], tuple[SharedGroup, ...]]

#: The route of a Topic Name that nobody has subscribed to. It is found as fast as it would be remembered for a while:
#: a million retained topics that nobody listens to are not to fill the memory of those that somebody does.
_NOWHERE: _Route = ((), ())
#: Topic Names whose routes are remembered, and the longest of them; all are forgotten when a subscription changes
_MOST_ROUTES = 65_536
_LONGEST_REMEMBERED = 200


def _merge(subscriptions: list[Subscription]) -> DeliveryOptions | None:
    """Merge overlapping subscriptions to one copy: the highest QoS, all Subscription Identifiers [MQTT5-3.3.4-2]."""
    if not subscriptions:
        return None
    return DeliveryOptions(
        max(subscription.qos for subscription in subscriptions),
        any(subscription.retain_as_published for subscription in subscriptions),
        tuple(s.identifier for s in subscriptions if s.identifier is not None),
    )


class QueueFull(Exception):
    """The queue of a subscriber that is away has no place left, and its zone asks to reject the message."""


class Router:
    """Knows every subscription, and hands each message to the Sessions it matches and, if retained, to the retainer.

    ``rejecting`` tells that some zone wants messages rejected when a queue is full.
    """

    def __init__(
        self,
        retained: IRetainedMessages,
        authorizer: IAuthorizer,
        counters: Counters,
        rejecting: bool = False,
    ) -> None:
        self._retained = retained
        self._authorizer = authorizer
        self._counters = counters
        self._rejecting = rejecting
        self._tree: SubscriptionTree[Session] = SubscriptionTree()
        self._groups: dict[tuple[str, str], SharedGroup] = {}
        self._shared_tree: SubscriptionTree[SharedGroup] = SubscriptionTree()
        self._routes: dict[str, _Route] = {}
        #: topics that match the same subscriptions share one route
        self._alike: dict[tuple[int, ...], _Route] = {}

    def subscribe(self, session: Session, subscription: Subscription) -> None:
        """Add or replace a Session's subscription."""
        self._forget_routes()
        if subscription.group is None:
            self._tree.add(session, subscription)
            return
        key = (subscription.group, subscription.topic_filter)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = SharedGroup(f"$share/{subscription.group}/{subscription.topic_filter}")
            self._shared_tree.add(group, subscription)
        group.add(session, subscription)

    def unsubscribe(self, session: Session, topic_filter: str) -> None:
        """Remove a Session's subscription; ``topic_filter`` is as the Client wrote it."""
        self._forget_routes()
        name, inner = split_shared(topic_filter)
        if name is None:
            self._tree.remove(session, inner)
            return
        group = self._groups.get((name, inner))
        if group is not None:
            group.remove(session)
            if group.is_empty():
                self._shared_tree.remove(group, inner)
                del self._groups[name, inner]

    def publish(
        self,
        message: ApplicationMessage,
        origin: ChangeOrigin,
        after: CommitTicket = COMMITTED,
        may_reject: bool = False,
        mode: RetainMode = RetainMode.ENABLED,
        silent_clear: bool = False,
    ) -> tuple[CommitTicket, bool]:
        """Retain the message if it asks for it and the ``mode`` allows it, and route it.

        With ``silent_clear``, nobody is sent a message that clears a retained one.

        ``after`` is settled when the message may be sent with QoS 2. Returns the ticket of what must be durable before
        the message is acknowledged, and whether anyone was subscribed. Raises ``RetainRefused`` or, where
        ``may_reject``, :class:`QueueFull`, and then has not routed it either.
        """
        if may_reject and self._rejecting and message.qos:
            self._check_queues(message)
        retained = COMMITTED
        if message.retain and mode is RetainMode.ENABLED:
            retained = self._retained.retain(message, origin)
            if silent_clear and not message.payload:
                return retained, True
        ticket, matched = self.route(message, after)
        return ticket if retained is COMMITTED else both(retained, ticket), matched

    def route(self, message: ApplicationMessage, after: CommitTicket = COMMITTED) -> tuple[CommitTicket, bool]:
        """Hand the message to every matching Session; return what must be durable, and whether there was one."""
        route = self._routes.get(message.topic)
        if route is None:
            route = self._find(message.topic)
        matches, groups = route
        outgoing: OutgoingMessage | None = None
        checked = self._authorizer.checks_delivery
        publisher = message.client_id
        for match in matches:
            session = match.session
            options: DeliveryOptions | None = match.own if session.client_id == publisher else match.options
            if options is not None:
                if outgoing is None:
                    outgoing = OutgoingMessage(message, after)
                if checked:
                    self._deliver(session, outgoing, options)
                else:
                    session.deliver(outgoing, options)
        for group in groups:
            if outgoing is None:
                outgoing = OutgoingMessage(message, after)
            self._deliver_shared(group, group.choose(), outgoing)
        return COMMITTED if outgoing is None else outgoing.ticket, bool(matches or groups)

    def online(self, topic: str) -> Iterator[tuple[Session, DeliveryOptions]]:
        """Yield the Sessions a message on this topic is for, without those that are away."""
        matches, groups = self._routes.get(topic) or self._find(topic)
        for match in matches:
            if match.session.link is not None:
                yield match.session, match.options
        for group in groups:
            chosen = group.choose(online=True)
            if chosen is not None:
                options = _merge([chosen[1]])
                assert options is not None
                yield chosen[0], options

    @property
    def shared_count(self) -> int:
        """How many shared subscriptions there are."""
        return sum(map(len, self._groups.values()))

    def give_up_shared(self, session: Session, ended: bool) -> None:
        """Let other members of its groups have what a Session that is left, or ended, has not got yet.

        A Session that goes on keeps what no other member can take now.
        """
        for group in self._groups_of(session):
            if group.choose(session, online=not ended) is not None:
                for outgoing in session.give_up_shared(group.shared_filter):
                    self._deliver_shared(group, group.choose(session, online=not ended), outgoing)

    def _groups_of(self, session: Session) -> list[SharedGroup]:
        found = []
        for topic_filter in session.subscriptions:
            name, inner = split_shared(topic_filter)
            if name is not None:
                found.append(self._groups[name, inner])
        return found

    def _deliver_shared(
        self, group: SharedGroup, chosen: tuple[Session, Subscription] | None, outgoing: OutgoingMessage
    ) -> None:
        if chosen is not None:
            session, subscription = chosen
            merged = _merge([subscription])
            assert merged is not None
            self._deliver(session, outgoing, merged, group.shared_filter)

    def _check_queues(self, message: ApplicationMessage) -> None:
        """Refuse a message that a full queue with the policy "reject" stands in the way of."""
        matches, _ = self._routes.get(message.topic) or self._find(message.topic)
        for match in matches:
            session = match.session
            if match.options.qos and session.limits.mqueue_full is WhenFull.REJECT and session.is_full():
                raise QueueFull(f"the queue of a subscriber of {message.topic!r} is full")

    def _deliver(
        self, session: Session, outgoing: OutgoingMessage, options: DeliveryOptions, shared_filter: str | None = None
    ) -> None:
        if not self._authorizer.checks_delivery:
            session.deliver(outgoing, options, shared_filter)
            return
        answer = self._authorizer.may_receive(session.principal, outgoing.message)
        if session.authorizations.add(answer, lambda: session.deliver(outgoing, options, shared_filter)) is False:
            self._counters.messages_dropped_not_authorized += 1

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._alike.clear()

    def _find(self, topic: str) -> _Route:
        """Find the topic's route, and remember it if it leads anywhere."""
        plain = self._tree.match(topic)
        shared = self._shared_tree.match(topic) if self._groups else []
        if not (plain or shared):
            return _NOWHERE
        # Sessions, groups and subscriptions live at least as long as the routes are remembered.
        key = tuple(map(id, chain(chain.from_iterable(plain), chain.from_iterable(shared))))
        route = self._alike.get(key)
        if route is None:
            route = self._alike[key] = self._merged(plain, shared)
        if len(topic) <= _LONGEST_REMEMBERED:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            self._routes[topic] = route
        return route

    def _merged(
        self, plain: list[tuple[Session, Subscription]], shared: list[tuple[SharedGroup, Subscription]]
    ) -> _Route:
        by_session: dict[Session, list[Subscription]] = {}
        for session, subscription in plain:
            by_session.setdefault(session, []).append(subscription)
        matches = []
        for session, subscriptions in by_session.items():
            options = _merge(subscriptions)
            assert options is not None
            foreign = [subscription for subscription in subscriptions if not subscription.no_local]
            own = options if len(foreign) == len(subscriptions) else _merge(foreign)
            matches.append(_Match(session, options, own))
        return tuple(matches), tuple(group for group, _ in shared)
